"""Comparisons with PyTorch side by side: `make parity`.

    python -m tests.parity --jobs 2 run adapters ops

Importing PyTorch, transformers and PEFT takes as long as some comparisons: it is done once, and each comparison is a fork of that process.
What one prints is shown when it has ended.
"""
import argparse
import importlib
import os
import pathlib
import runpy
import sys
import tempfile
import time
import traceback
import unittest
import warnings

from tests.parity import compare_test

FOLDER = pathlib.Path(__file__).parent
PLIMSOLL = ("--plimsoll", "build/plimsoll")
# Those that take longest first. Each with its arguments: modules of this folder, or scripts. Another module of this folder that runs by
# itself and takes the program is a comparison too.
COMPARISONS = {
    "run": ("run", *PLIMSOLL), "package": ("package", *PLIMSOLL),
    "tokenizers": ("scripts/parity_tokenizer.py", "tests/golden/tokenizers/qwen2.json", "tests/golden/tokenizers/llama3.json"),
    "gguf": ("gguf_files", *PLIMSOLL), "scores": ("scores", *PLIMSOLL), "adapters": ("adapters", *PLIMSOLL), "fp16": ("fp16", *PLIMSOLL),
    "freeze": ("freeze", *PLIMSOLL), "seq2seq": ("seq2seq", *PLIMSOLL), "folders": ("folders", *PLIMSOLL), "dpo": ("dpo", *PLIMSOLL),
    "gla": ("gla", *PLIMSOLL), "events": ("events", *PLIMSOLL), "bleu": ("scripts/parity_bleu.py", "build/tests/parity/plimsoll_bleu_tool"),
    "templates": ("templates", "--tool", "build/tests/parity/plimsoll_template_tool"),
    "vocabularies": ("vocabularies", "--tool", "build/tests/parity/plimsoll_tokenize_tool"),
    "optimizers": ("optimizers", "--tool", "build/src/ops/plimsoll_optimizer_tool"), "ops": ("ops", "--tool", "build/src/ops/plimsoll_op_tool")}


def command_of(name):
    return COMPARISONS.get(name, (name, *PLIMSOLL))


def is_comparison(name):
    """Whether this module of the folder compares; others, such as cases and oracle, would do nothing and end well."""
    file = FOLDER / f"{name}.py"
    text = file.read_text() if file.exists() else ""
    return not name.startswith("_") and '__name__ == "__main__"' in text and ('"--plimsoll"' in text or "run_all(" in text)


def compare(name):
    """The exit code of a comparison; in a process of its own."""
    what, *words = command_of(name)
    sys.argv = [what, *words]
    try:
        if name == "run" and not unittest.TextTestRunner(verbosity=0).run(unittest.defaultTestLoader.loadTestsFromModule(compare_test)).wasSuccessful():
            return 1
        if what.endswith(".py"):
            runpy.run_path(what, run_name="__main__")
        else:
            runpy.run_module(f"tests.parity.{what}", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, (int, type(None))):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def start(name, file):
    """The number of the process that compares, and writes to the file."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    for stream in (1, 2):
        os.dup2(file.fileno(), stream)
    code = compare(name)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(COMPARISONS)}; none: all")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    others = list(dict.fromkeys(name for name in options.names if name not in COMPARISONS))
    if unknown := [name for name in others if not is_comparison(name)]:
        parser.error(f"{min(unknown)} is no comparison; there are {', '.join(COMPARISONS)}")
    waiting = [name for name in COMPARISONS if not options.names or name in options.names] + others
    warnings.filterwarnings("ignore")
    for name in waiting:
        if not command_of(name)[0].endswith(".py"):
            importlib.import_module(f"tests.parity.{command_of(name)[0]}")
    running, failed = {}, []
    while waiting or running:
        while waiting and len(running) < max(1, options.jobs):
            name, file = waiting.pop(0), tempfile.TemporaryFile()
            running[start(name, file)] = (name, file, time.monotonic())
        process, status, used = os.wait4(-1, 0)
        name, file, began = running.pop(process)
        file.seek(0)
        print(f"-- {name}: {time.monotonic() - began:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processors\n{file.read().decode(errors='replace')}",
              end="", flush=True)
        file.close()
        failed += [name] if os.waitstatus_to_exitcode(status) else []
    sys.exit(f"error: {', '.join(failed)} failed" if failed else 0)


if __name__ == "__main__":
    main()
