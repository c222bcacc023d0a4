#!/usr/bin/env python3
"""Collects what the program says: errors, notes, refusals, table heads and help texts, in tests/golden/messages.txt.

    messages.py [ROOT]          compare with the file, exit 1 where it differs
    messages.py --write [ROOT]  write it anew

So words are reviewed like code. A message is a string of two words or more in a source of src/ (no test, no kernel), or a head of a
table (add_row). Strings that C++ or `+` joins are one message, and so is the pattern of formatted(); {} stands for a value.
Not read: texts for models, browsers and databases; src/jinja, src/unicode and src/ops, whose strings are mostly names and code.
"""
import difflib
import pathlib
import re
import sys

GOLDEN = "tests/golden/messages.txt"
# Texts that models, browsers or other programs read.
LEFT_OUT = ("src/chat/builtin_templates", "src/chat/tool_templates", "src/chat/template_rules", "src/jinja/", "src/unicode/", "src/ops/")

TOKEN = re.compile(r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/|^[ ]*\#(?:[^\n\\]|\\.|\\\n)*)
  | (?P<raw>(?:u8|L)?R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)")
  | (?P<text>(?:u8|L)?"(?:[^"\\\n]|\\.)*")
  | (?P<char>'(?:[^'\\\n]|\\.)+')
  | (?P<number>\.?\d(?:[\w.']|[eEpP][+-])*)
  | (?P<word>\w+)
  | (?P<sign>::|->|<<=?|>>=?|&&|\|\||[-+*/%&|^=!<>]=|\+\+|--|.)
""", re.X | re.S | re.M)
OPEN, CLOSE = "([{", ")]}"


def tokens_of(source):
    """(kind, text, position) of each token; comments and preprocessor lines are left out."""
    return [(match.lastgroup if match.lastgroup != "mark" else "raw", match.group(), match.start()) for match in TOKEN.finditer(source)
            if match.lastgroup != "space"]


def is_text(token):
    return token[0] in ("text", "raw")


def value_of(token):
    kind, text, _ = token
    if kind == "raw":
        return text[text.index("(") + 1:text.rindex(")")].replace("\\", "\\\\").replace("\n", "\\n")
    return text[text.index('"') + 1:-1]


def operand_end(tokens, at):
    """Where the operand of a `+` that begins at `at` ends: the next + , ; : ? or closing bracket outside of brackets."""
    depth = 0
    while at < len(tokens):
        text = tokens[at][1] if not is_text(tokens[at]) else ""
        if text in OPEN and text:
            depth += 1
        elif text in CLOSE and text:
            if depth == 0:
                return at
            depth -= 1
        elif depth == 0 and text in ("+", ",", ";", ":", "?", "<<", "==", "!=", "&&", "||"):
            return at
        at += 1
    return at


def message_at(tokens, at):
    """(text, end) of the message whose first string is tokens[at]."""
    if at > 1 and tokens[at - 1][1] == "(" and tokens[at - 2][1] == "formatted":  # values follow, whose texts are read by themselves
        pattern = ""
        while at < len(tokens) and is_text(tokens[at]):
            pattern += value_of(tokens[at])
            at += 1
        return re.sub(r"\{\{|\}\}|\{[^}]*\}", lambda part: part[0][0] if part[0] in ("{{", "}}") else "{}", pattern), at
    words = "{}" if at and tokens[at - 1][1] == "+" else ""
    while at < len(tokens):
        if is_text(tokens[at]):
            words += value_of(tokens[at])
            at += 1
        elif tokens[at][1] == "+":
            at += 1
            if at < len(tokens) and not is_text(tokens[at]):
                end = operand_end(tokens, at)
                inner = [token for token in tokens[at:end] if is_text(token)]
                if any(said(value_of(token)) for token in inner):  # a message within: it is read by itself
                    return words + "{}", at
                words += "{}"
                at = end
        else:
            break
    return words, at


def said(words):
    """Whether it is for people: two words, or one next to a value; no style or code of a page, no SQL, no list of keys."""
    plain = words.replace("{}", " ").replace("\\n", " ").strip()
    if re.search(r"\{(margin|color|display)|\bfunction\(|=>|^(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|PRAGMA) ", words):
        return False
    if "{}" not in words and all("_" in word or "." in word for word in plain.split()):  # keys of other tools
        return False
    return (len(re.findall(r"[A-Za-z][A-Za-z']+", plain)) >= 2 and " " in plain
            or re.search(r"\{\}\W{0,2} [A-Za-z]{2}|[A-Za-z]{2}\W{0,2} \{\}", words))


def messages_of(source):
    tokens = tokens_of(source)
    at, found, row_depth, depth = 0, [], None, 0
    while at < len(tokens):
        kind, text, _ = tokens[at]
        if is_text(tokens[at]):
            words, end = message_at(tokens, at)
            if said(words) or row_depth is not None and re.search(r"[a-z]{2}", words):
                found.append(words)
            at = max(end, at + 1)
            continue
        if text in OPEN:
            depth += 1
        elif text in CLOSE:
            depth -= 1
            if row_depth is not None and depth < row_depth:
                row_depth = None
        elif text == "add_row":
            row_depth = depth + 1
        at += 1
    return found


def files_of(root):
    return [path for path in sorted((root / "src").rglob("*")) if path.suffix in (".cc", ".h", ".def")
            and not re.search(r"_test\.cc$|test_|_fuzz|_simd|_gpu\.", path.name)
            and not str(path.relative_to(root)).startswith(LEFT_OUT)]


def collected(root):
    text = "# What the program says, file by file; {} is a value. Written by scripts/messages.py --write.\n"
    for path in files_of(root):
        lines = messages_of(path.read_text())
        if lines:
            text += f"\n{path.relative_to(root)}\n" + "".join(f"  {line}\n" for line in lines)
    return text


def main(arguments):
    write = arguments[:1] == ["--write"]
    root = pathlib.Path(arguments[-1]) if len(arguments) > write else pathlib.Path(__file__).resolve().parent.parent
    now = collected(root)
    golden = root / GOLDEN
    if write:
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(now)
        return
    before = golden.read_text() if golden.exists() else ""
    if now != before:
        sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), now.splitlines(True), GOLDEN, "the sources", n=0))
        sys.exit(f"error: {GOLDEN} is not what the sources say: read the differences, then scripts/messages.py --write")


if __name__ == "__main__":
    main(sys.argv[1:])
