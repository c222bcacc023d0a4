"""TensorBoard reads the event files of a run that was stopped and resumed: python3 -m tests.parity.events --plimsoll FILE"""
import argparse
import json
import math
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = Path(__file__).resolve().parent.parent.parent
FIELDS = {"train/loss": "loss", "train/grad_norm": "grad_norm", "train/learning_rate": "lr", "memory/process_bytes": "rss"}


def recipe(folder, steps):
    path = folder / "recipe.json"
    path.write_text(json.dumps({
        "model": str(ROOT / "demo/model"), "init": "random",
        "data": {"train": str(ROOT / "demo/data/facts/train.parquet"), "eval": "2%", "max_length": 48},
        "method": {"type": "full"}, "batch": {"effective": 6, "micro": 3}, "schedule": {"max_steps": steps},
        "precision": "fp32", "eval": {"every": 5}, "save": {"every": 5}, "log": {"tensorboard": True},
        "output": str(folder / "run")}))
    return path


def killed_run(plimsoll, folder, steps):
    """A run that was killed beyond its first checkpoint and resumed: steps behind the checkpoint were written twice."""
    path = recipe(folder, steps)
    running = subprocess.Popen([plimsoll, "train", str(path), "--quiet"])
    metrics = folder / "run/metrics.jsonl"
    deadline = time.monotonic() + 60
    while not metrics.exists() or metrics.read_text().count("\n") < 8:
        if running.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("error: the run did not come to step 8")
        time.sleep(0.001)
    running.send_signal(signal.SIGKILL)
    running.wait()
    # As if the clock had been a day ahead, and was put right between the two.
    (events,) = (folder / "run").glob("events.out.tfevents.*")
    events.rename(events.with_name(f"events.out.tfevents.{int(time.time()) + 86400}.plimsoll"))
    subprocess.run([plimsoll, "train", str(path), "--quiet", "--resume"], check=True)
    return folder / "run"


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def single(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def problems(output):
    events = EventAccumulator(str(output), size_guidance={"scalars": 0})
    events.Reload()
    steps = lines(output / "metrics.jsonl")
    wanted = {tag: [(line["step"], line[key]) for line in steps] for tag, key in FIELDS.items()}
    wanted["eval/loss"] = [(line["step"], line["loss"]) for line in lines(output / "eval.jsonl")]
    for tag, values in wanted.items():
        read = [(event.step, event.value) for event in events.Scalars(tag)]
        if [step for step, _ in read] != [step for step, _ in values]:
            yield f"{tag}: steps {[step for step, _ in read]}"
        # The log has nine digits.
        for (step, got), (_, want) in zip(read, values):
            if not math.isclose(got, single(want), rel_tol=1e-6, abs_tol=1e-12):
                yield f"{tag}, step {step}: {got}, metrics.jsonl has {want}"
    speeds = events.Scalars("train/tokens_per_second")
    for event, line in zip(speeds, steps, strict=True):
        if not math.isclose(event.value, line["tokens"] / line["seconds"], rel_tol=1e-2):
            yield f"tokens_per_second, step {event.step}: {event.value}"
        if abs(event.wall_time - line["time"]) > 0.002:
            yield f"step {event.step}: written at {event.wall_time}, metrics.jsonl has {line['time']}"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--plimsoll", required=True)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        output = killed_run(str(Path(options.plimsoll).resolve()), Path(folder), 60)
        files = len(list(output.glob("events.out.tfevents.*")))
        found = list(problems(output))
        if files != 2:
            found.append(f"{files} event files, 2 expected")
    for problem in found:
        print(f"error: {problem}", file=sys.stderr)
    print(f"TensorBoard: {files} event files of one run, {len(found)} differences")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
