"""Power cuts in train, resume, longer, overwrite, dpo, merge, convert and the queue: what was acknowledged is there,
and everything goes on to the same bits.

Usage: powercut_test.py PLIMSOLL RECORD_SHIM [--count N] [--seed N] [--only SCENARIO] [--without NAME] [--mutants N]. Standard
library alone.

Each scenario runs once while record_shim.cc records its writes, flushes and names. Then N times: a call is drawn, the folder
becomes what a disk could hold had the power gone there (disk.py), and the command runs again as a user would run it. --without
forgets the flushes of files whose path has NAME; --mutants does so for the first N of those that count, and each must be missed.
"""
import argparse
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "faults"))
from disk import Disk, read_journal  # noqa: E402
from faults_test import Bench, Problem, STEPS, contents, lines, place_in_memory  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
# (scenario, part of a path): without these flushes something is lost.
FLUSHES = [("queue", "queue.db-wal"), ("train", "metrics.jsonl"), ("train", "manifest.jsonl"), ("train", "/tmp/checkpoint-"), ("train", "/out"),
           ("dpo", "reference.jsonl"), ("convert", "/tmp/new"), ("queue", "/runs/")]


class Scenario:
    """`words` run in an empty folder, or in what `before` made; `again` are the words after the cut."""
    before = ()
    again = ("--resume",)

    def __init__(self, bench):
        self.bench, self.place = bench, bench.folder / "place"
        self.out, self.name = self.place / "out", type(self).__name__.lower()
        self.start = bench.folder / "starts" / self.name
        self.empty()
        for words in self.before:
            bench.run(words(self), code=0)
        self.prepare()
        shutil.copytree(self.place, self.start)
        self.journal = bench.folder / f"{self.name}.journal"
        self.turn = bench.folder / "turn"
        self.journal.write_bytes(b"")
        self.turn.write_bytes(bytes(4))
        self.record()
        self.want = self.result()
        self.calls = read_journal(self.journal)

    def empty(self):
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()

    def prepare(self):
        pass

    def recorded(self):
        return {**self.bench.environment, "LD_PRELOAD": str(self.bench.shim), "PLIMSOLL_RECORD": str(self.journal),
                "PLIMSOLL_RECORD_BELOW": str(self.place), "PLIMSOLL_RECORD_LOCK": str(self.turn)}

    def record(self):
        done = subprocess.run([self.bench.plimsoll, *map(str, self.words())], env=self.recorded(), capture_output=True, text=True)
        if done.returncode != 0:
            raise Problem(done.stderr)

    def go_on(self):
        """After the cut. `bench.run` tells what went wrong."""
        self.check_left()
        if not (self.result == self.folder_result and self.out.exists()):
            self.bench.run([*self.words(), *self.again], code=0)

    def check_left(self):
        pass

    def run_result(self):
        last = self.out / f"checkpoint-{STEPS}"
        names = sorted(path.name for path in self.out.iterdir() if not path.name.startswith("events.out."))
        return {"names": names, "files": {name: (last / name).read_bytes() for name in sorted(os.listdir(last))},
                "weights": (self.out / "model.safetensors").read_bytes(),
                "steps": json.loads((self.out / "run.json").read_text())["steps"],
                "metrics": lines(self.out / "metrics.jsonl", "step", "loss", "grad_norm", "lr", "tokens"),
                "evaluations": lines(self.out / "eval.jsonl", "step", "loss")}

    def folder_result(self):
        return contents(self.out)

    result = run_result


class Train(Scenario):
    def words(self):
        return ["train", self.bench.full, "--quiet", "--set", "log.tensorboard=true"]


class Resume(Scenario):
    before = (lambda self: ["train", self.bench.full, "--quiet"],)
    again = ()

    def prepare(self):
        shutil.rmtree(self.out / "checkpoint-4")

    def words(self):
        return ["train", self.bench.full, "--quiet", "--resume"]


class Longer(Scenario):
    """A run that ended goes on to more steps."""
    before = (lambda self: ["train", self.bench.full, "--quiet", "--set", f"schedule.max_steps={STEPS - 2}"],)
    again = ()

    def words(self):
        return ["train", self.bench.full, "--quiet", "--resume"]


