"""Tokenizers of folders without tokenizer.json against transformers' own: `make parity`.

    python -m tests.parity.vocabularies --tool build/tests/parity/plimsoll_tokenize_tool

BERT's vocab.txt in every setting, and vocab.json with merges.txt of GPT-2 and RoBERTa, each opened by transformers' class;
the words are those of the golden tokenizers. Ids of the lines of a text in 20 scripts and of 2,000 random ones.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from transformers import BertTokenizerFast, GPT2TokenizerFast, RobertaTokenizerFast

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden/tokenizers"
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def texts():
    generator = random.Random(1)
    ranges = ((32, 126), (160, 1500), (0x4E00, 0x9FFF), (0x1F300, 0x1FAFF))
    drawn = ("".join(chr(generator.randint(*generator.choice(ranges))) for _ in range(30)) for _ in range(2000))
    lines = (GOLDEN / "sample.txt").read_text().splitlines()
    return [line for line in lines if line] + list(drawn) + ["Hello [MASK] world[SEP] <mask> a</s>", " don't\n\nÀÉ ß "]


def write_bert(folder):
    vocab = json.loads((GOLDEN / "bert.json").read_text())["model"]["vocab"]
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in sorted(vocab, key=vocab.get)))
    return folder / "vocab.txt"


def write_bytes(folder):
    model = json.loads((GOLDEN / "gpt2.json").read_text())["model"]
    names = ("<|endoftext|>", *SPECIAL)
    vocab = model["vocab"] | {name: len(model["vocab"]) + i for i, name in enumerate(names)}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    merges = (merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"])
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{merge}\n" for merge in merges))
    return folder / "vocab.json"


CASES = [(BertTokenizerFast, write_bert, settings) for settings in
         ({}, {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False})]
CASES += [(kind, write_bytes, settings) for kind in (GPT2TokenizerFast, RobertaTokenizerFast)
          for settings in ({}, {"add_prefix_space": True})]


def differences(tool, kind, write, settings, lines):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        file = write(folder)
        (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "tokenizer_class": kind.__name__.removesuffix("Fast")}))
        done = subprocess.run([tool, file, "special"], input="\n".join(map(json.dumps, lines)), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        ours = [json.loads(line)["ids"] for line in done.stdout.splitlines()]
        theirs = kind.from_pretrained(folder)
        return [line for line, ids in zip(lines, ours, strict=True) if ids != theirs(line)["input_ids"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", required=True)
    tool, lines, failed = parser.parse_args().tool, texts(), False
    for kind, write, settings in CASES:
        wrong = differences(tool, kind, write, settings, lines)
        failed |= bool(wrong)
        print(f"{'DIFFERS' if wrong else 'ok':8}{kind.__name__} {settings or ''}: {len(wrong)} of {len(lines)} {wrong[:2] or ''}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
