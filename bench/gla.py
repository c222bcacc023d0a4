#!/usr/bin/env python3
"""What a token costs in texts of different lengths, with gated linear attention and with softmax attention:
python3 bench/gla.py [PLIMSOLL]

Two models of 15 million parameters and the same shape but for the attention, full fine-tuning in fp32, one text a step.
Training: 8,192 tokens each, in texts of 512 to 8,192 tokens. Answers: 64 tokens behind a prompt of as many tokens.
Standard library only. Prints processor time with one thread: the difference of a long and a short run, so that neither
loading nor other work on the machine's cores counts (shared memory and caches do).
"""
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

SHAPE = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4, "vocab_size": 4096,
         "max_position_embeddings": 16384, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2}
MODELS = {"GLA": {"model_type": "gla", "num_heads": 4}, "Llama": {"model_type": "llama", "num_attention_heads": 8}}
LENGTHS = (512, 2048, 4096, 8192)
TOKENS = 8192
ANSWER = 64


def processor_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def text(length):
    return [(7 * i + 13 * (i // 64)) % 4000 + 3 for i in range(length)]


def recipe(folder, length):
    rows = folder / f"rows{length}.jsonl"
    rows.write_text((json.dumps({"input_ids": text(length)}) + "\n") * (TOKENS // length + 1))
    path = folder / "recipe.json"
    path.write_text(json.dumps({
        "model": str(folder / "model"), "init": "random", "method": {"type": "full"}, "precision": "fp32", "threads": 1,
        "data": {"train": str(rows), "max_length": length, "shuffle": False}, "batch": {"effective": 1, "micro": 1},
        "memory": {"recompute": "none", "offload": "none"}, "output": str(folder / "run")}))
    return path


def training(plimsoll, folder, length):
    path = recipe(folder, length)
    short, long = (processor_seconds([plimsoll, "train", path, "--overwrite", "--quiet", "--set", f"schedule.max_steps={steps}"])
                   for steps in (1, 1 + TOKENS // length))
    return (long - short) / TOKENS


def answering(plimsoll, folder, length):
    ids = ",".join(map(str, text(length)))
    short, long = (processor_seconds([plimsoll, "generate", folder / "run", "--ids", ids, "--max-new-tokens", count,
                                      "--context", length + ANSWER + 1, "--threads", 1]) for count in (1, 1 + ANSWER))
    return (long - short) / ANSWER


def main():
    plimsoll = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/plimsoll").resolve()
    print(f"load {os.getloadavg()[0]:.1f}\n\n| tokens of a text | GLA, training | Llama, training | GLA, answer | Llama, answer |\n"
          "|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as name:
        figures = {}
        for model, keys in MODELS.items():
            folder = pathlib.Path(name) / model
            (folder / "model").mkdir(parents=True)
            (folder / "model/config.json").write_text(json.dumps({**SHAPE, **keys}))
            for length in LENGTHS:
                figures[model, length] = training(plimsoll, folder, length), answering(plimsoll, folder, length)
        for length in LENGTHS:
            cells = [f"{1e6 * figures[model, length][i]:,.0f} µs" for i in (0, 1) for model in MODELS]
            print(f"| {length:,} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
