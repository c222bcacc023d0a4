#!/usr/bin/env python3
"""What rows that begin alike gain by sharing, beside rows apart and beside transformers + PEFT.

    bench/shared_prefixes.py [--plimsoll build/plimsoll] [--cases chats,pairs,rewards] [--model llama] [--precision fp32] [--rounds 3] [--rival]
        [--out FILE]

`chats`: a system prompt of 200 tokens, the same in every row, and turns of 150 on average behind it (lognormal, 20 to 600), of
which half are learnt; task sft, 16 rows a step. `pairs`: a prompt that is half of each row, 256 tokens on average, and two answers
of about as many each; task dpo without reference (orpo), 8 pairs a step. `rewards`: the same pairs, task reward. `instructions`:
rows that share nothing, of 120 tokens on average (lognormal, longest 700), 16 a step; `full`: 4 rows of 512. LoRA on a Llama of
8 layers of 512, or a GLA of as many without a rival, with random weights, micro-steps as the planner chooses them without a budget. Sharing off and on (and with
--rival the rival) in turn, ROUNDS times: processor time of a step as the difference of a long and a short run by the steps between
them, of the rival what its process took in the steps but the first, so that neither loading nor other work on the machine counts.
Beside the gain what the tokens that pass through the model allow: rows' tokens over those. The rival sorts the rows of a step by
length, pads each micro-batch to its longest row and takes the fastest of several micro-batches, found by a step of each; sharing
is also run within half of the memory that the rival's process takes then.
Tokens are those of the data. Standard library; the rival needs torch, transformers, peft.
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
import tempfile
import time

import compare_hf

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1408,
          "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 8192,
          "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
          "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "torch_dtype": "bfloat16"}
GLA = {"model_type": "gla", "architectures": ["GLAForCausalLM"], "hidden_size": 512, "num_hidden_layers": 8, "num_heads": 4,
       "vocab_size": 8192, "tie_word_embeddings": True, "use_short_conv": True, "torch_dtype": "bfloat16"}
MODELS = {"llama": CONFIG, "gla": GLA}
SHORT, LONG = 1, 5
MICRO = (1, 2, 4, 8, 16)


def ids(draw, length):
    return [draw.randrange(3, 8000) for _ in range(length)]


def around(draw, mean, least, most):
    return max(least, min(most, round(draw.lognormvariate(0, 0.6) * mean / 1.197)))


def chats(draw, rows):
    system = ids(draw, 200)
    for _ in range(rows):
        turn = ids(draw, around(draw, 150, 20, 600))
        asked = len(turn) // 2
        yield {"input_ids": system + turn, "labels": [-100] * (len(system) + asked) + turn[asked:]}


def pairs(draw, rows):
    for _ in range(rows):
        length = around(draw, 256, 32, 700)
        yield {"prompt_input_ids": ids(draw, length), "chosen_input_ids": ids(draw, around(draw, length, 16, 700)),
               "rejected_input_ids": ids(draw, around(draw, length, 16, 700))}


def rewards(draw, rows):
    for row in pairs(draw, rows):
        prompt = row.pop("prompt_input_ids")
        yield {name: prompt + answer for name, answer in row.items()}


def instructions(draw, rows):
    mu = math.log(120) - 0.75 ** 2 / 2
    for at in range(rows):
        tokens = ids(draw, 700 if at == 1 else max(8, min(700, round(draw.lognormvariate(mu, 0.75)))))
        yield {"input_ids": tokens, "labels": tokens}


def full(draw, rows):
    for _ in range(rows):
        tokens = ids(draw, 512)
        yield {"input_ids": tokens, "labels": tokens}


CASES = {"chats": (chats, 16, {"task": "sft"}), "pairs": (pairs, 8, {"task": "dpo", "dpo": {"loss": "orpo"}}),
         "rewards": (rewards, 8, {"task": "reward"}), "instructions": (instructions, 16, {"task": "sft"}),
         "full": (full, 4, {"task": "sft"})}


def sequences(row):
    """Ids and labels of each sequence of a row."""
    if "input_ids" in row:
        return [(row["input_ids"], row["labels"])]
    prompt = row.get("prompt_input_ids", [])
    return [(prompt + row[name], [-100] * len(prompt) + row[name]) for name in ("chosen_input_ids", "rejected_input_ids")]


def write_case(folder, name, model, precision, threads):
    make, effective, task = CASES[name]
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(json.dumps(MODELS[model]))
    rows = list(make(random.Random(17), effective * LONG))
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = {"model": str(folder / "model"), "init": "random", **task, "method": {"type": "lora", "r": 8}, "precision": precision,
              "data": {"train": str(folder / "rows.jsonl"), "max_length": 2048, "shuffle": False}, "threads": threads,
              "batch": {"effective": effective}, "memory": {"recompute": "none", "offload": "none"},
              "output": str(folder / "run")}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    return sum(len(tokens) for row in rows[effective * SHORT:] for tokens, _ in sequences(row)) / (LONG - SHORT)


def processor_seconds(plimsoll, folder, steps, share, memory=None):
    command = [plimsoll, "train", folder / "recipe.json", "--overwrite", "--quiet", "--set", f"schedule.max_steps={steps}",
               "--set", f"data.share_prefixes={share}", *(["--memory", str(memory), "--set", "memory.recompute=auto"] if memory else [])]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def padded(torch, rows, value):
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value)


def rival_loss(torch, model, name, rows, targets):
    """Of a micro-batch, as a part of its step's mean: TRL's way for pairs, both answers in one pass."""
    both = [sequence for i in range(len(sequences(rows[0]))) for sequence in (sequences(row)[i] for row in rows)]
    tokens, labels = padded(torch, [s[0] for s in both], 0), padded(torch, [s[1] for s in both], -100)
    mask = padded(torch, [[1] * len(s[0]) for s in both], 0)
    if CASES[name][2]["task"] == "sft":
        return model(input_ids=tokens, attention_mask=mask, labels=labels, num_items_in_batch=targets).loss
    out = model(input_ids=tokens, attention_mask=mask).logits
    if name == "rewards":
        scores = out.squeeze(-1).float()
        return -torch.nn.functional.logsigmoid(scores[:len(rows)] - scores[len(rows):]).sum() / CASES[name][1]
    asked = labels[:, 1:]
    each = torch.nn.functional.cross_entropy(out[:, :-1].flatten(0, 1).float(), asked.flatten(), reduction="none", ignore_index=-100)
    mean = -each.view(asked.shape).sum(1) / (asked != -100).sum(1)
    chosen, rejected = mean[:len(rows)], mean[len(rows):]
    odds = chosen - rejected - (torch.log1p(-torch.exp(chosen)) - torch.log1p(-torch.exp(rejected)))
    return (-chosen - 0.1 * torch.nn.functional.logsigmoid(odds)).sum() / CASES[name][1]


def rival(arguments):
    """All steps with one micro-batch size; prints one JSON line."""
    import peft
    import torch
    import transformers

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    name, effective = arguments.rival_case, CASES[arguments.rival_case][1]
    folder = pathlib.Path(arguments.folder)
    config = transformers.AutoConfig.from_pretrained(folder / "model")
    auto = transformers.AutoModelForCausalLM
    if name == "rewards":
        config.num_labels = 1
        auto = transformers.AutoModelForSequenceClassification
    model = auto.from_config(config, dtype=torch.float32 if arguments.precision == "fp32" else torch.bfloat16)
    model.config.use_cache = False
    kind = "SEQ_CLS" if name == "rewards" else "CAUSAL_LM"
    model = peft.get_peft_model(model, peft.LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type=kind),
                                autocast_adapter_dtype=False)
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0)
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    seconds = []
    for step in range(arguments.steps):
        batch = sorted(rows[step * effective:(step + 1) * effective], reverse=True,
                       key=lambda row: max(len(tokens) for tokens, _ in sequences(row)))
        targets = sum(label != -100 for row in batch for _, labels in sequences(row) for label in labels[1:])
        start = time.process_time()
        for first in range(0, effective, arguments.micro):
            rival_loss(torch, model, name, batch[first:first + arguments.micro], targets).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.process_time() - start)
    peak = int(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
    print(json.dumps({"seconds": statistics.mean(seconds[SHORT:]), "peak_bytes": peak, "micro": arguments.micro}))


def run_rival(arguments, folder, name, micro, steps=LONG):
    command = [sys.executable, __file__, "--rival-case", name, "--folder", str(folder), "--micro", str(micro), "--steps", str(steps),
               "--precision", arguments.precision, "--threads", str(arguments.threads)]
    done = subprocess.run(command, env={**os.environ, **compare_hf.KEEP_MEMORY, "OMP_NUM_THREADS": str(arguments.threads)},
                          stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(arguments, plimsoll, folder, name):
    tokens = write_case(folder, name, arguments.model, arguments.precision, arguments.threads)
    runs, theirs, micro = {"off": ("off", None), "on": ("on", None)}, [], 0
    if arguments.rival:
        tried = [run_rival(arguments, folder, name, micro, SHORT + 1) for micro in MICRO if micro <= CASES[name][1]]
        fastest = min(tried, key=lambda run: run["seconds"])
        micro = fastest["micro"]
        runs["on, in half"] = ("on", fastest["peak_bytes"] // 2)
    seconds, done = {run: [] for run in runs}, {}
    for _ in range(arguments.rounds):
        for run, asked in runs.items():
            short, long = (processor_seconds(plimsoll, folder, steps, *asked) for steps in (SHORT, LONG))
            seconds[run].append((long - short) / (LONG - SHORT))
            done[run] = json.loads((folder / "run/run.json").read_text())
        if arguments.rival:
            theirs.append(run_rival(arguments, folder, name, micro))
    shared = done["on"]["shared"]
    gains = [off / on for off, on in zip(seconds["off"], seconds["on"])]
    gain, allowed = statistics.median(gains), 1 / (1 - shared)
    rates = {share: tokens / statistics.median(each) for share, each in seconds.items()}
    result = {"case": name, "model": arguments.model, "precision": arguments.precision, "rounds": arguments.rounds, "threads": arguments.threads,
              "processor_seconds_a_step": {share: statistics.median(each) for share, each in seconds.items()},
              "gain": gain, "gains": gains, "shared": shared, "tokens_allow": allowed, "of_allowed": gain / allowed,
              "tokens_a_processor_second": rates, "micro_steps": {share: run["micro_steps"] for share, run in done.items()},
              "arena_bytes": {share: run["measured"]["device_arena_bytes"] for share, run in done.items()},
              "peak_bytes": {share: run["measured"]["process_peak_rss_bytes"] for share, run in done.items()}}
    if theirs:
        rate = tokens / statistics.median(run["seconds"] for run in theirs)
        peak = max(run["peak_bytes"] for run in theirs)
        result["rival"] = {"tokens_a_processor_second": rate, "peak_bytes": peak, "micro": theirs[-1]["micro"],
                           "times_as_fast": rates["on"] / rate, "of_its_memory": result["peak_bytes"]["on"] / peak,
                           "in_half": {"times_as_fast": rates["on, in half"] / rate,
                                       "of_its_memory": result["peak_bytes"]["on, in half"] / peak}}
    return result


HEAD = ("| case | precision | shared | s a step, off | on | gain | tokens allow | of that | arena, off | on | rival | times as fast | "
        "memory | in half of it, times as fast | memory |")


def line(case):
    seconds, arena, rival = case["processor_seconds_a_step"], case["arena_bytes"], case.get("rival")
    beside = "| | | |"
    if rival:
        beside = f"{rival['tokens_a_processor_second']:.0f} tokens/s | " + " | ".join(
            f"{each['times_as_fast']:.2f} | {100 * each['of_its_memory']:.0f} %" for each in (rival, rival["in_half"]))
    return (f"| {case['case']} | {case['precision']} | {100 * case['shared']:.0f} % | {seconds['off']:.2f} | {seconds['on']:.2f} | "
            f"{case['gain']:.2f} | {case['tokens_allow']:.2f} | {100 * case['of_allowed']:.0f} % | {arena['off'] / 2**20:.0f} MiB | "
            f"{arena['on'] / 2**20:.0f} MiB | {beside} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default="build/plimsoll")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--cases", default="chats,pairs,rewards")
    parser.add_argument("--model", choices=list(MODELS), default="llama")
    parser.add_argument("--rival", action="store_true")
    parser.add_argument("--out")
    for hidden, kind in (("--rival-case", str), ("--folder", str), ("--micro", int), ("--steps", int)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rival_case:
        return rival(arguments)
    if arguments.rival and arguments.model != "llama":
        sys.exit("error: the rival has the model llama")
    plimsoll = pathlib.Path(arguments.plimsoll).resolve()
    results = []
    print(HEAD + "\n|" + "---|" * HEAD.count(" |"))
    for name in arguments.cases.split(","):
        with tempfile.TemporaryDirectory() as folder:
            results.append(measure(arguments, plimsoll, pathlib.Path(folder), name))
        print(line(results[-1]), flush=True)
    if arguments.out:
        path = pathlib.Path(arguments.out)
        kept = [case for case in (json.loads(path.read_text()) if path.exists() else [])
                if not any((case["case"], case["precision"]) == (new["case"], new["precision"]) for new in results)]
        path.write_text(json.dumps(kept + results, indent=1) + "\n")


if __name__ == "__main__":
    main()
