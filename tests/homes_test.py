"""Homes of parts, by layers: what `plan` chooses can be stated, what is stated is run in the planned bytes with the same bits, and
what cannot be is refused in a line.

Usage: homes_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from small_models import DELTA, LLAMA, ROOT, steps, tiny_recipe

PLIMSOLL = ROOT / "build" / "plimsoll"
MISTRAL = str(ROOT / "examples/mistral-7b-lora")
# Wide enough that tensors are large enough to be moved.
WIDE = {**LLAMA, "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 4}
# Layers that differ, as many as are counted by those that have a part in one place.
HYBRID = {**DELTA, "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 8, "full_attention_interval": 4, "layer_types": None}
SHAPE = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False}


def flow(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    return "null" if value is None else str(value)


class HomesTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def plimsoll(self, *words):
        return subprocess.run([str(PLIMSOLL), *map(str, words)], capture_output=True, text=True, timeout=600,
                              env={**os.environ, "PLIMSOLL_NO_PROBE": "1"})

    def plan(self, *words):
        done = self.plimsoll("plan", *words, "--json")
        self.assertIn(done.returncode, (0, 3), done.stderr)
        return json.loads(done.stdout)

    def test_the_printed_keys_lead_to_the_same_layout(self):
        card = ("--method", "full", "--length", "1024", "--batch", "8", "--gpu", "RTX 4090", "--host-memory", "32GiB", "--disk", "200GiB",
                "--set", "memory.recompute=block")
        chosen = self.plan(MISTRAL, *card)
        self.assertTrue(chosen["feasible"])
        homes = chosen["variant"]["offload_to"]
        self.assertTrue(any(isinstance(home, dict) for home in homes.values()), homes)  # one of them in part
        self.assertEqual(chosen["variant"]["keys"]["memory.offload_to"], homes)
        words = [word for key, value in chosen["variant"]["keys"].items() for word in ("--set", f"{key}={flow(value)}")]
        stated = self.plan(MISTRAL, *card, *words)
        for where, what in (("device", "arena_bytes"), ("device", "persistent_bytes"), ("host", "planned_peak_bytes"), ("disk", "planned_bytes"),
                            ("variant", "words"), ("predicted", "seconds_per_step")):
            self.assertEqual(stated[where][what], chosen[where][what], (where, what))
        text = self.plimsoll("plan", MISTRAL, *card).stdout
        self.assertIn("--set 'memory.offload_to=" + flow(homes) + "'", text)

    def test_printed_keys_state_levels_of_recomputation_too(self):
        seen = set()
        for words in (("--gpu", "RTX 4090", "--host-memory", "32GiB", "--disk", "200GiB", "--method", "full", "--length", "1024", "--batch", "8"),
                      ("--gpu", "RTX 3060", "--length", "4096", "--set", "memory.offload=none"),
                      ("--device", "card", "--memory", "4500MiB", "--host-memory", "16GiB", "--method", "qlora", "--length", "8192", "--micro-batch", "1"),
                      ("--device", "card", "--memory", "7700MiB", "--host-memory", "1GiB", "--method", "qlora", "--length", "8192", "--micro-batch", "1")):
            with self.subTest(words=words):
                chosen = self.plan(MISTRAL, *words)
                keys = chosen["variant"]["keys"]
                self.assertIn("memory.recompute", keys)
                seen.add("segment" if "segment" in keys["memory.recompute"] else type(keys["memory.recompute"]))
                stated = self.plan(MISTRAL, *words, *(word for key, value in keys.items() for word in ("--set", f"{key}={flow(value)}")))
                self.assertEqual(stated["variant"]["words"], chosen["variant"]["words"])
                self.assertEqual(stated["device"]["arena_bytes"], chosen["device"]["arena_bytes"])
                for key in ("batch.micro", "memory.recompute", "memory.offload_to"):
                    self.assertEqual(stated["variant"]["keys"][key], keys[key])
        self.assertIn(dict, seen)

    def test_what_a_host_and_a_card_cannot_hold_alone_fits_both(self):
        shape = self.folder / "shape"
        shape.mkdir()
        (shape / "config.json").write_text(json.dumps(SHAPE))
        words = (shape, "--method", "full", "--length", "2048", "--batch", "16", "--gpu", "A100 80GB", "--host-memory", "40GiB")
        report = self.plan(*words)
        self.assertTrue(report["feasible"])
        self.assertLessEqual(report["host"]["planned_peak_bytes"], 40 << 30)
        whole = self.plan(*words, "--set", "memory.offload_to={states: host}")
        self.assertFalse(whole["feasible"])
        self.assertTrue(self.plan("Qwen/Qwen3.5-9B", *words[1:])["feasible"])  # its layers differ

    def seconds(self, *words):
        report = self.plan(*words)
        self.assertTrue(report["feasible"], words)
        return report["predicted"]["seconds_per_step"]

    def test_a_deep_model_finds_what_lies_between_levels_that_are_too_slow_or_too_large(self):
        qwen = (str(ROOT / "examples/qwen2.5-0.5b-lora"), "--disk", "500MiB", "--set", "memory.tie=0%")
        before = float("inf")
        for memory in ("1150MiB", "1180MiB", "1200MiB", "1300MiB"):
            now = self.seconds(*qwen, "--memory", memory)
            self.assertLessEqual(now, before, memory)
            before = now
        card = (MISTRAL, "--device", "card", "--memory", "24GiB", "--host-memory", "4GiB", "--length", "4096", "--set", "memory.tie=0%")
        chosen = self.seconds(*card)
        for held in ("batch.micro=1", "memory.offload=none", "memory.prefetch=1", "memory.loss_chunk=128"):
            self.assertLessEqual(chosen, self.seconds(*card, "--set", held), held)

    def test_more_memory_is_not_slower_where_every_layout_misses_its_estimate(self):
        full = ("Mistral-7B-v0.1", "--method", "full", "--length", "1024", "--batch", "16", "--device", "card", "--host-memory", "64GiB",
                "--disk", "1000GiB", "--set", "memory.tie=1%")
        self.assertLessEqual(self.seconds(*full, "--memory", "57612827624B"), 1.0101 * self.seconds(*full, "--memory", "52000000000B"))

    def test_few_layers_are_moved_where_host_or_disk_have_room_for_few(self):
        qwen = str(ROOT / "examples/qwen2.5-0.5b-lora")
        for words in ((MISTRAL, "--device", "card", "--memory", "13GiB", "--host-memory", "3GiB"),
                      (MISTRAL, "--device", "card", "--memory", "12GiB", "--host-memory", "6GiB"),
                      (MISTRAL, "--device", "card", "--memory", "10GiB", "--host-memory", "8GiB", "--set", "memory.prefetch=2"),
                      (qwen, "--memory", "1100MiB", "--disk", "300MiB")):
            self.assertTrue(self.plan(*words)["feasible"], words)

    def test_printed_keys_can_be_stated_beside_a_stated_offload(self):
        words = (str(ROOT / "examples/qwen2.5-0.5b-lora"), "--memory", "4GiB", "--disk", "3GiB", "--set", "memory.offload=[states]")
        keys = self.plan(*words)["variant"]["keys"]
        stated = [word for key, value in keys.items() for word in ("--set", f"{key}={flow(value)}")]
        self.assertEqual(self.plan(*words, *stated)["variant"]["offload_to"], keys["memory.offload_to"])

    def test_an_alternative_without_room_on_the_disk_does_not_refuse_the_plan(self):
        words = (str(ROOT / "examples/qwen2.5-0.5b-lora"), "--memory", "8GiB", "--disk", "100KiB", "--set", "memory.offload_to={states: device}")
        self.assertTrue(self.plan(*words)["feasible"])

    def train(self, device, name, *words):
        recipe = tiny_recipe(self.folder, WIDE, name)
        # Rows of logits at a time are summed in their order.
        done = self.plimsoll("train", recipe, "--quiet", "--device", device, "--set", "memory.loss_chunk=48", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        run = self.folder / name
        record = json.loads((run / "run.json").read_text())
        for what in ("device_arena_bytes",):
            self.assertEqual(record["planned"][what], record["measured"][what])
        bits = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in run.rglob("*.safetensors")}
        self.assertTrue(bits)
        return [(step["loss"], step["grad_norm"]) for step in steps(run)], bits

    def test_runs_have_the_bits_of_keeping_all(self):
        several = {"emulated": ("{states: {disk: 1, host: 2}, gradients: {host: 3}, weights: {disk: 2, host: all}, activations: {host: 1}}",
                                "{states: host, gradients: disk, weights: {disk: 1}, activations: {disk: 1, host: 1}}"),
                   "cpu": ("{states: {disk: 3}, gradients: {disk: 1}, weights: {disk: 2}, activations: {disk: 1}}",)}
        for device, all_homes in several.items():
            resident = self.train(device, f"{device}-resident", "--set", "memory.offload_to={}")
            for i, homes in enumerate(all_homes):
                for prefetch in (0, 2):
                    with self.subTest(device=device, homes=homes, prefetch=prefetch):
                        words = ("--disk", "1GiB", "--set", f"memory.offload_to={homes}", "--set", f"memory.prefetch={prefetch}")
                        moved = self.train(device, f"{device}-{i}-{prefetch}", *words)
                        self.assertEqual(moved, resident)

    def test_parts_that_the_planner_puts_in_part_run_with_the_bits_of_keeping_all(self):
        for name, config in (("few", WIDE), ("hybrid", HYBRID)):
            with self.subTest(model=name):
                folder = self.folder / name
                folder.mkdir()
                recipe = tiny_recipe(folder, config, "run")
                words = ("--quiet", "--set", "memory.loss_chunk=48", "--set", "batch.micro=2", "--set", "memory.recompute=none")
                whole = self.plan(recipe, *words[1:], "--set", "memory.offload_to={}")
                for spare in range(1, 40):  # KiB below that, in steps of 32
                    memory = f"{whole['process']['planned_peak_rss_bytes'] // 1024 - 32 * spare}KiB"
                    tight = (*words, "--disk", "1GiB", "--memory", memory)
                    homes = self.plan(recipe, *tight[1:])["variant"]["offload_to"]
                    if any(isinstance(home, dict) for home in homes.values()):
                        break
                else:
                    self.fail("nothing is in part")
                runs = []
                for output, more in (("resident", (*words, "--set", "memory.offload_to={}")), ("tight", tight)):
                    done = self.plimsoll("train", recipe, *more, "--set", f"output={folder / output}")
                    self.assertEqual(done.returncode, 0, done.stderr)
                    record = json.loads((folder / output / "run.json").read_text())
                    self.assertEqual(record["planned"]["device_arena_bytes"], record["measured"]["device_arena_bytes"])
                    runs.append([(step["loss"], step["grad_norm"]) for step in steps(folder / output)])
                self.assertEqual(runs[0], runs[1])

    def test_what_cannot_be_stated_is_refused_in_a_line_with_the_most_that_can(self):
        recipe = tiny_recipe(self.folder, WIDE, "refused")
        for words, says in ((("--set", "memory.offload_to={states: {host: 1}}"), ("memory.offload_to: states", "0 at most")),
                            (("--disk", "1GiB", "--set", "memory.offload_to={states: {disk: 9}}"), ("memory.offload_to: states", "has 4", "state 4 at most")),
                            (("--set", "memory.offload_to={weights: disk}"), ("memory.offload_to: weights", "memory.disk is 0", "0 at most")),
                            (("--disk", "1GiB", "--device", "emulated", "--set", "memory.offload_to={states: {disk: 3, host: 2}}"), ("state 4 at most",)),
                            (("--disk", "2MiB", "--set", "memory.offload_to={states: {disk: 3}}"), ("memory.offload_to: states", "memory.disk is 2.00 MiB", "at most")),
                            (("--set", "memory.recompute={mlp: 5}"), ("memory.recompute: mlp: 5 layers", "has 4; state 4 at most")),
                            (("--set", "memory.recompute={block: all, segment: 5}"), ("memory.recompute: segment: 5 layers", "state 4 at most")),
                            (("--set", "memory.recompute={act: 1, mlp: 2}"), ("memory.recompute: expected",)),
                            (("--disk", "1GiB", "--set", "memory.offload_to={states: disk}", "--set", "memory.offload=none"), ("set one of them",))):
            with self.subTest(words=words):
                done = self.plimsoll("plan", recipe, "--memory", "1GiB", *words)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
                for part in says:
                    self.assertIn(part, done.stderr)

    def test_the_most_that_is_told_fits(self):
        recipe = tiny_recipe(self.folder, WIDE, "most")
        words = ("plan", recipe, "--memory", "1GiB", "--disk", "2MiB", "--set")
        refused = self.plimsoll(*words, "memory.offload_to={states: disk}")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        most = int(refused.stderr.split("{disk: ")[1].split("}")[0])
        self.assertGreater(most, 0)
        self.assertEqual(self.plimsoll(*words, f"memory.offload_to={{states: {{disk: {most}}}}}").returncode, 0)
        self.assertEqual(self.plimsoll(*words, f"memory.offload_to={{states: {{disk: {most + 1}}}}}").returncode, 2)


if __name__ == "__main__":
    PLIMSOLL = Path(sys.argv.pop(1)).resolve()
    unittest.main()
