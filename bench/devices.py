#!/usr/bin/env python3
"""Processes of one thread beside transformers + DDP or FSDP2 over gloo, in turn on one machine.

    devices.py --work FOLDER [--plimsoll build/plimsoll] [--cases lora] [--rounds 3] [--steps 6] [--layers N] [--tiny] [--out results.json]
               [--stages] [--ranks 2,4]

The same model, rows and types for all. An effective batch has a micro-batch for each of the processes. Usually two processes are
compared with one of two threads, and with DDP, which averages gradients over two. With `--stages` those that divide gradients, and
weights (memory.shard), are compared with FSDP2, which divides all three (fully_shard of each layer and of the model), for each
number of `--ranks`. The rival's processes are started by torch's own launcher, with the settings that compare_hf.py found best
(glibc keeps its memory, fused AdamW where everything trains). Figures of a round are medians over its steps without the first two;
the table has medians over the rounds.
Memory is the largest sum of what the processes hold (PSS, in which a page that several have counts once), looked at
ten times a second; `peak_bytes` of the results adds up the peaks of each (RSS), with shared libraries in each of them.
Processor seconds are those of all processes from their start to their end, divided by the steps: what remains comparable where
others use the machine (with the load beside them). `--layers` takes that many layers of each model, for a machine without time;
`--tiny` has models so small that a case takes seconds: to try the script, not to measure. More processes than cores show memory,
not speed. Needs torch, transformers, peft.
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
import threading
import time

from compare_hf import KEEP_MEMORY, WARM_UP, rival_loss, rival_model
from hf_cases import VOCAB, Case, make_model, make_rows, read_rows, recipe_of, work_folder

CORES = 2
CASES = [Case("qwen2.5-0.5b", "lora", 512, 1), Case("qwen2.5-0.5b", "lora", 384, 1, precision="fp32"), Case("qwen2.5-0.5b", "full", 256, 1, precision="bf16-pure"),
         Case("chatlm-t5", "full", 128, 8, task="seq2seq", precision="fp32", target=128)]


def of_all(case, ranks):
    """The case with the batch of all processes."""
    return dataclasses.replace(case, micro=ranks * case.micro)


def divided(model):
    """The model with each of its layers divided among the processes by FSDP2, and what is outside of them."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    import torch.distributed as distributed
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    layers = [module for module in base.modules() if type(module).__name__ in base._no_split_modules]
    if not layers:
        raise SystemExit(f"{type(base).__name__}: no layers to divide")
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


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
    parallel = divided(model) if arguments.stages else torch.nn.parallel.DistributedDataParallel(model)
    trained = [p for p in model.parameters() if p.requires_grad]
    fused = {"fused": True} if case.method == "full" else {}
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0, **fused)
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


class Watch:
    """Looks at what the processes of a run hold together, ten times a second, until it is left."""
    RANK = (b"RANK=", b"OMPI_COMM_WORLD_RANK=")

    def __enter__(self):
        self.largest, self.left = 0, threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.left.set()
        self.thread.join()

    def look(self):
        while not self.left.wait(0.1):
            self.largest = max(self.largest, sum(map(self.held_by, self.ranks())))

    def ranks(self):
        """Processes below this one that are ranks of a run; a process alone is one too."""
        below, found = [os.getpid()], []
        while below:
            children = [int(child) for task in pathlib.Path(f"/proc/{below.pop()}/task").glob("*/children") for child in self.text(task).split()]
            below += children
            found += children
        of_run = [pid for pid in found if any(word.startswith(self.RANK) for word in self.text(pathlib.Path(f"/proc/{pid}/environ")).split(b"\0"))]
        return of_run or found

    @staticmethod
    def text(path):
        try:
            return path.read_bytes()
        except OSError:
            return b""

    def held_by(self, pid):
        lines = self.text(pathlib.Path(f"/proc/{pid}/smaps_rollup")).split(b"\n")
        return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(b"Pss:"))


def counted(words, steps, **options):
    """(the finished process, what was read of its use of processors and memory) of a command and all that it starts."""
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime
    before = used()
    with Watch() as watch:
        done = subprocess.run(words, **options)
    return done, {"processor_seconds": (used() - before) / steps, "held_bytes": watch.largest, "load": os.getloadavg()[0]}


