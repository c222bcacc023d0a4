"""Faults in a run of several processes, drawn at random: one of them is killed, stopped or asked to end, a system call of
one fails, the disk is full, a loss is lost, weights become NaN, a row is damaged. All processes end with one code, and the run goes on to the bits of an
undisturbed one.

Usage: ranks_faults_test.py PLIMSOLL SHIM [--count N] [--seed N] [--patience N]. Standard library alone; skipped (77) without Open MPI.
"""
import argparse
import errno
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from faults_test import COUNT, DIE, FROM_THEN_ON, ONCE, CONFIG, ERRORS, Faults, Problem, place_in_memory  # noqa: E402
from shard import is_mine  # noqa: E402

STEPS = 12
SILENCE = 3  # seconds, stop.silence
GONE = 10    # seconds beyond it in which all processes have ended
LIMIT = 120  # seconds of a run
SKIPPED = 77
KINDS = ["kill"] * 3 + ["stop"] + ["ask"] * 2 + ["fails"] * 3 + ["full"] * 2 + ["dies"] * 3 + ["lost", "nan", "row"]
ROWS = 40
KEEP = 2
SHARDS = ["none", "states", "gradients", "weights", "weights + disk"]  # what ranks divide, and whether it is on the disk of each
ON_DISK = {"memory.disk": "1GiB", "memory.offload": "[states,gradients,weights]"}


def settings_of(shard):
    stage, _, away = shard.partition(" + ")
    return [word for key, value in {"memory.shard": stage, **(ON_DISK if away else {})}.items() for word in ("--set", f"{key}={value}")]


def order_of(shard):
    """Stages that add up in one order, and so have the same bits."""
    return "once" if shard in ("none", "states") else "each micro-step"


