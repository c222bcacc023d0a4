#!/usr/bin/env python3
"""How the cost of a token grows with threads, length, batch, width and vocabulary, beside the law that FLOPs give.

    scaling.py [--plimsoll build/plimsoll] [--rounds 2] [--only length] [--out results.json]

Small models of real widths, LoRA r 16 in bf16, rows of full length. Cost is the median step's time over its tokens, the
least over the rounds. The law: 4 FLOPs per weight of a product and token (the head among them), 7 attention products over
half of the scores; threads divide it. Both are shown relative to the first line. Standard library only.
"""
import argparse
import json
import pathlib
import sys

import predict

BASE = {"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8, "num_key_value_heads": 2,
        "vocab_size": 16384, "head_dim": 64}
LAYERS = 4


def point(label, length=512, micro=1, threads=0, **model):
    sizes = {**BASE, **model}
    heads = sizes["hidden_size"] // sizes["head_dim"]
    sizes.update(num_attention_heads=heads, num_key_value_heads=max(1, heads // 4),
                 intermediate_size=4 * sizes["hidden_size"])
    return label, {**predict.case(label, sizes, LAYERS, predict.LORA, length, micro), "threads": threads}


SWEEPS = {
    "threads": [point(f"{n} thread" + "s" * (n > 1), threads=n) for n in (1, 2)],
    "length": [point(f"length {n}", length=n) for n in (256, 512, 1024, 2048, 4096)],
    "batch": [point(f"micro-batch {n}", length=256, micro=n) for n in (1, 2, 4, 8)],
    "width": [point(f"width {n}", hidden_size=n) for n in (256, 512, 1024, 2048)],
    "vocabulary": [point(f"vocabulary {n}", vocab_size=n) for n in (8192, 32768, 131072)],
}


def law(case):
    """FLOPs of a token over the threads that share them."""
    s = case["model"]
    h, d = s["hidden_size"], s["head_dim"]
    attention = d * (s["num_attention_heads"] + 2 * s["num_key_value_heads"]) * h + d * s["num_attention_heads"] * h
    layer = attention + 3 * h * s["intermediate_size"]
    products = 4 * (LAYERS * layer + h * s["vocab_size"])
    scores = 7 * 2 * LAYERS * d * s["num_attention_heads"] * case["length"] / 2
    return (products + scores) / max(1, case["threads"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default="build/plimsoll")
    parser.add_argument("--only", default="", help="sweeps whose name contains this")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    plimsoll = str(pathlib.Path(arguments.plimsoll).resolve())
    results = []
    for sweep, points in SWEEPS.items():
        if arguments.only not in sweep:
            continue
        print(f"{sweep:18}{'µs a token':>12}{'relative':>10}{'law':>8}{'cost / law':>12}", flush=True)
        first = None
        for label, case in points:
            _, seconds = predict.measure(plimsoll, case, arguments.rounds)
            cost = seconds / (case["length"] * case["micro"])
            first = first or (cost, law(case))
            relative, expected = cost / first[0], law(case) / first[1]
            results.append({"sweep": sweep, "point": label, "seconds_per_token": cost, "relative": relative,
                            "law": expected})
            print(f"  {label:16}{cost * 1e6:12.1f}{relative:10.2f}{expected:8.2f}{relative / expected:12.2f}", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