class Overwrite(Scenario):
    before = (lambda self: ["train", self.bench.lora, "--quiet"],)
    again = ()

    def words(self):
        return ["train", self.bench.full, "--quiet", "--overwrite"]


class Dpo(Scenario):
    def words(self):
        return ["train", self.bench.dpo, "--quiet"]

    def check_left(self):
        """Before step 1 the rows are on the disk."""
        if any(self.out.glob("checkpoint-*")) and '"rows"' not in (self.out / "reference.jsonl").read_text(errors="replace"):
            raise Problem("a checkpoint is there, and not what the model said before the first step")


class Merge(Scenario):
    before = (lambda self: ["train", self.bench.lora, "--quiet", "--set", f"output={self.place}/adapter"],)
    again, result = (), Scenario.folder_result

    def words(self):
        return ["merge", self.place / "adapter", "--out", self.out]


class Convert(Scenario):
    again, result = (), Scenario.folder_result

    def words(self):
        return ["convert", self.bench.model, "--dtype", "bf16", "--shard-size", "4KiB", "--out", self.out]


class Queue(Scenario):
    """Entries that are added before and while a worker runs, one of them a training."""

    def queue(self, *words, recorded=False):
        environment = {**(self.recorded() if recorded else self.bench.environment), "PLIMSOLL_QUEUE_DIR": str(self.place / "home/state/queue"),
                       "PLIMSOLL_MACHINE_DIR": str(self.bench.folder / "machine")}
        return subprocess.Popen([self.bench.plimsoll, "queue", *map(str, words)], env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def ended(self, process):
        text, told = process.communicate(timeout=120)
        if process.returncode != 0:
            raise Problem(f"{process.args}: exit code {process.returncode}\n{told}")
        return text

    def add(self, *words):
        entry = json.loads(self.ended(self.queue("add", "--json", *words, recorded=True)))
        self.acknowledged.append((self.journal.stat().st_size, entry["id"], entry["name"]))

    def record(self):
        self.acknowledged, config = [], self.bench.folder / "config.json"
        config.write_text('{"a": 2}')
        self.add("--memory", "20MiB", "--", "true")
        self.add("--memory", "20MiB", "--yaml-set", f"{config}:a=3", "--", "grep", "-q", "3", config)
        self.add(self.bench.full)
        worker = self.queue("run", "--until-done", recorded=True)
        self.add("--memory", "20MiB", "--", "true")
        self.ended(worker)

    def check_left(self):
        """Also without Plimsoll."""
        known = {entry for at, entry, _ in self.acknowledged if at <= self.cut_bytes}
        file = self.place / "home/state/queue/queue.db"
        found = set()
        if file.exists():
            base = sqlite3.connect(file)
            try:
                if base.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                    raise Problem("the database is damaged")
                found = {row[0] for row in base.execute("SELECT id FROM entries")}
            except sqlite3.DatabaseError as error:
                if known or "no such table" not in str(error):
                    raise Problem(f"the database: {error}")
            finally:
                base.close()
        if known - found:
            raise Problem(f"entries {sorted(known - found)} were acknowledged, and are lost")
        self.known = known

    def go_on(self):
        self.check_left()
        self.ended(self.queue("run", "--until-done"))
        entries = {one["id"]: one for one in json.loads(self.ended(self.queue("list", "--all", "--json")))["entries"]}
        for entry in entries.values():
            if entry["state"] != "done":
                raise Problem(f"entry {entry['id']} is {entry['state']}: {entry['note']} {entry['attempts']}")
        if self.known - set(entries):
            raise Problem(f"entries {sorted(self.known - set(entries))} are lost")
        self.has_training = any(one["recipe"] for one in entries.values())

    def result(self):
        return self.run_result() if getattr(self, "has_training", True) else self.want


SCENARIOS = {kind.__name__.lower(): kind for kind in (Train, Resume, Longer, Overwrite, Dpo, Merge, Convert, Queue)}


class CutBench(Bench):
    def __init__(self, plimsoll, shim, folder):
        super().__init__(plimsoll, shim, folder)
        rows = [{"prompt": f"Is {i} even?", "chosen": "Yes." if i % 2 == 0 else "No.", "rejected": "No." if i % 2 == 0 else "Yes."} for i in range(12)]
        (self.read / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.made = {}
        self.dpo = self.recipe("dpo.json", {
            "model": str(ROOT / "demo/model"), "init": "random", "task": "dpo", "method": {"type": "full"}, "precision": "fp32", "threads": 1,
            "data": {"train": str(self.read / "pairs.jsonl"), "eval": 4, "max_length": 32}, "batch": {"effective": 4, "micro": 2},
            "optimizer": {"lr": 1e-3}, "schedule": {"max_steps": STEPS, "warmup": 1}, "memory": {"loss_chunk": 64},
            "save": {"every": 1, "keep": 2}, "output": str(self.folder / "place/out")})

    def scenario(self, name):
        if name not in self.made:
            self.made[name] = SCENARIOS[name](self)
        return self.made[name]


def one_cut(scenario, dice, without):
    """Draws a cut; raises Problem where something is lost. Returns what happened, in words."""
    end = dice.randint(1, len(scenario.calls))
    scenario.cut_bytes = sum(48 + len(call[4].encode()) + len(call[5]) for call in scenario.calls[:end])
    disk = Disk(scenario.place, scenario.start, scenario.calls, end, lambda name: bool(without) and without in name)
    how = disk.after_cut(scenario.place, dice)
    kind, _, _, _, name, _ = scenario.calls[end - 1]
    words = f"after call {end} of {len(scenario.calls)}, {kind} {name[len(str(scenario.place)):]}: {how}"
    try:
        scenario.go_on()
        got = scenario.result()
    except (Problem, OSError, ValueError) as problem:
        raise Problem(f"{words}\n{problem}")
    if got != scenario.want:
        raise Problem(f"{words}\nanother result: {[key for key in scenario.want if got.get(key) != scenario.want[key]]}")
    return how


def cuts(bench, names, count, seed, without=None, stop=False):
    """Problems, in words."""
    scenarios, dice, found = [bench.scenario(name) for name in names], random.Random(seed), []
    for i in range(count):
        scenario = scenarios[i % len(scenarios)]
        try:
            one_cut(scenario, dice, without)
        except Problem as problem:
            found.append(f"{scenario.name}, {problem}")
            if stop:
                return found
            print(f"error: {found[-1]}", file=sys.stderr, flush=True)
    return found


def is_missed(bench, options, name, part):
    """Whether runs go wrong without these flushes. A recording may hold a checkpoint of the database, which flushes what its log
    held, at just the right time: a few others are made then."""
    for again in range(4):
        folder = bench.folder / f"without-{FLUSHES.index((name, part))}-{again}"
        folder.mkdir()
        other = bench if again == 0 else CutBench(options.plimsoll.resolve(), options.shim.resolve(), folder)
        if cuts(other, [name], options.count, options.seed + again, part, stop=True):
            return True
    return False


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("plimsoll", type=Path)
    arguments.add_argument("shim", type=Path)
    arguments.add_argument("--count", type=int, default=60)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--only", choices=SCENARIOS)
    arguments.add_argument("--without")
    arguments.add_argument("--mutants", type=int, default=0)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=place_in_memory()) as folder:
        bench = CutBench(options.plimsoll.resolve(), options.shim.resolve(), Path(folder).resolve())
        found = cuts(bench, [options.only] if options.only else list(SCENARIOS), options.count, options.seed, options.without)
        taken_out = FLUSHES[:options.mutants]
        missed = [f"{name} without flushes of {part}" for name, part in taken_out if not is_missed(bench, options, name, part)]
        calls = {name: len(scenario.calls) for name, scenario in bench.made.items()}
    print(f"{options.count} power cuts among these calls: {calls}; {len(found)} problems")
    print(f"{len(taken_out)} flushes taken out, each of which must be noticed; not noticed: {missed or 'none'}")
    sys.exit(1 if found or missed else 0)


if __name__ == "__main__":
    main()
