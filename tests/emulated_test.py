"""Whole runs on the emulated card (docs/cuda.md): its loss curve is PyTorch's and the CPU's.

Usage: emulated_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLIMSOLL = ROOT / "build" / "plimsoll"
LIMIT = 1e-4  # fp32: of each step's loss
BF16_LIMIT = 0.02  # sums in another order round otherwise
STEPS = 4


def steps(output):
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


class EmulatedTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def recipe(self, golden, output, **more):
        train = json.loads((golden / "expected.json").read_text())["train"]
        settings = {
            "model": str(golden / "model"), "precision": "fp32",
            "data": {"train": str(golden / "train.jsonl"), "format": "input-ids", "shuffle": False, "max_length": 64},
            "batch": {"effective": train["rows_per_step"], "micro": 3}, "optimizer": train["optimizer"],
            "schedule": {"name": "cosine", "warmup": train["warmup_steps"], "epochs": 1},
            "output": str(self.folder / output), **more}
        path = self.folder / f"{output}.json"
        path.write_text(json.dumps(settings))
        return path

    def plimsoll(self, *words):
        return subprocess.run([str(PLIMSOLL), *map(str, words)], capture_output=True, text=True, timeout=600,
                              env={**os.environ, "PLIMSOLL_NO_PROBE": "1"})

    def train(self, recipe, device, output):
        done = self.plimsoll("train", recipe, "--quiet", "--device", device)
        self.assertEqual(done.returncode, 0, done.stderr)
        return steps(self.folder / output)

    def check(self, name, method):
        golden = ROOT / "tests/golden" / name
        more = {"method": method}
        if method["type"] == "lora":
            more["adapter"] = str(golden / "adapter")
        expected = json.loads((golden / "expected.json").read_text())["train"]
        emulated = self.train(self.recipe(golden, "emulated", **more), "emulated", "emulated")
        for step, loss, norm in zip(emulated, expected["losses"], expected["grad_norms"], strict=True):
            self.assertLessEqual(abs(step["loss"] - loss), LIMIT * abs(loss), f"loss of step {step['step']}")
            self.assertLessEqual(abs(step["grad_norm"] - norm), 1e-3 * norm, f"norm of step {step['step']}")
        cpu = self.train(self.recipe(golden, "cpu", **more), "cpu", "cpu")
        for here, there in zip(emulated, cpu, strict=True):
            self.assertLessEqual(abs(here["loss"] - there["loss"]), LIMIT * there["loss"])

    def test_full_fine_tuning_has_the_losses_of_pytorch_and_of_the_cpu(self):
        self.check("llama_full", {"type": "full"})

    def test_lora_has_the_losses_of_peft_and_of_the_cpu(self):
        self.check("llama_lora", {"type": "lora"})

    def both(self, limit, **more):
        """A few steps on each device; `limit` is relative, of each loss."""
        golden = ROOT / "tests/golden/llama_full"
        schedule = {"name": "cosine", "warmup": 1, "max_steps": STEPS}
        runs = {device: self.train(self.recipe(golden, device, **{"method": {"type": "full"}, "schedule": schedule, **more}), device, device)
                for device in ("emulated", "cpu")}
        self.assertEqual(len(runs["emulated"]), STEPS)
        for here, there in zip(runs["emulated"], runs["cpu"], strict=True):
            self.assertLessEqual(abs(here["loss"] - there["loss"]), limit * there["loss"], f"step {here['step']}")
            self.assertLessEqual(abs(here["grad_norm"] - there["grad_norm"]), 10 * limit * there["grad_norm"])
        return runs["emulated"]

    def test_bf16_follows_the_cpu_and_twice_the_same_run_gives_the_same_bits(self):
        first = self.both(BF16_LIMIT, precision="bf16")
        shutil.rmtree(self.folder / "emulated")
        shutil.rmtree(self.folder / "cpu")
        again = self.both(BF16_LIMIT, precision="bf16")
        self.assertEqual([s["loss"] for s in first], [s["loss"] for s in again])

    def test_adapters_with_dropout_and_over_4_bits_follow_the_cpu(self):
        for method in ({"type": "lora", "r": 4, "dropout": 0.2}, {"type": "qlora", "r": 4}):
            with self.subTest(method["type"]):
                self.setUp()
                self.both(LIMIT, method=method)

    def test_every_optimizer_follows_the_cpu(self):
        for name in ("lion", "sgd", "adafactor", "adamw8bit"):
            with self.subTest(name):
                self.setUp()
                self.both(LIMIT, optimizer={"name": name, "lr": 1e-3})

    def test_packing_evaluation_and_recomputation_follow_the_cpu(self):
        rows = str(ROOT / "tests/golden/llama_full/train.jsonl")
        self.both(LIMIT, data={"train": rows, "eval": rows, "format": "input-ids", "max_length": 64, "packing": True},
                  batch={"effective": 4, "micro": 2}, memory={"recompute": "block"})

    def test_an_op_without_a_kernel_is_refused_by_name_and_nothing_is_allocated(self):
        golden = ROOT / "tests/golden/llama_full"
        done = self.plimsoll("train", self.recipe(golden, "refused", method={"type": "lora", "dora": True}),
                             "--device", "emulated")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("dora_norm has no kernel for GPUs yet; choose device: cpu", done.stderr)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        PLIMSOLL = Path(sys.argv.pop(1)).resolve()
    unittest.main()
