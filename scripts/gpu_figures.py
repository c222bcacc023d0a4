#!/usr/bin/env python3
"""What a card was measured to be by `make gpu-first`: its tables in docs/explanation/cuda.md, and the guesses that they replace.

    scripts/gpu_figures.py bench/results/CARD-DATE-first.json [--card "H100 SXM"] [--docs docs/explanation/cuda.md] [--print]

Writes the tables between the two marks in docs/explanation/cuda.md (--print: only prints them), scores the committed predictions, and names each guess of
the catalogue that a figure stands against: where it is, what it says, what was measured. A guess whose line in the source has changed is an
error: it is brought up to date in GUESSES here.
"""
import argparse
import json
import pathlib
import re
import statistics
import sys
from dataclasses import dataclass

from predict_gpu import ROOT, sheet

BEGIN, END = "<!-- by scripts/gpu_figures.py -->", "<!-- end -->"
MIB = 2**20
CATALOGUE = "src/device/catalogue.cc"


def lines_of(results, letters):
    return [line["figures"] for letter in letters for item in results["sections"].get(letter, {"items": {}})["items"].values()
            for line in item["lines"] if line["outcome"] == "ok"]


def rows_of(results):
    return [figures for figures in lines_of(results, "ce") if "tokens_per_second" in figures]


def profiles_of(results):
    return [figures for figures in lines_of(results, "d") if "ops" in figures]


# ---- guesses


def fastest(op, unit, model=""):
    """Of an op in the profiles of a model's rows; None where none has it."""
    def find(results):
        found = [profile["ops"][op][unit] for profile in profiles_of(results) if op in profile["ops"] and profile["case"].startswith(model)]
        return max(found) if found else None
    return find


def of_card(key):
    def find(results):
        found = [row["card"][key] for row in rows_of(results) if row.get("card") and row["card"].get(key)]
        return statistics.median(found) if found else None
    return find


@dataclass(frozen=True)
class Guess:
    what: str
    file: str
    text: str  # of the source
    measured: object
    guessed: object  # of the card's sheet: memory GB/s, TFLOP/s of 16 bits, of f32
    unit: str


def share_16(part):
    return lambda sheet_: part * sheet_[1] * 1e12


GUESSES = (
    Guess("products of 16 bits", CATALOGUE, "is_geforce(card) ? 0.85 : 0.70", fastest("linear", "flops_per_second"), share_16(0.70), "FLOP/s"),
    Guess("attention", CATALOGUE, "is_geforce(card) ? 0.40 : 0.25", fastest("attention", "flops_per_second", "qwen"), share_16(0.25), "FLOP/s"),
    Guess("attention backward", CATALOGUE, "is_geforce(card) ? 0.40 : 0.25", fastest("attention_grad", "flops_per_second", "qwen"), share_16(0.25), "FLOP/s"),
    Guess("attention with a bias, and across", CATALOGUE, '"_with_bias", DType::bf16, 0.7 * by_tiles, 0.6 * by_tiles',
          fastest("attention", "flops_per_second", "chatlm-t5"), share_16(0.7 * 0.25), "FLOP/s"),
    Guess("the same backward", CATALOGUE, '"_with_bias", DType::bf16, 0.7 * by_tiles, 0.6 * by_tiles',
          fastest("attention_grad", "flops_per_second", "chatlm-t5"), share_16(0.6 * 0.25), "FLOP/s"),
    Guess("gated linear attention", CATALOGUE, "is_geforce(card) ? 0.10 : 0.05", fastest("gla", "flops_per_second"), share_16(0.05), "FLOP/s"),
    Guess("the same backward", CATALOGUE, "is_geforce(card) ? 0.10 : 0.05", fastest("gla_grad", "flops_per_second"), share_16(0.05), "FLOP/s"),
    Guess("memory, by AdamW", CATALOGUE, "rates.bandwidth = 0.80 * card.bandwidth", fastest("adamw", "bytes_per_second"),
          lambda sheet_: 0.80 * sheet_[0] * 1e9, "bytes/s"),
    Guess("bytes beside the arena", CATALOGUE, '{"context", context, context / 5}', of_card("outside_bytes"), of_card("planned_outside_bytes"), "bytes"),
    Guess("CUDA's bytes of the host", CATALOGUE, "kBytes = 220 * kMiB, kUncertain = 100 * kMiB, kLibrary = 142 * kMiB", of_card("host_bytes"),
          lambda sheet_: 362 * MIB, "bytes"),
)
# What gpu-first cannot tell: these need gpu-bench, or a run.
LEFT = (("3.5 us a launch", CATALOGUE, "kLaunchSeconds = 3.5e-6"), ("32 KiB a node of a graph", "src/device/description.h", "int64_t bytes = 32 * 1024"),
        ("attention in f32 and of heads above 128", CATALOGUE, '"_plain", DType::bf16, 0.20 * all_32, 0.15 * all_32'),
        ("the gated delta rule", CATALOGUE, "0.12 * all_32"))


def line_with(file, text):
    source = (ROOT / file).read_text()
    if text not in source:
        sys.exit(f"{file}: '{text}' is not there any more; bring GUESSES in scripts/gpu_figures.py up to date")
    return source[:source.index(text)].count("\n") + 1


