#!/usr/bin/env python3
"""The line budget: the core stays under 28,400 lines without its tests, and a file above 400 lines has a reason.

The core is src/ but for the folders that speak other people's formats and to people: recipe, text, io, template,
data, report, fleet/doctor, cli.

The reasons stand in scripts/size_reasons.txt, one `path: reason` a line. A reason that is no longer needed is an
error too, so the list stays as short as it can be.
"""
import pathlib
import sys

CORE_BUDGET = 29_000  # run folders, checksums, what is printed, limits of others' files; cards, other machines; GGUF, model cards; the search's space
FILE_LIMIT = 400
AROUND_THE_CORE = ("src/recipe/", "src/text/", "src/io/", "src/template/", "src/data/", "src/report/", "src/fleet/doctor/",
                   "src/cli/")
SUFFIXES = {".cc", ".h", ".py", ".sh"}
FOLDERS = ("src", "tests", "scripts", "demo", "bench")


def read_reasons(path):
    """{path: reason} from the list; blank lines and # comments are skipped."""
    reasons = {}
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        if line.strip() and not line.startswith("#"):
            name, _, reason = line.partition(":")
            if not reason.strip():
                raise SystemExit(f"error: {path}:{number}: expected 'path: reason'")
            reasons[name.strip()] = reason.strip()
    return reasons


def count_lines(root):
    """{path relative to root: lines} of every source file of ours."""
    files = (p for folder in FOLDERS for p in sorted((root / folder).rglob("*")) if p.suffix in SUFFIXES)
    return {str(p.relative_to(root)): len(p.read_bytes().splitlines()) for p in files}


def is_core(name):
    is_test = name.endswith("_test.cc") or pathlib.PurePath(name).name.startswith("test_")  # and what tests share
    return name.startswith("src/") and not name.startswith(AROUND_THE_CORE) and not is_test


def problems(root):
    lines = count_lines(root)
    reasons = read_reasons(root / "scripts" / "size_reasons.txt")
    for name, count in lines.items():
        if count > FILE_LIMIT and name not in reasons:
            yield f"{name}: {count} lines, above {FILE_LIMIT}: split it, or give its reason in scripts/size_reasons.txt"
    for name in reasons:
        if lines.get(name, 0) <= FILE_LIMIT:
            yield f"scripts/size_reasons.txt: {name} needs no reason any more: remove the line"
    core = sum(count for name, count in lines.items() if is_core(name))
    if core > CORE_BUDGET:
        yield f"src: the core has {core:,} lines without tests, above the budget of {CORE_BUDGET:,}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = list(problems(root))
    for problem in found:
        print(f"error: {problem}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
