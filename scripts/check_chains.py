#!/usr/bin/env python3
"""Texts that are put together by `+` from three pieces or more: formatted() of src/base/format.h says them in one string, which can
be searched for.

    check_chains.py [ROOT]          exit 1 where there is one
    check_chains.py --count [ROOT]  how many each folder has, of all chains with a literal
"""
import collections
import pathlib
import sys

import messages

LONG = 3
# What ends an operand of a chain, outside of brackets.
ENDS = {",", ";", ":", "?", "<<", "==", "!=", "&&", "||", "=", "+=", "<", ">", "<=", ">=", "-", "*", "/", "return", "throw", "case"}


def chains(source):
    """(pieces, line) of each chain of `+` that has a string."""
    found, waiting, own = [], [], None  # own: where the chain of these brackets began, its pieces, whether one is a string
    before = ""

    def end():
        if own and own[1] > 1 and own[2]:
            found.append((own[1], source.count("\n", 0, own[0]) + 1))

    for token in messages.tokens_of(source):
        kind, text, at = token
        is_sign = not messages.is_text(token) and kind != "char"
        if is_sign and text in messages.CLOSE:
            end()
            own = waiting.pop() if waiting else None
        elif is_sign and text in ENDS and not (text in "*&-" and (own is None or before == "+")):  # else what is pointed to
            end()
            own = None
        elif is_sign and text == "+":
            own = own and (own[0], own[1] + 1, own[2])
        else:
            own = (own[0], own[1], own[2] or messages.is_text(token)) if own else (at, 1, messages.is_text(token))
            if is_sign and text in messages.OPEN:
                waiting.append(own)
                own = None
        before = text if is_sign else ""
    return found


def files_of(root):
    """Those that have messages, and the template language, whose errors are texts as well."""
    return [*messages.files_of(root), *(path for path in sorted((root / "src/jinja").glob("*.[ch]*")) if "test" not in path.name)]


def problems(root):
    for path in files_of(root):
        for pieces, line in chains(path.read_text()):
            if pieces >= LONG:
                yield f"{path.relative_to(root)}:{line}: a text of {pieces} pieces; write formatted(\"...{{}}...\", ...) (base/format.h)"


def count(root):
    long, every = collections.Counter(), collections.Counter()
    for path in files_of(root):
        folder = path.relative_to(root / "src").parts[0]
        pieces = [pieces for pieces, _ in chains(path.read_text())]
        every[folder] += len(pieces)
        long[folder] += sum(one >= LONG for one in pieces)
    for folder in sorted(every):
        print(f"{folder:10} {long[folder]:5} of {every[folder]:5}")
    print(f"{'all':10} {sum(long.values()):5} of {sum(every.values()):5}")


def main(arguments):
    counts = arguments[:1] == ["--count"]
    rest = arguments[1:] if counts else arguments
    root = pathlib.Path(rest[0]) if rest else pathlib.Path(__file__).resolve().parent.parent
    if counts:
        return count(root)
    found = list(problems(root))
    if found:
        sys.exit("\n".join(f"error: {problem}" for problem in found))


if __name__ == "__main__":
    main(sys.argv[1:])
