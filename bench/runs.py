#!/usr/bin/env python3
"""Predicted beside measured seconds of whole small runs, the start of the process and its last line included.

    runs.py [--plimsoll build/plimsoll] [--rounds 3] [--out results.json]

The recipes of the demo and of the examples, from random weights: runs of a fraction of a second to a few seconds, of which a good
part is the start (libraries, rates, rows, weights), which a plan does not count. Measured is the least of the rounds. The step is told
beside the run: that is what grows with longer ones. Standard library only.
"""
import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECIPES = (("demo/recipes/full.yaml", "schedule.epochs=3"), ("demo/recipes/full.yaml", "schedule.epochs=30"),
           ("demo/recipes/larger.yaml", "schedule.max_steps=12"), ("demo/recipes/larger.yaml", "schedule.max_steps=60"),
           ("examples/classify/recipe.yaml", "schedule.epochs=6"), ("examples/classify/recipe.yaml", "schedule.epochs=60"),
           ("examples/reward/recipe.yaml", "schedule.epochs=10"), ("examples/seq2seq/recipe.yaml", "schedule.epochs=10"),
           ("examples/seq2seq/recipe.yaml", "schedule.epochs=100"), ("examples/dpo/recipe.yaml", "schedule.epochs=6"))


def measure(plimsoll, recipe, change, rounds):
    with tempfile.TemporaryDirectory() as folder:
        words = [str(ROOT / recipe), "--set", change, "--set", f"output={folder}/run"]
        planned = json.loads(subprocess.run([plimsoll, "plan", *words, "--json"], capture_output=True, text=True, check=True).stdout)
        seconds, steps = [], []
        for _ in range(rounds):
            start = time.monotonic()
            subprocess.run([plimsoll, "train", *words, "--overwrite", "--quiet"], capture_output=True, check=True)
            seconds.append(time.monotonic() - start)
            steps.append(json.loads(Path(folder, "run/run.json").read_text())["measured"]["seconds_per_step"])
    return {"run": f"{recipe} {change}", "steps": planned["run"]["steps"], "predicted_run": planned["run"]["seconds"],
            "measured_run": min(seconds), "predicted_step": planned["predicted"]["seconds_per_step"], "measured_step": min(steps)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plimsoll", default=str(ROOT / "build/plimsoll"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out")
    options = parser.parse_args()
    os.chdir(ROOT)
    results = [measure(options.plimsoll, *recipe, options.rounds) for recipe in RECIPES]
    print(f"{'run':<56}{'steps':>7}{'predicted':>11}{'measured':>10}{'a step, predicted':>19}{'measured':>10}")
    for r in results:
        print(f"{r['run']:<56}{r['steps']:>7}{r['predicted_run']:>9.2f} s{r['measured_run']:>8.2f} s"
              f"{1e3 * r['predicted_step']:>16.2f} ms{1e3 * r['measured_step']:>7.2f} ms")
    if options.out:
        Path(options.out).write_text(json.dumps({"cpus": os.cpu_count(), "load": os.getloadavg()[0], "runs": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
