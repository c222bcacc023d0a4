"""Several devices that divide weights (memory.shard: weights): the bits and the files of divided gradients, in less memory.

Usage: divided_weights_test.py PLIMSOLL (from the repository's root). Standard library only; skipped where Open MPI is not installed.
"""
import json
import re
import shutil
import unittest

import command_run
from command_run import losses_of, output, run
from divided_gradients_test import FEW, ONE, SHORT, DividedTest, is_my_cell
from several_devices_test import CLASSES, LARGE, LONG, LORA, MPIRUN, PLUGIN, QLORA, STEPS, WIDE
from shard import SuiteLoader
from small_models import GLA, T5, TODAY, steps, tiny_recipe

UNTIED = {**WIDE, "tie_word_embeddings": False}
OWN = {"node_copy": False}  # frozen weights are one copy on this machine otherwise
EVALUATED = {"eval": {"every": 3, "micro": 2}, "data": {"eval": 7}}  # behind rows of their own some ranks run another's
PAIRS = {"eval": {"every": 3, "micro": 2}, "data": {"eval": 3}}  # of eight


def sets(*settings):
    return [word for setting in settings for word in ("--set", setting)]


@unittest.skipUnless(PLUGIN.exists() and MPIRUN, "Open MPI is not installed: scripts/setup.sh --dev")
class DividedWeights(DividedTest):
    def evaluations_of(self, name):
        lines = [json.loads(line) for line in (self.folder / name / "eval.jsonl").read_text().splitlines()]
        return [{key: value for key, value in line.items() if key not in ("time", "seconds")} for line in lines]

    def assert_same_run(self, count, config=WIDE, **settings):
        """Files, losses, norms and evaluations are those of divided gradients, bit for bit."""
        if not is_my_cell("weights", count, config, settings):
            return
        chunks = {} if settings.get("task") in ("reward", "classify") else {"loss_chunk": 64}
        found = []
        for shard in ("gradients", "weights"):
            self.train(config, shard, count, **{**FEW, **settings}, memory={"shard": shard, **OWN, **chunks})
            found.append((self.files_of(shard, 6), [(step["loss"], step["grad_norm"]) for step in steps(self.folder / shard)],
                          self.evaluations_of(shard) if "eval" in settings else []))
        for name, content in found[0][0].items():
            self.assertTrue(content == found[1][0][name], f"{name} of {count} devices: {settings}")
        self.assertEqual(found[0][1:], found[1][1:])
        whole, cut = (self.record_of(shard, count)["planned"]["device_arena_bytes"] for shard in ("gradients", "weights"))
        self.assertLess(cut, whole)

    def test_full_fine_tuning_has_the_bits_of_divided_gradients(self):
        self.assert_same_run(2, **EVALUATED)
        self.assert_same_run(3, UNTIED, precision="bf16-master", **EVALUATED)
        self.assert_same_run(3, precision="fp16")
        self.assert_same_run(2, UNTIED, precision="bf16", optimizer={"name": "adamw8bit", "lr": 1e-3}, **ONE)

    def test_frozen_weights_below_adapters_are_divided_too(self):
        self.assert_same_run(2, **LORA, precision="bf16", **EVALUATED)
        self.assert_same_run(3, **LORA)
        self.assert_same_run(3, method={"type": "qlora", "r": 8}, **EVALUATED)
        self.assert_same_run(3, method={"type": "qlora", "bits": 8, "r": 8}, **EVALUATED)
        self.assert_same_run(2, method={"type": "full", "freeze": ["layers.0"]})

    def test_tasks_and_families_have_the_bits_of_divided_gradients(self):
        self.assert_same_run(3, {**T5, "d_model": 64, "d_ff": 128}, task="seq2seq", **PAIRS)
        self.assert_same_run(2, UNTIED, task="reward", precision="bf16-master", **PAIRS)
        self.assert_same_run(3, **CLASSES, **PAIRS)
        self.assert_same_run(3, task="dpo", **PAIRS)
        self.assert_same_run(2, task="dpo", **LORA)
        self.assert_same_run(2, {**TODAY["gemma2"], "hidden_size": 64})
        self.assert_same_run(3, {**GLA, "hidden_size": 64})

    def test_offload_and_activation_checkpointing_change_no_bit(self):
        self.assert_no_bit_changes_where_parts_move("weights")

    def test_updates_in_the_backward_pass_change_no_bit(self):
        settings = {"optimizer": {"lr": 1e-3, "max_grad_norm": 0}, "batch": {"effective": 3}}
        for shard in ("states", "weights"):
            recipe = self.train(WIDE, shard, 3, **settings, memory={"shard": shard})
            self.assertIn("in the backward pass", json.loads(output("plan", recipe, "--devices", 3, "--threads", 1, "--json"))["variant"]["words"])
        self.assertTrue(self.files_of("states", 6) == self.files_of("weights", 6))
        whole, cut = (self.record_of(shard, 3)["planned"]["device_arena_bytes"] for shard in ("states", "weights"))
        self.assertLess(cut, whole)

    def test_bytes_sent_are_those_of_the_plan_and_evaluations_are_not_among_them(self):
        # Eight rows of sixteen train: each step has all of them.
        for settings in ({**FEW, "eval": {"every": 3}, "data": {"eval": 8}}, {**ONE, "precision": "bf16-master"}, LORA):
            recipe = self.train(WIDE, "sent", 3, **settings, memory={"shard": "weights", **OWN})
            planned = json.loads(output("plan", recipe, "--devices", 3, "--threads", 1, "--json"))["devices"]
            self.assertEqual(planned["shard"], "weights")
            self.assertEqual([rank["sent_bytes"] for rank in self.record_of("sent", 3)["ranks"]], [6 * planned["sent_bytes_per_step"]] * 3)

    def test_a_run_begins_with_a_saved_model_of_which_each_process_reads_its_part(self):
        output("train", tiny_recipe(self.folder, WIDE, "made", schedule={"max_steps": 1}), "--quiet")
        made = {"init": "weights", "model": str(self.folder / "made")}
        for settings in ({}, QLORA):
            found = []
            for shard in ("gradients", "weights"):
                recipe = tiny_recipe(self.folder, WIDE, shard, **{**LONG, **SHORT, **made, **settings, "memory": {"shard": shard, "loss_chunk": 64, **OWN}})
                output("train", recipe, "--devices", 3, "--threads", 1, "--quiet", "--overwrite")
                found.append((self.files_of(shard, 6), sum(rank["loaded_bytes"] for rank in self.record_of(shard, 3)["ranks"])))
            self.assertTrue(found[0] == found[1], settings)  # each byte is read by one of them

    def test_a_run_goes_on_in_any_stage_on_any_number_of_devices(self):
        settings = {**LONG, **FEW, "save": {"every": 5, "keep": "all"}}
        output("train", tiny_recipe(self.folder, WIDE, "whole", **settings), "--threads", 1, "--quiet")
        recipe = tiny_recipe(self.folder, WIDE, "moves", **settings, memory={"shard": "weights"})
        output("train", recipe, "--devices", 3, "--threads", 1, "--quiet")
        out = self.folder / "moves"
        begun = self.files_of("moves", STEPS)
        for last, devices, shard in ((15, 3, "gradients"), (10, 2, "weights"), (15, 1, "auto"), (10, 4, "weights"), (15, 4, "states"), (10, 2, "none"),
                                      (15, 3, "weights")):
            for checkpoint in out.glob("checkpoint-*"):
                if int(checkpoint.name.partition("-")[2]) > last:
                    shutil.rmtree(checkpoint)
            done = run("train", recipe, "--resume", "--devices", devices, "--threads", 1, "--set", f"memory.shard={shard}")
            self.assertEqual(done.returncode, 0, done.stderr)
            if shard == "gradients":  # as if it had never stopped
                self.assertTrue(self.files_of("moves", STEPS) == begun)
            for own, other in zip(losses_of(self.folder / "whole"), losses_of(out), strict=True):
                self.assertAlmostEqual(own, other, delta=1e-5)

    def test_plans_are_compared_chosen_and_refused_by_name(self):
        recipe = tiny_recipe(self.folder, {**WIDE, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 6}, "run", batch={"effective": 8, "micro": 1})
        rows = json.loads(output("plan", recipe, "--json", "--devices", 2, "--memory", "1GiB", "--threads", 1, "--compare", "shard=gradients,weights"))["rows"]
        self.assertTrue(all(row["feasible"] and row["same_result"] for row in rows), rows)
        self.assertLess(rows[1]["device_bytes"], rows[0]["device_bytes"])
        self.assertGreater(rows[1]["sent_bytes_per_step"], rows[0]["sent_bytes_per_step"])
        smallest = lambda shard: json.loads(output("plan", recipe, "--json", "--threads", 1, "--devices", 2, "--set", f"memory.shard={shard}"))["smallest"]["memory_bytes"]  # noqa: E731
        gradients, weights = smallest("gradients"), smallest("weights")
        self.assertLess(weights, gradients)
        words = ("--threads", 1, "--devices", 2, "--memory", f"{weights + gradients}B", "--set", "memory.headroom=0%")
        self.assertIn("memory.shard=weights", output("plan", recipe, *words, "--set", "memory.shard=gradients", code=3))
        self.assertEqual(json.loads(output("plan", recipe, *words, "--json"))["devices"]["shard"], "weights")  # auto takes what fits
        output("train", recipe, *words, "--set", "schedule.max_steps=2", "--quiet")
        for settings, said in ((("optimizer.name=adafactor",), "optimizer.name: adafactor"), (("method.type=lora", "method.dora=true"), "method.dora: true"),
                               (("method.type=lora", "method.init=pissa"), "method.init: pissa")):
            for stated, words in (("memory.shard=weights", "memory.shard: weights"), ("memory.tier=stage3", "memory.tier: stage3, which divides weights,")):
                refused = output("plan", recipe, "--devices", 2, *sets(stated, *settings), code=2)
                self.assertIn(f"devices: 2: {words} with {said} is not supported with several devices yet; set memory.shard to ", refused)
                advised = re.search(r"set (memory.shard) to (\w+)", refused)
                output("plan", recipe, "--devices", 2, *sets(*settings, f"{advised[1]}={advised[2]}"))

    def test_a_tier_says_what_is_divided_and_what_is_offloaded(self):
        parts = {"deepspeed": ("gradients", "none"), "stage2_offload": ("gradients", "[states]"), "stage3": ("weights", "none"),
                 "minimal": ("weights", "[states,gradients,weights]")}
        recipe = tiny_recipe(self.folder, LARGE, "run", **{**LONG, **SHORT, **FEW})
        room = ("--devices", 2, "--threads", 1, *sets("memory.disk=1GiB", "memory.loss_chunk=64"))
        plan = lambda *stated: json.loads(output("plan", recipe, "--json", *room, *sets(*stated)))  # noqa: E731
        offloaded, bits = set(), {}
        for tier, (shard, away) in parts.items():
            of_tier, stated = plan(f"memory.tier={tier}"), plan(f"memory.shard={shard}", f"memory.offload={away}")
            self.assertEqual((of_tier["devices"]["shard"], of_tier["variant"]["keys"]["memory.shard"]), (shard, shard))
            for key in ("device", "variant", "disk", "predicted"):
                self.assertEqual({**of_tier[key], "keys": 0}, {**stated[key], "keys": 0}, f"{tier}: {key}")
            offloaded.add(json.dumps(of_tier["variant"]["offload_to"]))
            keys = of_tier["variant"]["keys"]
            self.assertIsNone(keys["memory.tier"])
            fixed = plan(f"memory.tier={tier}", *(f"{key}={json.dumps(value)}" for key, value in keys.items()))
            self.assertEqual((fixed["devices"]["shard"], fixed["device"]), (shard, of_tier["device"]))
            output("train", recipe, *room, *sets(f"memory.tier={tier}"), "--quiet", "--overwrite")
            bits[tier] = self.files_of("run", 6)
            self.assertEqual(json.loads((self.folder / "run/run.json").read_text())["planned"]["device_arena_bytes"], of_tier["device"]["arena_bytes"])
        self.assertEqual(len(offloaded), 3)
        self.assertTrue(all(each == bits["deepspeed"] for each in bits.values()))
        # Where the stage is stated, the tier says what is offloaded, as on one device: ZeRO-3 with offload_optimizer, ZeRO-1 with it.
        for tier, shard, away in (("stage3", "weights", "[states,gradients]"), ("stage2_offload", "states", "[states]"), ("minimal", "none", parts["minimal"][1])):
            of_tier, stated = plan(f"memory.tier={tier}", f"memory.shard={shard}"), plan(f"memory.shard={shard}", f"memory.offload={away}")
            self.assertEqual((of_tier["devices"]["shard"], of_tier["variant"]["offload_to"]), (shard, stated["variant"]["offload_to"]))
        # One that fits in another stage alone names it.
        least = lambda *stated: json.loads(output("plan", recipe, "--json", *room, *sets(*stated)))["smallest"]["memory_bytes"]  # noqa: E731
        gradients, weights = least("memory.tier=deepspeed"), least("memory.tier=stage3")
        self.assertLess(weights, gradients)
        refused = output("plan", recipe, *room, "--memory", f"{weights + gradients}B", *sets("memory.tier=deepspeed", "memory.headroom=0%"), code=3)
        self.assertIn("memory.shard=weights", refused)
        self.assertIn("memory.tier: on a CPU what leaves the arena goes to disk", output("plan", recipe, "--devices", 2, *sets("memory.tier=minimal"), code=2))
        output("plan", recipe, "--devices", 2, *sets("memory.tier=stage3"))  # nothing leaves it


if __name__ == "__main__":
    command_run.main(testLoader=SuiteLoader("divided_weights_test", ("assert_same_run",)))
