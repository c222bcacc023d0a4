"""Several cards, a process for each, on emulated ones: the bits of every stage, the experiment of one card, plans, resume.

Usage: cards_as_ranks_test.py PLIMSOLL (from the repository's root). Standard library only; runs are skipped where Open MPI is not installed.
"""
import json
import os
import shutil
import unittest
import zlib

import command_run
from command_run import CommandTest, losses_of, output, run
from divided_gradients_test import FEW, ONE, DividedTest
from several_devices_test import LARGE, LONG, LORA, MPIRUN, PAIRS, PLUGIN, STEPS, WIDE
from shard import SuiteLoader, is_mine
from small_models import steps, tiny_recipe

STAGES = ("none", "states", "gradients", "weights")
UNTIED = {**WIDE, "tie_word_embeddings": False}
CLOSE = 1e-5  # of fp32


def is_my_cell(*cell):
    """Whether this group of runs is in the slice that runs (tests/shard.py)."""
    return is_mine("cards_as_ranks_test", zlib.crc32(repr(cell).encode()))


@unittest.skipUnless(PLUGIN.exists() and MPIRUN, "Open MPI is not installed: scripts/setup.sh --dev")
class CardsAsRanks(DividedTest):
    def on_cards(self, config, name, cards, order=None, **settings):
        """Trains on so many emulated cards, whose queues have an order of their own."""
        os.environ["PLIMSOLL_EMULATED_ORDER"] = str(order or zlib.crc32(name.encode()) % 1000)
        self.addCleanup(os.environ.pop, "PLIMSOLL_EMULATED_ORDER", None)
        return self.train(config, name, cards, "--device", "emulated", **settings)

    def assert_close(self, name, other):
        for one, two in zip(losses_of(self.folder / name), losses_of(self.folder / other), strict=True):
            self.assertAlmostEqual(one, two, delta=CLOSE)

    def assert_same_bits(self, name, other):
        self.assertEqual(*([step["grad_norm"] for step in steps(self.folder / each)] for each in (name, other)))
        for file, content in self.files_of(name, 6).items():
            self.assertTrue(content == self.files_of(other, 6)[file], f"{file} of {name} and {other}")

    def test_every_stage_has_the_same_bits_in_less_memory(self):
        for count, settings in ((2, {"precision": "bf16-master"}), (3, {"precision": "fp16"}), (2, {"precision": "bf16", **LORA, "optimizer": {"name": "adamw8bit", "lr": 1e-3}})):
            if not is_my_cell("stages", count, settings):
                continue
            for order, stage in zip(("at-once", "late", 3, 4), STAGES):
                self.on_cards(UNTIED, stage, count, order, **ONE, **settings, memory={"shard": stage, "loss_chunk": 64})
            for stage in STAGES[1:]:
                self.assert_same_bits("none", stage)
            planned = [self.record_of(stage, count)["planned"]["device_arena_bytes"] for stage in STAGES]
            self.assertEqual(planned, sorted(planned, reverse=True))
            self.assertLess(planned[-1], planned[0])

    def test_offload_to_the_host_and_activation_checkpointing_change_no_bit(self):
        found = []
        away = {"offload": ["states", "gradients", "weights", "activations"]}
        for name, memory in (("kept", {}), ("again", {"recompute": "block"}), ("away", away), ("disk", {**away, "disk": "1GiB"})):
            if name != "kept" and not is_my_cell("offload", name):
                continue
            self.on_cards(LARGE, name, 2, **FEW, precision="bf16-master", schedule={"max_steps": 3, "warmup": 1}, memory={"shard": "weights", "loss_chunk": 64, **memory})
            found.append(self.files_of(name, 3))
            self.record_of(name, 2)
        for other in found[1:]:
            for file, content in found[0].items():
                self.assertTrue(content == other[file], file)

    def test_twenty_steps_have_the_losses_of_one_card(self):
        for stage, settings in (("states", {}), ("gradients", LORA), ("weights", {"task": "dpo", **PAIRS}), ("none", {"eval": {"every": 10}, "data": {"eval": 7}})):
            if not is_my_cell("losses", stage, settings):
                continue
            schedule = {"max_steps": STEPS, "warmup": 2}
            self.train(WIDE, "alone", 1, "--device", "emulated", **{**FEW, **settings, "schedule": schedule})
            for count in (2, 3):
                self.on_cards(WIDE, "on", count, **{**FEW, **settings, "schedule": schedule}, memory={"shard": stage})
                self.assert_close("alone", "on")
                self.record_of("on", count)
                self.compare_evaluations()

    def compare_evaluations(self):
        lines = [self.folder / name / "eval.jsonl" for name in ("alone", "on")]
        if lines[0].exists():
            for own, other in zip(*([json.loads(line) for line in path.read_text().splitlines()] for path in lines), strict=True):
                self.assertEqual(own["target_tokens"], other["target_tokens"])
                self.assertAlmostEqual(own["loss"], other["loss"], delta=CLOSE)

    def test_a_run_continues_on_more_cards_on_fewer_and_on_cpus(self):
        settings = {**FEW, "schedule": {"max_steps": STEPS, "warmup": 2}, "save": {"every": 5, "keep": "all"}}
        self.train(WIDE, "alone", 1, "--device", "emulated", **settings)
        for last, devices, device in ((20, 2, "emulated"), (15, 1, "emulated"), (10, 2, "cpu"), (5, 3, "emulated")):
            for checkpoint in (self.folder / "moves").glob("checkpoint-*"):
                if int(checkpoint.name.partition("-")[2]) > last:
                    shutil.rmtree(checkpoint)
            recipe = tiny_recipe(self.folder, WIDE, "moves", **{**LONG, **settings, "memory": {"shard": "weights" if devices > 1 else "auto"}})
            done = run("train", recipe, *(["--resume"] if last < 20 else []), "--devices", devices, "--device", device, "--threads", 1, "--quiet")
            self.assertEqual(done.returncode, 0, done.stderr)
            for own, other in zip(losses_of(self.folder / "alone"), losses_of(self.folder / "moves"), strict=True):
                self.assertAlmostEqual(own, other, delta=1e-4)  # a CPU adds up in another order


