#!/usr/bin/env python3
"""Two processes of one thread, one of two, and transformers + DDP over gloo, in turn on one machine.

    devices.py --work FOLDER [--plimsoll build/plimsoll] [--cases lora] [--rounds 3] [--steps 6] [--layers N] [--tiny] [--out results.json]

The same model, rows and types for all. An effective batch has a micro-batch for each of two processes; DDP averages gradients
over two processes started by torch's own launcher, with the settings that compare_hf.py found best (glibc keeps its memory,
fused AdamW where everything trains). Figures of a round are medians over its steps without the first two; the table has medians
over the rounds, and of memory the sum of the peaks of all processes. Processor seconds are those of all processes from their start
to their end, divided by the steps: what remains comparable where others use the machine (with the load beside them).
`--layers` takes that many layers of each model, for a machine without time; `--tiny` has models so small that a case takes
seconds: to try the script, not to measure. Four processes on two cores show results, not speed, and are left out. Needs torch, transformers, peft.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

from compare_hf import KEEP_MEMORY, WARM_UP, rival_loss, rival_model
from hf_cases import VOCAB, Case, make_model, make_rows, read_rows, recipe_of, work_folder

RANKS = 2
CASES = [Case("qwen2.5-0.5b", "lora", 512, 1), Case("qwen2.5-0.5b", "full", 256, 1, precision="bf16-pure"),
         Case("chatlm-t5", "full", 128, 8, task="seq2seq", precision="fp32", target=128)]


def both(case):
    """The batch of both processes."""
    return dataclasses.replace(case, micro=RANKS * case.micro)


def rival(arguments):
    """One process of the rival, started by torch.distributed.run; the first prints one JSON line."""
    import torch
    import torch.distributed as distributed
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    case = CASES[arguments.rival]
    model = rival_model(case, arguments.work)
    trained = [p for p in model.parameters() if p.requires_grad]
    fused = {"fused": True} if case.method == "full" else {}
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0, **fused)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    rows = read_rows(arguments.work / "rows.jsonl")
    seconds, losses = [], []
    for step in range(arguments.steps):
        first = (step * size + rank) * case.micro
        start = time.perf_counter()
        loss = rival_loss(parallel, rows[first:first + case.micro], case.task)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total = loss.detach().clone()
        distributed.all_reduce(total)
        losses.append(total.item() / size)
        seconds.append(time.perf_counter() - start)
    status = pathlib.Path("/proc/self/status").read_text()
    peak = torch.tensor([int(status.split("VmHWM:")[1].split()[0]) * 1024], dtype=torch.int64)
    distributed.all_reduce(peak)
    if rank == 0:
        print(json.dumps({"seconds": seconds, "losses": losses, "peak_bytes": peak.item()}))
    distributed.destroy_process_group()


def counted(words, steps, **options):
    """(the finished process, processor seconds for each step) of a command and all that it starts."""
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime
    before = used()
    done = subprocess.run(words, **options)
    return done, (used() - before) / steps


def run_rival(case, arguments):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), __file__, "--work",
               str(arguments.work), "--steps", str(arguments.steps), "--rival", str(CASES.index(case))]
    done, processor = counted(command, arguments.steps, env={**os.environ, **KEEP_MEMORY, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{case.name}: the rival failed: " + done.stderr.strip()[-900:])
    return {**json.loads(done.stdout.splitlines()[-1]), "processor_seconds": processor, "load": os.getloadavg()[0]}


def run_plimsoll(case, arguments, ranks):
    recipe = arguments.work / "recipe.json"
    settings = recipe_of(both(case), arguments.work, arguments.steps)
    settings["batch"]["micro"] = case.micro
    recipe.write_text(json.dumps(settings))
    words = ["--devices", str(ranks), "--threads", str(RANKS // ranks)]
    _, processor = counted([arguments.plimsoll, "train", str(recipe), "--quiet", "--overwrite", *words], arguments.steps, check=True)
    lines = [json.loads(line) for line in (arguments.work / "run/metrics.jsonl").read_text().splitlines()]
    report = json.loads((arguments.work / "run/run.json").read_text())
    return {"seconds": [line["seconds"] for line in lines], "losses": [line["loss"] for line in lines],
            "peak_bytes": sum(rank["process_peak_rss_bytes"] for rank in report.get("ranks", [report["measured"]])),
            "predicted_seconds": report["planned"]["seconds_per_step"], "processor_seconds": processor, "load": os.getloadavg()[0]}


def median_step(run):
    return statistics.median(run["seconds"][WARM_UP:])


def summary(runs, case):
    seconds = [median_step(run) for run in runs]
    found = {"tokens_per_s": both(case).tokens / statistics.median(seconds), "seconds": seconds,
             "peak_bytes": statistics.median(run["peak_bytes"] for run in runs),
             "processor_seconds_per_step": statistics.median(run["processor_seconds"] for run in runs), "load": max(run["load"] for run in runs)}
    if "predicted_seconds" in runs[0]:
        found["predicted_seconds"] = runs[0]["predicted_seconds"]
    return found


def compare(case, arguments):
    make_model(arguments.work / case.shape, case.shape, arguments.tiny, arguments.layers)
    config = json.loads((arguments.work / case.shape / "config.json").read_text())
    make_rows(arguments.work / "rows.jsonl", RANKS * case.micro * arguments.steps, case, config.get("vocab_size", VOCAB))
    subprocess.run([arguments.plimsoll, "calibrate", "--devices", str(RANKS), "--even-if-busy"], check=True, capture_output=True)
    runs = {"one process": [], "two processes": [], "DDP over gloo": []}
    for _ in range(arguments.rounds):
        runs["one process"].append(run_plimsoll(case, arguments, 1))
        runs["two processes"].append(run_plimsoll(case, arguments, RANKS))
        runs["DDP over gloo"].append(run_rival(case, arguments))
    ours, theirs = runs["two processes"][0]["losses"][0], runs["DDP over gloo"][0]["losses"][0]
    if abs(ours - theirs) > 0.02 * max(1.0, abs(theirs)):
        raise SystemExit(f"{case.name}: the first loss is {ours:.4f}, the rival's {theirs:.4f}: this is not the same work")
    return {name: summary(each, case) for name, each in runs.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default="build/plimsoll")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--cases", default="", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--layers", type=int, default=0, help="of each model; 0: all it has")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--rival", type=int, default=-1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rival >= 0:
        return rival(arguments)
    arguments.work = work_folder(arguments)
    arguments.plimsoll = str(pathlib.Path(arguments.plimsoll).resolve())
    results = []
    for case in CASES:
        if arguments.cases not in case.name:
            continue
        found = compare(case, arguments)
        alone = found["one process"]["tokens_per_s"]
        for name, each in found.items():
            predicted = each.get("predicted_seconds")
            print(f"{case.name:34}{name:16}{each['tokens_per_s']:9.1f} tokens/s{100 * each['tokens_per_s'] / alone:6.0f} %"
                  f"{each['peak_bytes'] / 2**30:7.2f} GiB  {each['processor_seconds_per_step']:.2f} processor s a step, load {each['load']:.0f}" +
                  (f"  {statistics.median(each['seconds']):.2f} s a step, {predicted:.2f} predicted" if predicted else ""), flush=True)
        results.append({"case": {**dataclasses.asdict(case), "name": case.name}, **found})
    if arguments.out:
        machine = {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "tiny": arguments.tiny, "layers": arguments.layers}
        arguments.out.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
