#!/usr/bin/env python3
"""How fast a card is, and how fast models train on it: `make gpu-bench` (docs/explanation/cuda.md).

    gpu.py --plimsoll PROGRAM --tool PLIMSOLL_GPU_CHECK [--device cuda|emulated --tiny] [--cases lora,t5] [--seconds 520] [--out FILE]

Rates of products, attention, memory, copies and launches first, which the planner reads from then on; then tokens/s of models of known
shapes with random weights, each within the bytes that its plan states, and of what some of them answer then, call by call and with
captured graphs; what does not fit the card by its plan is left out. Where this Python has torch with CUDA, transformers and peft, the
same run of theirs stands beside it. A figure is the median over the steps behind the first two. Writes bench/results/CARD-DATE.json.
Exit codes: 0, 1 where a run failed, 2 without a card. Standard library only.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from gpu_cases import BENCH_CASES, CASES, ROOT, tiny_case, write_case

WARM_UP, STEPS = 2, 6
PROMPT = 64  # tokens


class Bench:
    def __init__(self, options):
        self.options, self.began, self.failed = options, time.monotonic(), 0

    def left(self):
        return self.options.seconds - (time.monotonic() - self.began)

    def run(self, words, **variables):
        try:
            return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=max(self.left(), 1),
                                  env={**os.environ, "PLIMSOLL_NO_PROBE": "1", **variables})
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(words, 124, "", "no time left")

    def tool(self, part, *words):
        return self.run([self.options.tool, part, "--device", self.options.device, *words])

    def rates(self):
        done = self.tool("rates", *(["--small", "yes"] if self.options.tiny else []))
        if done.returncode != 0:
            self.failed += 1
            print(f"FAILED rates: exit {done.returncode}: {done.stderr.strip()[-400:]}", flush=True)
        told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return {line["name"].removeprefix("rate/"): line["figures"] for line in told}

    def ours(self, case, folder):
        """Figures of a run, or why there are none."""
        recipe = write_case(case, folder, STEPS, self.options.tiny)
        done = self.run([self.options.plimsoll, "train", recipe, "--quiet", "--device", self.options.device])
        if done.returncode == 3:
            return {"left_out": done.stderr.strip().splitlines()[0]}
        if done.returncode == 124:
            return {"left_out": "no time left"}
        if done.returncode != 0:
            self.failed += 1
            return {"failed": f"exit {done.returncode}: {done.stderr.strip()[-400:]}"}
        steps = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
        ran = json.loads((folder / "run/run.json").read_text())
        seconds = statistics.median(step["seconds"] for step in steps[WARM_UP:])
        return {"tokens_per_second": case.tokens / seconds, "seconds_per_step": seconds, "predicted_seconds_per_step": ran["planned"]["seconds_per_step"],
                "planned_arena_bytes": ran["planned"]["device_arena_bytes"], "arena_bytes": ran["measured"]["device_arena_bytes"],
                "card": ran.get("card"), "variant": ran["variant"], "losses": [step["loss"] for step in steps]}

    def answer(self, folder, tokens, graphs):
        """(seconds, tokens of the answer, what went wrong: {} for nothing)"""
        began, prompt = time.monotonic(), ",".join(map(str, range(5, 5 + PROMPT)))
        done = self.run([self.options.plimsoll, "generate", folder / "run", "--ids", prompt, "--max-new-tokens", tokens, "--graphs", graphs,
                         "--device", self.options.device, "--json"])
        seconds = time.monotonic() - began
        if done.returncode == 124:
            return seconds, 0, {"left_out": "no time left"}
        if done.returncode != 0:
            self.failed += 1
            return seconds, 0, {"failed": f"exit {done.returncode}: {done.stderr.strip()[-400:]}"}
        return seconds, len(json.loads(done.stdout.splitlines()[-1])["response_ids"]), {}

    def answers(self, folder):
        """Tokens/s behind the first few of an answer, or why there are none: of two answers one of which begins as the other."""
        few, many = (2, 6) if self.options.tiny else (16, 144)
        told = {}
        for kind, graphs in (("call_by_call", "off"), ("with_graphs", "on")):
            began, first, fault = self.answer(folder, few, graphs)
            ended, all_of_it, fault = (0, 0, fault) if fault else self.answer(folder, many, graphs)
            if not fault and all_of_it == first:
                fault = {"left_out": f"the answer ends after {first} tokens"}
            if fault:
                return fault
            told[kind] = (all_of_it - first) / max(ended - began, 1e-9)
        return told

    def rival(self, case, folder):
        if self.options.device != "cuda" or not self.options.rival:
            return None
        return self.ask_rival(case, folder)

    def ask_rival(self, case, folder):
        """Its figures, or why there are none."""
        done = self.run([sys.executable, Path(__file__).with_name("gpu_rival.py"), folder, str(CASES.index(case)), str(STEPS)])
        if done.returncode != 0:
            return {"left_out": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][-300:]}
        told = json.loads(done.stdout.splitlines()[-1])
        seconds = statistics.median(told["seconds"][WARM_UP:])
        return {"tokens_per_second": case.tokens / seconds, "seconds_per_step": seconds, "peak_bytes": told["peak_bytes"], "versions": told["versions"]}

    def measure(self, case):
        if self.options.tiny:
            case = tiny_case(case)
        if self.left() < 5:
            return {"case": case.name, "left_out": "no time left"}
        with tempfile.TemporaryDirectory() as folder:
            figures = {"case": case.name, "tokens_of_a_step": case.tokens, **self.ours(case, Path(folder))}
            beside = self.rival(case, Path(folder)) if "tokens_per_second" in figures else None
            if case.answers and "tokens_per_second" in figures:
                figures["answers"] = self.answers(Path(folder))
        return {**figures, "transformers": beside} if beside else figures


def has_rival():
    code = "import torch, transformers, peft, sys; sys.exit(0 if torch.cuda.is_available() else 1)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def row(figures):
    if "tokens_per_second" not in figures:
        return f"{figures['case']:<52}  {figures.get('left_out') or 'FAILED ' + figures['failed']}"
    beside = figures.get("transformers") or {}
    there = beside.get("tokens_per_second")
    return (f"{figures['case']:<52}{figures['tokens_per_second']:>10,.0f} tokens/s{figures['seconds_per_step'] * 1e3:>9.0f} ms a step, predicted "
            f"{figures['predicted_seconds_per_step'] * 1e3:.0f}{figures['arena_bytes'] / 2**30:>7.1f} GiB"
            + (f"   transformers {there:,.0f}" if there else f"   transformers: {beside['left_out']}" if beside else "")
            + answers_row(figures.get("answers")))


def answers_row(answers):
    if not answers:
        return ""
    told = answers.get("left_out") or "FAILED " + answers["failed"] if len(answers) == 1 else \
        f"{answers['call_by_call']:,.0f} tokens/s call by call, {answers['with_graphs']:,.0f} with graphs"
    return f"\n{'  its answers, one token after another':<52}  {told}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plimsoll", required=True, type=Path)
    parser.add_argument("--tool", required=True, type=Path)
    parser.add_argument("--device", choices=("cuda", "emulated"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes for an emulated card; the figures say nothing")
    parser.add_argument("--cases", default="", help="those whose names have one of these: gla,mistral")
    parser.add_argument("--seconds", type=float, default=520)
    parser.add_argument("--out", help="by default bench/results/CARD-DATE.json")
    options = parser.parse_args()
    bench = Bench(options)
    facts = bench.tool("facts")
    if facts.returncode != 0:
        print(facts.stderr.strip(), file=sys.stderr)
        return 2
    facts = json.loads(facts.stdout)
    options.rival = options.device == "cuda" and has_rival()
    results = {"card": facts, "date": str(date.today()), "rates": bench.rates(), "runs": []}
    for name, figures in results["rates"].items():
        print(f"{name:<52}{figures['rate']:>12.4g} {figures['unit']}", flush=True)
    for case in BENCH_CASES:
        if any(part in case.name for part in options.cases.split(",")):
            results["runs"].append(bench.measure(case))
            print(row(results["runs"][-1]), flush=True)
    name = re.sub("[^a-z0-9]+", "-", facts["name"].lower()).strip("-")
    path = Path(options.out) if options.out else ROOT / f"bench/results/{name}-{date.today()}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(path)
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
