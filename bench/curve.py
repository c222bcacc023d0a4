#!/usr/bin/env python3
"""Budget -> measured tokens/s for Qwen2.5-0.5B's shape, LoRA and full, beside what transformers (+ PEFT) reaches.

    curve.py --plimsoll build/plimsoll --work FOLDER [--length 1024] [--effective 4] [--points 5] [--out results.json]

Plimsoll gets stated budgets from the smallest possible to plenty (with disk for what it moves there); the rival runs at
micro-batch 1, 2 and 4, with gradient checkpointing and without, in equal types, at its best setting here (bf16 adapters,
glibc told to keep its memory), accumulating to the same effective batch. Both report tokens/s of the last step and the
process's own peak (VmHWM). A point of the rival is beaten when some point of Plimsoll is faster with less memory.
Needs torch, transformers, peft; a quiet machine; about 25 minutes on two cores.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

from compare_hf import KEEP_MEMORY, make_inputs
from hf_cases import read_rows

GIB = 1 << 30
STEPS = 2  # the first one warms up; steps of a static program are alike


def vm_peak():
    return int(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


def rival(arguments):
    """One run of the rival in this process; prints one JSON line."""
    import peft
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(arguments.work / "model", dtype=torch.bfloat16)
    model.config.use_cache = False
    if arguments.method == "lora":
        model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear",
                                                           task_type="CAUSAL_LM"), autocast_adapter_dtype=False)
    if arguments.checkpointing:
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    rows = torch.tensor([row["input_ids"] for row in read_rows(arguments.work / "rows.jsonl")])
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, weight_decay=0.0)
    micro_steps = arguments.effective // arguments.micro
    for step in range(STEPS):
        start = time.perf_counter()
        for part in range(micro_steps):
            at = step * arguments.effective + part * arguments.micro
            ids = rows[at:at + arguments.micro]
            (model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss / micro_steps).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - start
    print(json.dumps({"tokens_per_s": arguments.effective * arguments.length / seconds, "peak_bytes": vm_peak()}))


def run_rival(arguments, method, micro, checkpointing):
    command = [sys.executable, __file__, "--rival", "--work", str(arguments.work), "--length", str(arguments.length),
               "--effective", str(arguments.effective), "--method", method, "--micro", str(micro)]
    if checkpointing:
        command.append("--checkpointing")
    done = subprocess.run(command, env={**os.environ, **KEEP_MEMORY}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)
    if done.returncode != 0:
        return {"failed": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def write_recipe(arguments, method, device):
    recipe = arguments.work / "curve.json"
    recipe.write_text(json.dumps({
        "model": str(arguments.work / "model"), "precision": "bf16-pure" if method == "full" else "bf16",
        "data": {"train": str(arguments.work / "rows.jsonl"), "max_length": arguments.length, "shuffle": False},
        "method": {"type": method, **({"r": 16, "alpha": 32} if method == "lora" else {})},
        "batch": {"effective": arguments.effective}, "optimizer": {"lr": 1e-5},
        "schedule": {"name": "constant", "warmup": 0, "max_steps": STEPS},
        "memory": {"device": device, "disk": "24GiB"}, "output": str(arguments.work / "run")}))
    return recipe


def plan_bytes(arguments, method, device):
    done = subprocess.run([arguments.plimsoll, "plan", str(write_recipe(arguments, method, device)), "--json"],
                          stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)["device"]["arena_bytes"]


def budgets(arguments, method):
    """Sizes from the smallest that works to what nothing limits, denser at the low end."""
    least, most = plan_bytes(arguments, method, "1KiB"), plan_bytes(arguments, method, "100GiB")
    steps = arguments.points - 1
    return sorted({int(least * (most / least) ** (i / steps)) for i in range(steps)} | {least, most})


def run_plimsoll(arguments, method, budget):
    recipe = write_recipe(arguments, method, f"{budget}B")
    subprocess.run([arguments.plimsoll, "train", str(recipe), "--quiet", "--overwrite"], check=True)
    lines = [json.loads(line) for line in (arguments.work / "run/metrics.jsonl").read_text().splitlines()]
    report = json.loads((arguments.work / "run/run.json").read_text())
    tokens = arguments.effective * arguments.length
    return {"budget": budget, "tokens_per_s": tokens / lines[-1]["seconds"],
            "peak_bytes": report["measured"]["process_peak_rss_bytes"],
            "predicted_tokens_per_s": tokens / report["planned"]["seconds_per_step"], "variant": report["variant"]}


def beaten(point, ours):
    return any(o["tokens_per_s"] >= point["tokens_per_s"] and o["peak_bytes"] <= point["peak_bytes"] for o in ours)


def show(label, point, note=""):
    if "failed" in point:
        print(f"  {label:44} failed: {point['failed'][:60]}", flush=True)
    else:
        print(f"  {label:44}{point['tokens_per_s']:9.1f}{point['peak_bytes'] / GIB:10.2f}  {note}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default="build/plimsoll")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--effective", type=int, default=4)
    parser.add_argument("--points", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=["lora", "full"])
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--rival", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--checkpointing", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--method", help=argparse.SUPPRESS)
    parser.add_argument("--micro", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rival:
        return rival(arguments)
    arguments.work.mkdir(parents=True, exist_ok=True)
    arguments.work = arguments.work.resolve()
    make_inputs(arguments.work, STEPS * arguments.effective, arguments.length)
    result = {"length": arguments.length, "effective": arguments.effective}
    for method in arguments.methods:
        print(f"{method:46}{'tokens/s':>9}{'peak GiB':>10}", flush=True)
        ours = []
        for budget in budgets(arguments, method):
            ours.append(run_plimsoll(arguments, method, budget))
            show(f"plimsoll, device budget {budget / GIB:.2f} GiB", ours[-1])
        theirs = []
        for checkpointing in (False, True):
            for micro in (1, 2, 4):
                point = {"micro": micro, "checkpointing": checkpointing, **run_rival(arguments, method, micro, checkpointing)}
                theirs.append(point)
                note = "" if "failed" in point else "beaten" if beaten(point, ours) else "NOT beaten"
                show(f"transformers, micro-batch {micro}{', checkpointing' if checkpointing else ''}", point, note)
        result[method] = {"plimsoll": ours, "rival": theirs}
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
