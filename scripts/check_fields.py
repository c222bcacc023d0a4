#!/usr/bin/env python3
"""No struct or class of src/ has more than 20 data members, but for those of REASONS: what has more is several things in one.

A reason that is no longer needed is an error too, so the list stays as short as it can be. Members are counted by the shape of
the text: what a type inherits, its static members, and what types within it have does not count.
"""
import pathlib
import re
import sys

MOST = 20
# By file and type: what is honestly that wide.
REASONS = {
    ("src/models/spec.h", "ModelSpec"): "what config.json says of a model of any family",
    ("src/ops/loss/cpu_head_rows.h", "HeadRows"): "the arguments and buffers of one kernel",
    ("src/ops/attention/attention_cached_gpu.cu", "CachedAttention"): "the arguments of one kernel, passed as one value",
    ("src/ops/loss/linear_cross_entropy_gpu.cu", "HeadLossOnGpu"): "the arguments and buffers of one kernel after another",
    ("src/ops/scan/gpu_gla.h", "Gla"): "the arguments of one kernel, passed as one value",
    ("src/cpu/matmul_kernel.h", "MatmulTask"): "the arguments of one kernel",
    ("src/gpu/emulator.h", "Block"): "the state of one block of threads",
    ("src/recipe/recipe.h", "Recipe"): "the groups of a recipe's keys",
    ("src/recipe/recipe.h", "Data"): "the keys of one group of the recipe, with their names",
    ("src/fleet/queue/store/store.h", "Entry"): "a row of the queue's database, a member for each column",
}
TYPE = re.compile(r"^(?:template )?(?:typedef )?(struct|class|union)\b\s*(?P<name>\w*)")
NO_MEMBER = re.compile(r"^(using|typedef|friend|static|template|static_assert|enum|inline static|constexpr static|operator)\b")
LABEL = re.compile(r"^(public|private|protected)\s*:\s*")


def bare(text):
    """The code without comments, strings, preprocessor lines and attributes; as many lines as before."""
    keep_lines = lambda found: "\n" * found.group().count("\n")
    text = re.sub(r'R"(\w*)\((?:.|\n)*?\)\1"', lambda found: '""' + keep_lines(found), text)
    text = re.sub(r"//[^\n]*|/\*(?:.|\n)*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'", keep_lines, text)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", keep_lines, text, flags=re.M)
    return re.sub(r"\[\[[^\]]*\]\]|\balignas\([^()]*(?:\([^()]*\))?[^()]*\)", "", text)


def without_angles(text):
    text = text.replace("->", "  ").replace("<<", "  ").replace(">>=", "   ")
    before = None
    while before != text:
        before, text = text, re.sub(r"<[^<>]*>", "", text)
    return text


def members(statement):
    """How many data members a statement of a type's body declares."""
    text = without_angles(" ".join(statement.split()))
    if not text or NO_MEMBER.match(text):
        return 0
    pointer = re.match(r"[^(=]*\(\s*\*\s*\w+\s*\)\s*\(", text)
    head = text.split("=", 1)[0]
    if pointer:
        return 1
    if "(" in head:
        return 0  # a function
    before = None
    while before != text:
        before, text = text, re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", text)
    return text.count(",") + 1


def block_end(text, begin):
    depth = 0
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return len(text) - 1


def types(text, begin, end, found):
    """Adds (name, offset, members) of each type in a region of bare code; returns the members that the region itself declares."""
    count, statement, at = 0, "", begin
    while at < end:
        char = text[at]
        if char == "{":
            close = block_end(text, at)
            said = LABEL.sub("", statement.strip())
            plain = " ".join(without_angles(said).split())
            kind = TYPE.match(plain)
            if kind and "(" not in plain:
                own = types(text, at + 1, close, found)
                found.append((kind["name"] or "(unnamed)", at, own))
                statement = "declared" if re.match(r"\s*\w", text[close + 1:close + 40]) else "using"
            elif re.match(r"(inline )?namespace\b|extern\b", said):
                types(text, at + 1, close, found)
                statement = ""
            elif "(" in plain.split("=", 1)[0] and "=" not in said.rpartition(")")[2]:
                types(text, at + 1, close, found)  # a function, and types within it
                statement = ""
            at = close
        elif char == ";":
            count += members(LABEL.sub("", statement.strip()))
            statement = ""
        elif char == ":" and re.fullmatch(r"\s*(public|private|protected)\s*", statement):
            statement = ""
        else:
            statement += char
        at += 1
    return count


def problems(root):
    wide = {}
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in (".h", ".cc", ".cu"):
            continue
        text, found, name = bare(path.read_text()), [], str(path.relative_to(root))
        types(text, 0, len(text), found)
        for kind, offset, count in found:
            if count > MOST:
                wide[name, kind] = count
                if (name, kind) not in REASONS:
                    yield f"{name}:{text.count(chr(10), 0, offset) + 1}: {kind} has {count} data members, above {MOST}: cut it into what belongs together"
    for place, reason in REASONS.items():
        if (root / place[0]).is_file() and place not in wide:
            yield f"scripts/check_fields.py:1: {place[1]} of {place[0]} needs no reason: {reason}"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    found = list(problems(root))
    for text in found:
        print(f"error: {text}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
