"""Several devices that divide gradients (memory.shard: gradients): the bits of divided states with one micro-step, the same experiment with several.

Usage: divided_gradients_test.py PLIMSOLL (from the repository's root). Standard library only; skipped where Open MPI is not installed.
"""
import json
import re
import shutil
import unittest
import zlib

import command_run
from command_run import CommandTest, losses_of, output, run
from several_devices_test import LARGE, LONG, LORA, MPIRUN, PLUGIN, STEPS, WIDE
from shard import SuiteLoader, is_mine
from small_models import GLA, T5, TODAY, steps, tiny_recipe

SHORT = {"schedule": {"max_steps": 6, "warmup": 2}}
ONE = {"batch": {"effective": 8, "micro": 4}}  # one micro-step a step, on two devices and on three
FEW = {"batch": {"effective": 8, "micro": 1}}  # four on two devices, three on three: of them the last has two rows


def is_my_cell(*cell):
    """Whether this group of runs is in the slice that runs (tests/shard.py)."""
    return is_mine("several_devices", zlib.crc32(repr(cell).encode()))


class DividedTest(CommandTest):
    """Runs on several devices that divide something, and what is read of them."""
    needs_run = False

    def assert_no_bit_changes_where_parts_move(self, shard):
        """Offload and activation checkpointing, with several micro-steps."""
        found = []
        for name, memory in (("kept", {}), ("again", {"recompute": "block"}), ("away", {"offload": ["states", "gradients", "weights", "activations"], "disk": "1GiB"})):
            self.train(LARGE, name, 2, **FEW, precision="bf16-master", schedule={"max_steps": 3, "warmup": 1}, memory={"shard": shard, "loss_chunk": 64, **memory})
            found.append(self.files_of(name, 3))
        self.assertGreater(json.loads((self.folder / "away/run.json").read_text())["measured"]["disk_bytes"], 0)
        for other in found[1:]:
            for name, content in found[0].items():
                self.assertTrue(content == other[name], name)

    def train(self, config, name, devices, *words, **settings):
        shutil.rmtree(self.folder / "model", ignore_errors=True)  # may be of another config
        recipe = tiny_recipe(self.folder, config, name, **{**LONG, **SHORT, **settings})
        done = run("train", recipe, "--devices", devices, "--threads", 1, "--quiet", "--overwrite", *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return recipe

    def files_of(self, name, step):
        folder = self.folder / name / f"checkpoint-{step}"
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".safetensors"}

    def record_of(self, name, count):
        """run.json of a run of which each process has what was planned, and stays below it."""
        done = json.loads((self.folder / name / "run.json").read_text())
        self.assertEqual([rank["device_arena_bytes"] for rank in done["ranks"]], [done["planned"]["device_arena_bytes"]] * count)
        for rank in done["ranks"]:
            if not command_run.SANITIZED:
                self.assertLess(rank["process_peak_rss_bytes"], done["planned"]["process_peak_rss_bytes"])
                self.assertLess(rank["process_data_bytes"], done["planned"]["process_data_bytes"])
        return done


