"""One system call fails, or the process dies at it, in train, resume, overwrite, merge, convert and export: after each the old
state or the new, nothing of the user's touched, no exit 0 with a wrong result.

Usage: faults_test.py PLIMSOLL SHIM [--count N] [--seed N]. Standard library alone.

A scenario is set up, and run once to count its calls below the test's folder (tests/faults/fault_shim.cc) and to know
its result. Then N times: a scenario, a call of it and what happens there are drawn; the command runs; what is left is
looked at; the command runs again undisturbed, and must end with the result of the undisturbed one.
"""
import argparse
import errno
import json
import mmap
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from shard import is_mine  # noqa: E402

COUNT, ONCE, FROM_THEN_ON, DIE = range(4)  # Mode of the shim
STEPS = 4
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64, "hidden_size": 32,
          "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
          "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False}
ERRORS = [errno.EIO, errno.ENOSPC, errno.EACCES, errno.EMFILE, errno.EROFS, errno.EDQUOT]
MINE = {"thesis.tmp": "mine", "data.old/inside": "mine", "NOTES.md": "mine", "run.json.tmp.7": "mine",
        ".plimsoll-notes": "mine"}


class Faults:
    """The struct that the shim shares."""
    SIZE = 3968

    def __init__(self, path, prefix):
        self.path = path
        path.write_bytes(bytes(self.SIZE))
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), self.SIZE)
        self.prefix = str(prefix).encode()

    def set(self, mode, at=0, error=0):
        self.memory[:] = struct.pack("<qqqq64s3872s", 0, at, mode, error, b"", self.prefix)

    calls = property(lambda self: struct.unpack_from("<q", self.memory)[0])
    last = property(lambda self: self.memory[32:96].split(b"\0")[0].decode())


class Problem(Exception):
    pass


def contents(folder):
    """Every file below by its bytes, links as what they point at."""
    return {str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_symlink() or path.is_file()}


def lines(path, *keys):
    return [[json.loads(line)[key] for key in keys] for line in path.read_text().splitlines()]


