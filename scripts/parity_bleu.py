#!/usr/bin/env python3
"""Plimsoll's BLEU beside sacrebleu's on random corpora: scripts/parity_bleu.py BLEU_TOOL [--corpora N]

Pairs are sentences with words moved, dropped and replaced, among punctuation, numbers, entities, blanks of every kind
and many scripts. Exit status 1 on any difference above 1e-9.
"""
import argparse
import json
import random
import subprocess
import sys

from sacrebleu.metrics import BLEU

LIMIT = 1e-9
PIECES = ["the", "cat", "Lima", "naïve", "日本", "語", "мир", "الله", "कि", "😀", "e\u0301", "don't", "well-known", "3-4", "5-", "-5",
          "1,234.50", "2.", ".5", ",", ".", "...", "!", "?", "(", ")", "/", "&amp;", "&quot;", "&lt;b&gt;", "&", "<skipped>",
          "-\n", "\n", "\t", "\u00a0", "\u3000", "\u2028", "\x1f", "\x85", "$5", "a_b", "{x}", "^", "~", "\ufeff", "", "\u200b"]


def sentence(rng):
    return "".join(rng.choice(PIECES) + rng.choice(["", " ", " ", "  "]) for _ in range(rng.randint(0, 25)))


def changed(rng, text):
    words = text.split(" ")
    for _ in range(rng.randint(0, 4)):
        if not words:
            break
        at = rng.randrange(len(words))
        kind = rng.randrange(3)
        if kind == 0:
            words[at] = rng.choice(PIECES)
        elif kind == 1:
            words.insert(rng.randrange(len(words) + 1), words.pop(at))
        else:
            words.pop(at)
    return " ".join(words)


def corpus(rng):
    pairs = []
    for _ in range(rng.randint(1, 8)):
        reference = sentence(rng)
        pairs.append([changed(rng, reference) if rng.random() < 0.8 else sentence(rng), reference])
    return pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool")
    parser.add_argument("--corpora", type=int, default=5000)
    arguments = parser.parse_args()
    rng = random.Random(1)
    corpora = [corpus(rng) for _ in range(arguments.corpora)]
    done = subprocess.run([arguments.tool], input="".join(json.dumps(pairs) + "\n" for pairs in corpora),
                          capture_output=True, text=True, check=True)
    bleu = BLEU()
    worst, positive, failed = 0.0, 0, 0
    for pairs, line in zip(corpora, done.stdout.splitlines(), strict=True):
        ours = json.loads(line)
        theirs = bleu.corpus_score([answer for answer, _ in pairs], [[reference for _, reference in pairs]])
        error = max(abs(ours["score"] - theirs.score), abs(ours["brevity_penalty"] - theirs.bp),
                    abs(ours["answer_words"] - theirs.sys_len), abs(ours["reference_words"] - theirs.ref_len),
                    *(abs(a - b) for a, b in zip(ours["precisions"], theirs.precisions)))
        worst = max(worst, error)
        positive += theirs.score > 0
        if error > LIMIT:
            failed += 1
            if failed <= 3:
                print(f"FAIL {json.dumps(pairs)}\n     {line}\n     {theirs.score} {theirs.precisions} {theirs.bp} "
                      f"{theirs.sys_len} {theirs.ref_len}", file=sys.stderr)
    print(f"BLEU: {len(corpora)} corpora, {positive} of them above 0, {failed} differ, largest difference {worst:.1e}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
