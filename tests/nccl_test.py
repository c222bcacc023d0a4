"""Several cards that exchange by NCCL (memory.exchange), on emulated ones: the bits of exchange through the host, in planned memory; what is refused, and what fails.

Usage: nccl_test.py PLIMSOLL FAKE_NCCL FAKE_NVML (from the repository's root). Standard library only; runs are skipped where Open MPI is not installed.
"""
import json
import os
import sys
import unittest
import zlib
from pathlib import Path

import command_run
from command_run import CommandTest, output, run
from divided_gradients_test import ONE, DividedTest
from several_devices_test import LARGE, LORA, MPIRUN, PLUGIN, WIDE
from shard import SuiteLoader, is_mine
from small_models import steps, tiny_recipe

LIBRARY = Path(sys.argv.pop(1)).resolve()
DRIVER = Path(sys.argv.pop(1)).resolve()
STAGES = ("none", "states", "gradients", "weights")
UNTIED = {**WIDE, "tie_word_embeddings": False}
THREE = {"schedule": {"max_steps": 3, "warmup": 1}}
BY_NCCL = ("--set", "memory.exchange=nccl")
PIECE = 4 << 20  # bytes of each rank in a slice, of which a card has two


def is_my_cell(*cell):
    """Whether this group of runs is in the slice that runs (tests/shard.py)."""
    return is_mine("nccl_test", zlib.crc32(repr(cell).encode()))


class NcclTest(DividedTest):
    def setUp(self):
        super().setUp()
        self.set("PLIMSOLL_NCCL", str(LIBRARY))
        self.log = self.folder / "asked"

    def set(self, name, value):
        self.addCleanup(os.environ.pop, name, None)
        os.environ[name] = str(value)

    def fake(self, *words):
        self.set("FAKE_NCCL", " ".join((*words, f"log={self.log}")))

    def on_cards(self, config, name, cards, *words, order=1, **settings):
        self.set("PLIMSOLL_EMULATED_ORDER", order)
        return self.train(config, name, cards, "--device", "emulated", *words, **{**THREE, **settings})

    def assert_same_bits(self, name, other):
        self.assertEqual(*([step["grad_norm"] for step in steps(self.folder / each)] for each in (name, other)))
        files = self.files_of(name, 3)
        self.assertTrue(files)
        for file, content in files.items():
            self.assertTrue(content == self.files_of(other, 3)[file], f"{file} of {name} and {other}")


