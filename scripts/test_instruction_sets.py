#!/usr/bin/env python3
"""Runs the tests that touch kernels again as lesser machines than this one would.

Once for every instruction set below this machine's (PLIMSOLL_MAX_ISA caps every command that a test starts), and once for
every other number of threads (1, 2 or 4) that this machine has CPUs for. The machine's own set and number of threads are
those of `make test`. The last lines say what was run, and what needs another machine.
"""
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETS = ("avx2", "avx512", "avx512-bf16", "amx")
THREADS = (1, 2, 4)
# Tests of kernels by themselves run every set of the machine already; these run whole programs, and can tell a set from another.
ENGINE = ("cpu_machine_test", "calibrate_test", "runtime_test", "train_test", "golden", "train", "arithmetic_in_docs_holds")
# With --all the least set runs the commands around the engine too.
PROGRAMS = (*ENGINE, "long_run", "kills", "conversations", "chat", "commands", "data", "load_line", "commands_in_docs_work",
            "plan_answers")
# What is cheap, and has products, attention, updates and generation in it.
FEW = ("golden", "train")


def rounds(machine, cpus, all_programs=False):
    """(title, environment, number of CPUs or None, names of tests) of every run that this machine can make."""
    lesser = [(name, {"PLIMSOLL_MAX_ISA": name}, None, PROGRAMS if name == SETS[0] and all_programs else ENGINE)
              for name in SETS[:SETS.index(machine)]]
    threads = [(f"{n} thread{'s' if n > 1 else ''}", {}, n, FEW) for n in THREADS if n < cpus]
    return lesser + threads


def in_shards(all_rounds, shards):
    """The rounds of these shards ("0/3": the first of every three); without shards all of them."""
    if not shards:
        return all_rounds
    chosen = [tuple(map(int, shard.split("/"))) for shard in shards]
    return [one for i, one in enumerate(all_rounds) if any(i % count == shard for shard, count in chosen)]


def summary(machine, cpus, run):
    """What stands under all of it; `run` has the titles of the rounds that ran."""
    own = SETS.index(machine)
    absent = [*SETS[own + 1:], *(f"{n} threads" for n in THREADS if n > cpus)]
    return [f"instruction sets and threads: {machine} with {cpus} threads is this machine's own, tested by `make test`",
            "  also run here: " + (", ".join(run) or "nothing: there is no lesser one in this shard"),
            "  need another machine: " + (", ".join(absent) or "none")]


def machine_of(plimsoll):
    done = subprocess.run([plimsoll, "plan", ROOT / "demo/model", "--length", "64", "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["variant"]["isa"]


def run_round(build, environment, cpus, names):
    own = sorted(os.sched_getaffinity(0))
    jobs = cpus or len(own)
    confine = (lambda: os.sched_setaffinity(0, own[:cpus])) if cpus else None
    return subprocess.run(["ctest", "--test-dir", build, "--output-on-failure", "-j", str(jobs), "-R", f"^({'|'.join(names)})$"],
                          env={**os.environ, **environment}, preexec_fn=confine).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("shards", nargs="*", help="such as 0/3: a third of the rounds")
    parser.add_argument("--all", action="store_true", help="the commands around the engine too, with the least set")
    options = parser.parse_args()
    build = options.build.resolve()
    if "PLIMSOLL_MAX_ISA" in os.environ:
        sys.exit("error: PLIMSOLL_MAX_ISA is set: this is to find out what the machine has")
    machine, cpus = machine_of(build / "plimsoll"), len(os.sched_getaffinity(0))
    chosen = in_shards(rounds(machine, cpus, options.all), options.shards)
    failed = []
    for title, environment, some, names in chosen:
        print(f"\n-- {title}", flush=True)
        if run_round(build, environment, some, names) != 0:
            failed.append(title)
    print("", *summary(machine, cpus, [title for title, *_ in chosen]), sep="\n")
    if failed:
        sys.exit(f"error: failed with {', '.join(failed)}")


if __name__ == "__main__":
    main()
