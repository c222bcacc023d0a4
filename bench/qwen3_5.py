#!/usr/bin/env python3
"""A model of Qwen3.5-0.8B's widths with eight layers, beside transformers + PEFT in their plain PyTorch form, in turn on one machine.

    qwen3_5.py --plimsoll build/plimsoll --work FOLDER [--cases lora,full,rows] [--precision fp32|bf16] [--rounds 2] [--steps 3]
               [--out results.json] [--tiny]

Widths are the published ones (hidden 1,024, MLP 3,584, 8 and 2 heads of 256, 16 key and value heads of 128); eight layers in place of
24, and a vocabulary of 32,768 in place of 248,320, so that both fit beside other work. Random weights, AdamW; both sides in one type,
which with bf16 is that of adapters and of optimizer states too. PyTorch has no fast products of bf16 for AVX2: compare fp32 there.

`lora`, `full`: one row of 512 tokens a step. `rows`: instruction rows (lognormal lengths, mean 120, 16 to 512), 16 a step, LoRA;
Plimsoll packs them, the rival sorts a step's rows by length and pads each micro-batch to its longest row, as it refuses packed rows
of this model. Its micro-batch is the fastest of several. Tokens a second count tokens of the data alone.

Seconds of a step: the median of a run's steps but the first; of processors the difference of a long run and one of the first step,
divided by the steps between. The table has medians over the rounds. Needs torch, transformers, peft.
"""
import argparse
import json
import math
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import time

from compare_hf import KEEP_MEMORY

SHAPE = {"vocab_size": 32768, "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2,
         "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
         "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "max_position_embeddings": 4096,
         "bos_token_id": None, "eos_token_id": 2, "pad_token_id": 0}
TINY = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
        "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16}
CASES = {"lora": "lora", "full": "full", "rows": "lora"}  # and their methods
LENGTH, EFFECTIVE, MEAN, SHORTEST, SIGMA = 512, 16, 120, 16, 0.75
WARM_UP = 1  # steps
MICRO = (2, 4)  # micro-batches that the rival tries with rows of many lengths


def plain_class():
    """transformers takes fla's kernels, which need a GPU, wherever fla can be imported."""
    sys.modules["fla"] = None
    import transformers
    return transformers.Qwen3_5ForCausalLM, transformers.Qwen3_5TextConfig


def make_model(folder, tiny):
    import torch
    model, config = plain_class()
    torch.manual_seed(1)
    model(config(**{**SHAPE, **(TINY if tiny else {})})).to(torch.bfloat16).save_pretrained(folder)  # fp32 runs read the same ones


def lengths_of(case, steps):
    if case != "rows":
        return [LENGTH] * steps
    draw, mu = random.Random(17), math.log(MEAN) - SIGMA ** 2 / 2
    return [max(SHORTEST, min(LENGTH, round(draw.lognormvariate(mu, SIGMA)))) for _ in range(steps * EFFECTIVE)]


def rows_of(case, steps, vocab):
    draw = random.Random(3)
    return [[draw.randrange(3, vocab) for _ in range(length)] for length in lengths_of(case, steps)]


