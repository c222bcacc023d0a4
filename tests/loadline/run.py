#!/usr/bin/env python3
"""The load line: random small recipes, each run under a hard cap of its planned data bytes.

    run.py [--plimsoll build/plimsoll] [--count 300] [--first 0] [--keep FOLDER] [--out FILE]

Every recipe is planned, then trained for a few steps (evaluation and saving included) with RLIMIT_DATA at the planned
data bytes plus 2 % (at least 8 MiB). It has to finish, allocate the planned device bytes exactly, and peak within 3 % or
16 MiB of the plan. Half of the recipes get a stated device budget between the smallest that works and plenty. Then it
has to be refused with exit code 3, before anything is written: with a budget below the smallest possible, and with a cap
below the plan. Standard library only.
"""
import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from recipes import write_recipe  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
MIB = 1 << 20
REFUSED = 3


class Failure(Exception):
    pass


class Line:
    def __init__(self, plimsoll, seed, folder):
        self.plimsoll, self.seed, self.folder = plimsoll, seed, folder
        self.path, self.settings = write_recipe(folder, seed)
        self.sets = []

    def call(self, *words, data_limit=None):
        def cap():
            if data_limit is not None:
                resource.setrlimit(resource.RLIMIT_DATA, (data_limit, data_limit))

        words = [str(self.plimsoll), words[0], str(self.path), *words[1:]]
        for key in self.sets:
            words += ["--set", key]
        return subprocess.run(words, capture_output=True, text=True, timeout=300, preexec_fn=cap)

    def plan(self):
        done = self.call("plan", "--json")
        if done.returncode not in (0, REFUSED):
            raise Failure(f"plan: exit {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def train(self, data_limit):
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        return self.call("train", "--quiet", data_limit=data_limit)

    def choose_budget(self):
        """For half of the recipes a stated size between the smallest that works and what nothing limits."""
        rng = random.Random(self.seed + 1_000_000)
        plenty = self.plan()
        if not plenty["feasible"]:
            raise Failure("does not fit this machine")
        self.sets = ["memory.device=1KiB"]
        least = self.plan()
        self.least = least["device"]["arena_bytes"]
        if least["feasible"]:
            raise Failure("a budget of 1 KiB is said to be enough")
        self.sets = []
        most = plenty["device"]["arena_bytes"]
        if self.least > most:
            raise Failure(f"the smallest possible, {self.least}, is above the unlimited plan, {most}")
        if rng.random() < 0.5:
            share = rng.choice((0.0, rng.random()))
            self.sets = [f"memory.device={int(self.least + share * (most - self.least))}B"]

    def check_fits(self):
        plan = self.plan()
        if not plan["feasible"]:
            raise Failure(f"refused with {self.sets}: the smallest possible is said to be {self.least}")
        data = plan["process"]["planned_data_bytes"]
        limit = data + max(data // 50, 8 * MIB)
        done = self.train(limit)
        if done.returncode != 0:
            raise Failure(f"under {limit} bytes: exit {done.returncode}: {done.stderr.strip()}")
        report = json.loads((self.folder / "run/run.json").read_text())
        planned, measured = report["planned"], report["measured"]
        if planned["device_arena_bytes"] != measured["device_arena_bytes"]:
            raise Failure(f"device: planned {planned['device_arena_bytes']}, had {measured['device_arena_bytes']}")
        peak, had = planned["process_peak_rss_bytes"], measured["process_peak_rss_bytes"]
        if abs(peak - had) > max(0.03 * peak, 16 * MIB):
            raise Failure(f"process peak: planned {peak / MIB:.1f} MiB, had {had / MIB:.1f} MiB")
        return data, peak, had, report["variant"]

    def check_refused(self, data):
        for what, sets, limit in ((f"a budget of {self.least - 512} bytes", [f"memory.device={self.least - 512}B"], None),
                                  ("a cap 8 MiB below the plan", self.sets, data - 8 * MIB)):
            kept, self.sets = self.sets, sets
            done = self.train(limit)
            self.sets = kept
            if done.returncode != REFUSED:
                raise Failure(f"{what}: exit {done.returncode}, expected {REFUSED}: {done.stderr.strip()}")
            if (self.folder / "run").exists():
                raise Failure(f"{what}: something was written")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default=ROOT / "build/plimsoll", type=Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="number of the first recipe, to see one again")
    parser.add_argument("--keep", type=Path, help="folder for the recipes and runs; else they are removed")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    base = arguments.keep or Path(tempfile.mkdtemp())
    failures, lines = [], []
    for seed in range(arguments.first, arguments.first + arguments.count):
        folder = base / str(seed)
        try:
            line = Line(arguments.plimsoll.resolve(), seed, folder)
            line.choose_budget()
            data, peak, had, variant = line.check_fits()
            line.check_refused(data)
            lines.append({"recipe": seed, "planned_data": data, "planned_peak": peak, "peak": had, "variant": variant})
        except Failure as failure:
            failures.append(seed)
            print(f"recipe {seed}: {failure}\n  see it again: {Path(__file__).name} --first {seed} --count 1 --keep FOLDER",
                  flush=True)
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
        if sys.stderr.isatty():
            print(f"\r{seed - arguments.first + 1}/{arguments.count}, {len(failures)} failed", end="", file=sys.stderr)
    worst = max(lines, key=lambda line: abs(line["planned_peak"] - line["peak"]), default=None)
    print(f"load line: {len(lines)} of {arguments.count} recipes hold" +
          (f"; peak furthest from its plan: {(worst['peak'] - worst['planned_peak']) / MIB:+.1f} MiB of "
           f"{worst['planned_peak'] / MIB:.1f} (recipe {worst['recipe']})" if worst else ""))
    if arguments.out:
        arguments.out.write_text(json.dumps({"count": arguments.count, "failed": failures, "runs": lines}) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
