"""The command line of a script of parity: named runs, each in a folder of its own."""
import argparse
import pathlib
import sys
import tempfile
import warnings

from transformers.utils.logging import disable_progress_bar


def run_all(description, runs, run):
    """Ends the process. `runs`: tuples of words that name a run; run(program, folder, *words) gives (messages, summary)."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--plimsoll", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--keep", type=pathlib.Path, help="write the folders here and keep them")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    disable_progress_bar()
    ran = failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for words in runs:
            if arguments.only not in " ".join(words):
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
