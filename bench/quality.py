#!/usr/bin/env python3
"""Quality beside memory: the demo's held-out accuracy for full fine-tuning, LoRA, QLoRA and 8-bit AdamW.

    quality.py [--plimsoll build/plimsoll] [--out results.json]

The first task is learnt from random weights by full fine-tuning (AdamW in fp32 and in pure bf16,
8-bit AdamW, Lion at a fifth of the rate and five times the decay, Adafactor); the second by LoRA and QLoRA on top of the first model. All else is the demo's recipe. About eight minutes.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# label, recipe, task, changed keys
RUNS = (
    ("full, AdamW fp32", "full", "facts", []),
    ("full, AdamW bf16-pure", "full", "facts", ["precision=bf16-pure"]),
    ("full, 8-bit AdamW", "full", "facts", ["optimizer.name=adamw8bit"]),
    ("full, 8-bit AdamW, bf16", "full", "facts", ["optimizer.name=adamw8bit", "precision=bf16"]),
    ("full, Lion", "full", "facts", ["optimizer.name=lion", "optimizer.lr=2e-4", "optimizer.weight_decay=1.5",
                                     "optimizer.eps=null"]),
    ("full, Adafactor", "full", "facts", ["optimizer.name=adafactor", "optimizer.eps=null", "optimizer.betas=null"]),
    ("LoRA r16 on it", "lora", "reverse", []),
    ("QLoRA r16 on it", "lora", "reverse", ["method.type=qlora"]),
    ("QLoRA r16, 8-bit AdamW", "lora", "reverse", ["method.type=qlora", "optimizer.name=adamw8bit"]),
)


def run(plimsoll, label, recipe, task, changes, work):
    output = work / label.replace(" ", "-").replace(",", "")
    sets = [f"output={output}", "save.keep=1", *changes]
    if recipe == "lora":
        sets.append(f"model={work / 'full-AdamW-fp32'}")
    command = [plimsoll, "train", str(ROOT / f"demo/recipes/{recipe}.yaml"), "--quiet", "--overwrite"]
    for key in sets:
        command += ["--set", key]
    subprocess.run(command, check=True)
    answers = output / "answers.jsonl"
    subprocess.run([plimsoll, "generate", str(output), "--data", str(ROOT / f"demo/data/{task}/heldout.parquet"), "--out",
                    str(answers)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = [json.loads(line) for line in answers.read_text().splitlines()]
    right = sum(row["response"].strip() == row["expected"].strip() for row in rows)
    report = json.loads((output / "run.json").read_text())
    return {"run": label, "task": task, "right": right, "of": len(rows),
            "device_arena_bytes": report["measured"]["device_arena_bytes"], "final_loss": report["final_loss"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default=str(ROOT / "build/plimsoll"))
    parser.add_argument("--runs", type=int, nargs="+", help="numbers of the runs, from 0; LoRA needs run 0")
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    work = ROOT / "demo/work/quality"
    shutil.rmtree(work, ignore_errors=True)
    results = []
    print(f"{'':26}{'task':9}{'held-out right':>16}{'device MiB':>12}{'final loss':>12}")
    for label, recipe, task, changes in (RUNS[i] for i in arguments.runs or range(len(RUNS))):
        r = run(str(pathlib.Path(arguments.plimsoll).resolve()), label, recipe, task, changes, work)
        results.append(r)
        share = f"{100 * r['right'] / r['of']:.1f} %"
        print(f"{label:26}{task:9}{share:>16}{r['device_arena_bytes'] / 2**20:12.1f}{r['final_loss']:12.4f}", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
