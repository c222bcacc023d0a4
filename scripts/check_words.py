#!/usr/bin/env python3
"""Words that only this project used, and the field's words instead (docs/glossary.md): they may only become fewer.

    check_words.py [ROOT]          exit 1 where messages, docs, comments or identifiers have more of one than scripts/house_words.txt allows
    check_words.py --write [ROOT]  lower the numbers to what is left; they never rise
    check_words.py --show WORD     where it stands

A line of scripts/house_words.txt: a regular expression | what to write instead | uses in messages | in docs | in comments.
One that begins with ^ is looked for where comments begin; one that begins with = in the identifiers of C++ and CUDA, with one number. Comments are those of all C++ and CUDA of src/ and tests/, kernels and tests
too. The first comment of a header, which says what the header is, never begins with a bare "Of", "What", "Where", "Whether" and the like.
"""
import pathlib
import re
import sys

import messages

ALLOWED = "scripts/house_words.txt"
KINDS = ("messages", "docs", "comments")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "src/README.md")  # and docs/
CODE = re.compile(r'//[^\n]*|"(?:\\.|[^"\\\n])*"|[A-Za-z_]\w*')  # comments and texts, which hold no identifiers, and identifiers
BARE = re.compile(r"(Of|What|Where|Who|How|Whether|Whose|Which|Why) ")
SOURCES = (".cc", ".h", ".def", ".cu")


def beginnings(source):
    """The first line of each comment that stands by itself, without its slashes."""
    lines = [line.strip() for line in source.splitlines()]
    return [line.removeprefix("//").lstrip() for before, line in zip(["", *lines], lines)
            if line.startswith("//") and not before.startswith("//")]


def sources(root):
    return [path for folder in ("src", "tests") for path in sorted((root / folder).rglob("*")) if path.suffix in SOURCES]


def texts(root):
    """For each kind (place, line) of all its lines, "beginnings" of comments, and "identifiers" one by one."""
    found = {kind: [] for kind in (*KINDS, "beginnings", "identifiers")}
    for path in messages.files_of(root):
        found["messages"] += [(path.relative_to(root), line) for line in messages.messages_of(path.read_text())]
    for path in sources(root):
        source, name = path.read_text(), path.relative_to(root)
        found["comments"] += [(name, line.strip()) for line in source.splitlines() if line.lstrip().startswith("//")]
        found["beginnings"] += [(name, line) for line in beginnings(source)]
        found["identifiers"] += [(name, token) for token in CODE.findall(source) if token[0] not in '/"']
    for path in (*map(root.joinpath, PAGES), *sorted((root / "docs").rglob("*.md"))):
        if path.exists() and path.name != "glossary.md":
            found["docs"] += [(path.relative_to(root), line) for line in path.read_text().splitlines()]
    return found


def read(root):
    rows = [line.split(" | ") for line in (root / ALLOWED).read_text().splitlines() if line and not line.startswith("#")]
    return [(word, instead, [int(count) for count in counts]) for word, instead, *counts in rows]


def kinds_of(word):
    return ("identifiers",) if word.startswith("=") else KINDS


def uses(word, kind, now):
    if word.startswith("="):
        return [(place, name) for place, name in now["identifiers"] if re.search(word[1:], name)] if kind == "identifiers" else []
    if word.startswith("^"):
        return [(place, line) for place, line in now["beginnings"] if re.match(word, line)] if kind == "comments" else []
    pattern = re.compile(rf"\b(?:{word})\b", re.I)
    return [(place, line) for place, line in now[kind] for _ in pattern.findall(line)]


def fragments(root):
    """Headers whose first comment is a fragment."""
    for path in sorted((root / "src").rglob("*.h")):
        first = next(iter(beginnings(path.read_text())), "")
        if BARE.match(first):
            yield (f"{path.relative_to(root)}: its first comment begins with '{first.split()[0]}'; "
                   "write a sentence that says what the header is")


def problems(root):
    found, now = list(fragments(root)), texts(root)
    for word, instead, allowed in read(root):
        for kind, most in zip(kinds_of(word), allowed):
            places = uses(word, kind, now)
            if len(places) > most:
                found.append(f"{kind} say '{word}' {len(places)} times, {most} are left of earlier texts; write {instead}, "
                             f"or see scripts/check_words.py --show '{word}'")
    return found


def write(root):
    now = texts(root)
    head = [line for line in (root / ALLOWED).read_text().splitlines() if line.startswith("#")]
    rows = [" | ".join([word, instead, *(str(min(most, len(uses(word, kind, now)))) for kind, most in zip(kinds_of(word), allowed))])
            for word, instead, allowed in read(root)]
    (root / ALLOWED).write_text("\n".join(head + rows) + "\n")


def main(arguments):
    here = pathlib.Path(__file__).resolve().parent.parent
    if arguments[:1] == ["--show"]:
        now = texts(here)
        for kind in kinds_of(arguments[1]):
            for place, line in uses(arguments[1], kind, now):
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
