#!/usr/bin/env python3
"""What rows that begin alike gain by sharing: python3 bench/shared_prefixes.py [--plimsoll build/plimsoll] [--rounds 3] [--out FILE]

`chats`: a system prompt of 200 tokens, the same in every row, and turns of 150 on average behind it (lognormal, 20 to 600), of
which half are learnt; task sft, 16 rows a step. `pairs`: a prompt that is half of each row, 256 tokens on average, and two answers
of about as many each; task dpo without reference (orpo), 8 pairs a step. LoRA on a Llama of 8 layers of 512 with random weights,
bf16, micro-steps as the planner chooses them without a budget. Sharing on and off in turn, ROUNDS times: processor time of a step as the difference
of a long and a short run by the steps between them, so that neither loading nor other work on the machine counts. Beside the gain
what the tokens that pass through the model allow: rows' tokens over those. Standard library only.
"""
import argparse
import json
import pathlib
import random
import resource
import statistics
import subprocess
import tempfile

CONFIG = {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8,
          "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 8192, "max_position_embeddings": 2048,
          "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True, "hidden_act": "silu",
          "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16"}
SHORT, LONG = 1, 5


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


CASES = {"chats": (chats, 16, {"task": "sft"}), "pairs": (pairs, 8, {"task": "dpo", "dpo": {"loss": "orpo"}})}


def processor_seconds(plimsoll, folder, steps, share):
    command = [plimsoll, "train", folder / "recipe.json", "--overwrite", "--quiet", "--set", f"schedule.max_steps={steps}",
               "--set", f"data.share_prefixes={share}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(plimsoll, folder, name, rounds, threads):
    make, effective, task = CASES[name]
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model/config.json").write_text(json.dumps(CONFIG))
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in make(random.Random(17), effective * LONG)))
    recipe = {"model": str(folder / "model"), "init": "random", **task, "method": {"type": "lora", "r": 8}, "precision": "bf16",
              "data": {"train": str(rows), "max_length": 2048, "shuffle": False}, "threads": threads,
              "batch": {"effective": effective}, "memory": {"recompute": "none", "offload": "none"},
              "output": str(folder / "run")}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    seconds, done = {"off": [], "on": []}, {}
    for _ in range(rounds):
        for share in seconds:
            short, long = (processor_seconds(plimsoll, folder, steps, share) for steps in (SHORT, LONG))
            seconds[share].append((long - short) / (LONG - SHORT))
            done[share] = json.loads((folder / "run/run.json").read_text())
    gains = [off / on for off, on in zip(seconds["off"], seconds["on"])]
    shared = done["on"]["shared"]
    return {"case": name, "rounds": rounds, "threads": threads,
            "processor_seconds_a_step": {share: statistics.median(each) for share, each in seconds.items()},
            "gain": statistics.median(gains), "gains": gains, "shared": shared, "tokens_allow": 1 / (1 - shared),
            "arena_bytes": {share: run["measured"]["device_arena_bytes"] for share, run in done.items()}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plimsoll", default="build/plimsoll")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--out")
    options = parser.parse_args()
    plimsoll = pathlib.Path(options.plimsoll).resolve()
    results = []
    print("| case | tokens shared | s a step, off | on | gain | tokens allow | arena, off | on |\n|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in options.cases.split(","):
        with tempfile.TemporaryDirectory() as folder:
            case = measure(plimsoll, pathlib.Path(folder), name, options.rounds, options.threads)
        results.append(case)
        seconds, arena = case["processor_seconds_a_step"], case["arena_bytes"]
        print(f"| {name} | {100 * case['shared']:.0f} % | {seconds['off']:.2f} | {seconds['on']:.2f} | {case['gain']:.2f} | "
              f"{case['tokens_allow']:.2f} | {arena['off'] / 2**20:.0f} MiB | {arena['on'] / 2**20:.0f} MiB |", flush=True)
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
