#!/usr/bin/env python3
"""What the program prints goes through src/base/print.h, which keeps texts of others from steering a terminal.

Only report/ and cli/ print; what lies below returns what there is to say, or tells it to an observer
(runs/observer.h). Other writes to standard output and error are allowed where they print nothing foreign: control
sequences and numbers of our own, in the files named here.
"""
import pathlib
import re
import sys

OWN = {
    "base/print.cc": "the place itself",
    "report/progress.cc": "the line of numbers that is drawn over",
    "cli/machine/calibrate.cc": "a bar that is drawn over",
    "cli/model/fetch.cc": "bytes that are drawn over",
    "cli/plan/plan.cc": "counts that are drawn over",
    "cli/machine/doctor_input.cc": "a share that is drawn over",
    "cli/model/chat_terminal.cc": "the line that is edited, made of printable() parts",
}
WRITES = re.compile(r"\bstd::(printf|puts|putchar|cout|cerr|clog|perror)\b|\bv?f?printf\((stdout|stderr)"
                    r"|\bf(?:puts|putc|write|printf)\([^;]*\b(stdout|stderr)\b|\bdprintf\(")

PRINTERS = {"base", "report", "cli"}


def problems(root):
    found = []
    for path in sorted((root / "src").rglob("*")):
        folder = path.relative_to(root / "src").parts[0]
        if path.suffix in {".h", ".cc"} and folder not in PRINTERS and '"base/print.h"' in path.read_text():
            found.append(f"{path.relative_to(root)}:1: includes base/print.h, but only {' and '.join(sorted(PRINTERS))} print")
    for path in sorted((root / "src").rglob("*.cc")):
        name = str(path.relative_to(root / "src"))
        if name in OWN or name.endswith("_test.cc"):
            continue
        for match in WRITES.finditer(path.read_text()):
            line = path.read_text()[:match.start()].count("\n") + 1
            found.append(f"src/{name}:{line}: '{match.group(0).split('(')[0]}': print with base/print.h")
    return found


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    found = problems(root)
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
