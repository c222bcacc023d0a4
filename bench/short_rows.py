#!/usr/bin/env python3
"""Rows as people have them, beside transformers + PEFT and beside full rows; and weights on disk.

    bench/short_rows.py --plimsoll build/plimsoll --work FOLDER [--cases rows,disk] [--rounds 3] [--out results.json]

`rows`: instruction rows (a lognormal length, mean about 120 tokens, longest 700), effective batch 16, LoRA on Qwen2.5-0.5B's
shape with random weights, bf16; the limit is 2,048 tokens. The rival sorts the rows of a step by length, pads each micro-batch to
its longest row and takes the fastest of several micro-batches. Beside it Plimsoll with full rows of 512 tokens, as many as the
short ones have together. Tokens of the data a second.
`count`: how long `plan` takes on 100,000 rows of text of about 400 tokens, with nothing known of them and with their counts, and
how long `plan --count` takes to read 1,000,000 of them.
`disk`: the same rows with weights on disk, at the smallest budget that fits plus 15 %: bytes read for a token of the data
and seconds, with the planner's micro-steps and with one row a micro-step (what a planner in rows takes there).
Needs torch, transformers, peft, pyarrow.
"""
import argparse
import json
import math
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import time

import compare_hf

ROOT = pathlib.Path(__file__).resolve().parent.parent
EFFECTIVE, LIMIT, LONGEST, MEAN, FULL = 16, 2048, 700, 120, 512
MICRO = (1, 2, 4, 8)


def lengths(steps):
    """Lognormal with sigma 0.75 (like Alpaca's prompts with their answers), cut to 700."""
    draw = random.Random(17)
    mu = math.log(MEAN) - 0.75 ** 2 / 2
    drawn = [max(8, min(LONGEST, round(draw.lognormvariate(mu, 0.75)))) for _ in range(steps * EFFECTIVE)]
    drawn[1] = LONGEST
    return drawn


def write_rows(path, sizes):
    draw = random.Random(3)
    with open(path, "w") as out:
        for size in sizes:
            out.write(json.dumps({"input_ids": [draw.randrange(compare_hf.VOCAB) for _ in range(size)]}) + "\n")


