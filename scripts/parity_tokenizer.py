#!/usr/bin/env python3
"""Compares Plimsoll's token ids and decoded texts with those of the `tokenizers` library.

    ninja -C build plimsoll_tokenize_tool
    python3 scripts/parity_tokenizer.py [TOKENIZER.json ...] [--text FILE ...]

Inputs: random Unicode strings, every code point in eight contexts, windows of the sample text in 20 scripts, the Python standard library's code, and the files of --text. Without a tokenizer: the golden ones.
A file *.model is compared with the `sentencepiece` library, which must be installed then.
A landing compares a third of these (tests/shard.py), of each kind. Exit status 1 on any difference. Speed: bench/tokenizer_speed.py.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402  (reads the variables at import)

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from shard import is_mine  # noqa: E402

GOLDEN = ROOT / "tests/golden/tokenizers"
SHOWN = 5

# Ranges that random strings draw from: what the scanners, the normaliser and UTF-8 tell apart.
POOLS = [
    (0x61, 0x7A), (0x41, 0x5A), (0x30, 0x39), (0x20, 0x20), (0x09, 0x0D), (0x21, 0x2F), (0x00, 0x7F), (0x80, 0xFF),
    (0x100, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF),
    (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2150, 0x218F), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
    (0xF900, 0xFAFF), (0xFB00, 0xFFFD), (0x10000, 0x1FFFF), (0x1F300, 0x1FAFF), (0x20000, 0x323AF), (0x0, 0x10FFFF),
]
FRAGMENTS = ["'s", "'LL", "'ſ", "  ", "\r\n", "\n\n", "don't", " 123", "\u0301", "e\u0301", "\u212b", "\u0f71\u0f72", "//"]


def random_char(rng):
    while True:
        code = rng.randint(*rng.choice(POOLS))
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def random_strings(rng, count, fragments):
    for _ in range(count):
        parts = []
        for _ in range(rng.randint(0, 24)):
            pick = rng.random()
            if pick < 0.2:
                parts.append(rng.choice(fragments))
            elif pick < 0.5:
                parts.append("".join(rng.choice("aB1 \n\r\t'.é\u0301") for _ in range(rng.randint(1, 6))))
            else:
                parts.append(random_char(rng))
        yield "".join(parts)


def every_code_point():
    for first in range(0, 0x110000, 16):
        chars = [chr(c) for c in range(first, first + 16) if not 0xD800 <= c < 0xE000]
        yield "".join(f"a{c} {c}1'{c}\n{c}{c}A{c}\u0301 a{c} 'l{c}" for c in chars)


def real_texts(rng, files):
    sample = (GOLDEN / "sample.txt").read_text()
    yield sample
    for _ in range(2000):
        start = rng.randrange(len(sample))
        yield sample[start : start + rng.randint(1, 200)]
    for path in sorted(pathlib.Path(os.__file__).parent.glob("*.py"))[:100]:
        yield path.read_text(errors="replace")
    for path in files:
        text = pathlib.Path(path).read_text(errors="replace")
        for start in range(0, len(text), 20000):
            yield text[start : start + 20000]


class Library:
    """The `tokenizers` library."""

    def __init__(self, path):
        self.tokenizer = Tokenizer.from_file(path)
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.added = [t.content for t in self.tokenizer.get_added_tokens_decoder().values()]

    def __call__(self, text, special):
        ids = self.tokenizer.encode(text, add_special_tokens=special).ids
        return ids, self.tokenizer.decode(ids, skip_special_tokens=False)


class SentencePiece:
    """Its own library; control pieces in a text are text to it, and tokens to Plimsoll: they are left out."""

    def __init__(self, path):
        import sentencepiece

        self.processor = sentencepiece.SentencePieceProcessor(model_file=path)
        ids = range(self.processor.get_piece_size())
        self.control = [self.processor.id_to_piece(i) for i in ids if self.processor.is_control(i)]
        self.added = ["<sep>", "[MASK]"]

    def __call__(self, text, special):
        if any(piece in text for piece in self.control + ["<unk>"]):
            return None, None
        return self.processor.encode(text), None


def compare(tool, path, reference, texts, special):
    texts = [text for number, text in enumerate(texts) if is_mine("tokenizers", number)]
    command = [tool, path] + (["special"] if special else [])
    lines = "".join(json.dumps(t) + "\n" for t in texts)
    output = subprocess.run(command, input=lines, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
    assert len(output) == len(texts), (len(output), len(texts))
    different = 0
    for text, line in zip(texts, output):
        ours = json.loads(line)
        ids, decoded = reference(text, special)
        if ids in (None, ours["ids"]) and decoded in (None, ours["text"]):
            continue
        different += 1
        if different <= SHOWN:
            print(f"  {text[:80]!r}\n    plimsoll  {ours['ids'][:24]} {ours['text'][:80]!r}\n    reference {ids[:24]} {decoded and decoded[:80]!r}")
    return len(texts), different


def check(args):
    total = 0
    for path in args.tokenizers:
        rng = random.Random(args.seed)
        reference = (SentencePiece if path.endswith(".model") else Library)(path)
        fragments = FRAGMENTS + reference.added
        for name, texts, special in (
            ("random", random_strings(rng, args.count, fragments), True),
            ("code points", every_code_point(), False),
            ("real text and code", real_texts(rng, args.text), False),
        ):
            count, different = compare(args.tool, path, reference, texts, special)
            print(f"{pathlib.Path(path).name}: {name}: {count} texts, {different} differences", flush=True)
            total += different
    print(f"{total} differences")
    return 1 if total else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", nargs="*")
    parser.add_argument("--tool", default=str(ROOT / "build/tests/parity/plimsoll_tokenize_tool"))
    parser.add_argument("--text", nargs="*", default=[])
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if not args.tokenizers:
        args.tokenizers = sorted(str(p) for p in GOLDEN.glob("*.json") if not p.name.endswith(".cases.json"))
    return check(args)


if __name__ == "__main__":
    sys.exit(main())
