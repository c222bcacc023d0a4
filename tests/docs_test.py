#!/usr/bin/env python3
"""Runs the commands that README.md and docs/ show: python3 tests/docs_test.py PLIMSOLL

A fenced block with the info string `sh test` is run. Its commands are the lines that start with `plimsoll` or
`$ plimsoll`; in a block with `$` the other lines are output, which depends on the machine and is not compared.
A command must end with exit code 0, or with the code that a comment behind it states: `# exit 3`.

Commands run in order from a folder that shows the repository's files through links, so that what they write to
runs/ is gone afterwards.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXIT = re.compile(r"#\s*exit (\d+)\s*$")
SECONDS = 120  # of one command: none of them trains for more than a few steps


@dataclass(frozen=True)
class Command:
    where: str  # "docs/plan.md:12"
    arguments: list
    exit_code: int


def blocks(text):
    """(number of the first line, lines) of every `sh test` block."""
    lines = text.splitlines()
    start = None
    for number, line in enumerate(lines, 1):
        if start is None and line.strip() == "```sh test":
            start = number
        elif start is not None and line.strip() == "```":
            yield start + 1, lines[start:number - 1]
            start = None
    if start is not None:
        raise SystemExit(f"error: line {start}: a block is not closed")


def commands(name, text):
    for first, lines in blocks(text):
        prompted = any(line.startswith("$ ") for line in lines)
        for number, line in enumerate(lines, first):
            if prompted and not line.startswith("$ ") or not line.strip() or line.startswith("#"):
                continue
            line = line.removeprefix("$ ")
            if not line.startswith("plimsoll "):
                raise SystemExit(f"error: {name}:{number}: '{line}' is no plimsoll command")
            stated = EXIT.search(line)
            yield Command(f"{name}:{number}", shlex.split(line, comments=True), int(stated[1]) if stated else 0)


def problem(command, folder, environment):
    """What went wrong, or None."""
    done = subprocess.run(command.arguments, cwd=folder, env=environment, capture_output=True, text=True,
                          timeout=SECONDS)
    if done.returncode == command.exit_code:
        return None
    return (f"{command.where}: `{shlex.join(command.arguments)}` ended with exit code {done.returncode}, "
            f"expected {command.exit_code}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def link_repository(folder):
    for entry in ROOT.iterdir():
        if entry.name != "runs":
            (folder / entry.name).symlink_to(entry)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: docs_test.py PLIMSOLL")
    binary = pathlib.Path(sys.argv[1]).resolve()
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [c for page in pages for c in commands(str(page.relative_to(ROOT)), page.read_text())]
    if not found:
        sys.exit("error: no `sh test` block in README.md or docs/: nothing was tested")
    environment = {name: value for name, value in os.environ.items() if name != "PLIMSOLL_SET"}
    environment["PATH"] = f"{binary.parent}{os.pathsep}{environment['PATH']}"
    environment["OMP_WAIT_POLICY"] = "passive"  # other tests run beside this one
    cache = tempfile.TemporaryDirectory()  # no rates of this machine, and none left on it
    environment["PLIMSOLL_CACHE_DIR"] = cache.name
    with tempfile.TemporaryDirectory() as folder:
        link_repository(pathlib.Path(folder))
        problems = [p for p in (problem(c, folder, environment) for c in found) if p]
    for text in problems:
        print(f"error: {text}", file=sys.stderr)
    print(f"{len(found)} commands run, {len(problems)} failed")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
