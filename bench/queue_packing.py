#!/usr/bin/env python3
"""Twelve trainings of different size packed into 6 GiB and two threads, and the same beside two PyTorch scripts.

    python3 bench/queue_packing.py --plimsoll build/plimsoll [--python .deps/parity/bin/python3] [--scale 1] --out FILE.json

Every run is measured alone first, at its threads. Then `plimsoll queue` has all of them, and its wall time stands beside the
best packing in both capacities (memory, threads): found by annealing over the orders of a schedule without idle gaps, beside a
lower bound. The best packing is of the times alone, and of the times that the runs took beside each other: what they cost each
other (memory bandwidth, disk, other programs) is not the packing's. The sum of measured peaks of what ran at the same time must
stay below the capacity.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
GIB = 1 << 30
CAPACITY, THREADS = 6 * GIB, 2
# Rows of the vocabulary, width, optimizer, steps, threads. A wide vocabulary takes memory and little time.
RUNS = [(30_000, 512, "adamw", 60, 1), (60_000, 512, "adamw", 30, 1), (80_000, 512, "adamw", 24, 1), (60_000, 1024, "adamw", 12, 1),
        (100_000, 1024, "adamw", 5, 2), (110_000, 1024, "adamw", 5, 1), (200_000, 1024, "sgd", 6, 1), (300_000, 1024, "sgd", 4, 1),
        (400_000, 1024, "sgd", 4, 2), (40_000, 1024, "adamw", 16, 1), (50_000, 768, "adamw", 20, 1), (20_000, 256, "adamw", 160, 1)]
SCRIPT = """
import sys, time, torch
torch.set_num_threads(1)
width, steps = int(sys.argv[1]), int(sys.argv[2])
layer = torch.nn.Linear(width, width)
optimizer = torch.optim.AdamW(layer.parameters())
for _ in range(steps):
    layer(torch.randn(64, width)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("done")
"""
SCRIPTS = [(4096, 40, "1GiB"), (6144, 25, "1500MiB")]  # width, steps, what it is said to take


def prepare(folder, scale):
    """[(name, recipe, threads)]"""
    shape = json.loads((ROOT / "demo/model/config.json").read_text())
    found = []
    for i, (vocabulary, width, optimizer, steps, threads) in enumerate(RUNS):
        model = folder / f"model{i}"
        model.mkdir()
        for file in (ROOT / "demo/model").iterdir():
            if file.name != "config.json":
                shutil.copy(file, model)
        (model / "config.json").write_text(json.dumps({**shape, "vocab_size": vocabulary, "hidden_size": width, "intermediate_size": width,
                                                       "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 8,
                                                       "head_dim": width // 8}))
        recipe = folder / f"run{i}.yaml"
        recipe.write_text(json.dumps({
            "model": str(model), "init": "random", "method": {"type": "full"}, "precision": "fp32",
            "data": {"train": str(ROOT / "demo/data/facts/train.parquet"), "max_length": 16}, "batch": {"effective": 4},
            "optimizer": {"name": optimizer, "lr": 1e-4}, "schedule": {"max_steps": max(2, int(steps * scale))},
            "output": str(folder / f"out{i}")}))
        found.append((f"run{i}", recipe, threads))
    return found


def timed(words, environment=None):
    """(seconds, peak bytes) of a command that must succeed."""
    begin = time.monotonic()
    process = subprocess.Popen([str(word) for word in words], env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return time.monotonic() - begin, usage.ru_maxrss * 1024


def schedule(order, jobs, capacity, threads):
    """The makespan of each job, in this order, at the first time at which it fits."""
    placed = []  # (begin, end, memory, threads)
    makespan = 0.0
    for index in order:
        seconds, memory, width = jobs[index]
        for begin in sorted({0.0, *(one[1] for one in placed)}):
            here = [one for one in placed if one[0] < begin + seconds and one[1] > begin]
            if all(sum(o[2] for o in here if o[0] <= at < o[1]) + memory <= capacity and
                   sum(o[3] for o in here if o[0] <= at < o[1]) + width <= threads
                   for at in {begin, *(o[0] for o in here if o[0] > begin)}):
                placed.append((begin, begin + seconds, memory, width))
                makespan = max(makespan, begin + seconds)
                break
    return makespan


def best_packing(jobs, capacity, threads, tries=6000):
    """(seconds found, lower bound)"""
    bound = max(max(job[0] for job in jobs), sum(job[0] * job[2] for job in jobs) / threads,
                sum(job[0] * job[1] for job in jobs) / capacity)
    chance = random.Random(19)
    best = float("inf")
    for start in range(3):
        order = sorted(range(len(jobs)), key=lambda i: -jobs[i][start % 3])
        now = schedule(order, jobs, capacity, threads)
        heat = now * 0.05
        for _ in range(tries):
            best = min(best, now)
            if best <= bound * 1.0001:
                return best, bound
            a, b = chance.randrange(len(order)), chance.randrange(len(order))
            order[a], order[b] = order[b], order[a]
            after = schedule(order, jobs, capacity, threads)
            if after <= now or chance.random() < 2.718 ** ((now - after) / heat):
                now = after
            else:
                order[a], order[b] = order[b], order[a]
            heat *= 0.999
    return best, bound


def queue_all(plimsoll, folder, entries):
    """Adds (words) in their order and runs the worker: what `show` says of each, and the worker's seconds."""
    environment = {**os.environ, "PLIMSOLL_QUEUE_DIR": str(folder)}
    ask = lambda *words: subprocess.run([str(word) for word in (plimsoll, "queue", *words)], env=environment, check=True,
                                        capture_output=True, text=True).stdout
    ids = [json.loads(ask("add", "--json", *words))["id"] for words in entries]
    begin = time.monotonic()
    print(ask("run", "--memory", CAPACITY, "--threads", THREADS, "--until-done"), flush=True)
    seconds = time.monotonic() - begin
    return [json.loads(ask("show", "--json", one)) for one in ids], seconds


def at_once(shown, key):
    spans = [attempt for one in shown for attempt in one["attempts"]]
    return max(sum(one[key] or 0 for one in spans if one["started"] <= at["started"] < one["ended"]) for at in spans)


def figures(shown, seconds, alone):
    took = [one["attempts"][-1]["ended"] - one["attempts"][0]["started"] for one in shown]
    jobs = lambda times: [(time_, one["host_bytes"], one["threads"]) for time_, one in zip(times, shown)]
    best_alone, bound_alone = best_packing(jobs(alone), CAPACITY, THREADS)
    best_took, bound_took = best_packing(jobs(took), CAPACITY, THREADS)
    return {
        "runs": len(shown), "done": sum(one["state"] == "done" for one in shown),
        "attempts": sum(len(one["attempts"]) for one in shown),
        "outcomes": sorted({attempt["outcome"] for one in shown for attempt in one["attempts"]}),
        "wall_seconds": round(seconds, 1),
        "one_after_the_other_seconds": round(sum(alone), 1),
        "best_packing_of_times_alone": {"seconds": round(best_alone, 1), "lower_bound": round(bound_alone, 1),
                                        "wall_over_best": round(seconds / best_alone, 3)},
        "best_packing_of_times_in_the_queue": {"seconds": round(best_took, 1), "lower_bound": round(bound_took, 1),
                                               "wall_over_best": round(seconds / best_took, 3)},
        "most_reserved_gib": round(at_once(shown, "host_bytes") / GIB, 3),
        "most_measured_gib": round(at_once(shown, "peak_host_bytes") / GIB, 3),
        "entries": [{"name": one["name"], "threads": one["threads"], "reserved_mib": one["host_bytes"] >> 20,
                     "peak_mib": max(attempt["peak_host_bytes"] or 0 for attempt in one["attempts"]) >> 20,
                     "predicted_seconds": round(one["predicted_seconds"], 1), "alone_seconds": round(a, 1), "queue_seconds": round(t, 1)}
                    for one, a, t in zip(shown, alone, took)]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plimsoll", default=ROOT / "build/plimsoll")
    parser.add_argument("--python", default=ROOT / ".deps/parity/bin/python3")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--machine", default="", help="in words, for the file")
    options = parser.parse_args()
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        runs = prepare(folder, options.scale)
        script = folder / "script.py"
        script.write_text(SCRIPT)
        clear = lambda: [shutil.rmtree(out, ignore_errors=True) for out in folder.glob("out*")]
        alone = []
        for run, recipe, threads in runs:
            alone.append(timed([options.plimsoll, "train", recipe, "--threads", threads, "--quiet"])[0])
            print(f"{run} alone {alone[-1]:.1f} s", flush=True)
            clear()
        recipes = [(recipe, "--threads", threads) for _, recipe, threads in runs]
        packed = figures(*queue_all(options.plimsoll, folder / "queue", recipes), alone)
        clear()
        foreign, foreign_alone = [], []
        for width, steps, memory in SCRIPTS:
            words = [options.python, script, width, max(2, int(steps * options.scale))]
            seconds, peak = timed(words)
            print(f"script {width} alone {seconds:.1f} s, peak {peak >> 20} MiB", flush=True)
            foreign_alone.append(seconds)
            foreign.append(["--memory", memory, "--threads", 1, "--seconds", round(seconds), "--name", f"torch{width}", "--", *words])
        mixed = figures(*queue_all(options.plimsoll, folder / "mixed", recipes + foreign), alone + foreign_alone)
    result = {"capacity_gib": CAPACITY / GIB, "threads": THREADS, "machine": options.machine,
              "load_before": [round(one, 2) for one in load], "load_after": [round(one, 2) for one in os.getloadavg()],
              "twelve_trainings": packed, "with_two_pytorch_scripts": mixed}
    text = json.dumps(result, indent=1) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
