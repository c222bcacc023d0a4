"""Commands that ask a model on the emulated card (docs/explanation/cuda.md): tokens, losses and scores are the CPU's.

Usage: emulated_answers_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from small_models import GLA, LLAMA, ROOT, T5, golden_recipe, tiny_recipe

PLIMSOLL = ROOT / "build" / "plimsoll"
LIMIT = 1e-4  # fp32: of losses and scores
CARD = "the emulated card"
TEXTS = {"data": {"max_length": {"source": 24, "target": 16}}}


class AnswersTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def run_plimsoll(self, *words):
        return subprocess.run([str(PLIMSOLL), *map(str, words)], capture_output=True, text=True, timeout=300, env={**os.environ, "PLIMSOLL_NO_PROBE": "1"})

    def plimsoll(self, *words):
        done = self.run_plimsoll(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def trained(self, recipe, name, *words):
        self.plimsoll("train", recipe, "--quiet", "--set", "schedule.max_steps=2", *words)
        return self.folder / name

    def tiny(self, name, config, **settings):
        return self.trained(tiny_recipe(self.folder, config, name, **settings), name)

    def both(self, *words):
        """What a command says as JSON on the card and on the CPU."""
        return [[json.loads(line) for line in self.plimsoll(*words, "--json", "--device", device).stdout.splitlines()] for device in ("emulated", "cpu")]

    def same_tokens(self, *words):
        card, cpu = self.both("generate", *words, "--max-new-tokens", 6)
        self.assertEqual(card[0]["response_ids"], cpu[0]["response_ids"])
        self.assertEqual([card[0]["device"], cpu[0]["device"]], [CARD, "the CPU"])
        self.assertGreater(len(cpu[0]["response_ids"]), 1)
        return card[0], cpu[0]

    def same_loss(self, *words):
        results = [json.loads(self.plimsoll("eval", *words, "--json", "--device", device).stdout) for device in ("emulated", "cpu")]
        self.assertLessEqual(abs(results[0]["loss"] - results[1]["loss"]), LIMIT * results[1]["loss"])
        self.assertGreater(results[1]["target_tokens"], 0)
        return results

    def test_a_run_answers_where_it_was_trained_and_elsewhere_by_its_option(self):
        run = self.trained(tiny_recipe(self.folder, LLAMA, "run"), "run", "--device", "emulated")
        ask = ("generate", run, "--ids", "5,17,30", "--max-new-tokens", 4)
        here, there = self.plimsoll(*ask), self.plimsoll(*ask, "--device", "cpu")
        self.assertIn(CARD, here.stderr)
        self.assertNotIn(CARD, there.stderr)
        self.assertEqual(here.stdout, there.stdout)
        rows = self.folder / "rows.jsonl"
        card, cpu = self.same_loss(run, "--data", rows, "--limit", 4, "--generate", "--max-new-tokens", 4)
        self.assertEqual(card["answers"]["tokens"], cpu["answers"]["tokens"])
        self.assertEqual([card["device"], cpu["device"]], [CARD, "the CPU"])
        for more, device in (((), CARD), (("--set", "device=cpu"), "the CPU"), (("--set", "device=cpu", "--device", "emulated"), CARD)):
            said = self.plimsoll("eval", run, "--data", rows, "--limit", 2, "--json", *more).stdout
            self.assertEqual(json.loads(said)["device"], device, more)
        self.same_tokens(run, "--ids", ",".join(map(str, range(5, 45))), "--context", 64)
        captured = [self.plimsoll(*ask, "--temperature", 1, "--graphs", graphs) for graphs in ("on", "off")]
        self.assertEqual(captured[0].stdout, captured[1].stdout)
        self.assertRegex(captured[0].stderr, r"graphs of \d+ nodes")
        self.assertNotIn("graphs of", captured[1].stderr)
        beams, _ = self.same_tokens(run, "--ids", "5,17,30", "--num-beams", 3, "--num-return-sequences", 2)
        self.assertEqual(len(beams["next_best"]), 1)
        said = subprocess.run([str(PLIMSOLL), "chat", run, "--template", "plain", "--max-new-tokens", "3"], input="Hello\n", capture_output=True, text=True, timeout=300)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn(CARD, said.stderr)
        self.compiling_is_said(run)

    def compiling_is_said(self, run):
        """By every command that loads kernels, where the build has no code for the card; the emulated one's is 8.6."""
        chat = ("chat", run, "--template", "plain", "--max-new-tokens", 1)
        commands = (("generate", run, "--ids", "5", "--max-new-tokens", 1), chat, ("eval", run, "--data", self.folder / "rows.jsonl", "--limit", 1),
                    ("train", run.parent / "run.json", "--overwrite", "--set", "schedule.max_steps=1", "--device", "emulated"))
        for words in commands:
            for code, said in (("75,120", True), ("75,80,120", False)):
                done = subprocess.run([str(PLIMSOLL), *map(str, words)], input="Hello\n", capture_output=True, text=True, timeout=300,
                                      env={**os.environ, "PLIMSOLL_NO_PROBE": "1", "PLIMSOLL_EMULATED_CODE": code})
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual("no code for compute capability 8.6: the driver compiles it at the first start" in done.stderr, said, (words, done.stderr))

    def test_a_t5_and_gated_linear_attention_answer_as_on_the_cpu(self):
        run = self.tiny("t5", T5, task="seq2seq", **TEXTS)
        self.same_tokens(run, "--ids", "5,17,30,1")
        self.same_tokens(run, "--ids", "5,17,30,1", "--num-beams", 2)
        self.same_loss(run, "--data", self.folder / "rows.jsonl", "--limit", 4)
        shutil.rmtree(self.folder / "model")
        run = self.tiny("gla", {**GLA, "use_short_conv": True})
        self.same_tokens(run, "--ids", ",".join(map(str, range(5, 45))))
        self.same_loss(run, "--data", self.folder / "rows.jsonl", "--limit", 4)

    def test_adapters_answer_as_on_the_cpu_over_a_base_in_4_bits_too(self):
        golden = ROOT / "tests/golden/llama_lora"
        for method in ("lora", "qlora"):
            run = self.trained(golden_recipe(golden, self.folder, method, method={"type": method, "r": 4}), method)
            self.same_tokens(run, "--ids", "67,84,113,105")
            self.same_loss(run, "--data", golden / "train.jsonl", "--set", "data.format=input-ids", "--limit", 4)

    def test_rewards_are_the_cpus(self):
        run = self.tiny("reward", LLAMA, task="reward")
        card, cpu = self.both("score", run, "--prompt", "Say something.", "--response", "Yes.", "--response", "No, thank you.")
        self.assertEqual(len(card), 2)
        for here, there in zip(card, cpu, strict=True):
            self.assertAlmostEqual(here["score"], there["score"], delta=LIMIT)

    def test_what_does_not_fit_is_refused_before_weights_are_read(self):
        folder = self.folder / "without-weights"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({**LLAMA, "vocab_size": 100, "max_position_embeddings": 1 << 20}))
        asking = f"ulimit -d 131072; exec {PLIMSOLL} generate {folder} --ids 5 --context {1 << 20} --device emulated"
        done = subprocess.run(["bash", "-c", asking], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"generation needs .* may be used \(left of RLIMIT_DATA, ulimit -d\)")
        for device, said in (("card", "describes a card for plan"), ("gpu", "--device: 'gpu' is not a device")):
            done = self.run_plimsoll("generate", folder, "--ids", "5", "--device", device)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(said, done.stderr)

    @unittest.skipIf(Path("/dev/nvidiactl").exists(), "a driver may be here")
    def test_a_run_whose_card_is_not_here_is_answered_by_the_cpu_which_is_said(self):
        run = self.tiny("run", LLAMA)
        recipe = run / "recipe.yaml"
        recipe.write_text(re.sub("^device: .*$", "device: cuda", recipe.read_text(), flags=re.MULTILINE))
        ask = ("generate", run, "--ids", "5,17,30", "--max-new-tokens", 4)
        for words in ((), ("--json",)):
            done = self.plimsoll(*ask, *words)
            self.assertRegex(done.stderr, r"note    the run's device is not in this machine \(device: cuda: .*using the CPU")
        self.assertNotIn("note", self.plimsoll(*ask, "--device", "cpu").stderr)
        done = self.run_plimsoll(*ask, "--device", "cuda")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("device: cuda: ", done.stderr)


if __name__ == "__main__":
    PLIMSOLL = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