def rival(arguments):
    """Steps of one micro-batch size; prints one JSON line."""
    import peft
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(arguments.work / "qwen2.5-0.5b", dtype=torch.bfloat16)
    model.config.use_cache = False
    model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear",
                                                       task_type="CAUSAL_LM"), autocast_adapter_dtype=False)
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0)
    rows = [torch.tensor(json.loads(line)["input_ids"]) for line in (arguments.work / "rows.jsonl").read_text().splitlines()]
    seconds = []
    for step in range(arguments.steps):
        batch = sorted(rows[step * EFFECTIVE:(step + 1) * EFFECTIVE], key=len, reverse=True)
        targets = sum(len(row) - 1 for row in batch)
        start = time.perf_counter()
        for first in range(0, EFFECTIVE, arguments.micro):
            micro = batch[first:first + arguments.micro]
            pad = torch.nn.utils.rnn.pad_sequence
            ids = pad(micro, batch_first=True)
            mask = pad([torch.ones_like(row) for row in micro], batch_first=True)
            labels = pad(micro, batch_first=True, padding_value=-100)
            model(input_ids=ids, attention_mask=mask, labels=labels, num_items_in_batch=targets).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    peak = int(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
    print(json.dumps({"seconds": seconds, "peak_bytes": peak}))


def run_rival(arguments, micro):
    command = [sys.executable, __file__, "--rival", "--work", str(arguments.work), "--micro", str(micro), "--steps",
               str(arguments.steps)]
    done = subprocess.run(command, env={**os.environ, **compare_hf.KEEP_MEMORY}, stdout=subprocess.PIPE, text=True, check=True)
    return {**json.loads(done.stdout.splitlines()[-1]), "micro": micro}


def recipe(arguments, data, **changes):
    settings = {"model": str(arguments.work / "qwen2.5-0.5b"), "precision": "bf16",
                "data": {"train": str(data), "max_length": LIMIT, "shuffle": False},
                "method": {"type": "lora", "r": 16, "alpha": 32}, "batch": {"effective": EFFECTIVE},
                "optimizer": {"lr": 1e-4}, "save": {"every": 0},
                "schedule": {"name": "constant", "warmup": 0, "max_steps": arguments.steps},
                "output": str(arguments.work / "run"), **changes}
    path = arguments.work / "recipe.json"
    path.write_text(json.dumps(settings))
    return path


def plan(arguments, path, *words):
    done = subprocess.run([arguments.plimsoll, "plan", path, "--json", *words], capture_output=True, text=True)
    return json.loads(done.stdout)


def train(arguments, path, *words):
    subprocess.run([arguments.plimsoll, "train", path, "--quiet", "--overwrite", *words], check=True)
    folder = arguments.work / "run"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    done = json.loads((folder / "run.json").read_text())
    return {"seconds": [line["seconds"] for line in lines], "tokens": [line["tokens"] for line in lines],
            "peak_bytes": done["measured"]["process_peak_rss_bytes"], "planned_bytes": done["planned"]["process_peak_rss_bytes"],
            "fill": done["fill"], "micro_steps": done["micro_steps"], "variant": done["variant"]}


def rate(run, tokens):
    """Of all steps but the first two: they differ in their tokens."""
    return sum(tokens[2:]) / sum(run["seconds"][2:])


def short_rows(arguments):
    sizes = lengths(arguments.steps)
    tokens = [sum(sizes[i * EFFECTIVE:(i + 1) * EFFECTIVE]) for i in range(arguments.steps)]
    write_rows(arguments.work / "rows.jsonl", sizes)
    each = round(statistics.mean(tokens) / FULL)
    write_rows(arguments.work / "full.jsonl", [FULL] * (each * arguments.steps))
    ours, full, theirs, tried = [], [], [], MICRO
    for _ in range(arguments.rounds):
        ours.append(train(arguments, recipe(arguments, arguments.work / "rows.jsonl")))
        full.append(train(arguments, recipe(arguments, arguments.work / "full.jsonl", batch={"effective": each})))
        runs = [run_rival(arguments, micro) for micro in tried]
        theirs.append(max(runs, key=lambda run: rate(run, tokens)))
        tried = (theirs[0]["micro"],)  # the first round chooses
        print(f"plimsoll {rate(ours[-1], tokens):.1f}, full rows {rate(full[-1], full[-1]['tokens']):.1f}, rival "
              f"{rate(theirs[-1], tokens):.1f} tokens/s with {tried[0]} rows", file=sys.stderr, flush=True)
    middle = lambda runs, of: statistics.median(rate(run, of or run["tokens"]) for run in runs)
    result = {"tokens_per_s": middle(ours, tokens), "full_rows": middle(full, None), "rival": middle(theirs, tokens),
              "rival_micro": tried[0], "peak_bytes": ours[-1]["peak_bytes"], "rival_peak_bytes": theirs[-1]["peak_bytes"],
              "fill": ours[-1]["fill"], "variant": ours[-1]["variant"], "mean_tokens": statistics.mean(sizes)}
    result["ratio"] = result["tokens_per_s"] / result["rival"]
    result["of_full_rows"] = result["tokens_per_s"] / result["full_rows"]
    result["memory_ratio"] = result["peak_bytes"] / result["rival_peak_bytes"]
    return result


def on_disk(arguments):
    sizes = lengths(arguments.steps)
    write_rows(arguments.work / "rows.jsonl", sizes)
    memory = {"disk": "16GiB", "offload": ["weights"]}
    results = {}
    for name, batch in (("planned", {}), ("one row", {"micro": 1})):
        path = recipe(arguments, arguments.work / "rows.jsonl", memory=memory, batch={"effective": EFFECTIVE, **batch})
        budget = plan(arguments, path)["smallest"]["memory_bytes"] * 115 // 100
        fits = plan(arguments, path, "--memory", f"{budget}B")
        runs = [train(arguments, path, "--memory", f"{budget}B") for _ in range(arguments.rounds)]
        seconds = [sum(run["seconds"][2:]) / sum(run["tokens"][2:]) for run in runs]
        traffic = fits["predicted"]["disk_traffic_bytes_per_step"] / (sum(sizes) / arguments.steps)
        results[name] = {"budget_bytes": budget, "traffic_bytes_per_token": traffic, "words": fits["variant"]["words"],
                         "seconds_per_token": statistics.median(seconds), "peak_bytes": runs[-1]["peak_bytes"],
                         "predicted_seconds_per_token": fits["predicted"]["seconds_per_step"] / (sum(sizes) / arguments.steps)}
    results["fewer_bytes"] = results["one row"]["traffic_bytes_per_token"] / results["planned"]["traffic_bytes_per_token"]
    return results


def write_texts(path, rows):
    """Texts of words of many languages, about 400 tokens each by the small tokenizer of the tests."""
    words = (ROOT / "tests/golden/tokenizers/sample.txt").read_text().split()
    draw = random.Random(5)
    with open(path, "w") as out:
        for _ in range(rows):
            out.write(json.dumps({"text": " ".join(draw.choices(words, k=draw.randrange(40, 120)))}, ensure_ascii=False) + "\n")


def counting(arguments):
    model = arguments.work / "texts"
    shutil.copytree(arguments.work / "qwen2.5-0.5b", model, dirs_exist_ok=True)
    shutil.copy(ROOT / "tests/golden/tokenizers/qwen2.json", model / "tokenizer.json")
    (model / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    cache = arguments.work / "cache"
    environment = {**os.environ, "PLIMSOLL_CACHE_DIR": str(cache), "PLIMSOLL_NO_PROBE": "1"}
    results = {}
    for rows in (100_000, 1_000_000):
        write_texts(arguments.work / "texts.jsonl", rows)
        path = recipe(arguments, arguments.work / "texts.jsonl", model=str(model), task="pretrain")
        shutil.rmtree(cache, ignore_errors=True)
        for name, words in (("sampled", []), ("counting", ["--count"]), ("counted", [])):
            start = time.perf_counter()
            done = subprocess.run([arguments.plimsoll, "plan", path, "--json", *words], capture_output=True, text=True,
                                  env=environment)
            data = json.loads(done.stdout)["data"]
            results[f"{rows} rows, {name}"] = {"seconds": time.perf_counter() - start, "tokens_per_row": data["tokens"] / rows,
                                               "estimated": data["estimated"]}
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default="build/plimsoll")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--cases", default="rows,disk")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--rival", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--micro", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    arguments.work = arguments.work.resolve()
    if arguments.rival:
        return rival(arguments)
    compare_hf.make_model(arguments.work / "qwen2.5-0.5b", "qwen2.5-0.5b")
    cases = {"rows": short_rows, "disk": on_disk, "count": counting}
    results = {name: cases[name](arguments) for name in arguments.cases.split(",")}
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
