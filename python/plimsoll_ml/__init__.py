"""Plimsoll from Python: language models are fine-tuned inside a memory budget by the program beside this file. There is no Python in a run."""
from __future__ import annotations

import os
import sys

from . import hf
from ._export import Export
from ._machine import Devices, Diagnosis, devices, doctor, models
from ._plan import Fit, Plan, Sweep, compare, dump, fit, plan, sweep
from ._process import binary
from ._rows import Rows
from ._run import Lines, Run, train
from .errors import DamagedData, DoesNotFit, InputError, InternalError, Interrupted, Killed, PlimsollError, RunStopped

__all__ = ["DamagedData", "Devices", "Diagnosis", "DoesNotFit", "Export", "Fit", "InputError", "InternalError", "Interrupted", "Killed", "Lines", "Plan",
           "PlimsollError", "Rows", "Run", "RunStopped", "Sweep", "binary", "compare", "devices", "doctor", "dump", "fit", "hf", "models", "plan",
           "sweep", "train"]


def main() -> None:
    """Becomes the program: the commands `plimsoll` and `plimsoll-ml`."""
    os.execv(binary(), ["plimsoll", *sys.argv[1:]])
