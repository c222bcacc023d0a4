"""Several cards, a process for each, on emulated ones: the bits of every stage, the experiment of one card, plans, resume.

Usage: cards_as_ranks_test.py PLIMSOLL FAKE_NVML (from the repository's root). Standard library only; runs are skipped where Open MPI is not installed.
"""
import json
import os
import shutil
import subprocess
import sys
import unittest
import zlib
from pathlib import Path

import command_run
from command_run import PLIMSOLL, CommandTest, built_library, losses_of, output, run
from divided_gradients_test import FEW, ONE, DividedTest
from several_devices_test import LARGE, LONG, LORA, MAY_UNSHARE, MPIRUN, PAIRS, PLUGIN, STEPS, WIDE
from shard import SuiteLoader, is_mine
from small_models import steps, tiny_recipe

LIBRARY = built_library("fake_nvml")
A, B, C = (f"GPU-{letter * 8}-1111-2222-3333-444444444444" for letter in "abc")
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
        self.assertRegex(text, r"device [\d.]+ \w+ of [\d.]+ GiB on each of 2\s+needs .* of host memory \(2 processes of ")
        self.assertIn("a guess: 30 % of the data sheet's link, through the host", " ".join(text.split()))
        stated = json.loads(output(*words, "--json", "--devices", 2, "--link", "20GB/s"))["devices"]
        self.assertEqual((stated["link"], stated["link_bytes_per_second"]), ("stated", 20e9))
        self.assertNotIn("devices", alone)
        # Of unlike cards the largest alone is looked at.
        slow = output(*words, "--devices", 2, "--memory", "{0: 2GiB, 1: 1GiB}", "--link", "1KB/s")
        self.assertTrue(slow.startswith("one device is faster: "), slow[:200])
        self.assertIn("device 0: 1.00 GiB of 2.00 GiB stay unused", " ".join(slow.split()))

    def test_unlike_sizes_of_one_kind_of_card_are_planned_for_the_least(self):
        recipe = tiny_recipe(self.folder, WIDE, "planned", **ONE)
        words = ("plan", recipe, "--gpu", "RTX 4090", "--threads", 1, "--devices", 2, "--full")
        sizes = "memory.device={0: 24GiB, 1: 12GiB}"
        text = output(*words, "--set", sizes)
        self.assertRegex(text, r"device [\d.]+ MiB of 12.0 GiB on each of 2")
        self.assertIn("device 0: 12.0 GiB of 24.0 GiB stay unused", text)
        least, plain = (json.loads(output(*words[:-1], "--json", "--set", size)) for size in (sizes, "memory.device=12GiB"))
        self.assertEqual(least["device"]["arena_bytes"], plain["device"]["arena_bytes"])
        self.assertEqual(least["device"]["budget_bytes"], plain["device"]["budget_bytes"])
        self.assertIn("RTX 4090 24GB, memory.device: 595 MiB, the least of 2 devices", output(*words, "--set", "memory.device={0: 24GiB, 1: 595MiB}", code=3))
        self.assertIn("memory.device: 48.0 GiB, but the RTX 4090 24GB has 24.0 GiB", output(*words, "--set", "memory.device={0: 48GiB, 1: 12GiB}", code=2))

    def test_all_processes_share_the_memory_of_the_host(self):
        recipe = tiny_recipe(self.folder, WIDE, "planned", **ONE)
        words = ("plan", recipe, "--gpu", "A100 40GB", "--threads", 1, "--devices", 2)
        each = json.loads(output(*words, "--json"))["devices"]["bytes_each"]
        output(*words, "--host-memory", f"{2 * each + (64 << 20)}B", "--set", "memory.headroom=0%")
        refused = output(*words, "--host-memory", f"{each + each // 2}B", "--set", "memory.headroom=0%", code=3)
        self.assertIn("divided among 2 processes", refused)


    def test_offloaded_frozen_weights_count_once_for_the_host(self):
        recipe = tiny_recipe(self.folder, {**LARGE, "hidden_size": 512, "intermediate_size": 1024}, "planned", **ONE, **LORA, memory={"offload": ["weights"], "shard": "states", "headroom": "0%"})
        words = ("plan", recipe, "--gpu", "A100 40GB", "--threads", 1, "--devices", 3)
        own = ("--set", "memory.node_copy=false")
        once, apart = (json.loads(output(*words, "--json", *more)) for more in ((), own))
        shared = once["devices"]["shared_bytes"]
        self.assertGreater(shared, 10 << 20)
        self.assertEqual(apart["devices"]["shared_bytes"], 0)
        self.assertAlmostEqual(apart["devices"]["bytes_together"] - once["devices"]["bytes_together"], 2 * shared, delta=3 * 4096)
        self.assertEqual(once["devices"]["bytes_together"], 3 * once["devices"]["bytes_each"] - 2 * shared)
        self.assertEqual(once["device"]["arena_bytes"], apart["device"]["arena_bytes"])
        between = ("--host-memory", f"{(once['devices']['bytes_together'] + apart['devices']['bytes_together']) // 2}B")
        output(*words, *between, *own, code=3)
        text = output(*words, *between, "--full")
        self.assertRegex(text, r"host [\d.]+ \wiB of [\d.]+ \wiB\s+\(3 processes of [\d.]+ MiB, [\d.]+ MiB of it shared\)")
        self.assertRegex(text, r"frozen weights, 1/3 of one copy +[\d.]+ MiB")
        self.assertRegex(text, r"shared +[\d.]+ MiB +one copy for 3 processes")

    def test_auto_divides_more_where_cards_that_fetch_from_the_host_are_slower(self):
        recipe = tiny_recipe(self.folder, {**LARGE, "hidden_size": 512, "intermediate_size": 1024}, "planned", **ONE, memory={"offload": ["weights"], "prefetch": 0})
        words = ("plan", recipe, "--gpu", "A100 40GB", "--threads", 1, "--devices", 2, "--json", "--link")
        taken = {}
        for link in ("1000GB/s", "1GB/s"):
            rows = json.loads(output(*words, link, "--compare", "shard=auto,states,gradients,weights"))["rows"]
            taken[link] = rows[0]["shard"]
            self.assertEqual(json.loads(output(*words, link))["devices"]["shard"], taken[link])
            self.assertLessEqual(rows[0]["seconds_per_step"], 1.1 * min(row["seconds_per_step"] for row in rows))
        self.assertEqual(taken, {"1000GB/s": "weights", "1GB/s": "states"})


