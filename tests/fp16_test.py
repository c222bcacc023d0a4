"""Runs in fp16: the loss is fp32's, a scale that overflows is halved and nothing is updated, and resumed runs go on with it.

Usage: fp16_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from shard import SuiteLoader

ROOT = Path(__file__).resolve().parent.parent
PLIMSOLL = ROOT / "build" / "plimsoll"
STEPS = 8


def lines(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def tensors(path):
    """{name: (type, bytes)} of a safetensors file."""
    data = Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (info["dtype"], data[8 + size + info["data_offsets"][0]:8 + size + info["data_offsets"][1]])
            for name, info in header.items()}


class Fp16Test(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def call(self, *words, code=0):
        done = subprocess.run([str(PLIMSOLL), *map(str, words)], capture_output=True, text=True, timeout=600,
                              env={**os.environ, "PLIMSOLL_NO_PROBE": "1"})
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def train(self, name, *words, **changes):
        settings = {"model": str(ROOT / "demo/model"), "init": "random", "precision": "fp16", "method": {"type": "full"},
                    "data": {"train": str(ROOT / "demo/data/facts/train.parquet"), "max_length": 48},
                    "batch": {"effective": 6, "micro": 3}, "optimizer": {"lr": 1e-3},
                    "schedule": {"max_steps": STEPS, "warmup": 2}, "output": str(self.folder / name), **changes}
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(settings))
        done = self.call("train", path, *words)
        return self.folder / name, done.stderr

    def loud_model(self):
        """The random model with a last norm so large that scaled gradients overflow at first."""
        loud, _ = self.train("loud", "--quiet", precision="fp32", schedule={"max_steps": 1, "warmup": 0}, optimizer={"lr": 1e-9})
        path = loud / "model.safetensors"
        data = bytearray(path.read_bytes())
        (size,) = struct.unpack("<Q", data[:8])
        info = json.loads(data[8:8 + size])["model.norm.weight"]
        self.assertEqual(info["dtype"], "F32")
        begin, end = (8 + size + at for at in info["data_offsets"])
        values = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
        data[begin:end] = struct.pack(f"<{len(values)}f", *(40 * value for value in values))
        path.write_bytes(bytes(data))
        return {"model": str(loud), "init": "weights"}

    def test_the_loss_is_that_of_fp32_in_exactly_the_planned_bytes(self):
        for method in ({"type": "full"}, {"type": "lora", "r": 4}, {"type": "qlora", "r": 4}):
            exact, _ = self.train("fp32-" + method["type"], "--quiet", precision="fp32", method=method)
            run, _ = self.train("fp16-" + method["type"], "--quiet", method=method)
            for ours, theirs in zip(lines(run), lines(exact), strict=True):
                self.assertAlmostEqual(ours["loss"], theirs["loss"], delta=2e-3)
                self.assertAlmostEqual(ours["grad_norm"] / theirs["grad_norm"], 1, delta=2e-2)
                self.assertEqual(ours["loss_scale"], 65536)
                self.assertNotIn("loss_scale", theirs)
            report = json.loads((run / "run.json").read_text())
            self.assertEqual(report["planned"]["device_arena_bytes"], report["measured"]["device_arena_bytes"])
            self.assertEqual(report["skipped_steps"], 0)

    def test_gradients_that_overflow_update_nothing_and_are_no_step_of_the_schedule(self):
        run, shown = self.train("run", **self.loud_model(), save={"every": 1, "keep": STEPS})
        steps = lines(run)
        overflowed = [step["grad_norm"] is None for step in steps]
        skipped = sum(overflowed)
        self.assertTrue(0 < skipped < STEPS, steps)
        self.assertEqual(overflowed, sorted(overflowed, reverse=True), "the first steps, one after the other")
        self.assertEqual(shown.count("the gradients overflowed, the update was skipped"), skipped)
        self.assertEqual(json.loads((run / "run.json").read_text())["skipped_steps"], skipped)
        for before, after in zip(steps, steps[1:]):
            halved = before["grad_norm"] is None
            self.assertEqual(after["loss_scale"], before["loss_scale"] / (2 if halved else 1))
            self.assertEqual(after["lr"] == before["lr"], halved)
        self.assertTrue(all(math.isfinite(step["loss"]) for step in steps))
        # The first rate of the warm-up is 0: the second update is the first that changes anything.
        first, after_none, after_two = (tensors(run / f"checkpoint-{step}" / "model.safetensors") for step in (1, skipped, skipped + 2))
        self.assertTrue(after_none == first)
        self.assertFalse(after_none == after_two)

    def test_a_resumed_run_goes_on_with_its_scale_bit_for_bit(self):
        run, _ = self.train("run", "--quiet", **self.loud_model(), save={"every": 1, "keep": STEPS})
        want, want_steps = tensors(run / "model.safetensors"), lines(run)
        for kept in (1, STEPS - 2):  # before and behind the last step that overflows
            for step in range(kept + 1, STEPS + 1):
                shutil.rmtree(run / f"checkpoint-{step}")
            self.call("train", self.folder / "run.json", "--quiet", "--resume")
            self.assertTrue(tensors(run / "model.safetensors") == want)
            for key in ("loss", "loss_scale", "lr"):
                self.assertEqual([step[key] for step in lines(run)], [step[key] for step in want_steps])

    def assert_same_training(self, run, want):
        self.assertTrue(tensors(run / "model.safetensors") == tensors(want / "model.safetensors"), run)
        for key in ("loss", "loss_scale", "lr"):
            self.assertEqual([step[key] for step in lines(run)], [step[key] for step in lines(want)], run)

    def test_skipped_steps_leave_offloaded_weights_as_they_are(self):
        loud = {**self.loud_model(), "batch": {"effective": 2, "micro": 2}}
        every_part = ["weights", "states", "gradients", "activations"]
        for device, cases in (("cpu", (("disk", ["weights"]), ("disk", ["weights", "states"]), ("disk", every_part))),
                              ("emulated", (("disk", every_part), ("host", every_part)))):
            want, _ = self.train(f"kept-{device}", "--quiet", **loud, device=device)
            skipped = json.loads((want / "run.json").read_text())["skipped_steps"]
            self.assertTrue(0 < skipped < STEPS)
            for home, parts in cases:
                memory = {"offload": parts, **({"disk": "1GiB"} if home == "disk" else {})}
                run, _ = self.train("-".join([device, home, *parts]), "--quiet", **loud, device=device, memory=memory)
                measured = json.loads((run / "run.json").read_text())["measured"]
                self.assertGreater(measured["disk_bytes" if home == "disk" else "host_arena_bytes"], 0)
                self.assert_same_training(run, want)

    def test_a_resumed_run_says_that_an_earlier_version_wrote_over_its_weights(self):
        said = "wrote over weights"
        loud = {**self.loud_model(), "batch": {"effective": 2, "micro": 2}}
        for name, memory, is_affected in (("moved", {"disk": "1GiB", "offload": ["weights"]}, True), ("open", {"disk": "1GiB"}, True),
                                          ("kept", {"disk": "1GiB", "offload": ["states"]}, False)):
            run, _ = self.train(name, "--quiet", **loud, memory=memory, save={"every": 1, "keep": STEPS})
            for before in (False, True):
                shutil.rmtree(run / f"checkpoint-{STEPS}")
                path = run / f"checkpoint-{STEPS - 1}" / "trainer_state.json"
                state = json.loads(path.read_text())
                if before and state["loss_scale"].pop("skips_keep_weights", None):
                    path.write_text(json.dumps(state))
                    (path.parent / "checksums.json").unlink()
                shown = self.call("train", self.folder / f"{name}.json", "--resume").stderr
                self.assertEqual(said in shown, before and is_affected, (name, shown))
                now = json.loads((run / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())
                self.assertEqual(now["loss_scale"]["skips_keep_weights"], not before)

    def test_what_fp16_needs_is_said(self):
        path = self.folder / "recipe.json"
        for parts, words in (({"weights": "fp16"}, "fp16 weights need an fp32 master copy"),
                             ({"weights": "fp16", "master": True, "states": "bf16"}, "gradients and states beside fp16 weights are fp32"),
                             ({"weights": "fp16", "master": True, "gradients": "bf16"}, "gradients and states beside fp16 weights are fp32")):
            path.write_text(json.dumps({"model": str(ROOT / "demo/model"), "method": {"type": "full"}, "precision": parts}))
            self.assertIn(words, self.call("plan", path, code=2).stderr)


if __name__ == "__main__":
    PLIMSOLL = Path(sys.argv.pop(1)) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else PLIMSOLL
    unittest.main(testLoader=SuiteLoader("fp16_test"))