class PlannedCards(CommandTest):
    """Plans of cards that are elsewhere."""
    needs_run = False

    def test_a_plan_of_several_cards_needs_none(self):
        recipe = tiny_recipe(self.folder, {**LARGE, "hidden_size": 512, "intermediate_size": 1024}, "planned", **ONE)
        words = ("plan", recipe, "--gpu", "A100 40GB", "--threads", 1)
        alone, *cut = (json.loads(output(*words, "--json", "--devices", devices, "--set", f"memory.shard={stage}"))
                       for devices, stage in ((1, "none"), (2, "none"), (2, "states"), (2, "weights")))
        self.assertEqual([plan["devices"]["count"] for plan in cut], [2] * 3)
        self.assertTrue(all(plan["devices"]["link"] == "guessed" for plan in cut))
        each = [plan["devices"]["device_bytes_each"] for plan in cut]
        self.assertEqual(each, sorted(each, reverse=True))
        self.assertLess(each[-1], each[0])
        self.assertGreater(min(plan["devices"]["sending_seconds_per_step"] for plan in cut), 0)
        together = cut[0]["devices"]["bytes_together"]
        self.assertEqual(together, 2 * cut[0]["devices"]["bytes_each"])
        text = output(*words, "--devices", 2, "--full")
        self.assertRegex(text, r"device [\d.]+ \w+ of [\d.]+ GiB on each of 2 +needs .* of host memory \(2 processes of ")
        self.assertIn("a guess: 30 % of the data sheet's link, through the host", text)
        stated = json.loads(output(*words, "--json", "--devices", 2, "--link", "20GB/s"))["devices"]
        self.assertEqual((stated["link"], stated["link_bytes_per_second"]), ("stated", 20e9))
        self.assertNotIn("devices", alone)

    def test_all_processes_share_the_memory_of_the_host(self):
        recipe = tiny_recipe(self.folder, WIDE, "planned", **ONE)
        words = ("plan", recipe, "--gpu", "A100 40GB", "--threads", 1, "--devices", 2)
        each = json.loads(output(*words, "--json"))["devices"]["bytes_each"]
        output(*words, "--host-memory", f"{2 * each + (64 << 20)}B", "--set", "memory.headroom=0%")
        refused = output(*words, "--host-memory", f"{each + each // 2}B", "--set", "memory.headroom=0%", code=3)
        self.assertIn("divided among 2 processes", refused)


if __name__ == "__main__":
    command_run.main(testLoader=SuiteLoader("cards_as_ranks_test", ("is_my_cell",)))
