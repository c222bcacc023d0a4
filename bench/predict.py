#!/usr/bin/env python3
"""Predicted beside measured seconds of a step, over many variants on this machine.

    predict.py [--plimsoll build/plimsoll] [--only NAME] [--rounds 2] [--probe] [--out results.json]

Calibrate first (`plimsoll calibrate`). With --probe a few cases, predicted as on a machine where nobody has: from a
cache folder of its own that holds the half second's probe alone (ten probes may be tried until the machine is idle enough
for one to be kept). Every case is a small model of real widths with rows of full length, trained for a
few steps through `plimsoll train`, or shorter ones where its name says so; measured is the least over the rounds of the median step, since other programs can only
make a step slower. Prints the errors, their median and their 90th percentile. Standard library only.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

STEPS = 5  # two of them warm up
NARROW = {"hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8, "num_key_value_heads": 2,
          "vocab_size": 16384}
WIDE = {"hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14, "num_key_value_heads": 2,
        "vocab_size": 50000}
HEAD128 = {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 8, "num_key_value_heads": 8,
           "vocab_size": 32000}
LORA = {"type": "lora", "r": 16}
FULL = {"type": "full"}
QLORA = {"type": "qlora", "r": 16}


def case(name, model, layers, method, length, micro, accumulation=1, precision="bf16", optimizer="adamw", clip=1.0,
         row=None, **memory):
    return {"name": name, "model": {**model, "num_hidden_layers": layers}, "method": method, "length": length,
            "row": row or length, "micro": micro, "accumulation": accumulation, "precision": precision,
            "optimizer": {"name": optimizer, "max_grad_norm": clip}, "memory": memory}


DISK = {"disk": "8GiB"}
CASES = (
    case("lora narrow 128x1", NARROW, 6, LORA, 128, 1),
    case("lora narrow 512x1", NARROW, 6, LORA, 512, 1),
    case("lora narrow 512x4", NARROW, 6, LORA, 512, 4),
    case("lora narrow 2048x1", NARROW, 6, LORA, 2048, 1),
    case("lora narrow fp32 256x2", NARROW, 6, LORA, 256, 2, precision="fp32"),
    case("lora wide 512x1", WIDE, 4, LORA, 512, 1),
    case("lora wide 512x2x2", WIDE, 4, LORA, 512, 2, 2),
    case("lora wide 1024x1", WIDE, 4, LORA, 1024, 1),
    case("lora wide 2048x1", WIDE, 3, LORA, 2048, 1),
    case("lora head128 512x1", HEAD128, 4, LORA, 512, 1),
    case("lora head128 1024x2", HEAD128, 4, LORA, 1024, 2),
    case("lora head128 fp32 512x1", HEAD128, 4, LORA, 512, 1, precision="fp32"),
    case("full narrow 128x1", NARROW, 6, FULL, 128, 1),
    case("full narrow 512x2", NARROW, 6, FULL, 512, 2),
    case("full narrow fp32 512x1", NARROW, 6, FULL, 512, 1, precision="fp32"),
    case("full wide 512x1", WIDE, 4, FULL, 512, 1),
    case("full wide pure 512x1", WIDE, 4, FULL, 512, 1, precision="bf16-pure"),
    case("full wide master 256x2x2", WIDE, 4, FULL, 256, 2, 2, precision="bf16-master"),
    case("full head128 1024x1", HEAD128, 4, FULL, 1024, 1),
    case("full narrow adamw8bit 512x1", NARROW, 6, FULL, 512, 1, optimizer="adamw8bit"),
    case("full narrow lion 512x1", NARROW, 6, FULL, 512, 1, optimizer="lion"),
    case("full narrow adafactor 512x1", NARROW, 6, FULL, 512, 1, optimizer="adafactor"),
    case("qlora wide 512x1", WIDE, 4, QLORA, 512, 1),
    case("qlora narrow 1024x2", NARROW, 6, QLORA, 1024, 2),
    case("lora wide 512x1 act", WIDE, 4, LORA, 512, 1, recompute="act"),
    case("lora wide 1024x1 mlp", WIDE, 4, LORA, 1024, 1, recompute="mlp"),
    case("lora wide 1024x1 block", WIDE, 4, LORA, 1024, 1, recompute="block"),
    case("full wide 512x1 block", WIDE, 4, FULL, 512, 1, recompute="block"),
    case("full narrow 2048x1 attention", NARROW, 6, FULL, 2048, 1, recompute="attention"),
    case("lora wide 1024x1 activations on disk", WIDE, 4, LORA, 1024, 1, offload=["activations"], **DISK),
    case("lora wide 512x1 weights on disk", WIDE, 4, LORA, 512, 1, offload=["weights"], **DISK),
    case("full wide 512x1 states on disk", WIDE, 4, FULL, 512, 1, offload=["states"], **DISK),
    case("full wide 512x1 gradients and states on disk", WIDE, 4, FULL, 512, 1, offload=["states", "gradients"], **DISK),
    case("full narrow 512x1 all on disk", NARROW, 6, FULL, 512, 1,
         offload=["states", "gradients", "weights", "activations"], **DISK),
    case("full narrow 128x1 states on disk", NARROW, 6, FULL, 128, 1, offload=["states"], **DISK),
    case("full wide 256x1x2 weights and states on disk", WIDE, 8, FULL, 256, 1, 2, offload=["weights", "states"], **DISK),
    case("full head128 512x2 states on disk", HEAD128, 12, FULL, 512, 2, offload=["states"], **DISK),
    case("full head128 256x1x2 gradients and states on disk", HEAD128, 8, FULL, 256, 1, 2, offload=["gradients", "states"], **DISK),
    case("full head128 master 256x1 all on disk", HEAD128, 8, FULL, 256, 1, precision="bf16-master",
         offload=["states", "gradients", "weights", "activations"], **DISK),
    case("lora head128 1024x1 weights and activations on disk", HEAD128, 8, LORA, 1024, 1, offload=["weights", "activations"], **DISK),
    case("lora narrow 256x2 activations on disk", NARROW, 12, LORA, 256, 2, offload=["activations"], **DISK),
    case("qlora wide 512x1 weights on disk", WIDE, 8, QLORA, 512, 1, offload=["weights"], **DISK),
    case("full narrow 512x1 no clipping", NARROW, 6, FULL, 512, 1, clip=0.0),
    case("lora wide 512x2 rows of 128", WIDE, 4, LORA, 512, 2, row=128),
    case("full narrow 512x4 rows of 64", NARROW, 6, FULL, 512, 4, row=64),
)
PROBED = ("lora narrow 512x1", "lora narrow fp32 256x2", "lora wide 512x1", "lora head128 1024x2", "full narrow 512x2",
          "full wide 512x1", "full head128 1024x1", "qlora wide 512x1", "lora wide 1024x1 block",
          "lora wide 512x2 rows of 128", "full narrow 512x4 rows of 64")


def write_recipe(case, folder):
    model = folder / "model"
    model.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "max_position_embeddings": 8192,
              "tie_word_embeddings": True, "rms_norm_eps": 1e-6, "eos_token_id": 0, **case["model"]}
    (model / "config.json").write_text(json.dumps(config))
    rng = random.Random(1)
    effective = case["micro"] * case["accumulation"]
    with open(folder / "rows.jsonl", "w", encoding="utf-8") as out:
        for _ in range(effective * STEPS):
            row = [rng.randrange(config["vocab_size"]) for _ in range(case["row"])]
            out.write(json.dumps({"input_ids": row, "labels": row}) + "\n")
    recipe = folder / "recipe.json"
    recipe.write_text(json.dumps({
        "model": str(model), "init": "random", "method": case["method"], "precision": case["precision"],
        "data": {"train": str(folder / "rows.jsonl"), "format": "input-ids", "max_length": case["length"]},
        "batch": {"effective": effective, "micro": case["micro"]}, "optimizer": {"lr": 1e-5, **case["optimizer"]},
        "schedule": {"max_steps": STEPS, "warmup": 1}, "save": {"every": 0},
        **({"threads": case["threads"]} if case.get("threads") else {}),
        "memory": {"recompute": "none", **case["memory"]}, "output": str(folder / "run")}))
    return recipe


def measure(plimsoll, case, rounds):
    """(predicted, measured) seconds of a step."""
    best = None
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        recipe = write_recipe(case, pathlib.Path(scratch).resolve())
        for _ in range(rounds):
            done = subprocess.run([plimsoll, "train", str(recipe), "--quiet", "--overwrite"], capture_output=True,
                                  text=True)
            if done.returncode != 0:
                raise SystemExit(f"{case['name']}: {done.stderr.strip()}")
            report = json.loads((pathlib.Path(scratch) / "run/run.json").read_text())
            seconds = report["measured"]["seconds_per_step"]
            best = seconds if best is None else min(best, seconds)
    return report["planned"]["seconds_per_step"], best


def this_machine():
    """What the figures hold for: the processor, how many of it, and what else ran."""
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8") if line.startswith("model name")),
                 "unknown")
    return {"cpu": model, "cpus": len(os.sched_getaffinity(0)), "load_1_minute": os.getloadavg()[0]}


def probe(plimsoll, cache):
    """A cache that holds nothing but what the probe measured; the probe keeps nothing on a busy machine."""
    os.environ["PLIMSOLL_CACHE_DIR"] = cache
    os.environ.pop("PLIMSOLL_NO_PROBE", None)
    for _ in range(10):
        done = subprocess.run([plimsoll, "calibrate", "--probe"], capture_output=True, text=True)
        if done.returncode == 0:
            return
    raise SystemExit(f"error: ten probes were not kept: {done.stderr.strip()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default="build/plimsoll")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--probe", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    plimsoll = str(pathlib.Path(arguments.plimsoll).resolve())
    machine = this_machine()
    if arguments.probe:
        cache = tempfile.TemporaryDirectory()
        probe(plimsoll, cache.name)
    results = []
    print(f"{'variant':46} {'predicted':>10} {'measured':>10} {'error':>8}")
    for one in CASES:
        if arguments.only not in one["name"] or (arguments.probe and one["name"] not in PROBED):
            continue
        predicted, measured = measure(plimsoll, one, arguments.rounds)
        error = predicted / measured - 1
        results.append({"variant": one["name"], "predicted": predicted, "measured": measured, "error": error})
        print(f"{one['name']:46} {predicted:8.3f} s {measured:8.3f} s {100 * error:+7.1f} %", flush=True)
    errors = sorted(abs(r["error"]) for r in results)
    if len(errors) < 2:
        return
    median, tail = statistics.median(errors), errors[int(0.9 * (len(errors) - 1))]
    print(f"{len(errors)} variants: median error {100 * median:.0f} %, 90th percentile {100 * tail:.0f} %")
    if arguments.out:
        arguments.out.write_text(json.dumps({"machine": machine, "load_at_the_end": os.getloadavg()[0], "probed": arguments.probe,
                                             "median": median, "p90": tail, "variants": results}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
