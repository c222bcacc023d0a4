#!/usr/bin/env python3
"""The output that docs/cases show of plans, written anew: what tests/docs_test.py compares there.

    scripts/case_figures.py PLIMSOLL [PAGE...]

Runs the commands of each block `sh test output` in docs/cases (or of the pages named) and replaces the lines that they show, each by the
next one that is about the same, with what goes on below it. A line that has none is told, for a person to look at; exit code 1 then.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPENING = "```sh test output"
FIGURE = re.compile(r"\d[\d,.:]*(?: ?[KMG]iB| ?%)?|[█▏▎▍▌▋▊▉]+")
EXIT = re.compile(r"\s*#\s*exit \d+\s*$")


def label(line):
    """What a line is about: the words before its figures, or before the gap of a table."""
    return FIGURE.sub("#", re.split(r"(?<=\S)  ", line)[0].strip())


def continues(line):
    """A line that a text before it goes on in."""
    return line.startswith(" " * 7)


def printed(program, command, environment):
    words = shlex.split(EXIT.sub("", command.removeprefix("$ ")))
    done = subprocess.run([program, *words[1:]], cwd=ROOT, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600)
    return (done.stdout + done.stderr).splitlines()


def shown(lines, output):
    """What a page shows of an output, as it is now: pairs of a line of the page and those that stand for it; None: nothing does."""
    at, begins = 0, True
    for line in lines:
        if line == "..." or not line:
            yield line, [line]
            begins = line == "..."
            continue
        if continues(line) and not begins:
            continue
        begins = False
        found = next((i for i in range(at, len(output)) if label(output[i]) == label(line)), None)
        if found is None:
            yield line, None
            continue
        at = found + 1
        while at < len(output) and continues(output[at]):
            at += 1
        yield line, output[found:at]


def rewritten(page, program, environment, problems):
    out, lines, number = [], page.read_text().splitlines(), 0
    while number < len(lines):
        out.append(lines[number])
        number += 1
        if out[-1] != OPENING:
            continue
        while lines[number] != "```":
            command, number = lines[number], number + 1
            out.append(command)
            end = number
            while lines[end] != "```" and not lines[end].startswith("$ "):
                end += 1
            output = printed(program, command, environment) if end > number else []
            for before, now in shown(lines[number:end], output):
                if now is None:
                    problems.append(f"{page.name}: {command}\n  no longer prints a line like\n  {before}\n  but\n  " + "\n  ".join(output[:60]))
                out += [before] if now is None else now
            number = end
    return "\n".join(out) + "\n"


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: case_figures.py PLIMSOLL [PAGE...]")
    pages = [pathlib.Path(page) for page in sys.argv[2:]] or sorted((ROOT / "docs/cases").glob("*.md"))
    problems = []
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PLIMSOLL_NO_PROBE": "1", "PLIMSOLL_CACHE_DIR": cache, "COLUMNS": "100", "CUDA_VISIBLE_DEVICES": ""}
        for page in pages:
            page.write_text(rewritten(page, str(pathlib.Path(sys.argv[1]).resolve()), environment, problems))
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