def rival(arguments):
    """One run in this process; prints one JSON line."""
    import peft
    import torch
    torch.set_num_threads(os.cpu_count())
    case, vocab = arguments.rival, (TINY if arguments.tiny else SHAPE)["vocab_size"]
    model = plain_class()[0].from_pretrained(arguments.work / "model", dtype=torch.float32 if arguments.precision == "fp32" else torch.bfloat16)
    model.config.use_cache = False
    if CASES[case] == "lora":
        model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"), autocast_adapter_dtype=False)
    trained = [p for p in model.train().parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0, fused=True)
    rows, each = rows_of(case, arguments.steps, vocab), EFFECTIVE if case == "rows" else 1
    seconds, losses = [], []
    for step in range(arguments.steps):
        start = time.perf_counter()
        batch = sorted(rows[step * each:(step + 1) * each], key=len)
        targets = sum(len(row) - 1 for row in batch)
        total = 0.0
        for first in range(0, len(batch), arguments.micro):
            part = batch[first:first + arguments.micro]
            width = max(map(len, part))
            ids = torch.tensor([row + [0] * (width - len(row)) for row in part])
            mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in part])
            loss = model(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100), num_items_in_batch=targets).loss
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total)
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "losses": losses, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def timed(command, **options):
    """Output and processor seconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(word) for word in command], check=True, text=True, stdout=subprocess.PIPE, **options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_rival(case, arguments, micro, steps):
    words = [sys.executable, __file__, "--work", arguments.work, "--rival", case, "--micro", micro, "--steps", steps, "--precision", arguments.precision, *(["--tiny"] if arguments.tiny else [])]
    out, processor = timed(words, env={**os.environ, **KEEP_MEMORY}, stderr=subprocess.DEVNULL)
    return {**json.loads(out.splitlines()[-1]), "processor": processor}


def run_plimsoll(case, arguments, steps):
    vocab = (TINY if arguments.tiny else SHAPE)["vocab_size"]
    (arguments.work / "rows.jsonl").write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows_of(case, steps, vocab)))
    recipe = {"model": str(arguments.work / "model"), "precision": "fp32" if arguments.precision == "fp32" else "bf16" if CASES[case] == "lora" else "bf16-pure",
              "data": {"train": str(arguments.work / "rows.jsonl"), "max_length": LENGTH, "shuffle": False},
              "method": {"type": "full"} if CASES[case] == "full" else {"type": "lora", "r": 16, "alpha": 32, "targets": "all-linear"},
              "batch": {"effective": EFFECTIVE if case == "rows" else 1}, "optimizer": {"lr": 1e-4, "max_grad_norm": 1.0}, "save": {"every": 0},
              "schedule": {"name": "constant", "warmup": 0, "max_steps": steps}, "output": str(arguments.work / "run")}
    path = arguments.work / "recipe.json"
    path.write_text(json.dumps(recipe))
    _, processor = timed([arguments.plimsoll, "train", path, "--quiet", "--overwrite"])
    metrics = [json.loads(line) for line in (arguments.work / "run/metrics.jsonl").read_text().splitlines()]
    return {"seconds": [line["seconds"] for line in metrics], "losses": [line["loss"] for line in metrics], "processor": processor,
            "peak_bytes": json.loads((arguments.work / "run/run.json").read_text())["measured"]["process_peak_rss_bytes"]}


def figures(run, steps):
    """Of a side: `run(steps)` once long and once short."""
    long, short = run(steps + WARM_UP), run(WARM_UP)
    return {"seconds": statistics.median(long["seconds"][WARM_UP:]), "processor": (long["processor"] - short["processor"]) / steps,
            "peak_bytes": long["peak_bytes"], "first_loss": long["losses"][0]}


def measure(case, arguments):
    tokens = sum(lengths_of(case, arguments.steps + WARM_UP)[-arguments.steps * (EFFECTIVE if case == "rows" else 1):]) / arguments.steps
    tried = {micro: statistics.median(run_rival(case, arguments, micro, 1)["seconds"]) for micro in (MICRO if case == "rows" else (1,))}
    micro = min(tried, key=tried.get)
    sides = {"plimsoll": lambda steps: run_plimsoll(case, arguments, steps), "transformers": lambda steps: run_rival(case, arguments, micro, steps)}
    rounds = [{name: figures(run, arguments.steps) for name, run in sides.items()} for _ in range(arguments.rounds)]
    for ours, theirs in ((one["plimsoll"]["first_loss"], one["transformers"]["first_loss"]) for one in rounds):
        if abs(ours - theirs) > 0.02 * theirs:
            raise SystemExit(f"{case}: the first loss is {ours:.4f}, the rival's {theirs:.4f}: this is not the same work")
    result = {"case": case, "tokens_a_step": tokens, "rival_micro": micro}
    for name in sides:
        middle = {key: statistics.median(one[name][key] for one in rounds) for key in ("seconds", "processor", "peak_bytes")}
        result[name] = {"tokens_per_s": tokens / middle["seconds"], "tokens_per_processor_s": tokens / middle["processor"], "peak_bytes": middle["peak_bytes"]}
    print(line_of(result), flush=True)
    return result


def line_of(result):
    ours, theirs = result["plimsoll"], result["transformers"]
    return (f"{result['case']:5} tokens/s {ours['tokens_per_s']:6.0f} and {theirs['tokens_per_s']:6.0f} ({ours['tokens_per_s'] / theirs['tokens_per_s']:.2f}), "
            f"of a processor {ours['tokens_per_processor_s']:6.0f} and {theirs['tokens_per_processor_s']:6.0f} "
            f"({ours['tokens_per_processor_s'] / theirs['tokens_per_processor_s']:.2f}), peak {ours['peak_bytes'] / 2**20:,.0f} and "
            f"{theirs['peak_bytes'] / 2**20:,.0f} MiB ({ours['peak_bytes'] / theirs['peak_bytes']:.2f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", type=pathlib.Path, default="build/plimsoll")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--cases", default="lora,full,rows")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--micro", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--rival", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--tiny", action="store_true", help="a model so small that all takes a minute: to try the script")
    arguments = parser.parse_args()
    if arguments.rival:
        return rival(arguments)
    arguments.plimsoll, arguments.work = arguments.plimsoll.resolve(), arguments.work.resolve()
    arguments.work.mkdir(parents=True, exist_ok=True)
    if not (arguments.work / "model/config.json").exists():
        make_model(arguments.work / "model", arguments.tiny)
    load = os.getloadavg()[0]
    found = {"cpus": os.cpu_count(), "load": load, "precision": arguments.precision, "shape": {**SHAPE, **(TINY if arguments.tiny else {})},
             "steps": arguments.steps, "rounds": arguments.rounds, "results": []}
    for case in arguments.cases.split(","):
        found["results"].append(measure(case, arguments))
        if arguments.out:  # each as it comes: who stops the rest keeps it
            arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
