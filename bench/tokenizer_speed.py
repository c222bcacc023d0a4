#!/usr/bin/env python3
"""Tokenising beside the `tokenizers` library, both on one thread, in processor time, in turn.

    ninja -C build plimsoll_tokenize_tool
    .deps/parity/bin/python3 bench/tokenizer_speed.py [--text FILE ...] [--only NAME ...]

Trains the tokenizers of scripts/tokenizer_zoo.py with 20 times their vocabulary on every other chunk of the text and
encodes the rest, line by line as a data set is tokenised. Text: the Python standard library, and the files of --text.
Before the clock runs, the ids of both are compared. Prints MB/s; the ratio is of the best of three rounds.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
sys.path = [p for p in sys.path if pathlib.Path(p).resolve() != ROOT / "bench"]  # this file has the library's name
import tokenizer_zoo as zoo  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402  (reads the variables at import)

ROUNDS = 3
MOST_BYTES = 4_000_000
# One of each kind; the others differ in expressions or templates.
NAMES = ["gpt2", "qwen2", "llama2", "mistral", "gemma", "chatlm", "t5", "xlmr", "bert", "word_level"]


def halves(files):
    """Text to train on, and text to encode."""
    train, encode = [], []
    for file in files:
        lines = pathlib.Path(file).read_text(errors="replace").replace("\0", " ").split("\n")
        for i in range(0, len(lines), 200):
            (train if i // 200 % 2 else encode).append("\n".join(lines[i : i + 200]) + "\n")
    return "".join(train)[:MOST_BYTES], "".join(encode)[:MOST_BYTES]


def make(name):
    if name != "xlmr":
        return zoo.ZOO[name]()
    zoo.charsmap = lambda: json.loads((zoo.FOLDER / "xlmr.json").read_text())["normalizer"]["precompiled_charsmap"]
    return zoo.xlmr()


def reference_seconds(tokenizer, lines):
    start = time.process_time()
    for line in lines:
        tokenizer.encode(line, add_special_tokens=False)
    return time.process_time() - start


def compare(tool, name, path, text_file):
    reference = Tokenizer.from_file(str(path))
    lines = open(text_file, encoding="utf-8", newline="\n").readlines()
    expected = sum(len(reference.encode(line, add_special_tokens=False).ids) for line in lines)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(json.loads(subprocess.check_output([tool, str(path), "time", str(text_file)])))
        theirs.append(reference_seconds(Tokenizer.from_file(str(path)), lines))
    assert ours[0]["tokens"] == expected, f"{name}: {ours[0]['tokens']} tokens, the reference has {expected}"
    megabytes = ours[0]["bytes"] / 1e6
    mine, reference_s = min(o["encode_s"] for o in ours), min(theirs)
    print(
        f"{name:11} {megabytes / mine:6.1f} MB/s, reference {megabytes / reference_s:5.1f} MB/s: {reference_s / mine:5.1f} times; "
        f"load {ours[0]['load_s']:.3f} s, {ours[0]['resident_bytes'] / 1e6:.1f} MB of at most {ours[0]['estimated_bytes'] / 1e6:.1f}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="*", default=[])
    parser.add_argument("--only", nargs="*", default=NAMES)
    parser.add_argument("--tool", default=str(ROOT / "build/tests/parity/plimsoll_tokenize_tool"))
    parser.add_argument("--keep", help="folder for the tokenizers: trained there once, found there later")
    args = parser.parse_args()
    files = args.text or sorted(pathlib.Path(os.__file__).parent.glob("*.py"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        train, encode = halves(files)
        zoo.SAMPLE, zoo.SCALE = folder / "train.txt", 20
        zoo.SAMPLE.write_text(train)
        (folder / "encode.txt").write_text(encode)
        for name in args.only:
            path = folder / f"{name}.json"
            if not path.exists():
                path.write_text(json.dumps(make(name), ensure_ascii=False))
            compare(args.tool, name, path, folder / "encode.txt")


if __name__ == "__main__":
    main()
