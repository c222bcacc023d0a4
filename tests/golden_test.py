"""The engine against what PyTorch, transformers and PEFT computed once (tests/golden, made by `make golden`).

Usage: golden_test.py PLIMSOLL (from the repository's root). Standard library only: `make test` needs no PyTorch.
"""
import array
import json
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLIMSOLL = ROOT / "build" / "plimsoll"
LIMIT = 1e-4  # fp32: largest difference over the largest value of a tensor; also of each step's loss


def tensors(path):
    """{name: list of numbers} of a safetensors file of types F32, F64, I32 and I64."""
    data = Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    result = {}
    for name, info in header.items():
        begin, end = (8 + size + offset for offset in info["data_offsets"])
        values = array.array({"F32": "f", "F64": "d", "I32": "i", "I64": "q"}[info["dtype"]])
        values.frombytes(data[begin:end])
        result[name] = list(values)
    return result


class GoldenTest(unittest.TestCase):
    def check(self, name, method):
        golden = ROOT / "tests/golden" / name
        expected = json.loads((golden / "expected.json").read_text())
        train = expected["train"]
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        recipe = {
            "model": str(golden / "model"), "precision": "fp32", "method": method,
            "data": {"train": str(golden / "train.jsonl"), "format": "input-ids", "shuffle": False, "max_length": 64},
            "batch": {"effective": train["rows_per_step"], "micro": 3}, "optimizer": train["optimizer"],
            "schedule": {"name": "cosine", "warmup": train["warmup_steps"], "epochs": 1},
            "output": str(folder / "run")}
        if method["type"] == "lora":
            recipe["adapter"] = str(golden / "adapter")
        path = folder / "recipe.json"
        path.write_text(json.dumps(recipe))
        self.check_one_batch(golden, path, folder / "dump.safetensors", expected)
        self.check_steps(path, folder / "run/metrics.jsonl", train)

    def run_plimsoll(self, *words):
        done = subprocess.run([str(PLIMSOLL), *map(str, words)], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)

    def check_one_batch(self, golden, recipe, out, expected):
        new_tokens = max(map(len, expected["generated"]))
        self.run_plimsoll("debug-dump", recipe, "--ids", golden / "batch.json", "--out", out,
                          "--max-new-tokens", new_tokens)
        ours = tensors(out)
        self.assertLess(abs(ours.pop("loss")[0] - expected["loss"]), LIMIT * expected["loss"])
        for number, tokens in enumerate(expected["generated"]):
            self.assertEqual(ours.pop(f"generated.{number}"), tokens)
        theirs = tensors(golden / "expected.safetensors")
        self.assertEqual(ours.keys(), theirs.keys())
        for name, values in theirs.items():
            scale = max(map(abs, values))
            worst = max(abs(a - b) for a, b in zip(ours[name], values, strict=True))
            self.assertLessEqual(worst, LIMIT * scale, name)

    def check_steps(self, recipe, metrics, train):
        self.run_plimsoll("train", recipe, "--quiet")
        steps = [json.loads(line) for line in metrics.read_text().splitlines()]
        for key, name, limit in (("loss", "losses", LIMIT), ("lr", "learning_rates", 1e-6),
                                 ("grad_norm", "grad_norms", 1e-3)):
            for step, value in zip(steps, train[name], strict=True):
                self.assertLessEqual(abs(step[key] - value), limit * abs(value), f"{key} of step {step['step']}")

    def test_full_fine_tuning_agrees_with_transformers(self):
        self.check("llama_full", {"type": "full"})

    def test_lora_agrees_with_peft(self):
        self.check("llama_lora", {"type": "lora"})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        PLIMSOLL = Path(sys.argv.pop(1)).resolve()
    unittest.main()
