#!/usr/bin/env python3
"""The line budgets: every folder of src/ stays under its own, without tests, and a function fits on a screen (60 lines).

No folder has more than FILES files of its own, tests counted, or LINES lines, tests not: what is in the folders within it does not count.
Budgets leave a folder about a seventh of room; one that is needed is raised here, in the change that needs it. Files have no
limit: what belongs together stays together. A longer function has a reason in scripts/size_reasons.txt, one
`path function: reason` a line; a reason that is no longer needed is an error too, so the list stays as short as it can be.

Functions are found by the shape that clang-format gives them: a head that begins at most two columns in and ends in
`{`, to the `}` below it. Tables and types are none.
"""
import ast
import collections
import pathlib
import re
import sys

# Thousands of lines, by folder of src/.
BUDGETS = {"base": 2.75, "files": 3.1, "tensor": 0.3, "ranks": 2.2, "device": 0.95, "fleet": 19.25, "cpu": 2.1, "gpu": 4.1,
           "graph": 0.9, "ops": 26.9, "models": 4.5, "tasks": 1.1, "autodiff": 0.3, "passes": 4.1, "layout": 2.8,
           "plan": 10.4, "runtime": 2.7, "calibrate": 1.45, "formats": 2.5, "unicode": 1.1, "tokenizer": 6.6,
           "jinja": 5.2, "chat": 1.4, "recipe": 15.4, "hub": 1.2, "data": 10.9, "weights": 3.3, "runs": 2.4,
           "prepare": 7.3, "train": 4.3, "infer": 2.8, "tools": 3.0, "report": 2.2, "advise": 1.5, "cli": 12.1}
FUNCTION_LIMIT = 60
FILES, LINES = 60, 6000  # of a folder's own
REASONS = "scripts/size_reasons.txt"
NO_FUNCTION = re.compile(r"(namespace|class|struct|enum|union|extern|if|for|while|switch|else|do|try|case|using|typedef)\b")


def is_test(name):
    return name.endswith("_test.cc") or pathlib.PurePath(name).name.startswith("test_")  # and what tests share


def folder_of(name):
    """The folder whose budget counts a file."""
    return pathlib.PurePath(name).parts[1]


def full_folders(root, files):
    """Folders with more of their own than a reader keeps apart."""
    counts, lengths = collections.Counter(), collections.Counter()
    for path in (root / "src").rglob("*"):
        if path.suffix in (".cc", ".h", ".cu", ".def", ".inc"):
            counts[str(path.parent.relative_to(root))] += 1
    for name, lines in files.items():
        lengths[str(pathlib.PurePath(name).parent)] += len(lines)
    yield from (f"{folder}: {count} files, above {FILES}: cut it" for folder, count in sorted(counts.items()) if count > FILES)
    yield from (f"{folder}: {size:,} lines without tests, above {LINES:,}: cut it" for folder, size in sorted(lengths.items()) if size > LINES)


def sources(root):
    """{path relative to root: lines} of the C++ of src/, without tests."""
    files = (p for p in sorted((root / "src").rglob("*")) if p.suffix in (".cc", ".h", ".cu"))
    return {name: path.read_text().splitlines() for path in files if not is_test(name := str(path.relative_to(root)))}


def cc_functions(lines):
    """(name, lines) of each function."""
    at = 0
    while at < len(lines):
        if lines[at].endswith("{"):
            begin = at
            while begin > 0 and lines[begin - 1].strip() and not re.search(r"[;:{}]$|^\s*(//|#)", lines[begin - 1]):
                begin -= 1
            indent = len(lines[begin]) - len(lines[begin].lstrip())
            head = " ".join(part.strip() for part in lines[begin:at + 1])
            name = re.search(r"([\w:~]+|operator\S+)\(", head)
            if indent <= 2 and name and not NO_FUNCTION.match(head) and "=" not in head[:name.start()]:
                end = next((i for i in range(at + 1, len(lines)) if lines[i].startswith(" " * indent + "}")), len(lines) - 1)
                yield name[1], end - begin + 1
                at = end
        at += 1


def python_functions(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            yield node.name, node.end_lineno - node.lineno + 1


def long_functions(root, files):
    """{"path function": lines} of those above the limit."""
    found = [(path, *one) for path, lines in files.items() for one in cc_functions(lines)]
    for folder in ("tests", "scripts", "demo", "bench"):
        for path in sorted((root / folder).rglob("*.py")):
            found += [(path.relative_to(root), *one) for one in python_functions(path)]
    return {f"{path} {name}": count for path, name, count in found if count > FUNCTION_LIMIT}


def read_reasons(path):
    """{"path function": reason} from the list; blank lines and # comments are skipped."""
    reasons = {}
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        if line.strip() and not line.startswith("#"):
            name, _, reason = line.partition(": ")
            if not reason.strip():
                raise SystemExit(f"error: {path}:{number}: expected 'path function: reason'")
            reasons[name.strip()] = reason.strip()
    return reasons


def problems(root):
    files = sources(root)
    sizes = {}
    for name, lines in files.items():
        folder = folder_of(name)
        sizes[folder] = sizes.get(folder, 0) + len(lines)
    for folder, size in sizes.items():
        if folder not in BUDGETS:
            yield f"src/{folder}: has no line budget in scripts/check_size.py"
        elif size > 1000 * BUDGETS[folder]:
            yield f"src/{folder}: {size:,} lines without tests, above its budget of {1000 * BUDGETS[folder]:,.0f}"
    yield from full_folders(root, files)
    reasons, long = read_reasons(root / REASONS), long_functions(root, files)
    for name, count in long.items():
        if name not in reasons:
            yield f"{name}: {count} lines, above {FUNCTION_LIMIT}: split it, or give its reason in {REASONS}"
    for name in reasons:
        if name not in long:
            yield f"{REASONS}: {name} needs no reason any more: remove the line"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = list(problems(root))
    for problem in found:
        print(f"error: {problem}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
