"""The command line of a script of parity: named runs, each in a folder of its own."""
import argparse
import pathlib
import sys
import tempfile
import warnings

import torch
from transformers.utils.logging import disable_progress_bar

from tests.shard import is_mine


def run_all(description, runs, run, grid=""):
    """Ends the process. `grid`: its name among the slices (tests/shard.py); none: it is not cut. `runs`: tuples of words that name a run; run(program, folder, *words) gives (messages, summary)."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--plimsoll", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--keep", type=pathlib.Path, help="write the folders here and keep them")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    disable_progress_bar()
    torch.set_num_threads(1)  # more of them only wait for each other over matrices of this size
    ran = failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for index, words in enumerate(runs):
            if arguments.only not in " ".join(words) or not (arguments.only or is_mine(grid, index)):
                continue
            folder = (arguments.keep or pathlib.Path(scratch)) / "_".join(words)
            try:
                messages, summary = run(arguments.plimsoll.resolve(), folder, *words)
            except (RuntimeError, OSError, KeyError, ValueError) as error:
                messages, summary = [str(error)], "no result"
            print(f"{'FAIL' if messages else 'ok':4} {' '.join(words):32} {summary}", flush=True)
            for message in messages[:5]:
                print(f"       {message}")
            ran, failed = ran + 1, failed + bool(messages)
    print(f"{ran - failed} passed, {failed} failed")
    sys.exit(1 if failed or ran == 0 else 0)
