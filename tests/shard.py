"""Slices of tests that are cut into three: samples (load lines, faults), grids (families by methods) and long suites. A landing runs one of each.

PLIMSOLL_SHARDS names slices: "load_line/0 run/1 run/gemma" is a third of the load lines and, of parity's run, a third and what Gemma has
besides. A test that it does not name runs whole, and where it is not set all do. A slice that does not exist ends the test: it would run nothing.
"""
import inspect
import os
import re
import unittest
import zlib

SHARDS = 3


def is_mine(test, index, family=None):
    """Whether the sample or cell with this index is in a slice that runs; `family`: as a landing that touched it names it, None: the test has none."""
    asked = {word.partition("/")[2] for word in os.environ.get("PLIMSOLL_SHARDS", "").split() if word.startswith(f"{test}/")}
    for part in asked:
        if part not in map(str, range(SHARDS)) and (family is None or not re.fullmatch("[A-Za-z][^,]*", part)):
            raise SystemExit(f"error: PLIMSOLL_SHARDS: {test}/{part} is no slice: there are {test}/0 to {test}/{SHARDS - 1}")
    return not asked or str(index % SHARDS) in asked or family in asked


class SuiteLoader(unittest.TestLoader):
    """Of a long suite those tests that are in a slice that runs: unittest.main(testLoader=SuiteLoader("dpo_test")).

    A test whose text has one of the words `cut_within`, which ask is_mine, is a grid that is cut already, and runs always: cells of one slice
    in tests of another would never run.
    """

    def __init__(self, suite, cut_within=()):
        super().__init__()
        self.suite, self.cut_within = suite, cut_within

    def getTestCaseNames(self, testCaseClass):
        return [name for name in super().getTestCaseNames(testCaseClass) if self.runs(testCaseClass, name)]

    def runs(self, test_case, name):
        # By its name: a new test moves no other into the slice of another landing.
        if is_mine(self.suite, zlib.crc32(f"{test_case.__name__}.{name}".encode())):
            return True
        text = inspect.getsource(getattr(test_case, name)) if self.cut_within else ""
        return any(word in text for word in self.cut_within)
