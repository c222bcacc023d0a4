"""Slices of tests that are cut into three: samples (load lines, faults) and grids (families by methods). A landing runs one of each.

PLIMSOLL_SHARDS names slices: "load_line/0 run/1 run/gemma" is a third of the load lines and, of parity's run, a third and what Gemma has
besides. A test that it does not name runs whole, and where it is not set all do. A slice that does not exist ends the test: it would run nothing.
"""
import os
import re

SHARDS = 3


def is_mine(test, index, family=None):
    """Whether the sample or cell with this index is in a slice that runs; `family`: as a landing that touched it names it, None: the test has none."""
    asked = {word.partition("/")[2] for word in os.environ.get("PLIMSOLL_SHARDS", "").split() if word.startswith(f"{test}/")}
    for part in asked:
        if part not in map(str, range(SHARDS)) and (family is None or not re.fullmatch("[A-Za-z][^,]*", part)):
            raise SystemExit(f"error: PLIMSOLL_SHARDS: {test}/{part} is no slice: there are {test}/0 to {test}/{SHARDS - 1}")
    return not asked or str(index % SHARDS) in asked or family in asked
