#!/usr/bin/env python3
"""How long `plimsoll plan` takes on one core, for 7B, 8B and 70B shapes, and for a T5: plans and refusals.

    planning.py [--plimsoll build/plimsoll] [--only 70b] [--rounds 3] [--out results.json]

Processor seconds (user and system) of the whole command, the least and the median of the rounds. Models are made of a
config.json alone, as planning reads no weights. Length 2,048, effective batch 16; the T5 is that of docs/cases/2-t5-chat.md.
Goals: 0.5 s for the T5, 1 s for 7B and 8B, 3 s for 70B and for refusals, whose suggestions are plans too.
Standard library only; Linux.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

LLAMA_8B = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
            "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "max_position_embeddings": 8192, "tie_word_embeddings": False,
            "torch_dtype": "bfloat16", "hidden_act": "silu"}
SHAPES = {
    "7b": {**LLAMA_8B, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "vocab_size": 32000},
    "8b": LLAMA_8B,
    "70b": {**LLAMA_8B, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
            "num_attention_heads": 64},
}
T5_CASE = pathlib.Path(__file__).resolve().parent.parent / "examples/cases/2-t5-chat"
GOALS = {"t5": 0.5, "7b": 1.0, "8b": 1.0, "70b": 3.0}
REFUSAL_GOAL = 3.0

# Shape, method, device, host, disk, what else the recipe says.
CASES = [
    ("t5", "full", "20GB", "32GB", "0", ""),
    ("7b", "lora", "24GiB", "32GiB", "0", ""),
    ("7b", "lora", "12GiB", "32GiB", "0", ""),
    ("7b", "lora", "6GiB", "24GiB", "200GiB", ""),
    ("7b", "lora", "1GiB", "24GiB", "200GiB", ""),
    ("7b", "qlora", "6GiB", "24GiB", "0", ""),
    ("7b", "full", "24GiB", "64GiB", "400GiB", ""),
    ("7b", "full", "8GiB", "24GiB", "400GiB", ""),
    ("7b", "full", "2GiB", "24GiB", "400GiB", ""),
    ("7b", "full", "16GiB", "32GiB", "0", ""),
    ("7b", "full", "24GiB", "64GiB", "0", "memory: {allow: [adamw8bit, bf16-states]}"),
    ("8b", "lora", "12GiB", "32GiB", "200GiB", ""),
    ("8b", "lora", "8GiB", "32GiB", "0", "memory: {offload: none}"),
    ("8b", "full", "24GiB", "128GiB", "0", ""),
    ("8b", "full", "160GiB", "64GiB", "0", ""),
    ("8b", "full", "10GiB", "32GiB", "400GiB", ""),
    ("8b", "full", "10GiB", "32GiB", "400GiB", "batch: {micro: 4}"),
    ("8b", "full", "24GiB", "128GiB", "0", "optimizer: {max_grad_norm: 0}"),
    ("70b", "lora", "24GiB", "64GiB", "400GiB", ""),
    ("70b", "lora", "160GiB", "64GiB", "0", ""),
    ("70b", "lora", "4GiB", "64GiB", "400GiB", ""),
    ("70b", "lora", "2GiB", "64GiB", "400GiB", ""),
    ("70b", "qlora", "48GiB", "64GiB", "0", ""),
    ("70b", "full", "80GiB", "512GiB", "2TiB", ""),
    ("70b", "full", "48GiB", "128GiB", "2TiB", ""),
    ("70b", "full", "80GiB", "512GiB", "0", ""),
    ("70b", "full", "4GiB", "128GiB", "2TiB", ""),
]


def recipe_of(case):
    shape, method, device, host, disk, more = case
    if shape == "t5":
        return (T5_CASE / "recipe.yaml").read_text()
    lines = [f"model: {shape}", "device: card", f"method: {{type: {method}}}", "data: {max_length: 2048}"]
    extra = dict([more.split(": {", 1)]) if more else {}
    keys = {"batch": "effective: 16", "memory": f"device: {device}, host: {host}, disk: {disk}"}
    for name, body in extra.items():
        keys[name] = (keys[name] + ", " if name in keys else "") + body.removesuffix("}")
    return "\n".join(lines + [f"{name}: {{{body}}}" for name, body in keys.items()]) + "\n"


def processor_seconds(command, folder):
    """Of the command alone, with its exit status."""
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime, process.returncode


def measure(case, plimsoll, folder, rounds):
    (folder / "recipe.yaml").write_text(recipe_of(case))
    seconds = []
    for _ in range(rounds):
        took, code = processor_seconds([plimsoll, "plan", "recipe.yaml"], folder)
        if code not in (0, 3):
            sys.exit(f"planning.py: exit status {code} of\n{recipe_of(case)}{(folder / 'output').read_text()}")
        seconds.append(took)
    shape, method, device, host, disk, more = case
    return {"shape": shape, "method": method, "device": device, "host": host, "disk": disk, "more": more,
            "fits": code == 0, "least_s": round(min(seconds), 3), "median_s": round(statistics.median(seconds), 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default="build/plimsoll")
    parser.add_argument("--only", default="", help="cases whose description contains this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--plans", type=pathlib.Path, help="folder for what each case printed, to compare two builds")
    arguments = parser.parse_args()
    plimsoll = str(pathlib.Path(arguments.plimsoll).resolve())
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "config.json").write_text((T5_CASE / "config.json").read_text())
        for shape, config in SHAPES.items():
            (folder / shape).mkdir()
            (folder / shape / "config.json").write_text(json.dumps(config))
        for number, case in enumerate(CASES):
            if arguments.only not in " ".join(case):
                continue
            result = measure(case, plimsoll, folder, arguments.rounds)
            results.append(result)
            goal = GOALS[result["shape"]] if result["fits"] else REFUSAL_GOAL
            late = "  late" if result["median_s"] > goal else ""
            print(f"{' '.join(case):82s} {'fits' if result['fits'] else 'no  '} "
                  f"least {result['least_s']:6.2f}  median {result['median_s']:6.2f}{late}", flush=True)
            if arguments.plans:
                arguments.plans.mkdir(parents=True, exist_ok=True)
                (arguments.plans / f"{number:02d}.txt").write_text((folder / "output").read_text())
    if arguments.out:
        arguments.out.write_text(json.dumps({"cases": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
