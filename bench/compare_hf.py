#!/usr/bin/env python3
"""Plimsoll beside transformers + PEFT: the same model, the same token ids, equal types, in turn on one machine.

    compare_hf.py --plimsoll build/plimsoll --work FOLDER [--rounds 3] [--steps 6] [--micro 4] [--out results.json]

The case is Qwen2.5-0.5B's shape (random weights), LoRA r 16 on all linear layers, bf16, length 512. The rival runs at
its best setting here: bf16 adapters (equal types), glibc told to keep its memory. Figures of a round are medians over
its steps without the first two; the table gives medians over the rounds and the range. Needs torch, transformers, peft.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "34359738368", "MALLOC_TRIM_THRESHOLD_": "34359738368",
               "MALLOC_TOP_PAD_": "67108864"}
WARM_UP = 2
LENGTH = 512


def make_inputs(work, rows, length=LENGTH):
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch
    import transformers

    model = work / "model"
    if not (model / "model.safetensors").exists():
        torch.manual_seed(1)
        config = transformers.Qwen2Config(
            vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
            num_key_value_heads=2, tie_word_embeddings=True, max_position_embeddings=32768, rms_norm_eps=1e-6,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6}, bos_token_id=151643, eos_token_id=151643)
        transformers.Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(model)
    ids = np.random.default_rng(1).integers(0, 151936, size=(rows, length), dtype=np.int32)
    pq.write_table(pa.table({"input_ids": pa.array(list(ids), pa.list_(pa.int32()))}), work / "ids.parquet")


def rival(arguments):
    """One run of the rival in this process; prints one JSON line."""
    import peft
    import pyarrow.parquet as pq
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(arguments.work / "model", dtype=torch.bfloat16)
    model.config.use_cache = False
    model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear",
                                                       task_type="CAUSAL_LM"), autocast_adapter_dtype=False)
    model.train()
    rows = torch.tensor(pq.read_table(arguments.work / "ids.parquet")["input_ids"].to_pylist())
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0)
    seconds, losses = [], []
    for step in range(arguments.steps):
        start = time.perf_counter()
        ids = rows[step * arguments.micro:(step + 1) * arguments.micro]
        loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    status = pathlib.Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
    print(json.dumps({"seconds": seconds, "losses": losses, "peak_bytes": peak}))


def run_rival(arguments):
    command = [sys.executable, __file__, "--rival", "--work", str(arguments.work), "--steps", str(arguments.steps),
               "--micro", str(arguments.micro)]
    done = subprocess.run(command, env={**os.environ, **KEEP_MEMORY}, check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def run_plimsoll(arguments):
    recipe = arguments.work / "recipe.json"
    recipe.write_text(json.dumps({
        "model": str(arguments.work / "model"), "precision": "bf16",
        "data": {"train": str(arguments.work / "ids.parquet"), "max_length": LENGTH, "shuffle": False},
        "method": {"type": "lora", "r": 16, "alpha": 32},
        "batch": {"effective": arguments.micro, "micro": arguments.micro},
        "optimizer": {"lr": 1e-4},
        "schedule": {"name": "constant", "warmup": 0, "max_steps": arguments.steps},
        "output": str(arguments.work / "run")}))
    subprocess.run([arguments.plimsoll, "train", str(recipe), "--quiet", "--overwrite"], check=True)
    lines = [json.loads(line) for line in (arguments.work / "run/metrics.jsonl").read_text().splitlines()]
    report = json.loads((arguments.work / "run/run.json").read_text())
    return {"seconds": [line["seconds"] for line in lines], "losses": [line["loss"] for line in lines],
            "peak_bytes": report["measured"]["process_peak_rss_bytes"],
            "predicted_seconds": report["planned"]["seconds_per_step"]}


def rate(run, arguments):
    return arguments.micro * LENGTH / statistics.median(run["seconds"][WARM_UP:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default="build/plimsoll")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--micro", type=int, default=4)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--rival", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rival:
        return rival(arguments)
    arguments.work.mkdir(parents=True, exist_ok=True)
    arguments.work = arguments.work.resolve()
    make_inputs(arguments.work, arguments.steps * arguments.micro)
    runs = {"plimsoll": [], "transformers+peft": []}
    for round_ in range(arguments.rounds):
        for name, run in (("plimsoll", run_plimsoll), ("transformers+peft", run_rival)):
            runs[name].append(run(arguments))
            print(f"round {round_ + 1}  {name:18} {rate(runs[name][-1], arguments):7.1f} tokens/s  peak "
                  f"{runs[name][-1]['peak_bytes'] / 2**30:.2f} GiB", file=sys.stderr, flush=True)
    table = {}
    for name, list_ in runs.items():
        rates = [rate(run, arguments) for run in list_]
        table[name] = {"tokens_per_s": statistics.median(rates), "range": [min(rates), max(rates)],
                       "peak_bytes": statistics.median(run["peak_bytes"] for run in list_)}
    ours, theirs = table["plimsoll"], table["transformers+peft"]
    print(f"{'':20}{'tokens/s':>10}{'range':>18}{'peak GiB':>10}")
    for name, row in table.items():
        low, high = row["range"]
        print(f"{name:20}{row['tokens_per_s']:10.1f}{f'{low:.1f} to {high:.1f}':>18}{row['peak_bytes'] / 2**30:10.2f}")
    print(f"{'ratio':20}{ours['tokens_per_s'] / theirs['tokens_per_s']:10.2f}{'':18}"
          f"{ours['peak_bytes'] / theirs['peak_bytes']:10.2f}")
    if arguments.out:
        arguments.out.write_text(json.dumps({"micro_batch": arguments.micro, "length": LENGTH, "table": table,
                                             "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
