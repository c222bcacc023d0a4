#!/usr/bin/env python3
"""Runs the commands that README.md and docs/ show: python3 tests/docs_test.py PLIMSOLL [PAGE...]

A fenced block with the info string `sh test` is run. Its commands are the lines that start with `plimsoll` or
`$ plimsoll`; in a block with `$` the other lines are output, which depends on the machine and is not compared
unless the info string is `sh test output`: then each line but `...` must be part of what the command prints, on a
screen of 100 columns. scripts/case_figures.py writes such lines of docs/cases anew.
A command must end with exit code 0, or with the code that a comment behind it states: `# exit 3`.
In `sh test short` training ends after a few steps; everything else is as a reader types it.

Messages in the first column of a table headed `Message` must be texts of the program: src/ is searched for them.

A landing runs a third of the pages (tests/shard.py): no page needs what another one made.

Commands run in order from a folder that shows the repository's files through links, so that what they write to
runs/ is gone afterwards.
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass

from shard import is_mine

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXIT = re.compile(r"#\s*exit (\d+)\s*$")
SECONDS = 600  # of one command, however busy the machine is
OPENING = re.compile(r"```sh test( short| output)?$")
SHORT = "schedule.max_steps=12"
# Five situations, each from its first command to its last table. A page that is gone, or whose blocks are not tested any more,
# would be noticed by no command.
CASES = {"1-gla-glue.md": 11, "2-t5-chat.md": 17, "3-qwen-cards.md": 11, "4-micro-batch.md": 12, "5-mistral-7b.md": 16}


@dataclass(frozen=True)
class Command:
    where: str  # "docs/howto/fit-into-memory.md:12"
    arguments: list
    exit_code: int
    kind: str  # "", "short" or "output"
    output: list  # lines that it must print


def blocks(text):
    """(number of the first line, kind, lines) of every `sh test` block."""
    lines = text.splitlines()
    start = None
    kind = ""
    for number, line in enumerate(lines, 1):
        opening = OPENING.match(line.strip())
        if start is None and opening:
            start, kind = number, (opening[1] or "").strip()
        elif start is not None and line.strip() == "```":
            yield start + 1, kind, lines[start:number - 1]
            start = None
    if start is not None:
        raise SystemExit(f"error: line {start}: a block is not closed")


def commands(name, text):
    found = []
    for first, kind, lines in blocks(text):
        prompted = any(line.startswith("$ ") for line in lines)
        for number, line in enumerate(lines, first):
            if not line.strip() or line.startswith("#"):
                continue
            if prompted and not line.startswith("$ "):
                found[-1].output.append(line)
                continue
            line = line.removeprefix("$ ")
            if not line.startswith("plimsoll "):
                raise SystemExit(f"error: {name}:{number}: '{line}' is no plimsoll command")
            stated = EXIT.search(line)
            found.append(Command(f"{name}:{number}", shlex.split(line, comments=True), int(stated[1]) if stated else 0,
                                 kind, []))
    return found


def problem(command, folder, environment):
    """What went wrong, or None."""
    if command.kind == "short":
        environment = {**environment, "PLIMSOLL_SET": SHORT}
    done = subprocess.run(command.arguments, cwd=folder, env=environment, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=SECONDS)
    printed = done.stdout + done.stderr
    shown = f"{command.where}: `{shlex.join(command.arguments)}`"
    if done.returncode != command.exit_code:
        return f"{shown} ended with exit code {done.returncode}, expected {command.exit_code}\n{printed[-3000:]}"
    absent = [line for line in command.output if line not in printed and line != "..."] if command.kind == "output" else []
    return f"{shown} did not print {absent}, but\n{printed[-3000:]}" if absent else None


def messages(name, text):
    """(place, part) of every part between backticks of a message that a table quotes."""
    in_table = False
    for number, line in enumerate(text.splitlines(), 1):
        in_table = line.startswith("|") and (in_table or line.startswith("| Message |"))
        if in_table:
            yield from ((f"{name}:{number}", part) for part in re.findall("`([^`]+)`", line.split("|")[1]))


def missing_from_cases(found):
    """What the pages of docs/cases lack: commands that CASES counts, or a plan, a run or a table among them."""
    for page, least in CASES.items():
        mine = [" ".join(c.arguments[1:3]) for c in found if c.where.startswith(f"docs/cases/{page}:")]
        if len(mine) < least:
            yield f"docs/cases/{page}: {len(mine)} commands are tested; it had {least} (CASES in tests/docs_test.py)"
        for words in (("plan",), ("train", "queue run"), ("report",)):
            if not any(command.startswith(words) for command in mine):
                yield f"docs/cases/{page}: has no command of {' or '.join(words)}: the situation is not lived through"


def source_texts():
    """All of src/ in one string, with literals that the compiler joins joined."""
    sources = (path.read_text() for path in sorted((ROOT / "src").rglob("*.cc")) if not path.stem.endswith("_test"))
    return re.sub(r'"\s*"', "", "\n".join(sources))


def link_repository(folder):
    """As a reader has it who has just cloned: without what `make demo` left."""
    for entry in ROOT.iterdir():
        if entry.name == "demo":
            shutil.copytree(entry, folder / "demo", ignore=shutil.ignore_patterns("work"))
        elif entry.name != "runs":
            (folder / entry.name).symlink_to(entry)


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: docs_test.py PLIMSOLL [PAGE...]")
    binary = pathlib.Path(sys.argv[1]).resolve()
    pages = [ROOT / page for page in sys.argv[2:]] or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    of_pages = [commands(str(page.relative_to(ROOT)), page.read_text()) for page in pages]
    lacking = [] if sys.argv[2:] else list(missing_from_cases([c for of_page in of_pages for c in of_page]))
    with_commands = [of_page for of_page in of_pages if of_page]
    found = [c for number, of_page in enumerate(with_commands) if is_mine("commands_in_docs_work", number, of_page[0].where.partition(":")[0]) for c in of_page]
    if lacking:
        sys.exit("error: " + "\nerror: ".join(lacking))
    if not found:
        sys.exit("error: no `sh test` block in README.md or docs/: nothing was tested")
    environment = {name: value for name, value in os.environ.items() if name != "PLIMSOLL_SET"}
    environment["PATH"] = f"{binary.parent}{os.pathsep}{environment['PATH']}"
    environment["OMP_WAIT_POLICY"] = "passive"  # other tests run beside this one
    environment["PLIMSOLL_NO_PROBE"] = "1"
    environment["COLUMNS"] = "100"
    environment.setdefault("CUDA_VISIBLE_DEVICES", "")  # device: auto is the CPU, also where a card is
    cache = tempfile.TemporaryDirectory()  # no rates of this machine, and none left on it
    environment["PLIMSOLL_CACHE_DIR"] = cache.name
    with tempfile.TemporaryDirectory() as folder:
        link_repository(pathlib.Path(folder))
        environment["PLIMSOLL_QUEUE_DIR"] = f"{folder}/queue"  # the reader's own stays as it is
        environment["PLIMSOLL_MACHINE_DIR"] = f"{folder}/machine"
        problems = [p for p in (problem(c, folder, environment) for c in found) if p]
    quoted = [m for page in pages for m in messages(str(page.relative_to(ROOT)), page.read_text())]
    texts = source_texts()
    problems += [f"{where}: no message of the program has '{part}'" for where, part in quoted if part not in texts]
    for text in problems:
        print(f"error: {text}", file=sys.stderr)
    print(f"{len(found)} commands run, {len(quoted)} messages looked up, {len(problems)} failed")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