@unittest.skipUnless(PLUGIN.exists() and MPIRUN, "Open MPI is not installed: scripts/setup.sh --dev")
class DividedGradients(DividedTest):
    def assert_same_files(self, count, config=WIDE, **settings):
        """With one micro-step the files are those of divided states, byte for byte, in less memory."""
        if not is_my_cell(count, config, settings):
            return
        runs = {}
        for shard in ("states", "gradients"):
            chunks = {} if settings.get("task") == "reward" else {"loss_chunk": 64}  # the plan's own may differ
            self.train(config, shard, count, **{**ONE, **settings}, memory={"shard": shard, **chunks})
            runs[shard] = (self.files_of(shard, 6), [step["grad_norm"] for step in steps(self.folder / shard)])
        self.assertIn("optimizer.safetensors", runs["states"][0])
        for name, content in runs["states"][0].items():
            self.assertTrue(content == runs["gradients"][0][name], f"{name} of {count} devices: {settings}")
        self.assertEqual(runs["states"][1], runs["gradients"][1])
        whole, cut = (self.record_of(shard, count)["planned"]["device_arena_bytes"] for shard in ("states", "gradients"))
        self.assertLess(cut, whole)

    def test_one_micro_step_has_the_bits_of_divided_states(self):
        for count, settings in ((2, {}), (3, {"precision": "bf16-master"}), (2, {"precision": "bf16", "optimizer": {"name": "adamw8bit", "lr": 1e-3}}),
                                (3, {"precision": "bf16-pure", "optimizer": {"name": "lion", "lr": 1e-4, "max_grad_norm": 0.1}}), (3, {"precision": "fp16"})):
            self.assert_same_files(count, {**WIDE, "tie_word_embeddings": False}, **settings)

    def test_one_micro_step_of_adapters_and_other_families_has_the_bits_of_divided_states(self):
        self.assert_same_files(2, method={"type": "lora", "r": 64, "dropout": 0.1}, precision="bf16")
        self.assert_same_files(3, {**T5, "d_model": 64, "d_ff": 128}, task="seq2seq")
        self.assert_same_files(2, {**WIDE, "tie_word_embeddings": False}, task="reward", precision="bf16-master")

    def test_several_micro_steps_are_the_same_experiment(self):
        for config, settings in ((WIDE, {}), (WIDE, LORA), ({**T5, "d_model": 64}, {"task": "seq2seq"}), (WIDE, {"task": "dpo", **LORA}), (WIDE, {"task": "dpo"}),
                                 ({**TODAY["gemma2"], "hidden_size": 64}, {}), ({**GLA, "hidden_size": 64}, {}), (WIDE, {"method": {"type": "qlora", "r": 32}})):
            if not is_my_cell("experiment", config, settings):
                continue
            self.train(config, "alone", 1, **FEW, **settings, schedule={"max_steps": STEPS, "warmup": 2})
            for count in (2, 3):
                self.train(config, "on", count, **FEW, **settings, schedule={"max_steps": STEPS, "warmup": 2}, memory={"shard": "gradients"})
                for own, other in zip(losses_of(self.folder / "alone"), losses_of(self.folder / "on"), strict=True):
                    self.assertAlmostEqual(own, other, delta=1e-5, msg=f"{settings} on {count}")
                self.record_of("on", count)

    def test_offload_and_activation_checkpointing_change_no_bit_of_several_micro_steps(self):
        self.assert_no_bit_changes_where_parts_move("gradients")

    def test_updates_in_the_backward_pass_keep_no_gradient(self):
        settings = {"optimizer": {"lr": 1e-3, "max_grad_norm": 0}, "batch": {"effective": 3}}
        for shard in ("states", "gradients"):
            recipe = self.train(WIDE, shard, 3, **settings, memory={"shard": shard})
            self.assertIn("in the backward pass", output("plan", recipe, "--devices", 3, "--threads", 1, "--full"))
        self.assertTrue(self.files_of("states", 6) == self.files_of("gradients", 6))
        self.assertEqual(*(self.record_of(shard, 3)["planned"]["device_arena_bytes"] for shard in ("states", "gradients")))

    def test_a_refusal_names_the_least_that_any_stage_takes(self):
        def least(**memory):
            recipe = tiny_recipe(self.folder, {**LARGE, "hidden_size": 512, "intermediate_size": 1024}, "refused", **LONG, memory=memory)
            text = output("plan", recipe, "--devices", 2, "--threads", 1, "--memory", "90MiB", code=3)
            return re.search(r"the process needs (\d+) MiB", text)[1], text
        needs, text = least()
        self.assertIn("weights, gradients and optimizer states divided among devices", " ".join(text.split()))
        self.assertEqual(needs, least(shard="weights")[0])
        gradients = int(least(shard="gradients")[0])
        self.assertLess(int(needs), gradients)
        self.assertLess(gradients, int(least(shard="states")[0]))

    def test_bytes_sent_are_those_of_the_plan(self):
        for settings in (ONE, FEW, {**FEW, "precision": "bf16-master"}):
            recipe = self.train(WIDE, "sent", 3, **settings, memory={"shard": "gradients"})
            planned = json.loads(output("plan", recipe, "--devices", 3, "--threads", 1, "--json"))["devices"]
            self.assertEqual(planned["shard"], "gradients")
            self.assertEqual([rank["sent_bytes"] for rank in self.record_of("sent", 3)["ranks"]], [6 * planned["sent_bytes_per_step"]] * 3)

    def test_a_last_batch_of_fewer_rows_than_ranks_counts(self):
        # 16 rows in batches of 5: the last has one.
        settings = {"batch": {"effective": 5, "micro": 1}, "schedule": {"epochs": 2, "warmup": 1}}
        self.train(WIDE, "alone", 1, **settings)
        self.train(WIDE, "on3", 3, **settings, memory={"shard": "gradients"})
        for own, other in zip(losses_of(self.folder / "alone"), losses_of(self.folder / "on3"), strict=True):
            self.assertAlmostEqual(own, other, delta=1e-5)

    def test_a_run_continues_in_any_stage_on_any_number_of_devices(self):
        settings = {**LONG, **FEW, "save": {"every": 5, "keep": "all"}}
        output("train", tiny_recipe(self.folder, WIDE, "whole", **settings), "--threads", 1, "--quiet")
        recipe = tiny_recipe(self.folder, WIDE, "moves", **settings, memory={"shard": "gradients"})
        output("train", recipe, "--devices", 3, "--threads", 1, "--quiet")
        out = self.folder / "moves"
        begun = self.files_of("moves", STEPS)
        for last, devices, shard, said in ((15, 3, "gradients", ""), (15, 3, "states", "in every micro-step; continues with gradients added up once a step"),
                                           (10, 2, "gradients", "2 devices: the same"), (10, 1, "auto", "1 device, gradients added up once a step"),
                                           (15, 3, "gradients", "3 devices, gradients added up over devices in every micro-step: ")):
            for checkpoint in out.glob("checkpoint-*"):
                if int(checkpoint.name.partition("-")[2]) > last:
                    shutil.rmtree(checkpoint)
            done = run("train", recipe, "--resume", "--devices", devices, "--threads", 1, "--set", f"memory.shard={shard}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(said, done.stderr)
            self.assertEqual(done.stderr.count("sums are formed in another order"), int(said != ""), done.stderr)
            if not said:  # as if it had never stopped
                self.assertTrue(self.files_of("moves", STEPS) == begun)
            for own, other in zip(losses_of(self.folder / "whole"), losses_of(out), strict=True):
                self.assertAlmostEqual(own, other, delta=1e-5)

    def test_plans_of_all_stages_are_compared_and_suggested(self):
        recipe = tiny_recipe(self.folder, {**WIDE, "hidden_size": 256, "intermediate_size": 512}, "run", batch={"effective": 8, "micro": 1})
        rows = json.loads(output("plan", recipe, "--json", "--devices", 2, "--memory", "1GiB", "--threads", 1, "--compare", "shard=none,states,gradients"))["rows"]
        self.assertTrue(all(row["feasible"] and row["same_result"] for row in rows), rows)
        none, cut, least = (row["device_bytes"] for row in rows)
        self.assertLess(least, cut)
        self.assertLess(cut, none)
        self.assertGreater(rows[2]["sent_bytes_per_step"], rows[1]["sent_bytes_per_step"])  # four micro-steps
        smallest = lambda shard: json.loads(output("plan", recipe, "--json", "--threads", 1, "--devices", 2, "--set", f"memory.shard={shard}"))["smallest"]["memory_bytes"]  # noqa: E731
        states, gradients = smallest("states"), smallest("gradients")
        self.assertLess(gradients, states)
        budget = states + gradients  # of both processes
        words = ("--threads", 1, "--devices", 2, "--memory", f"{budget}B", "--set", "memory.headroom=0%")
        self.assertIn("memory.shard=gradients", output("plan", recipe, *words, "--set", "memory.shard=states", code=3))
        for stated in ((), ("--set", "memory.shard=gradients")):  # auto takes what fits
            self.assertIn("which divide gradients and the optimizer's states", output("plan", recipe, *words, *stated))
        output("train", recipe, *words, "--set", "schedule.max_steps=2", "--quiet")
        self.assertEqual(json.loads((self.folder / "run/checkpoint-2/trainer_state.json").read_text())["reduces"], "each")
        self.check_resumed_stages(recipe, words)
        refused = output("plan", recipe, "--devices", 2, "--set", "memory.shard=gradients", "--set", "optimizer.name=adafactor", code=2)
        self.assertIn("devices: 2: memory.shard: gradients with optimizer.name: adafactor is not supported with several devices yet", refused)

    def check_resumed_stages(self, recipe, little):
        """A run that auto has divided gradients for goes on so in more memory, unless another stage is stated or it does not fit."""
        states = lambda step: json.loads((self.folder / f"run/checkpoint-{step}/trainer_state.json").read_text())["shard"]  # noqa: E731
        ample = (*little[:4], "--memory", "8GiB")
        self.assertEqual(states(2), "gradients")
        self.assertNotIn("divide gradients", output("plan", recipe, *ample))  # auto alone
        output("train", recipe, *ample, "--set", "schedule.max_steps=3", "--quiet", "--resume")
        self.assertEqual(states(3), "gradients")
        output("train", recipe, *ample, "--set", "schedule.max_steps=4", "--quiet", "--resume", "--set", "memory.shard=states")
        self.assertEqual(states(4), "states")
        done = run("train", recipe, *little, "--set", "schedule.max_steps=5", "--resume")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(states(5), "gradients")
        self.assertIn("the same experiment, but sums are formed in another order", done.stderr)


if __name__ == "__main__":
    command_run.main(testLoader=SuiteLoader("divided_gradients_test", ("assert_same_files", "is_my_cell")))