@unittest.skipUnless(PLUGIN.exists() and MPIRUN, "Open MPI is not installed: scripts/setup.sh --dev")
class ByNccl(NcclTest):
    def test_every_stage_has_the_bits_of_exchange_through_the_host_whatever_the_order_of_queues(self):
        adapters = {**LORA, "optimizer": {"name": "adamw8bit", "lr": 1e-3}}
        for count, settings in ((2, {}), (3, {"precision": "bf16-master"}), (2, {"precision": "bf16", **adapters}), (3, LORA)):
            if not is_my_cell("stages", count, settings):
                continue
            self.on_cards(UNTIED, "staged", count, **ONE, **settings, memory={"loss_chunk": 64})
            for order, stage in zip(("at-once", "late", 3, 4), STAGES):
                self.fake()
                self.on_cards(UNTIED, stage, count, *BY_NCCL, order=order, **ONE, **settings, memory={"shard": stage, "loss_chunk": 64})
                self.assert_same_bits("staged", stage)
                record = self.record_of(stage, count)
                self.assertEqual(record["planned"]["exchange_bytes"], 2 * count * PIECE)
                self.assertEqual([rank["exchange_bytes"] for rank in record["ranks"]], [2 * count * PIECE] * count)
                self.assertEqual(len([line for line in self.log.read_text().splitlines() if "begins with at most 4" in line]), count)
                self.log.unlink()

    def test_what_is_off_the_card_goes_through_the_host_with_the_same_bits(self):
        settings = {**ONE, "precision": "bf16-master"}
        away = {"shard": "gradients", "loss_chunk": 64, "offload": ["states", "gradients", "weights", "activations"]}
        for name, more in (("host", {}), ("disk", {"disk": "1GiB"})):
            if not is_my_cell("offload", name):
                continue
            self.on_cards(LARGE, "staged", 2, **settings, memory={**away, **more})
            self.on_cards(LARGE, name, 2, *BY_NCCL, order=7, **settings, memory={**away, **more})
            self.assert_same_bits("staged", name)

    def stopped(self, recipe, *words):
        done = run("train", recipe, "--devices", 2, "--device", "emulated", "--threads", 1, "--quiet", *BY_NCCL, *words)
        self.assertEqual(done.returncode, 5, done.stdout + done.stderr)
        return done.stderr

    def test_a_failure_of_nccl_stops_all_and_the_run_goes_on_with_the_same_bits(self):
        settings = {**ONE, "save": {"every": 1, "keep": "all"}}
        self.on_cards(WIDE, "whole", 2, *BY_NCCL, **settings)
        recipe = tiny_recipe(self.folder, WIDE, "cut", **{"batch": {"effective": 8}, "optimizer": {"lr": 1e-3}, **THREE, **settings})
        self.fake("async=9")
        text = self.stopped(recipe)
        self.assertIn("NCCL 2.27.3: ", text)
        self.assertIn("remote process exited or there was a network error (said by a stand-in)", text)
        self.assertIn("memory.exchange: staged (--set memory.exchange=staged) does without it", text)
        self.assertIn("is ended", self.log.read_text())
        self.fake()
        done = run("train", recipe, "--devices", 2, "--device", "emulated", "--threads", 1, "--quiet", "--resume")  # through the host
        self.assertEqual(done.returncode, 0, done.stderr)
        for file, content in self.files_of("whole", 3).items():
            self.assertTrue(content == self.files_of("cut", 3)[file], file)

    def test_a_rank_that_is_killed_within_an_exchange_ends_the_others(self):
        recipe = tiny_recipe(self.folder, WIDE, "killed", **ONE, **THREE)
        self.fake("dies=1:9")
        self.assertIn("the process of rank 1 ended", self.stopped(recipe))

    def test_a_machine_without_nccl_is_told_what_to_install(self):
        recipe = tiny_recipe(self.folder, WIDE, "run", **ONE, **THREE)
        words = ("train", recipe, "--devices", 2, "--device", "emulated", "--threads", 1, *BY_NCCL)
        self.set("FAKE_NCCL", "version=21705")
        old = output(*words, code=2)
        self.assertIn("is NCCL 2.17.5, and 2.18 or later is needed", old)
        self.assertIn("pip install nvidia-nccl-cu12", old)
        self.set("PLIMSOLL_NCCL", "/nowhere/libnccl.so.2")
        missing = output(*words, code=2)
        self.assertIn("memory.exchange: nccl: no NCCL was found (/nowhere/libnccl.so.2: ", missing)
        self.assertIn("libnccl2", missing)
        self.assertFalse(list((self.folder / "run").glob("checkpoint-*")))