class NamedCards(CommandTest):
    """Cards that the driver's library names and an emulated one stands in for."""
    needs_run = False

    def setUp(self):
        super().setUp()
        self.cards = self.folder / "cards"
        self.environment = {**os.environ, "PLIMSOLL_NVML": str(LIBRARY), "FAKE_NVML": str(self.cards), "PLIMSOLL_NVML_SECONDS": "60,0.1",
                            "PLIMSOLL_EMULATED_CARDS": "1", "PLIMSOLL_CACHE_DIR": str(self.folder / "cache")}
        for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
            self.environment.pop(name, None)
        self.tell()
        self.recipe = tiny_recipe(self.folder, WIDE, "run", **ONE, schedule={"max_steps": 2, "warmup": 1})

    def tell(self, *kinds, mib=12288, more=""):
        kinds = kinds or ("NVIDIA GeForce RTX 3060",) * 3
        self.cards.write_text("driver 550.7\n" + "".join(f"card {uuid} {mib * 2**20} 0\nname {kind}\n" for uuid, kind in zip((A, B, C), kinds)) + more)

    def refused(self, devices, *words, command="train", **environment):
        text = output(command, self.recipe, "--devices", devices, *words, code=2, env={**self.environment, **environment})
        self.assertFalse((self.folder / "run").exists())
        return text

    def planned(self, devices):
        done = run("plan", self.recipe, "--devices", devices, env=self.environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr + done.stdout

    def test_what_cannot_be_is_refused_with_what_to_write(self):
        for command in ("train", "plan"):
            self.assertIn("devices: cuda:7 is no card that this process may use; there are cuda:0 (RTX 3060 12GB, GPU-aaaaaaaa), cuda:1",
                          self.refused("cuda:0,cuda:7", command=command))
            self.assertIn("devices: GPU-dddddddd is no card", self.refused("cuda:0,cuda:GPU-dddddddd", command=command))
            self.assertIn("devices: cuda:1 (RTX 3060 12GB, GPU-bbbbbbbb) is named twice", self.refused("cuda:1,cuda:GPU-bbbb", command=command))
            self.assertIn("devices: 4 processes need a card each, and this machine has 3 that can be used", self.refused(4, "--device", "cuda", command=command))
            self.assertIn("name them, such as --devices cuda:0,cuda:1", self.refused(2, "--device", "cuda:1", command=command))
            self.assertIn("device is another one", self.refused("cuda:0,cuda:1", "--device", "cpu", command=command))
        self.assertIn("expected", self.refused("cuda:x"))
        self.tell(more="mig\n")
        self.assertIn("devices: cuda:2 (RTX 3060 12GB, GPU-cccccccc) is cut into instances (MIG); leave it out", self.refused("cuda:0,cuda:2"))

    def test_cards_of_two_kinds_are_refused_with_those_of_one(self):
        self.tell("NVIDIA GeForce RTX 2080 Ti", "NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 3060")
        self.assertIn("which card is cuda:0 depends on CUDA_DEVICE_ORDER", self.refused("cuda:0,cuda:1"))
        text = self.refused("cuda:0,cuda:1", "--precision", "bf16", CUDA_DEVICE_ORDER="PCI_BUS_ID")
        self.assertIn("are cards of two kinds, and the processes of a run need cards of one: such as --devices cuda:1,cuda:2", text)
        self.assertIn("does not compute in bf16", text)
        self.assertIn("are cards of two kinds", self.refused(3, "--device", "cuda"))
        self.assertIn("devices cuda:1,cuda:2 (RTX 3060 12GB, emulated)", self.planned(2))

    def test_a_plan_is_of_the_cards_that_a_run_would_take(self):
        for devices, told in ((2, "devices cuda:0,cuda:1 (RTX 3060"), ("cuda:2,cuda:0", "devices cuda:2,cuda:0 (RTX 3060"), ("auto", "devices cuda:0,cuda:1,cuda:2 (RTX 3060")):
            text = self.planned(devices)
            self.assertIn(told, text)
            self.assertRegex(text, r"on each of [23] ")
        few = self.planned(4)
        self.assertIn("device  cpu, as 4 processes need a card each, and of the RTX 3060 12GB (emulated) there are 3", few)
        self.assertIn("(4 processes of ", few)

    @unittest.skipUnless(PLUGIN.exists() and MPIRUN, "Open MPI is not installed: scripts/setup.sh --dev")
    def test_cards_with_a_size_each_train_in_the_layout_of_the_least(self):
        sizes = ("--set", "memory.device={0: 8GiB, 1: 2GiB}", "--threads", 1)
        planned = output("plan", self.recipe, "--devices", "cuda:2,cuda:0", *sizes, "--full", env=self.environment)
        self.assertRegex(planned, r"device [\d.]+ MiB of 2.00 GiB on each of 2")
        done = run("train", self.recipe, "--devices", "cuda:2,cuda:0", *sizes, env=self.environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("device 0: 6.00 GiB of 8.00 GiB stay unused", done.stdout + done.stderr)
        self.assertEqual(len(json.loads((self.folder / "run/run.json").read_text())["ranks"]), 2)
        shutil.rmtree(self.folder / "run")
        self.tell("NVIDIA GeForce RTX 3060", "Tesla T4", "Tesla T4")
        self.assertIn("are cards of two kinds", self.refused(2, "--device", "cuda", *sizes))

    @unittest.skipUnless(PLUGIN.exists() and MPIRUN, "Open MPI is not installed: scripts/setup.sh --dev")
    def test_each_process_computes_on_its_own_card(self):
        told = self.folder / "taken"
        told.mkdir()
        self.cards.write_text(f"emulated {64 << 20}\n" + self.cards.read_text())
        done = run("train", self.recipe, "--devices", f"cuda:2,cuda:{A}", "--threads", 1, env={**self.environment, "PLIMSOLL_EMULATED_MEMORY": str(told)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("devices cuda:2,cuda:0 (RTX 3060 12GB, emulated)"), 1, done.stderr)
        record = json.loads((self.folder / "run/run.json").read_text())
        self.assertEqual([rank["device_arena_bytes"] for rank in record["ranks"]], [record["planned"]["device_arena_bytes"]] * 2)
        # The card with least free memory is planned for, whichever process has it.
        self.tell()
        self.cards.write_text(self.cards.read_text().replace(f"card {B} {12288 * 2**20} 0", f"card {B} {12288 * 2**20} {12288 * 2**20}"))
        text = output("train", self.recipe, "--devices", "cuda:0,cuda:1", "--threads", 1, "--overwrite", code=3, env=self.environment)
        self.assertIn("does not fit", text)

    def started(self, *visible, words=(), code=0, hosts=(), **environment):
        """Processes that a launcher starts, each of which sees the cards of a list; on machines with these names."""
        mpirun = [MPIRUN, "-q", "--oversubscribe", "--bind-to", "none", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
        for number, cards in enumerate(visible):
            mpirun += [*([":"] if number else []), "-np", "1", "-x", f"CUDA_VISIBLE_DEVICES={cards}",
                       *(["unshare", "--uts", "sh", "-c", f'hostname {hosts[number]}; exec "$@"', "sh"] if hosts else []), str(PLIMSOLL), "train", str(self.recipe), "--threads", "1", "--overwrite", *words]
        done = subprocess.run(mpirun, env={**self.environment, "OMPI_MCA_btl_vader_single_copy_mechanism": "none", **environment}, capture_output=True, text=True, timeout=900)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    @unittest.skipUnless(PLUGIN.exists() and MPIRUN, "Open MPI is not installed: scripts/setup.sh --dev")
    def test_processes_that_see_a_card_each_take_their_own(self):
        for words in ((), ("--device", "cuda")):
            text = self.started(B, A, words=words)
            self.assertEqual(text.count("devices GPU-bbbbbbbb,GPU-aaaaaaaa (RTX 3060 12GB, emulated)"), 1, text)
            record = json.loads((self.folder / "run/run.json").read_text())
            self.assertEqual([rank["device_arena_bytes"] for rank in record["ranks"]], [record["planned"]["device_arena_bytes"]] * 2)
            self.assertIn("emulated card", record["kernels"])
        self.assertIn("devices GPU-aaaaaaaa,GPU-cccccccc (", self.started(f"{A},{B}", f"{C},{B}", words=("--device", "cuda")))
        self.assertIn("devices cuda:0,cuda:1 (", self.started(f"{B},{C}", f"{B},{C}"))  # the same for all

    @unittest.skipUnless(PLUGIN.exists() and MPIRUN, "Open MPI is not installed: scripts/setup.sh --dev")
    def test_processes_that_would_share_a_card_are_refused_by_rank(self):
        one = "devices: ranks 0 and 1 both see RTX 3060 12GB (GPU-bbbbbbbb) first and no other card, and each needs a card of its own: srun --gpus-per-task=1"
        self.assertIn(one, self.started(B, B, words=("--device", "cuda"), code=2))
        self.assertIn(one, self.started(B, B, code=2, SLURM_STEP_GPUS="1"))
        self.assertIn("device  cpu, as 2 processes need a card each", self.started(B, B))  # of a machine with one card
        self.assertIn("ranks 0 and 2 both see RTX 3060 12GB (GPU-aaaaaaaa) first, and", self.started(f"{A},{B}", C, A, code=2))
        self.assertIn("rank 1 sees no card that can be used", self.started(A, "", words=("--device", "cuda"), code=2))
        self.tell("NVIDIA GeForce RTX 3060", "Tesla T4", "Tesla T4")
        self.assertIn("rank 0 has the RTX 3060 12GB (GPU-aaaaaaaa), and rank 1 has the T4 16GB (GPU-bbbbbbbb)", self.started(A, B, code=2))

    @unittest.skipUnless(PLUGIN.exists() and MPIRUN and MAY_UNSHARE, "another name of the machine takes its rights, and runs Open MPI")
    def test_machines_with_other_cards_are_refused_before_any_is_opened(self):
        self.tell("NVIDIA GeForce RTX 3060", "Tesla T4", "NVIDIA GeForce RTX 3060")
        text = self.started(A, B, hosts=("one", "two"), code=2)
        self.assertIn("devices: rank 0 has the RTX 3060 12GB (GPU-aaaaaaaa), and on another machine rank 1 has the T4 16GB (GPU-bbbbbbbb): the processes of a run need cards of one kind", text)
        self.assertIn("rank 0 has the RTX 3060 12GB (GPU-aaaaaaaa), and on another machine rank 1 has none", self.started(A, "", hosts=("one", "two"), code=2))
        self.started(A, C, hosts=("one", "two"))


if __name__ == "__main__":
    command_run.main(testLoader=SuiteLoader("cards_as_ranks_test", ("is_my_cell",)))
