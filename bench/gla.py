#!/usr/bin/env python3
"""What a token costs in texts of different lengths, with gated linear attention and with softmax attention:

    gla.py [--plimsoll build/plimsoll] [--lengths 512,2048,4096,8192,16384] [--llama 4096] [--out results.json]

Two models of 15 million parameters and the same shape but for the attention, full fine-tuning in fp32, one text a
micro-step. Training: a step has as many tokens as the longest text, whatever their length, so that each has the same share
of the optimizer. Answers: 64 tokens behind a prompt of that length. The
Llama only at the lengths of --llama, as what it costs grows with them. Standard library only. Times are processor time with
one thread: the difference of a long and a short run, so that neither loading nor other work on the machine's cores counts
(shared memory and caches do). Peaks are the training process's own.
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

SHAPE = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4, "vocab_size": 4096,
         "max_position_embeddings": 32768, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2}
MODELS = {"GLA": {"model_type": "gla", "num_heads": 4}, "Llama": {"model_type": "llama", "num_attention_heads": 8}}
ANSWER = 64


def processor_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def text(length):
    return [(7 * i + 13 * (i // 64)) % 4000 + 3 for i in range(length)]


def recipe(folder, length, texts):
    rows = folder / f"rows{length}.jsonl"
    rows.write_text((json.dumps({"input_ids": text(length)}) + "\n") * (2 * texts))
    path = folder / "recipe.json"
    path.write_text(json.dumps({
        "model": str(folder / "model"), "init": "random", "method": {"type": "full"}, "precision": "fp32", "threads": 1,
        "data": {"train": str(rows), "max_length": length, "shuffle": False}, "batch": {"effective": texts, "micro": 1},
        "memory": {"recompute": "none", "offload": "none"}, "output": str(folder / "run")}))
    return path


def training(plimsoll, folder, length, tokens):
    """Seconds of a token, and the peak of the process."""
    texts = max(1, tokens // length)
    path = recipe(folder, length, texts)
    # The first of three is not measured: on virtual machines memory that nobody had for a while is dear to touch.
    _, short, long = (processor_seconds([plimsoll, "train", path, "--overwrite", "--quiet", "--set", f"schedule.max_steps={steps}"])
                   for steps in (1, 1, 2))
    measured = json.loads((folder / "run/run.json").read_text())["measured"]
    return (long - short) / (texts * length), measured["process_peak_rss_bytes"]


def answering(plimsoll, folder, length):
    ids = ",".join(map(str, text(length)))
    short, long = (processor_seconds([plimsoll, "generate", folder / "run", "--ids", ids, "--max-new-tokens", count,
                                      "--context", length + ANSWER + 1, "--threads", 1]) for count in (1, 1 + ANSWER))
    return (long - short) / ANSWER


def measure(plimsoll, folder, model, length, tokens):
    seconds, peak = training(plimsoll, folder, length, tokens)
    row = {"model": model, "length": length, "training_seconds": seconds, "peak_bytes": peak,
           "answer_seconds": answering(plimsoll, folder, length)}
    print(f"{model} {length}: {1e6 * seconds:,.0f} µs", file=sys.stderr, flush=True)
    return row


def show(rows):
    print("| model | tokens of a text | a token, training | tokens/s of a core | peak | a token of an answer |\n"
          "|---|---:|---:|---:|---:|---:|")
    for row in rows:
        print(f"| {row['model']} | {row['length']:,} | {1e6 * row['training_seconds']:,.0f} µs | {1 / row['training_seconds']:,.0f} "
              f"| {row['peak_bytes'] / 2**20:,.0f} MiB | {1e6 * row['answer_seconds']:,.0f} µs |")


def numbers(words):
    return [int(word) for word in words.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default="build/plimsoll")
    parser.add_argument("--lengths", type=numbers, default=[512, 2048, 4096, 8192, 16384])
    parser.add_argument("--llama", type=numbers, default=[4096])
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    plimsoll, tokens, rows = pathlib.Path(arguments.plimsoll).resolve(), max(arguments.lengths), []
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        for model, lengths in (("GLA", arguments.lengths), ("Llama", arguments.llama)):
            folder = pathlib.Path(name) / model
            (folder / "model").mkdir(parents=True)
            (folder / "model/config.json").write_text(json.dumps({**SHAPE, **MODELS[model]}))
            rows += [measure(plimsoll, folder, model, length, tokens) for length in lengths]
    show(rows)
    if arguments.out:
        arguments.out.write_text(json.dumps({"cpus": os.cpu_count(), "load": load, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
