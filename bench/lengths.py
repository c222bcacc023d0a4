#!/usr/bin/env python3
"""What short rows cost in a program that is planned for long ones: python3 bench/lengths.py [PLIMSOLL]

Four sequences a step, planned for 512 tokens each, with rows of 512 tokens down to 16 and a mixture. If a step took the
planned tokens' time whatever it holds, short rows would want programs of their own (length buckets).
Standard library only. Prints the processor time of a step for each, with one thread: the difference of a long and a short
run by the steps between them, so that neither loading nor other work on the machine counts.
"""
import json
import pathlib
import resource
import subprocess
import sys
import tempfile

CONFIG = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4,
          "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 4096, "max_position_embeddings": 512,
          "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True, "hidden_act": "silu",
          "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}
LENGTHS = [[512] * 4, [256] * 4, [128] * 4, [64] * 4, [16] * 4, [512, 32, 32, 32]]
SHORT, LONG = 2, 8


def processor_seconds(plimsoll, folder, steps):
    command = [plimsoll, "train", folder / "recipe.json", "--overwrite", "--quiet", "--set", f"schedule.max_steps={steps}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def step_seconds(plimsoll, folder, lengths):
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model/config.json").write_text(json.dumps(CONFIG))
    rows = folder / "rows.jsonl"
    ids = [[(7 * i + 13 * n) % 4000 + 3 for i in range(n)] for n in lengths]
    rows.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in ids * LONG))
    recipe = {"model": str(folder / "model"), "init": "random", "data": {"train": str(rows), "max_length": 512, "shuffle": False},
              "method": {"type": "lora", "r": 8}, "batch": {"effective": 4, "micro": 4}, "precision": "bf16",
              "threads": 1, "memory": {"recompute": "none", "offload": "none"}, "output": str(folder / "run")}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    short, long = (processor_seconds(plimsoll, folder, steps) for steps in (SHORT, LONG))
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == LONG and all(line["tokens"] == sum(lengths) for line in lines), lines[0]
    return (long - short) / (LONG - SHORT)


def main():
    plimsoll = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/plimsoll").resolve()
    print("| rows | tokens | share of the planned | ms a step | share of the longest |\n|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        longest = None
        for lengths in LENGTHS:
            seconds = step_seconds(plimsoll, folder, lengths)
            longest = longest or seconds
            words = f"4 of {lengths[0]}" if len(set(lengths)) == 1 else " + ".join(map(str, lengths))
            print(f"| {words} | {sum(lengths):,} | {100 * sum(lengths) / 2048:.0f} % | {1e3 * seconds:.1f} | "
                  f"{100 * seconds / longest:.0f} % |")


if __name__ == "__main__":
    main()