class Scenario:
    """`prepare` makes the state before in an empty folder; `words` is the command; `result` what must not depend on
    faults."""

    def __init__(self, bench, name):
        self.bench, self.name, self.place = bench, name, bench.folder / "place"
        self.out = self.place / "out"
        getattr(self, name)()
        self.reset()
        self.calls = bench.count(self.words, COUNT)
        self.want = self.result()
        if self.left():
            raise Problem(f"{name}: left behind: {self.left()}")
        self.reset()
        self.calls_for_room = bench.count(self.words, FROM_THEN_ON)

    def reset(self):
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.bench.folder / "before" / self.name, self.place)
        for name, text in MINE.items():
            for folder in (self.place, self.out) if self.mine_in_out else (self.place,):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)

    def prepared(self, *commands):
        """The state before, made by these commands."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        for command in commands:
            self.bench.run(command, code=0)
        (self.bench.folder / "before").mkdir(exist_ok=True)
        self.place.rename(self.bench.folder / "before" / self.name)

    # Scenarios

    def train(self):
        self.mine_in_out, self.result, self.again = True, self.run_result, ["--resume"]
        self.words = ["train", self.bench.full, "--quiet"]
        self.prepared()

    def resume(self):
        self.mine_in_out, self.result, self.again = True, self.run_result, []
        self.words = ["train", self.bench.full, "--quiet", "--resume"]
        self.prepared(["train", self.bench.full, "--quiet"])
        before = self.bench.folder / "before/resume/out"
        shutil.rmtree(before / "checkpoint-4")  # as if it had died after step 3
        shutil.rmtree(before / "checkpoint-2", ignore_errors=True)

    def overwrite(self):
        self.mine_in_out, self.result, self.again = True, self.run_result, []
        self.words = ["train", self.bench.full, "--quiet", "--overwrite"]
        self.prepared(["train", self.bench.lora, "--quiet"])

    def merge(self):
        self.mine_in_out, self.result, self.again = False, self.folder_result, []
        self.words = ["merge", self.place / "adapter", "--out", f"{self.out}/"]
        self.prepared(["train", self.bench.lora, "--quiet", "--set", f"output={self.place}/adapter"])

    def convert(self):
        self.mine_in_out, self.result, self.again = False, self.folder_result, []
        self.words = ["convert", self.bench.model, "--dtype", "bf16", "--shard-size", "4KiB", "--out", self.out]
        self.prepared()

    def export(self):
        self.mine_in_out, self.result, self.again = False, self.folder_result, []
        self.words = ["export", self.place / "adapter", "--to", "merged", "--threads", "1", "--out", self.out]
        self.prepared(["train", self.bench.lora, "--quiet", "--set", f"output={self.place}/adapter"])

    # Results

    def run_result(self):
        last = self.out / f"checkpoint-{STEPS}"
        names = sorted(path.name for path in self.out.iterdir() if path.name not in MINE and path.name != "data.old")
        return {"names": names,
                "files": {name: (last / name).read_bytes() for name in sorted(os.listdir(last))},
                "weights": (self.out / "model.safetensors").read_bytes(),
                "steps": lines(self.out / "metrics.jsonl", "step", "loss"),
                "evaluations": lines(self.out / "eval.jsonl", "step", "loss"),
                "finished": json.loads((self.out / "run.json").read_text())["finished"]}

    def folder_result(self):
        return contents(self.out)

    def left(self):
        """What no command may leave once it ended well."""
        return [str(path) for path in self.place.rglob("*")
                if path.name not in MINE and (path.name == "tmp" or path.name.startswith(".plimsoll-")
                                              or path.name.startswith(".out."))]

    # Looking at what a fault left

    def check_mine(self):
        for name, text in MINE.items():
            for folder in (self.place, self.out) if self.mine_in_out else (self.place,):
                if not (folder / name).is_file() or (folder / name).read_text() != text:
                    raise Problem(f"the user's {name} was touched")
        if contents(self.bench.read) != self.bench.read_before:
            raise Problem("model or data were touched")

    def check_state(self, code):
        """The old state or the new one."""
        if code == 0:
            got = self.result()
            # A checkpoint that cannot be read cannot be proven to be the run's: it stays until the next command.
            if "names" in got:
                got["names"] = [name for name in got["names"] if name in self.want["names"] or not name.startswith("checkpoint-")]
            if got != self.want:
                raise Problem("exit 0 with another result: " + str([key for key in self.want if got.get(key) != self.want[key]]))
        if self.result == self.folder_result and self.out.exists() and self.folder_result() != self.want:
            raise Problem("a folder that is not whole has its final name")
        if self.result == self.run_result and self.out.exists():
            adapter = (self.out / "adapter_model.safetensors").exists()
            if adapter and ((self.out / "model.safetensors").exists() or (self.out / "config.json").exists()):
                raise Problem("files of two runs lie side by side")
            for checkpoint in self.out.glob("checkpoint-*"):
                state = json.loads((checkpoint / "trainer_state.json").read_text())
                if checkpoint.name != f"checkpoint-{state['step']}":
                    raise Problem(f"{checkpoint.name} is of step {state['step']}")


def what_waits(pid):
    """Of each thread its state, where in the kernel it waits, its system call, and the file behind its first argument."""
    told = []
    for task in sorted(Path(f"/proc/{pid}/task").iterdir()):
        try:
            call = (task / "syscall").read_text().split()
            number = int(call[1], 16) if len(call) > 1 else -1
            file = Path(f"/proc/{pid}/fd/{number}")
            told.append(f"  {(task / 'stat').read_text().split()[2]} {(task / 'wchan').read_text()} {' '.join(call[:3])} "
                        f"{os.readlink(file) if number >= 0 and file.is_symlink() else ''}")
        except OSError as error:  # it ended, or the system does not tell
            told.append(f"  {task.name}: {error}")
    return "\n".join(told)


class Bench:
    def __init__(self, plimsoll, shim, folder):
        self.plimsoll, self.shim, self.folder = plimsoll, shim, folder
        self.read = folder / "read"
        self.model = self.read / "model"
        self.model.mkdir(parents=True)
        (self.model / "config.json").write_text(json.dumps(CONFIG))
        (self.model / "merges.txt").write_text("copied by every save")
        dice = random.Random(5)
        rows = self.read / "rows.jsonl"
        rows.write_text("".join(json.dumps({"input_ids": [dice.randrange(64) for _ in range(12)]}) + "\n" for _ in range(40)))
        settings = {"model": str(self.model), "data": {"train": str(rows), "max_length": 16, "eval": "10%"}, "precision": "bf16-master",
                    "batch": {"effective": 4, "micro": 2}, "optimizer": {"lr": 1e-2}, "schedule": {"max_steps": STEPS, "warmup": 1},
                    "memory": {"device": "576MiB", "disk": "8MiB", "offload": ["states"]}, "threads": 1,
                    "save": {"every": 1, "keep": 2, "best": "loss"}, "output": str(folder / "place/out")}
        self.full = self.recipe("full.json", {**settings, "method": {"type": "full"}})
        first = self.recipe("first.json", {**settings, "init": "random", "method": {"type": "full"}, "output": str(folder / "first"),
                                           "save": {}, "schedule": {"max_steps": 1}})
        # Rates that a fault kept from being read would be another plan, whose sums have other last bits.
        self.environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "PLIMSOLL_NO_PROBE": "1",
                            "PLIMSOLL_CACHE_DIR": "/nonexistent"}
        self.faults = Faults(folder / "faults", folder)
        self.run(["train", first, "--quiet"], code=0)
        shutil.copy(folder / "first/model.safetensors", self.model / "model.safetensors")
        self.lora = self.recipe("lora.json", {**settings, "method": {"type": "lora", "r": 2}})
        self.read_before = contents(self.read)

    def recipe(self, name, settings):
        path = self.folder / name
        path.write_text(json.dumps(settings))
        return path

    def run(self, words, code=None, faults=False, limit=None):
        environment = dict(self.environment)
        if faults:
            environment.update(LD_PRELOAD=str(self.shim), PLIMSOLL_FAULTS=str(self.faults.path))
        limits = None if limit is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        process = subprocess.Popen([str(self.plimsoll), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, errors="replace", env=environment, preexec_fn=limits)
        try:
            texts = process.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            waits = what_waits(process.pid)
            process.kill()
            raise Problem(f"{words} did not end in 300 s{' with a fault' if faults else ''}; its threads:\n{waits}\n"
                          + "".join(process.communicate()))
        done = subprocess.CompletedProcess(words, process.returncode, *texts)
        if code is not None and done.returncode != code:
            raise Problem(f"{words}: exit code {done.returncode}\n{done.stderr}")
        return done

    def count(self, words, mode):
        """Calls that the mode may let fail."""
        self.faults.set(mode, 1 << 62)
        self.run(words, code=0, faults=True)
        return self.faults.calls


def place_in_memory():
    """None: the usual place. A run flushes its files to the disk hundreds of times, which is most of its time there."""
    return "/dev/shm" if "TMPDIR" not in os.environ and os.access("/dev/shm", os.W_OK) else None


def draw(dice, scenario):
    """(mode, call, errno, limit on the size of files) and its words."""
    kind = dice.choice(["fails"] * 5 + ["full"] * 3 + ["dies"] * 3 + ["limit"])
    if kind == "limit":
        limit = dice.randrange(0, 60_000)
        return (COUNT, 0, 0, limit), f"files end at {limit} bytes"
    at = dice.randint(1, scenario.calls_for_room if kind == "full" else scenario.calls)
    if kind == "full":
        return (FROM_THEN_ON, at, errno.ENOSPC, None), f"the disk is full from call {at} on"
    if kind == "dies":
        return (DIE, at, 0, None), f"SIGKILL at call {at}"
    error = dice.choice(ERRORS)
    return (ONCE, at, error, None), f"{errno.errorcode[error]} at call {at}"


def one_fault(bench, scenario, fault, tally):
    mode, at, error, limit = fault
    scenario.reset()
    bench.faults.set(mode, at, error)
    done = bench.run(scenario.words, faults=True, limit=limit)
    tally[bench.faults.last or ("file limit" if limit is not None else "not met")] += 1
    # The search for a plan has a process of its own: where that one dies, the run ends with a message.
    dies = mode == DIE and bench.faults.last and "a process of our own was ended by signal 9" not in done.stderr
    if done.returncode not in ((-9,) if dies else (0, 2, 3, 4, 5)):
        raise Problem(f"exit code {done.returncode}\n{done.stderr}")
    if done.returncode not in (0, -9) and not done.stderr.startswith(("error: ", "does not fit")):
        raise Problem(f"no message: {done.stderr}")
    scenario.check_mine()
    scenario.check_state(done.returncode)
    if scenario.result == scenario.folder_result and scenario.out.exists():
        return done.returncode  # made already: nothing is to be done again
    again = bench.run([*scenario.words, *(scenario.again if scenario.out.exists() else [])])
    if again.returncode != 0:
        raise Problem(f"afterwards the command ends with {again.returncode}\n{again.stderr}\nafter {done.stderr}")
    scenario.check_mine()
    got, want = scenario.result(), scenario.want
    if got != want:
        differs = [key for key in want if got.get(key) != want[key]]
        raise Problem(f"afterwards the result is another one: {differs}\n{got.get('names')}\nafter {done.stderr}")
    if scenario.left():
        raise Problem(f"left behind: {scenario.left()}")
    return done.returncode


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("plimsoll", type=Path)
    arguments.add_argument("shim", type=Path)
    arguments.add_argument("--count", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--only")
    options = arguments.parse_args()
    names = [options.only] if options.only else ["train", "resume", "overwrite", "merge", "convert", "export"]
    dice, codes, tally, drawn, found = random.Random(options.seed), Counter(), Counter(), Counter(), []
    with tempfile.TemporaryDirectory(dir=place_in_memory()) as folder:
        bench = Bench(options.plimsoll.resolve(), options.shim.resolve(), Path(folder).resolve())
        scenarios = [Scenario(bench, name) for name in names]
        for i in range(options.count):
            scenario = scenarios[i % len(scenarios)]
            fault, words = draw(dice, scenario)
            if not is_mine("faults", i):
                continue
            drawn[scenario.name, words.split(" at ")[0].split(" from ")[0]] += 1
            try:
                codes[one_fault(bench, scenario, fault, tally)] += 1
            except Problem as problem:
                found.append(f"{scenario.name}, {words} ({bench.faults.last}): {problem}")
                print(f"error: {found[-1]}", file=sys.stderr, flush=True)
        calls = ", ".join(f"{scenario.name} {scenario.calls}" for scenario in scenarios)
    print(f"{sum(drawn.values())} faults among these calls: {calls}; {len(found)} problems")
    for scenario in scenarios:
        kinds = Counter()
        for (name, kind), count in drawn.items():
            if name == scenario.name:
                kinds[kind if kind in ("SIGKILL", "the disk is full", "files end") else "a call fails"] += count
        print(f"  {scenario.name}: " + ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())))
    print("exit codes " + ", ".join(f"{code}: {count}" for code, count in sorted(codes.items())))
    for name, count in tally.most_common():
        print(f"  {count:5d} {name}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