def run_rival(case, arguments, ranks):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), __file__, "--work",
               str(arguments.work), "--steps", str(arguments.steps), "--rival", str(CASES.index(case)), *(["--stages"] if arguments.stages else [])]
    done, use = counted(command, arguments.steps, env={**os.environ, **KEEP_MEMORY, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{case.name}: the rival failed: " + done.stderr.strip()[-900:])
    return {**json.loads(done.stdout.splitlines()[-1]), **use}


def run_plimsoll(case, arguments, ranks, alone=False, shard="auto"):
    """Of so many processes, or `alone` their work in one."""
    recipe = arguments.work / "recipe.json"
    settings = recipe_of(of_all(case, ranks), arguments.work, arguments.steps)
    settings["batch"]["micro"] = case.micro
    settings["memory"] = {"shard": shard}
    recipe.write_text(json.dumps(settings))
    words = ["--devices", "1", "--threads", str(CORES)] if alone else ["--devices", str(ranks), "--threads", "1"]
    _, use = counted([arguments.plimsoll, "train", str(recipe), "--quiet", "--overwrite", *words], arguments.steps, check=True)
    lines = [json.loads(line) for line in (arguments.work / "run/metrics.jsonl").read_text().splitlines()]
    report = json.loads((arguments.work / "run/run.json").read_text())
    return {"seconds": [line["seconds"] for line in lines], "losses": [line["loss"] for line in lines],
            "peak_bytes": sum(rank["process_peak_rss_bytes"] for rank in report.get("ranks", [report["measured"]])),
            "predicted_seconds": report["planned"]["seconds_per_step"], **use}


def median_step(run):
    return statistics.median(run["seconds"][WARM_UP:])


def summary(runs, case):
    """`case`: with the batch of all processes."""
    seconds = [median_step(run) for run in runs]
    found = {"tokens_per_s": case.tokens / statistics.median(seconds), "seconds": seconds,
             "peak_bytes": statistics.median(run["peak_bytes"] for run in runs),
             "held_bytes": statistics.median(run["held_bytes"] for run in runs),
             "processor_seconds_per_step": statistics.median(run["processor_seconds"] for run in runs), "load": max(run["load"] for run in runs)}
    if "predicted_seconds" in runs[0]:
        found["predicted_seconds"] = runs[0]["predicted_seconds"]
    return found


def contenders(ranks, stages):
    """{name: (what runs it, whether it is the rival's)} of so many processes."""
    if stages:
        return {f"gradients x{ranks}": (lambda case, arguments: run_plimsoll(case, arguments, ranks, shard="gradients"), False),
                f"weights x{ranks}": (lambda case, arguments: run_plimsoll(case, arguments, ranks, shard="weights"), False),
                f"FSDP2 x{ranks}": (lambda case, arguments: run_rival(case, arguments, ranks), True)}
    return {"one process": (lambda case, arguments: run_plimsoll(case, arguments, ranks, alone=True), False),
            "two processes": (lambda case, arguments: run_plimsoll(case, arguments, ranks), False),
            "DDP over gloo": (lambda case, arguments: run_rival(case, arguments, ranks), True)}


def same_work(case, own, rivals):
    """Ends where the losses of the first step are not those of the rival."""
    ours, theirs = own["losses"][0], rivals["losses"][0]
    if abs(ours - theirs) > 0.02 * max(1.0, abs(theirs)):
        raise SystemExit(f"{case.name}: the first loss is {ours:.4f}, the rival's {theirs:.4f}: this is not the same work")


def compare(case, arguments, ranks):
    make_rows(arguments.work / "rows.jsonl", ranks * case.micro * arguments.steps, case,
              json.loads((arguments.work / case.shape / "config.json").read_text()).get("vocab_size", VOCAB))
    subprocess.run([arguments.plimsoll, "calibrate", "--devices", str(ranks), "--even-if-busy"], check=True, capture_output=True)
    every = contenders(ranks, arguments.stages)
    runs = {name: [] for name in every}
    for _ in range(arguments.rounds):
        for name, (run, _) in every.items():
            runs[name].append(run(case, arguments))
    theirs = next(runs[name][0] for name, (_, is_rival) in every.items() if is_rival)
    for name, (_, is_rival) in every.items():
        if not is_rival:
            same_work(case, runs[name][0], theirs)
    return {name: summary(each, of_all(case, ranks)) for name, each in runs.items()}


def show(case, found, first):
    """A line for each: its tokens/s are compared with those of `first`."""
    for name, each in found.items():
        predicted = each.get("predicted_seconds")
        print(f"{case.name:34}{name:16}{each['tokens_per_s']:9.1f} tokens/s{100 * each['tokens_per_s'] / found[first]['tokens_per_s']:6.0f} %"
              f"{each['held_bytes'] / 2**30:7.2f} GiB  {each['processor_seconds_per_step']:.2f} processor s a step, load {each['load']:.0f}" +
              (f"  {statistics.median(each['seconds']):.2f} s a step, {predicted:.2f} predicted" if predicted else ""), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default="build/plimsoll")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--cases", default="", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--layers", type=int, default=0, help="of each model; 0: all it has")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--stages", action="store_true", help="divided gradients and weights beside FSDP2")
    parser.add_argument("--ranks", default="2", help="numbers of processes, with --stages")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--rival", type=int, default=-1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rival >= 0:
        return rival(arguments)
    if arguments.ranks != "2" and not arguments.stages:
        parser.error("--ranks: without --stages two processes are compared")
    arguments.work = work_folder(arguments)
    arguments.plimsoll = str(pathlib.Path(arguments.plimsoll).resolve())
    results = []
    for case in CASES:
        if arguments.cases not in case.name:
            continue
        make_model(arguments.work / case.shape, case.shape, arguments.tiny, arguments.layers)
        for ranks in map(int, arguments.ranks.split(",")):
            found = compare(case, arguments, ranks)
            show(case, found, list(found)[-1 if arguments.stages else 0])
            results.append({"case": {**dataclasses.asdict(case), "name": case.name}, **({"ranks": ranks} if arguments.stages else {}), **found})
    if arguments.out:
        machine = {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "tiny": arguments.tiny, "layers": arguments.layers}
        arguments.out.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
