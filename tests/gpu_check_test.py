"""The check of a card (docs/cuda.md), of the emulated one: it finds nothing wrong there, and whatever is done wrong on purpose.

Usage: gpu_check_test.py PLIMSOLL PLIMSOLL_GPU_CHECK (from the repository's root). Standard library only.
"""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/gpu"))
import check  # noqa: E402

PLIMSOLL, TOOL = None, None


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name) / "check.json"

    def check(self, *words, device="emulated"):
        return subprocess.run([sys.executable, ROOT / "tests/gpu/check.py", "--plimsoll", PLIMSOLL, "--tool", TOOL, "--device", device,
                               "--out", self.out, *words], capture_output=True, text=True, timeout=600)

    def failed(self):
        return [line["name"] for line in json.loads(self.out.read_text())["lines"] if line["outcome"] == "failed"]

    def test_nothing_is_wrong_with_the_emulated_card_and_what_needs_a_real_one_is_skipped(self):
        done = self.check("--cases", "swiglu,dropout,linear_nt", "--runs", "LoRA")
        self.assertEqual((done.returncode, self.failed()), (0, []), done.stdout + done.stderr)
        told = json.loads(self.out.read_text())
        names = [line["name"] for line in told["lines"]]
        for name in ("card/queues wait for each other's events", "memory/beside the arena", "run/llama, LoRA", "answers/llama, LoRA", "run/two processes at once"):
            self.assertIn(name, names)
        ops = [line for line in told["lines"] if line["name"].startswith("op/")]
        self.assertEqual({line["figures"]["bits"] for line in ops}, {"of the emulated card", "its own"})
        self.assertTrue(all(0 <= line["figures"]["off"] <= 1 for line in ops))
        self.assertEqual([line["name"] for line in told["lines"] if line["outcome"] == "skipped"],
                         ["refused/a UUID that is not there", "refused/too little of the card's memory", "sanitizer"])
        self.assertRegex(done.stdout, r"op/\* +\d+ of \d+ cases as the reference has them")

    def test_whatever_a_card_does_wrong_is_noticed(self):
        for wrong, part, name in (("waits", "calls", "card/queues wait for each other's events"),
                                  ("host-waits", "calls", "card/the host waits for events"),
                                  ("copies", "calls", "card/copies of every size by every queue"),
                                  ("fills", "calls", "card/fills stay within their bytes"),
                                  ("memory", "memory", "memory/beside the arena"),
                                  ("op:swiglu", "ops", "op/swiglu/bf16")):
            with self.subTest(wrong):
                done = self.check("--parts", part, "--cases", "swiglu", "--wrong", wrong)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertIn(name, self.failed())
                self.assertIn(f"FAILED {name}", done.stdout)

    def test_losses_that_differ_and_bytes_that_were_not_planned_are_noticed(self):
        steps = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]
        self.assertEqual(check.loss_fault(steps, [2.0, 1.00005], 1e-4, "the CPU's"), "")
        self.assertIn("step 2: the loss is 1, the CPU's is 1.001", check.loss_fault(steps, [2.0, 1.001], 1e-4, "the CPU's"))
        self.assertIn("step 1", check.loss_fault([{"step": 1, "loss": float("nan")}], [2.0], 1e-4, "the CPU's"))
        self.assertIn("2 steps", check.loss_fault(steps, [2.0], 1e-4, "PyTorch's"))
        arenas = {"device_arena_bytes": 512, "host_arena_bytes": 0}
        self.assertEqual(check.arena_fault({"planned": arenas, "measured": arenas}), "")
        self.assertIn("planned 512, asked for 1024", check.arena_fault({"planned": arenas, "measured": {**arenas, "device_arena_bytes": 1024}}))

    def test_what_has_no_time_left_is_skipped_and_says_so(self):
        done = self.check("--seconds", "0.5", "--parts", "runs")
        lines = json.loads(self.out.read_text())["lines"]
        self.assertEqual([(line["name"], line["outcome"]) for line in lines][-1:], [("runs", "skipped")], done.stdout)

    def test_the_bench_measures_rates_and_trains_every_kind_of_model_within_its_plan(self):
        done = subprocess.run([sys.executable, ROOT / "bench/gpu.py", "--plimsoll", PLIMSOLL, "--tool", TOOL, "--device", "emulated", "--tiny",
                               "--out", self.out], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        told = json.loads(self.out.read_text())
        self.assertEqual([run["case"] for run in told["runs"] if "tokens_per_second" not in run], [])
        self.assertEqual(len(told["runs"]), 8)
        for run in told["runs"]:
            self.assertEqual(run["planned_arena_bytes"], run["arena_bytes"])
            self.assertGreater(run["tokens_per_second"], 0)
            self.assertEqual(run["card"]["grown_bytes"], 0)
        asked = [run["answers"] for run in told["runs"] if "answers" in run]
        self.assertEqual([sorted(answers) for answers in asked], 2 * [["call_by_call", "with_graphs"]])
        self.assertRegex(done.stdout, r"answers, one token after another +\d[\d,]* tokens/s call by call, \d[\d,]* with graphs")
        for name in ("memory, of additions", "copy, host to card", "smallest op", "launch, of the host", "smallest op, in a graph", "product bf16 forward 64 x 64 x 64",
                     "attention_grad f32, heads of 128, 32 tokens"):
            self.assertGreater(told["rates"][name]["rate"], 0)

    @unittest.skipIf(Path("/dev/nvidiactl").exists(), "a driver may be here")
    def test_without_a_card_that_is_said_with_exit_code_2_and_nothing_is_written(self):
        done = self.check(device="cuda")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertRegex(done.stderr, "device: cuda: (this build has no CUDA|no driver of NVIDIA's was found)")
        self.assertFalse(self.out.exists())


if __name__ == "__main__":
    PLIMSOLL, TOOL = (Path(sys.argv.pop(1)).resolve() for _ in range(2))
    unittest.main()