class Planned(CommandTest):
    needs_run = False

    def planned(self, *words):
        return json.loads(output("plan", self.recipe, "--threads", 1, "--devices", 2, "--json", *words))

    def setUp(self):
        super().setUp()
        self.recipe = tiny_recipe(self.folder, WIDE, "run", **ONE)
        self.addCleanup(os.environ.pop, "PLIMSOLL_NCCL", None)
        os.environ.pop("PLIMSOLL_NCCL", None)

    def test_processes_on_cpus_have_no_such_choice(self):
        for way in ("nccl", "staged"):
            self.assertIn(f"memory.exchange: {way}: says how GPUs exchange, and the processes compute on CPUs",
                          output("plan", self.recipe, "--devices", 2, "--device", "cpu", "--set", f"memory.exchange={way}", code=2))
        self.assertIn("the device is emulated", output("plan", self.recipe, "--devices", 2, "--device", "emulated", *BY_NCCL, code=2))

    def test_what_nccl_takes_of_a_card_is_in_the_plan_with_its_uncertainty(self):
        card = ("--gpu", "A100 40GB")
        staged, nccl = self.planned(*card), self.planned(*card, *BY_NCCL)
        parts = {part["name"]: part for part in nccl["device"]["outside"]}
        self.assertNotIn("NCCL", {part["name"] for part in staged["device"]["outside"]})
        self.assertEqual(parts["sums of ranks"]["bytes"], 4 * PIECE)
        self.assertGreater(parts["NCCL"]["bytes"], 0)
        self.assertEqual(parts["NCCL"]["uncertain_bytes"], parts["NCCL"]["bytes"])
        more = 4 * PIECE + 2 * parts["NCCL"]["bytes"]
        self.assertEqual(nccl["device"]["outside_bytes"] - staged["device"]["outside_bytes"], more)
        self.assertEqual(nccl["devices"]["device_bytes_each"] - staged["devices"]["device_bytes_each"], more)
        self.assertEqual((staged["devices"]["exchange"], nccl["devices"]["exchange"]), ("staged", "nccl"))
        self.assertAlmostEqual(nccl["devices"]["link_bytes_per_second"] / staged["devices"]["link_bytes_per_second"], 7 / 3)
        text = " ".join(output("plan", self.recipe, "--threads", 1, "--devices", 2, "--full", *card, *BY_NCCL).split())
        self.assertRegex(text, r"a step by NCCL, in .* a guess: 70 % of the data sheet's link, from GPU to GPU")

    def test_cards_that_do_not_reach_each_other_send_through_the_host(self):
        plan = self.planned("--gpu", "RTX 4090", *BY_NCCL)
        self.assertEqual(plan["devices"]["link_bytes_per_second"], self.planned("--gpu", "RTX 4090")["devices"]["link_bytes_per_second"])

    def test_a_card_that_is_full_with_it_is_refused_with_it(self):
        each = self.planned("--gpu", "A100 40GB", "--memory", "2GiB")["devices"]["device_bytes_each"]
        words = ("plan", self.recipe, "--threads", 1, "--devices", 2, "--gpu", "A100 40GB", "--memory", f"{each + (8 << 20)}B")
        output(*words)
        output(*words, *BY_NCCL, code=3)


class Found(CommandTest):
    needs_run = False

    def test_devices_names_the_library_or_what_to_install(self):
        cards = self.folder / "cards"
        cards.write_text("driver 550.7\n" + "".join(f"card GPU-{digit * 8}-1111-2222-3333-444444444444 {12 << 30} 0\nname NVIDIA GeForce RTX 3060\n" for digit in "12"))
        environment = {**os.environ, "PLIMSOLL_NVML": str(DRIVER), "FAKE_NVML": str(cards), "PLIMSOLL_NVML_SECONDS": "60,0.1"}
        for library, found in ((LIBRARY, f"NCCL 2.27.3 for several GPUs (memory.exchange: nccl): {LIBRARY}"), ("none", "no NCCL (PLIMSOLL_NCCL=none): several GPUs exchange through memory of the host. For memory.exchange: nccl install it (pip")):
            environment["PLIMSOLL_NCCL"] = str(library)
            self.assertIn(found, " ".join(output("devices", env=environment).split()))
            told = json.loads(output("devices", "--json", env=environment))["nccl"]
            self.assertEqual(told, {"library": "NCCL 2.27.3", "file": str(LIBRARY), "problem": ""} if library == LIBRARY else {"library": "", "file": "", "problem": "PLIMSOLL_NCCL=none"})


if __name__ == "__main__":
    command_run.main(testLoader=SuiteLoader("nccl_test", ("is_my_cell",)))