def guesses_text(results, card):
    lines = ["| guess | where | guessed | measured | measured / guessed |", "| --- | --- | --- | --- | --- |"]
    for guess in GUESSES:
        where = f"{guess.file}:{line_with(guess.file, guess.text)}"
        measured = guess.measured(results)
        if measured is None:
            continue
        guessed = guess.guessed(results) if guess.what.startswith("bytes beside") else guess.guessed(card)
        scale, unit = (MIB, "MiB") if guess.unit == "bytes" else (1e9, "G" + guess.unit) if guess.unit == "bytes/s" else (1e12, "T" + guess.unit)
        lines.append(f"| {guess.what} | {where} | {guessed / scale:,.1f} {unit} | {measured / scale:,.1f} {unit} | {measured / guessed:.2f} |")
    for what, file, text in LEFT:
        lines.append(f"| {what} | {file}:{line_with(file, text)} | | not here: `make gpu-bench` | |")
    return "\n".join(lines)


# ---- tables


def rows_text(results):
    rivals = {figures["case"]: figures for figures in lines_of(results, "f")}
    lines = ["| run (tokens x rows x accumulation) | tokens/s | there | planned = taken | there, reserved | predicted seconds |", "| --- | --- | --- | --- | --- | --- |"]
    for row in rows_of(results):
        there = rivals.get(row["case"], {})
        beside = f"{there['tokens_per_second']:,.0f}" if "tokens_per_second" in there else ""
        reserved = f"{there['peak_bytes'] / 2**30:.1f} GiB" if "peak_bytes" in there else ""
        lines.append(f"| {row['case']} | {row['tokens_per_second']:,.0f} | {beside} | {row['arena_bytes'] / 2**30:.1f} GiB | {reserved} | "
                     f"{row['predicted_seconds_per_step'] / row['seconds_per_step']:.2f} |")
    return "\n".join(lines)


def profiles_text(results):
    lines = ["| profile | op | share of the step | rate | of its bound |", "| --- | --- | --- | --- | --- |"]
    for profile in profiles_of(results):
        for op, figures in list(profile["ops"].items())[:6]:
            rate = f"{figures['flops_per_second'] / 1e12:.1f} TFLOP/s" if figures["flops_per_second"] > figures["bytes_per_second"] * 10 else \
                f"{figures['bytes_per_second'] / 1e9:,.0f} GB/s"
            lines.append(f"| {profile['case']} | {op} | {figures['share']:.0%} | {rate} | {figures['of_bound']:.0%} |")
    return "\n".join(lines)


def score_text(results, predicted):
    """How far the seconds that were committed before are from those measured: of the same card alone."""
    known = {row["case"]: row for row in predicted["rows"] if "seconds_per_step" in row}
    ratios = [known[row["case"]]["seconds_per_step"] / row["seconds_per_step"] for row in rows_of(results) if row["case"] in known]
    if not ratios:
        return f"None of its rows is among those predicted for the {predicted['card']}."
    return (f"Of the seconds that were predicted for the {predicted['card']} before, {len(ratios)} rows: predicted / measured {statistics.median(ratios):.2f} "
            f"in the middle, {min(ratios):.2f} to {max(ratios):.2f}.")


def text_of(results, name, predicted):
    versions = ", ".join(f"{what} {version}" for what, version in results["versions"].items())
    wrong = [line["name"] for section in results["sections"].values() for item in section["items"].values() for line in item["lines"]
             if line["outcome"] == "failed"]
    head = f"On the {results['card']['name']} ({versions}; {results['date']}, [figures](../bench/results/{name})), by `make gpu-first`:"
    told = f"Wrong there: {', '.join(wrong)}." if wrong else "Nothing that it asked was wrong."
    return "\n\n".join((head, rows_text(results), score_text(results, predicted), profiles_text(results), told))


def put(docs, text):
    page = docs.read_text()
    found = re.search(re.escape(BEGIN) + r".*?" + re.escape(END), page, re.S)
    if not found:
        sys.exit(f"{docs}: has no marks ({BEGIN} and {END}) to put the tables between")
    docs.write_text(page[:found.start()] + BEGIN + "\n" + text + "\n" + END + page[found.end():])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--card", help="its name in the catalogue; by default as the results have it")
    parser.add_argument("--docs", type=pathlib.Path, default=ROOT / "docs/explanation/cuda.md")
    parser.add_argument("--predicted", type=pathlib.Path, default=ROOT / "bench/results/predicted-h100.json")
    parser.add_argument("--print", action="store_true", dest="only_print")
    options = parser.parse_args()
    results = json.loads(options.results.read_text())
    card = options.card or re.sub(r" \d+GB$", "", (results["card"].get("planned") or {}).get("name", ""))
    if not card:
        sys.exit(f"{options.results}: names no card of the catalogue; say --card")
    text = text_of(results, options.results.name, json.loads(options.predicted.read_text()))
    guesses = guesses_text(results, sheet(card))
    if options.only_print:
        print(text)
    else:
        put(options.docs, text)
        print(f"{options.docs}: the tables of {results['card']['name']}")
    print(f"\nGuesses that its figures stand against:\n\n{guesses}")


if __name__ == "__main__":
    main()
