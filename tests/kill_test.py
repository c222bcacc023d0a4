"""SIGKILL at random moments: a run that was killed again and again ends with the bits of one that never was.

Usage: kill_test.py PLIMSOLL [--kills N] [--seed N] (from the repository's root). Standard library only.

Each round is a run that is killed, resumed and killed again until it ends by itself; rounds follow each other until
N processes were killed. Compared at the end of each: weights, optimizer states, trainer state, losses, evaluations.
"""
import argparse
import json
import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

import train_test
from train_test import recipe, tensors

STEPS = 30
LORA = {"method": {"type": "lora", "r": 4, "dropout": 0.1}, "precision": "bf16"}
FULL = {"method": {"type": "full"}, "precision": "bf16-master"}


def make_recipe(folder, changes):
    folder.mkdir()
    return recipe(folder, data={"eval": "2%"}, schedule={"max_steps": STEPS, "warmup": 4}, eval={"every": 6},
                  save={"every": 3, "keep": 2, "best": "loss"}, log={"tensorboard": True}, **changes)


def result(output):
    """What must not depend on the kills."""
    last = output / f"checkpoint-{STEPS}"
    lines = lambda name, *keys: [[json.loads(line)[key] for key in ("step", *keys)]
                                 for line in (output / name).read_text().splitlines()]
    weights = "adapter_model" if (output / "adapter_model.safetensors").exists() else "model"
    return {"weights": tensors(output / f"{weights}.safetensors"),
            "newest weights": tensors(last / f"{weights}.safetensors"),
            "optimizer": tensors(last / "optimizer.safetensors"),
            "trainer state": json.loads((last / "trainer_state.json").read_text()),
            "steps": lines("metrics.jsonl", "loss", "grad_norm", "lr", "tokens"),
            "evaluations": lines("eval.jsonl", "loss", "target_tokens"),
            "checkpoints": sorted(path.name for path in output.glob("checkpoint-*"))}


def moment(output):
    """What the process was doing when it was killed, by what it left."""
    if not (output / "events.jsonl").exists():
        return "before the first step"
    unfinished = [path.name for path in output.glob(".plimsoll/tmp/*")]
    if any(name.startswith("checkpoint-") for name in unfinished):
        return "while a checkpoint was written or removed"
    if unfinished:
        return "while another file was written"
    return "between"


def start(path):
    return subprocess.Popen([str(train_test.PLIMSOLL), "train", str(path), "--quiet", "--resume"],
                            stderr=subprocess.PIPE, text=True)


def finish(running):
    _, message = running.communicate(timeout=600)
    if running.returncode != 0:
        raise SystemExit(f"error: exit code {running.returncode}\n{message}")


def kill_round(path, seconds, kills, dice, moments):
    """Kills at most `kills` processes of the run, then lets it end; the number killed."""
    output = path.parent / "run"
    killed = 0
    while killed < kills:
        running = start(path)
        try:
            _, message = running.communicate(timeout=dice.uniform(0.0, seconds))
        except subprocess.TimeoutExpired:
            running.kill()
            running.communicate()
            killed += 1
            moments[moment(output)] += 1
            continue
        if running.returncode != 0:
            raise SystemExit(f"error: exit code {running.returncode} after {killed} kills\n{message}")
        return killed
    finish(start(path))
    return killed


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("plimsoll", type=Path)
    arguments.add_argument("--kills", type=int, default=10)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    train_test.PLIMSOLL = options.plimsoll.resolve()
    dice, moments, killed, rounds = random.Random(options.seed), Counter(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = {}
        for name, changes in (("full", FULL), ("lora", LORA)):
            path = make_recipe(Path(folder) / name, changes)
            begin = time.monotonic()
            finish(start(path))
            undisturbed[name] = (changes, time.monotonic() - begin, result(path.parent / "run"))
        while killed < options.kills:
            name = ("full", "lora")[rounds % 2]
            changes, seconds, want = undisturbed[name]
            path = make_recipe(Path(folder) / "round", changes)
            some = min(options.kills - killed, max(1, options.kills // 2))
            killed += kill_round(path, 0.6 * seconds, some, dice, moments)
            rounds += 1
            got = result(path.parent / "run")
            for what, value in want.items():
                if got[what] != value:
                    raise SystemExit(f"error: {name}, after {killed} kills: {what} differs\n{got[what]}"[:2000])
            if left := list((path.parent / "run/.plimsoll").glob("tmp*")):
                raise SystemExit(f"error: {left} were left behind")
            shutil.rmtree(path.parent)
    print(f"{killed} kills in {rounds} runs of {STEPS} steps: every run ended with the bits of the undisturbed one")
    for what, count in moments.most_common():
        print(f"  {count:4d} {what}")


if __name__ == "__main__":
    main()
