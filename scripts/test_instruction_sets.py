#!/usr/bin/env python3
"""Runs the tests that touch kernels again as lesser machines than this one would: scripts/test_instruction_sets.py BUILD

Once for every instruction set below this machine's (PLIMSOLL_MAX_ISA caps every command that a test starts), the least of
which runs most, and once for every other number of threads (1, 2 or 4) that this machine has CPUs for. The machine's own set and number of threads are
those of `make test`. The last lines say what was run, and what needs another machine.
"""
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETS = ("avx2", "avx512", "avx512-bf16", "amx")
THREADS = (1, 2, 4)
# Tests of kernels by themselves run every set of the machine already; these run whole programs.
PROGRAMS = ("cpu_machine_test", "calibrate_test", "runtime_test", "train_test", "golden", "train", "long_run", "kills",
            "conversations", "chat", "commands", "data", "load_line", "commands_in_docs_work", "arithmetic_in_docs_holds",
            "plan_answers")
# What the sets between the least and the machine's own run: the engine's programs, not the commands around it.
ENGINE = ("cpu_machine_test", "calibrate_test", "runtime_test", "train_test", "golden", "train", "arithmetic_in_docs_holds")
# What is cheap, and has products, attention, updates and generation in it.
FEW = ("golden", "train")


def rounds(machine, cpus):
    """(title, environment, number of CPUs or None, names of tests) of every run that this machine can make."""
    lesser = [(name, {"PLIMSOLL_MAX_ISA": name}, None, PROGRAMS if name == SETS[0] else ENGINE)
              for name in SETS[:SETS.index(machine)]]
    threads = [(f"{n} thread{'s' if n > 1 else ''}", {}, n, FEW) for n in THREADS if n < cpus]
    return lesser + threads


def summary(machine, cpus):
    """What stands under all of it."""
    own = SETS.index(machine)
    absent = [*SETS[own + 1:], *(f"{n} threads" for n in THREADS if n > cpus)]
    return [f"instruction sets and threads: {machine} with {cpus} threads is this machine's own, tested by `make test`",
            "  also run here: " + (", ".join(title for title, *_ in rounds(machine, cpus)) or "nothing: there is no lesser one"),
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
    if len(sys.argv) != 2:
        sys.exit("usage: test_instruction_sets.py BUILD")
    build = Path(sys.argv[1]).resolve()
    if "PLIMSOLL_MAX_ISA" in os.environ:
        sys.exit("error: PLIMSOLL_MAX_ISA is set: this is to find out what the machine has")
    machine, cpus = machine_of(build / "plimsoll"), len(os.sched_getaffinity(0))
    failed = []
    for title, environment, some, names in rounds(machine, cpus):
        print(f"\n-- {title}", flush=True)
        if run_round(build, environment, some, names) != 0:
            failed.append(title)
    print("", *summary(machine, cpus), sep="\n")
    if failed:
        sys.exit(f"error: failed with {', '.join(failed)}")


if __name__ == "__main__":
    main()
