#!/usr/bin/env python3
"""No page, help or message says that cards do not train: they do (device: cuda, docs/explanation/cuda.md).

Looks through README.md, CHANGELOG.md, docs/ and src/ (comments and strings). Line ends, and quotation marks between the
pieces of a string, do not hide a sentence.
"""
import pathlib
import re
import sys

FALSE = [re.compile(text, re.I) for text in (
    r"no backend (for|that trains|trains)",
    r"never tried on (one|a card|a gpu)",
    r"(trainings?|runs?) computes? on (the )?cpus?\b(?! and| or|,)",
    r"this build computes on the cpu",
    r"program for the cpu[;.]",
    r"one process, one cpu",
    r"is a (card|device) to plan for",
    r"`?train`? refuses (a|every|any) (card|gpu)",
    r"(trains?|computes?) on (the )?cpus? (alone|only)",
    r"(cannot|does not|can not) (train|compute) on (a |an |any )?(cards?|gpus?)\b",
    r"a recipe trains on the cpu",
    r"the queue trains on the cpu",
    r"recipes (in the queue |of it )?(train|run) on the cpu",
)]
GAP = re.compile(r'\s*"?\s*\n\s*(?://|")?\s*|\s+')


def plain(text):
    """The text with one blank for each gap, and for each of its letters the place in `text`."""
    letters, places, at = [], [], 0
    for gap in GAP.finditer(text):
        letters.append(text[at:gap.start()] + " ")
        places.extend(range(at, gap.start() + 1))
        at = gap.end()
    return "".join(letters) + text[at:], [*places, *range(at, len(text))]


def problems(root):
    files = [root / "README.md", root / "CHANGELOG.md", *sorted((root / "docs").rglob("*.md"))]
    files += [path for path in sorted((root / "src").rglob("*")) if path.suffix in (".cc", ".h", ".def", ".cu")]
    found = []
    for path in files:
        if not path.exists():
            continue
        text = path.read_text(errors="replace")
        joined, places = plain(text)
        for false in FALSE:
            for match in false.finditer(joined):
                line = text.count("\n", 0, places[match.start()]) + 1
                found.append(f"{path.relative_to(root)}:{line}: '{match.group()}' denies that cards train")
    return found


if __name__ == "__main__":
    found = problems(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    if found:
        sys.exit("\n".join(f"error: {problem}" for problem in found))