def processes_of(folder):
    """{process: rank or None} of all that were started for the folder."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            if str(folder).encode() not in command or (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                continue
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        rank = [int(text.partition(b"=")[2]) for text in variables if text.startswith(b"OMPI_COMM_WORLD_RANK=")]
        found[int(entry.name)] = rank[0] if rank else None
    return found


class Bench:
    def __init__(self, plimsoll, shim, folder, patience=1):
        self.patience = patience
        self.plimsoll, self.shim, self.folder = plimsoll, shim, folder
        self.out = folder / "out"
        model = folder / "model"
        model.mkdir()
        # Matrices that three ranks divide into pieces that are worth a disk; with one row a micro-step, several of them in each step.
        (model / "config.json").write_text(json.dumps({**CONFIG, "hidden_size": 256, "intermediate_size": 768}))
        dice = random.Random(5)
        rows = folder / "rows.jsonl"
        rows.write_text("".join(json.dumps({"input_ids": [dice.randrange(64) for _ in range(12)]}) + "\n" for _ in range(ROWS)))
        self.rows = rows
        settings = {"model": str(model), "init": "random", "data": {"train": str(rows), "max_length": 16, "eval": "10%"},
                    "precision": "bf16-master", "method": {"type": "full"}, "batch": {"effective": 6, "micro": 1}, "optimizer": {"lr": 1e-2},
                    "schedule": {"max_steps": STEPS, "warmup": 1}, "threads": 1, "save": {"every": 2, "keep": KEEP, "best": "loss"},
                    "stop": {"silence": SILENCE * patience}, "output": str(self.out)}
        self.recipe = folder / "recipe.json"
        self.recipe.write_text(json.dumps(settings))
        self.environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "PLIMSOLL_NO_PROBE": "1", "PLIMSOLL_CACHE_DIR": "/nonexistent"}
        self.environment.setdefault("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
        self.faults = Faults(folder / "faults", self.out)
        self.want = {}
        self.calls = {}
        for ranks in (2, 3):
            for shard in SHARDS:
                self.reset()
                self.faults.set(COUNT, 1 << 62)
                code, errors = self.end(self.start(ranks, shard, faults=True))
                if code != 0:
                    raise Problem(f"an undisturbed run ends with {code}\n{errors}")
                self.calls[ranks, shard] = self.faults.calls
                if self.want.setdefault((ranks, order_of(shard)), self.result()) != self.result():
                    raise Problem(f"{ranks} ranks: memory.shard changes the result")
                self.require_kept(set())
                if (json.loads((self.out / "run.json").read_text())["measured"]["disk_bytes"] > 0) != ("disk" in shard):
                    raise Problem(f"{ranks} ranks, {shard}: what is on the disk?")

        self.weights = (self.out / "model.safetensors").read_bytes()
        self.overflowing = folder / "overflowing"
        shutil.copytree(model, self.overflowing)

    def overflow(self, dice):
        """A model that a run has made, with a row of its head so large that products with it are not finite."""
        head = int.from_bytes(self.weights[:8], "little")
        entry = json.loads(self.weights[8:8 + head])["lm_head.weight"]
        begin, end = entry["data_offsets"]
        width = (end - begin) // entry["shape"][0]
        at = 8 + head + begin + width * dice.randrange(entry["shape"][0])
        value = {"BF16": b"\x60\x7f", "F32": struct.pack("<f", 3e38)}[entry["dtype"]]
        content = bytearray(self.weights)
        content[at:at + width] = value * (width // len(value))
        (self.overflowing / "model.safetensors").write_bytes(content)
        return ["--set", f"model={self.overflowing}", "--set", "init=weights"]

    def reset(self):
        shutil.rmtree(self.out, ignore_errors=True)

    def start(self, ranks, shard, *words, faults=False):
        environment = dict(self.environment)
        if faults:
            environment.update(LD_PRELOAD=str(self.shim), PLIMSOLL_FAULTS=str(self.faults.path))
        return subprocess.Popen([str(self.plimsoll), "train", str(self.recipe), "--devices", str(ranks), "--quiet", *settings_of(shard), *words],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env=environment)

    def end(self, process):
        """Its code and errors; none of its processes is left."""
        limit = LIMIT * self.patience
        try:
            _, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            left = processes_of(self.folder)
            self.kill()
            raise Problem(f"not ended after {limit} s; left: {left}\n" + "".join(process.communicate()))
        until = time.monotonic() + GONE * self.patience
        while processes_of(self.folder) and time.monotonic() < until:
            time.sleep(0.02)
        if left := processes_of(self.folder):
            self.kill()
            raise Problem(f"exit code {process.returncode}, and processes stay: {left}\n{errors}")
        return process.returncode, errors

    def kill(self):
        for pid in processes_of(self.folder):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def steps(self):
        try:
            return (self.out / "metrics.jsonl").read_text().count("\n")
        except OSError:
            return 0

    def result(self):
        last = self.out / f"checkpoint-{STEPS}"
        return {"files": {name: (last / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")},
                "steps": [[json.loads(line)[key] for key in ("step", "loss")] for line in (self.out / "metrics.jsonl").read_text().splitlines()],
                "names": sorted(path.name for path in self.out.iterdir() if not path.name.startswith(("stopped-at-step-", "checkpoint-"))),
                "finished": json.loads((self.out / "run.json").read_text())["finished"]}

    def checkpoints(self):
        return {int(path.name.partition("-")[2]) for path in self.out.glob("checkpoint-*")}

    def require_kept(self, before):
        """A run that had those checkpoints has kept the newest and the best; a stop saves in whatever step it is."""
        saved = sorted(before | set(range(max(before, default=0) // 2 * 2 + 2, STEPS + 1, 2)))
        losses = {line["step"]: line["loss"] for line in map(json.loads, (self.out / "eval.jsonl").read_text().splitlines())}
        kept = {*saved[-KEEP:], min(losses, key=lambda step: (losses[step], step))}
        if self.checkpoints() != kept:
            raise Problem(f"it had checkpoints {sorted(before)} and has {sorted(self.checkpoints())}, not {sorted(kept)}; losses {losses}")


def strike(bench, process, kind, victim, step):
    """Waits for the step, and does it to that rank."""
    while bench.steps() < step and process.poll() is None:
        time.sleep(0.005)
    number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "ask": signal.SIGTERM}[kind]
    for pid, rank in processes_of(bench.folder).items():
        # To the launcher that is what a user sends; to a rank, what mpirun hands on.
        if (rank == victim and kind != "ask") or (kind == "ask" and pid == process.pid):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass


def one_fault(bench, dice):
    """Returns words on it and its exit code."""
    kind, ranks, shard = dice.choice(KINDS), dice.choice([2, 3]), dice.choice([*SHARDS, *SHARDS[-2:]])
    victim, step = dice.randrange(ranks), dice.randrange(1, STEPS)
    at, error = dice.randint(1, bench.calls[ranks, shard]), dice.choice(ERRORS)
    where = f"rank {victim} in step {step}" if kind in ("kill", "stop", "ask") else f"call {at}"
    words = f"{kind}, {ranks} ranks, {shard}, {where}"
    bench.reset()
    mode = {"fails": ONCE, "full": FROM_THEN_ON, "dies": DIE}.get(kind, COUNT)
    bench.faults.set(mode, at, errno.ENOSPC if kind == "full" else error)
    extra = {"lost": ["--set", "stop.above=0.001", "--set", f"stop.above_steps={step}"],
             "nan": bench.overflow(dice) if kind == "nan" else []}.get(kind, [])
    rows = bench.rows.read_bytes()
    if kind == "row":
        lines = rows.splitlines(keepends=True)
        number = dice.randrange(ROWS)
        lines[number] = dice.choice([b"{\n", b'{"input_ids": [1, 64]}\n', b'{"input_ids": "no"}\n', b"\xff\n"])
        bench.rows.write_bytes(b"".join(lines))
        words = f"{kind}, {ranks} ranks, {shard}, row {number}"
    process = bench.start(ranks, shard, *extra, faults=mode != COUNT)
    if kind in ("kill", "stop", "ask"):
        strike(bench, process, kind, victim, step)
    try:
        code, errors = bench.end(process)
        bench.rows.write_bytes(rows)
        want = bench.want[ranks, order_of(shard)]
        check_end(bench, kind, want, code, errors)
        if kind == "nan":  # of another model: what it saved is another run's
            bench.reset()
        alike = [other for other in SHARDS if order_of(other) == order_of(shard)]
        go_on(bench, ranks, dice.choice(alike), want, code, errors)
    except Problem as problem:
        raise Problem(f"{words} ({bench.faults.last}): {problem}") from None
    return kind, code


def check_end(bench, kind, want, code, errors):
    allowed = {"kill": (0, 5), "stop": (0, 5), "ask": (0, 130), "lost": (5,), "nan": (5,), "row": (4,)}.get(kind, (0, 2, 3, 4, 5))
    if code not in allowed:
        raise Problem(f"exit code {code}\n{errors}")
    if code in (2, 3, 4, 5) and not any(line.startswith(("error: ", "does not fit")) for line in errors.splitlines()):
        raise Problem(f"exit code {code} without a message\n{errors}")
    if code == 0:
        bench.require_kept(set())
        if bench.result() != want:
            raise Problem(f"exit code 0 with another result\n{errors}")


def go_on(bench, ranks, shard, want, code, errors):
    if code == 0:
        return
    before = bench.checkpoints()
    words = ["--resume"] if before else ["--overwrite"]
    again, later = bench.end(bench.start(ranks, shard, *words))
    if again != 0:
        raise Problem(f"afterwards it ends with {again}\n{later}\nafter {errors}")
    got = bench.result()
    if got != want:
        raise Problem(f"afterwards the result is another one: {[key for key in got if got[key] != want[key]]}\nafter {errors}")
    bench.require_kept(before)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("plimsoll", type=Path)
    arguments.add_argument("shim", type=Path)
    arguments.add_argument("--count", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--patience", type=int, default=1, help="times the usual seconds, for a machine where others compute")
    options = arguments.parse_args()
    if not (options.plimsoll.parent / "libplimsoll_mpi.so").exists() or shutil.which("mpirun") is None:
        print("Open MPI is not installed: scripts/setup.sh --dev")
        sys.exit(SKIPPED)
    codes, found = Counter(), []
    with tempfile.TemporaryDirectory(dir=place_in_memory()) as folder:
        bench = Bench(options.plimsoll.resolve(), options.shim.resolve(), Path(folder).resolve(), options.patience)
        for i in range(options.count):
            if not is_mine("faults", i):
                continue
            dice = random.Random(1000 * options.seed + i)
            try:
                codes[one_fault(bench, dice)] += 1
            except Problem as problem:
                found.append(str(problem))
                print(f"error: fault {i}: {problem}", file=sys.stderr, flush=True)
                bench.kill()
    print(f"{sum(codes.values())} faults: " + ", ".join(f"{kind} {code}: {count}" for (kind, code), count in sorted(codes.items())))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
