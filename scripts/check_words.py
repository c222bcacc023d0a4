#!/usr/bin/env python3
"""Words that only this project used, and the field's words in their place (docs/glossary.md): they may only become fewer.

    check_words.py [ROOT]          exit 1 where messages, docs or comments have more of one than scripts/house_words.txt allows
    check_words.py --write [ROOT]  write the numbers anew (they may only sink; a reviewer sees the difference)
    check_words.py --show WORD     where it stands

A line of scripts/house_words.txt: a regular expression | what to write instead | uses in messages | in docs | in comments.
"""
import pathlib
import re
import sys

import messages

ALLOWED = "scripts/house_words.txt"
KINDS = ("messages", "docs", "comments")


def texts(root):
    """For each kind (place, line) of all its lines."""
    found = {kind: [] for kind in KINDS}
    for path in messages.files_of(root):
        source, name = path.read_text(), path.relative_to(root)
        found["messages"] += [(name, line) for line in messages.messages_of(source)]
        found["comments"] += [(name, line.strip()) for line in source.splitlines() if line.lstrip().startswith("//")]
    for path in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        if path.exists() and path.name != "glossary.md":
            found["docs"] += [(path.relative_to(root), line) for line in path.read_text().splitlines()]
    return found


def read(root):
    rows = [line.split(" | ") for line in (root / ALLOWED).read_text().splitlines() if line and not line.startswith("#")]
    return [(word, instead, [int(count) for count in counts]) for word, instead, *counts in rows]


def uses(word, lines):
    pattern = re.compile(rf"\b(?:{word})\b", re.I)
    return [(place, line) for place, line in lines for _ in pattern.findall(line)]


def problems(root):
    found, now = [], texts(root)
    for word, instead, allowed in read(root):
        for kind, most in zip(KINDS, allowed):
            places = uses(word, now[kind])
            if len(places) > most:
                found.append(f"{kind} say '{word}' {len(places)} times, {most} are left of earlier texts; write {instead}, "
                             f"or see scripts/check_words.py --show '{word}'")
            elif len(places) < most:
                found.append(f"{kind} say '{word}' {len(places)} times where {ALLOWED} still allows {most}: scripts/check_words.py --write")
    return found


def write(root):
    now = texts(root)
    head = [line for line in (root / ALLOWED).read_text().splitlines() if line.startswith("#")]
    rows = [" | ".join([word, instead, *(str(len(uses(word, now[kind]))) for kind in KINDS)]) for word, instead, _ in read(root)]
    (root / ALLOWED).write_text("\n".join(head + rows) + "\n")


def main(arguments):
    here = pathlib.Path(__file__).resolve().parent.parent
    if arguments[:1] == ["--show"]:
        for kind, lines in texts(here).items():
            for place, line in uses(arguments[1], lines):
                print(f"{kind:8}  {place}: {line}")
        return
    if arguments[:1] == ["--write"]:
        write(pathlib.Path(arguments[1]) if len(arguments) > 1 else here)
        return
    found = problems(pathlib.Path(arguments[0]) if arguments else here)
    if found:
        sys.exit("\n".join(f"error: {problem}" for problem in found))


if __name__ == "__main__":
    main(sys.argv[1:])
