"""Slices of tests that are cut into three: samples (load lines, faults) and grids (families by methods). A landing runs one of each.

PLIMSOLL_SHARDS names slices: "load_line/0 run/1 run/gemma" is a third of the load lines and, of parity's run, a third and what Gemma has
besides. A test that it does not name runs whole, and where it is not set all do.
"""
import os

SHARDS = 3


def is_mine(test, index, family=""):
    """Whether the sample or cell with this index is in a slice that runs; `family`: as a landing that touched it names it."""
    asked = {word.partition("/")[2] for word in os.environ.get("PLIMSOLL_SHARDS", "").split() if word.startswith(f"{test}/")}
    return not asked or str(index % SHARDS) in asked or family in asked
