#!/usr/bin/env python3
"""The load line: random small recipes, each run under a hard cap of its planned data bytes.

    run.py [--plimsoll build/plimsoll] [--count 300] [--first 0] [--devices N] [--keep FOLDER] [--out FILE]

Every recipe is planned, then trained for a few steps (evaluation and saving included) with RLIMIT_DATA at the planned
data bytes, to the byte. It has to finish, allocate the planned device bytes exactly, and peak (VmHWM) at or below the
plan, by no more than 10 % or 40 MiB. Half of the recipes get a stated budget between the smallest that works and plenty.
Then it has to be refused with exit code 3, before anything is written: with a budget below the smallest possible, and
with a cap below the plan. Where this machine lets the test make a memory cgroup, each recipe runs once more in one, capped at its
planned process peak plus 3 % (at least 16 MiB), where the kernel kills what takes more; and at 60 % of it, where a smaller
variant has to run, or none, but nothing may be killed. With --devices each recipe runs on so many processes, each under the cap
of its own, and a group is capped at the sum of their peaks and what mpirun takes; every second one divides gradients too. Standard library only.
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

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]
from cgroup import make_cgroup  # noqa: E402
from recipes import write_recipe  # noqa: E402
from shard import is_mine  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
MIB = 1 << 20
REFUSED = 3
MPIRUN = 24 << 20  # bytes of mpirun itself in a group
STAGES = ("auto", "gradients", "weights")


class Failure(Exception):
    pass


class Line:
    def __init__(self, plimsoll, seed, folder, cgroup, devices=1):
        self.plimsoll, self.seed, self.folder, self.cgroup, self.devices = plimsoll, seed, folder, cgroup, devices
        self.path, self.settings = write_recipe(folder, seed)
        self.sets, self.always = [], []
        if devices > 1:
            effective = max(devices, self.settings["batch"]["effective"])
            self.always = [f"batch.effective={effective}", "threads=1"]
            if self.settings["optimizer"]["name"] != "adafactor":
                self.always.append("memory.shard=" + STAGES[seed % len(STAGES)])

    def call(self, *words, data_limit=None, group_limit=None):
        def cap():
            if data_limit is not None:
                resource.setrlimit(resource.RLIMIT_DATA, (data_limit, data_limit))
            if group_limit is not None:
                self.cgroup.enter(group_limit)

        words = [str(self.plimsoll), words[0], str(self.path), *words[1:]]
        if self.devices > 1:
            words += ["--devices", str(self.devices)]
        for key in (*self.always, *self.sets):
            words += ["--set", key]
        return subprocess.run(words, capture_output=True, text=True, timeout=600, preexec_fn=cap)

    def plan(self):
        done = self.call("plan", "--json")
        if done.returncode not in (0, REFUSED):
            raise Failure(f"plan: exit {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def train(self, **limits):
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        return self.call("train", "--quiet", **limits)

    def choose_budget(self):
        """For half of the recipes a stated size of the process between the smallest that works and plenty."""
        rng = random.Random(self.seed + 1_000_000)
        plenty = self.plan()
        if not plenty["feasible"]:
            raise Failure("does not fit this machine")
        self.sets = ["memory=1KiB"]
        least = self.plan()
        self.least = least["process"]["planned_share_bytes"]
        if least["feasible"]:
            raise Failure("a budget of 1 KiB is said to be enough")
        self.sets = []
        most = plenty["process"]["planned_share_bytes"]
        if self.least > most:
            raise Failure(f"the smallest possible, {self.least}, is above the unlimited plan, {most}")
        if rng.random() < 0.5:
            share = rng.choice((0.0, rng.random()))
            self.sets = [f"memory={self.devices * int(self.least + share * (most - self.least))}B"]

    def check_fits(self):
        plan = self.plan()
        if not plan["feasible"]:
            raise Failure(f"refused with {self.sets}: the smallest possible is said to be {self.least}")
        data = plan["process"]["planned_data_bytes"]
        done = self.train(data_limit=data)
        if done.returncode != 0:
            raise Failure(f"under {data} bytes: exit {done.returncode}: {done.stderr.strip()}")
        report = json.loads((self.folder / "run/run.json").read_text())
        planned, measured = report["planned"], report["measured"]
        peak = planned["process_peak_rss_bytes"]
        for process in report.get("ranks", [measured]):
            if planned["device_arena_bytes"] != process["device_arena_bytes"]:
                raise Failure(f"device: planned {planned['device_arena_bytes']}, had {process['device_arena_bytes']}")
            had = process["process_peak_rss_bytes"]
            # What MPI takes depends on the machine: 20 to 27 MiB of the 32 that are planned, and threads that start none.
            if had > peak or peak - had > max(0.1 * peak, (40 if self.devices == 1 else 72) * MIB):
                raise Failure(f"process peak: planned {peak / MIB:.1f} MiB, had {had / MIB:.1f} MiB")
        return data, peak, had, report

    def train_in_group(self, limit):
        """The exit code, and what was planned and ran where it did; nothing is ever killed."""
        kept, self.sets = self.sets, [*self.sets, "memory.headroom=0%"]
        done = self.train(group_limit=limit)
        self.sets = kept
        self.cgroup.release()
        if done.returncode not in (0, REFUSED):
            raise Failure(f"in a cgroup of {limit} bytes: exit {done.returncode}: {done.stderr.strip()}")
        run = self.folder / "run/run.json"
        return done.returncode, json.loads(run.read_text())["planned"] if done.returncode == 0 else done.stderr

    def check_group(self, before):
        """Under a group's cap a variant as fast runs within it; with far too little, a smaller one or none."""
        as_fast = 1.11  # twice memory.tie where seconds are guessed, and rounding: what ties with the fastest is chosen by its memory
        peak = before["planned"]["process_peak_rss_bytes"]
        together = lambda planned: planned.get("bytes_together", planned["process_peak_rss_bytes"])  # noqa: E731
        limit = int(together(before["planned"]) + self.devices * max(0.03 * peak, 16 * MIB)) + (MPIRUN if self.devices > 1 else 0)
        code, planned = self.train_in_group(limit)
        if code != 0:
            raise Failure(f"in a cgroup of {limit} bytes: exit {code}: {planned}")
        if (together(planned) > limit
                or planned["seconds_per_step"] > as_fast * before["planned"]["seconds_per_step"]):
            raise Failure(f"in a cgroup of {limit} bytes: planned {planned}, without it {before['planned']}")
        self.train_in_group(int(0.6 * together(before["planned"])))

    def check_refused(self, data):
        budget = self.devices * (self.least - 512)
        for what, sets, limit in ((f"a budget of {budget} bytes", [f"memory={budget}B"], None),
                                  ("a cap 8 MiB below the plan", self.sets, data - 8 * MIB)):
            kept, self.sets = self.sets, sets
            done = self.train(data_limit=limit)
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
    parser.add_argument("--devices", type=int, default=1, help="processes of each run")
    parser.add_argument("--keep", type=Path, help="folder for the recipes and runs; else they are removed")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    base = arguments.keep or Path(tempfile.mkdtemp())
    failures, lines, cgroup = [], [], make_cgroup()
    seeds = [seed for seed in range(arguments.first, arguments.first + arguments.count) if arguments.count == 1 or is_mine("load_line", seed)]
    for seed in seeds:
        folder = base / str(seed)
        try:
            line = Line(arguments.plimsoll.resolve(), seed, folder, cgroup, arguments.devices)
            line.choose_budget()
            data, peak, had, report = line.check_fits()
            if cgroup:
                line.check_group(report)
            line.check_refused(data)
            lines.append({"recipe": seed, "planned_data": data, "planned_peak": peak, "peak": had,
                          "variant": report["variant"]})
        except Failure as failure:
            failures.append(seed)
            print(f"recipe {seed}: {failure}\n  see it again: {Path(__file__).name} --first {seed} --count 1 --keep FOLDER",
                  flush=True)
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
        if sys.stderr.isatty():
            print(f"\r{seeds.index(seed) + 1}/{len(seeds)}, {len(failures)} failed", end="", file=sys.stderr)
    worst = max(lines, key=lambda line: abs(line["planned_peak"] - line["peak"]), default=None)
    if cgroup:
        cgroup.remove()
    caps = "RLIMIT_DATA" + (" and a memory cgroup" if cgroup else "; no memory cgroup can be made here")
    print(f"load line: {len(lines)} of {len(seeds)} recipes hold ({caps})" +
          (f"; peak furthest from its plan: {(worst['peak'] - worst['planned_peak']) / MIB:+.1f} MiB of "
           f"{worst['planned_peak'] / MIB:.1f} (recipe {worst['recipe']})" if worst else ""))
    if arguments.out:
        arguments.out.write_text(json.dumps({"count": arguments.count, "failed": failures, "runs": lines}) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
