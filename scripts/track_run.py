#!/usr/bin/env python3
"""A run folder as a run of MLflow or of Weights & Biases, finished or not.

    python3 scripts/track_run.py mlflow RUN_FOLDER...    needs `pip install mlflow-skinny` or mlflow
    python3 scripts/track_run.py wandb RUN_FOLDER...     needs `pip install wandb`

Curves are those of the event files (train/loss, train/learning_rate, ...; eval/loss), read from the run's own logs;
parameters are the recipe's keys, and the summary is run.json's. Where they go is said as those tools say it:
MLFLOW_TRACKING_URI (file:mlruns, sqlite:///mlflow.db or a server) and MLFLOW_EXPERIMENT_NAME; WANDB_MODE=offline writes a
folder wandb/ that `wandb sync` uploads later, WANDB_PROJECT names the project.
"""
import json
import os
import pathlib
import sys

NAMES = {"loss": "train/loss", "grad_norm": "train/grad_norm", "lr": "train/learning_rate", "data_wait": "train/data_wait_seconds",
         "rss": "memory/process_bytes"}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def curves(folder):
    """[(step, time or None, {name: value})], ascending; values that are not finite are left out."""
    points = []
    for line in lines(folder / "metrics.jsonl"):
        values = {name: line[key] for key, name in NAMES.items() if line.get(key) is not None}
        if line["seconds"] > 0:
            values["train/tokens_per_second"] = line["tokens"] / line["seconds"]
        points.append((line["step"], line.get("time"), values))
    for line in lines(folder / "eval.jsonl"):
        if line["loss"] is not None:
            points.append((line["step"], None, {"eval/loss": line["loss"]}))
    return sorted(points, key=lambda point: point[0])


def parameters(folder):
    """{dotted key: value} of the effective recipe: what is indented belongs to the key above it."""
    found, path = {}, []
    for line in (folder / "recipe.yaml").read_text().splitlines():
        text = line.strip()
        if not text or text.startswith(("#", "-")) or ":" not in text:
            continue
        depth = (len(line) - len(line.lstrip())) // 2
        key, _, value = text.partition(":")
        path = [*path[:depth], key]
        if value.strip():
            found[".".join(path)] = value.strip()
    return found


def summary(folder):
    run = json.loads((folder / "run.json").read_text()) if (folder / "run.json").exists() else {}
    found = {}
    for group in ("planned", "measured"):
        for key, value in run.get(group, {}).items():
            found[f"{group}.{key}"] = value
    for key in ("final_loss", "eval_loss", "seconds", "tokens_per_second"):
        if run.get(key) is not None:
            found[key] = run[key]
    return found, run.get("finished", False)


def to_mlflow(folder):
    import mlflow
    from mlflow.entities import Metric, Param

    client = mlflow.MlflowClient()
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "plimsoll")
    experiment = client.get_experiment_by_name(name)
    identity = experiment.experiment_id if experiment else client.create_experiment(name)
    run = client.create_run(identity, run_name=folder.name).info.run_id
    totals, finished = summary(folder)
    metrics, last = [], 0
    for step, time, values in curves(folder):
        last = round(time * 1000) if time else last
        metrics += [Metric(key, value, last, step) for key, value in values.items()]
    metrics += [Metric(key, value, last, metrics[-1].step if metrics else 0) for key, value in totals.items()]
    settings = [Param(key, value[:500]) for key, value in parameters(folder).items()]
    for first in range(0, len(settings), 100):
        client.log_batch(run, params=settings[first:first + 100])
    for first in range(0, len(metrics), 1000):
        client.log_batch(run, metrics=metrics[first:first + 1000])
    client.set_terminated(run, "FINISHED" if finished else "RUNNING")
    print(f"mlflow  {folder} is run {run} of experiment {name} at {mlflow.get_tracking_uri()}")


def to_wandb(folder):
    import wandb

    totals, _ = summary(folder)
    with wandb.init(name=folder.name, project=os.environ.get("WANDB_PROJECT", "plimsoll"), config=parameters(folder)) as run:
        for step, _, values in curves(folder):
            run.log(values, step=step)
        run.summary.update(totals)
        print(f"wandb   {folder} is in {run.dir}" if run.offline else f"wandb   {folder} is {run.url}")


def main():
    tools = {"mlflow": to_mlflow, "wandb": to_wandb}
    if len(sys.argv) < 3 or sys.argv[1] not in tools:
        sys.exit(__doc__.strip())
    for name in sys.argv[2:]:
        folder = pathlib.Path(name).resolve()
        if not (folder / "metrics.jsonl").exists():
            sys.exit(f"error: {folder} is no run folder: it has no metrics.jsonl")
        tools[sys.argv[1]](folder)


if __name__ == "__main__":
    main()
