#!/usr/bin/env python3
"""Writes src/unicode/unicode_classes.inc, for every code point the classes the tokenizer scanners ask for;
src/unicode/text_classes.inc, the classes of the other normalisers and pre-tokenisers; src/unicode/lower_case.inc; and
src/unicode/unicode_after_14.inc, the characters that PCRE2 10.42 with its Unicode 14 does not know yet.

The reference is the `tokenizers` library itself (its regex engine for letters, marks, numbers and white space;
its added-token rules for word characters), so no Unicode version has to be chosen here. Python 3.11 brings the tables of Unicode 14. About two minutes.
    python3 scripts/make_unicode_classes.py
"""
import pathlib
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

# Bits of src/unicode/unicode_classes.h, in order.
REGEXES = {
    "kLetter": r"\p{L}",
    "kMark": r"\p{M}",
    "kNumber": r"\p{N}",
    "kSpace": r"\s",
    "kUpperRun": r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]",
    "kLowerRun": r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]",
}
LINE_WIDTH = 108


def code_points():
    return (c for c in range(0x110000) if not 0xD800 <= c < 0xE000)


def regex_bits():
    flags = [0] * 0x110000
    for bit, regex in enumerate(REGEXES.values()):
        split = pre_tokenizers.Split(Regex(regex), "removed")
        for c in code_points():
            if not split.pre_tokenize_str(chr(c)):
                flags[c] |= 1 << bit
    return flags


def add_word_bit(flags, bit):
    """A single_word token is refused exactly where its neighbour is a word character."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.add_tokens([AddedToken("<X>", single_word=True, normalized=False)])
    points = list(code_points())
    for start in range(0, len(points), 50000):
        part = points[start : start + 50000]
        for c, encoding in zip(part, tokenizer.encode_batch(["<X>" + chr(c) for c in part])):
            if not encoding.ids:
                flags[c] |= 1 << bit


def add_digit_bit(flags, bit):
    """The Digits pre-tokenizer asks the standard library of Rust, whose Unicode is younger than the regexes'."""
    digits = pre_tokenizers.Digits(individual_digits=False)
    for c in code_points():
        if len(digits.pre_tokenize_str("a" + chr(c))) == 2:
            flags[c] |= 1 << bit


def categories_after_14():
    """The major category letter of every character that came after Unicode 14, 0 for others."""
    assert unicodedata.unidata_version == "14.0.0", "run this with Python 3.11"
    young = [0] * 0x110000
    for category in "LMNPS":
        split = pre_tokenizers.Split(Regex(rf"\p{{{category}}}"), "removed")
        for c in code_points():
            if unicodedata.category(chr(c)) == "Cn" and not split.pre_tokenize_str(chr(c)):
                young[c] = category
    return young


def text_classes():
    """Bits of TextClass in src/unicode/unicode_classes.h, in order, each asked of the component that uses it."""

    def bert(**on):
        off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
        return normalizers.BertNormalizer(**(off | on)).normalize_str

    def parts(pre_tokenizer):
        return lambda text: [part for part, _ in pre_tokenizer.pre_tokenize_str(text)]

    clean, chinese, accents = bert(clean_text=True), bert(handle_chinese_chars=True), bert(strip_accents=True)
    combining = normalizers.StripAccents().normalize_str
    white, words = parts(pre_tokenizers.WhitespaceSplit()), parts(pre_tokenizers.Whitespace())
    bert_split, punctuation = parts(pre_tokenizers.BertPreTokenizer()), parts(pre_tokenizers.Punctuation())
    tests = [
        lambda c: not white(c),
        lambda c: clean(c) == " ",
        lambda c: clean(c) == "",
        lambda c: chinese(c) != c,
        lambda c: accents(c) == "",
        lambda c: combining(c) == "",
        lambda c: len(bert_split(f"a{c}a")) == 3,
        lambda c: len(punctuation(f"a{c}a")) == 3,
        lambda c: len(words("a" + c)) == 1 and len(words("." + c)) == 2,
        lambda c: not words(c),
    ]
    flags = [0] * 0x110000
    for c in code_points():
        flags[c] = sum(1 << bit for bit, test in enumerate(tests) if test(chr(c)))
    return flags


def lower_case():
    """{first, last, step, distance}: every step-th character from first to last has its lower case at a distance."""
    lower = normalizers.Lowercase().normalize_str
    moved = {c: ord(low) - c for c in code_points() if len(low := lower(chr(c))) == 1 and low != chr(c)}
    assert [c for c in code_points() if len(lower(chr(c))) != 1] == [0x130] and lower("\u0130") == "i\u0307"
    rows = []  # [first, last, step, distance]
    for c, distance in moved.items():
        row = rows[-1] if rows else None
        gap = c - row[1] if row else 0
        if row and row[3] == distance and gap <= 2 and (row[2] == gap or row[0] == row[1]):
            row[1:3] = c, gap
        else:
            rows.append([c, c, 1, distance])
    return [f"{{0x{a:X}, 0x{b:X}, {step}, {distance}}}," for a, b, step, distance in rows]


def ranges(values):
    first = 0
    for c in range(1, 0x110001):
        if c == 0x110000 or values[c] != values[first]:
            if values[first]:
                yield first, c - 1, values[first]
            first = c


def write_ranges(name, meaning, values):
    write(name, meaning, [f"{{0x{a:X}, 0x{b:X}, {v!r}}}," for a, b, v in ranges(values)])


def write(name, meaning, rows):
    lines, line = [], ""
    for row in rows:
        if line and len(line) + 1 + len(row) > LINE_WIDTH:
            lines.append(line)
            line = row
        else:
            line = f"{line} {row}" if line else row
    lines.append(line)
    head = (
        f"// Generated by scripts/make_unicode_classes.py from tokenizers {tokenizers.__version__}: do not edit.\n"
        f"// {meaning}\n"
    )
    target = pathlib.Path(__file__).resolve().parent.parent / "src/unicode" / name
    target.write_text(head + "\n".join(lines) + "\n")
    print(f"{name}: {len(rows)} ranges, {target.stat().st_size} bytes")


def main():
    flags = regex_bits()
    add_word_bit(flags, len(REGEXES))
    add_digit_bit(flags, len(REGEXES) + 1)
    write_ranges("unicode_classes.inc", "{first, last, classes}; code points not named have no class.", flags)
    write_ranges("text_classes.inc", "{first, last, classes}; code points not named have no class.", text_classes())
    write("lower_case.inc", "{first, last, step, distance to the lower case}", lower_case())
    write_ranges("unicode_after_14.inc", "{first, last, major category}", categories_after_14())


if __name__ == "__main__":
    main()
