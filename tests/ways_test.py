"""A refusal ends in commands that work: each one printed is run, fits, and takes what its line says.

Usage: ways_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import train_test
from shard import is_mine
from train_test import ROOT, recipe, run

QWEN = str(ROOT / "examples/qwen2.5-0.5b-lora/recipe.yaml")
MISTRAL = str(ROOT / "examples/mistral-7b-lora/recipe.yaml")
QWEN_MODEL = str(Path(QWEN).parent)
MISTRAL_MODEL = str(Path(MISTRAL).parent)
REFUSED = (
    (QWEN, "--memory", "800MiB"), (QWEN, "--memory", "1GiB"), (QWEN, "--memory", "600MiB", "--length", "2048"),
    (QWEN, "--memory", "1GiB", "--micro-batch", "4", "--set", "memory.offload=none"),
    (QWEN, "--memory", "1.2GiB", "--set", "memory.recompute=none", "--micro-batch", "16"),
    (QWEN, "--memory", "700MiB", "--method", "qlora", "--length", "4096"),
    (QWEN, "--memory", "1GiB", "--disk", "64MiB", "--set", "memory.offload=[weights]"),
    (QWEN_MODEL, "--memory", "600MiB", "--disk", "1GiB", "--method", "full"),
    (QWEN_MODEL, "--memory", "800MiB", "--disk", "1GiB", "--method", "full", "--length", "2048"),
    (QWEN_MODEL, "--memory", "400MiB", "--disk", "128MiB", "--method", "qlora"),
    (QWEN_MODEL, "--memory", "3GiB", "--method", "full", "--length", "1024"),
    (QWEN_MODEL, "--memory", "5GiB", "--method", "full", "--length", "512", "--batch", "8"),
    (QWEN_MODEL, "--memory", "2GiB", "--method", "full", "--precision", "fp32"),
    (QWEN_MODEL, "--memory", "1500MiB", "--method", "lora", "--rank", "256"),
    (QWEN_MODEL, "--memory", "900MiB", "--method", "lora", "--precision", "fp32"),
    (QWEN_MODEL, "--memory", "3GiB", "--host-memory", "1GiB", "--method", "full", "--set", "device=card"),
    (MISTRAL, "--memory", "8GiB"), (MISTRAL, "--memory", "6GiB"), (MISTRAL, "--memory", "12GiB", "--length", "4096"),
    (MISTRAL, "--memory", "4GiB", "--method", "qlora"),
    (MISTRAL_MODEL, "--memory", "24GiB", "--method", "full"),
    (MISTRAL_MODEL, "--memory", "40GiB", "--method", "full", "--length", "2048", "--batch", "8"),
    (MISTRAL_MODEL, "--memory", "24GiB", "--method", "full", "--optimizer", "adamw8bit"),
)


class WaysTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def call(self, command, *more):
        """A printed command as a shell takes it."""
        words = shlex.split(command)
        self.assertEqual(words[0], "plimsoll")
        return run(*words[1:], *more)

    def test_the_least_memory_is_offered_as_a_budget_where_estimates_find_nothing_for_it(self):
        """70B with all on disk, in segments of two: deep models are known by segments of three."""
        (self.folder / "config.json").write_text(json.dumps({
            "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
            "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 8192, "tie_word_embeddings": False}))
        words = (self.folder, "--device", "card", "--method", "full", "--length", 2048, "--host-memory", "128GiB", "--disk",
                 "2TiB", "--max-isa", "avx2")
        report = json.loads(run("plan", *words, "--memory", "4GiB", "--json").stdout)
        larger = [way for way in report["ways"] if way["effect"] == "same result, on a machine with as much"]
        self.assertEqual(len(larger), 1, report["ways"])
        self.assertEqual(self.call(larger[0]["command"]).returncode, 0, larger)

    def test_twenty_refused_plans_end_in_commands_that_do_what_they_say(self):
        self.assertGreaterEqual(len(REFUSED), 20)
        for words in (words for number, words in enumerate(REFUSED) if is_mine("ways", number)):
            text = run("plan", *words, "--max-isa", "avx2")
            self.assertEqual(text.returncode, 3, f"{words}\n{text.stdout}{text.stderr}")
            report = json.loads(run("plan", *words, "--max-isa", "avx2", "--json").stdout)
            ways = report["ways"]
            self.assertTrue(ways, f"{words}\n{text.stderr}")
            same = [way["same_result"] for way in ways]
            self.assertEqual(same, sorted(same, reverse=True), "lossless ones come first")
            # Both stop looking after some seconds of the processor, which are never quite the same.
            printed = [line.strip() for line in text.stderr.splitlines() if line.strip().startswith("plimsoll ")]
            commands = [way["command"] for way in ways]
            self.assertTrue(printed and (set(printed) <= set(commands) or set(commands) <= set(printed)), text.stderr)
            for way in ways:
                done = self.call(way["command"], "--json")
                self.assertEqual(done.returncode, 0, f"{words}\n{way['command']}\n{done.stderr}")
                planned = json.loads(done.stdout)
                self.assertTrue(planned["feasible"])
                card = "device=card" in words  # its own memory is what its budget bounds
                self.assertEqual(planned["device"]["arena_bytes"] if card else planned["process"]["planned_peak_rss_bytes"],
                                 way["memory_bytes"], way)
                self.assertEqual(planned["disk"]["planned_bytes"], way["disk_bytes"])
                if asked := re.search(r"--disk (\d+)([MG])iB", way["command"]):  # no more than what it takes, in a size that people type
                    self.assertLess(int(asked[1]) << {"M": 20, "G": 30}[asked[2]], 1.5 * way["disk_bytes"] + (16 << 20), way)
                self.assertEqual(planned["predicted"]["seconds_per_step"], way["seconds_per_step"])

    def test_a_disk_that_is_too_small_is_offered_as_a_larger_one(self):
        words = (QWEN, "--memory", "800MiB", "--disk", "64MiB", "--max-isa", "avx2")
        refused = run("plan", *words)
        self.assertEqual(refused.returncode, 3, refused.stderr)
        larger = re.search(r"same result, with a larger disk: .* of disk, (.*) a step\n +(plimsoll .*)", refused.stderr)
        self.assertTrue(larger, refused.stderr)
        self.assertRegex(larger[1], r"^[\d,]+ min( \d+ s)?$")  # as the report says it, not 6:51
        self.assertEqual(self.call(larger[2]).returncode, 0, larger[2])

    def effects(self, *words):
        """What each way of a refusal is; every command does what it says."""
        done = run("plan", *words, "--max-isa", "avx2", "--json")
        self.assertEqual(done.returncode, 3, done.stderr)
        ways = json.loads(done.stdout)["ways"]
        for way in ways:
            planned = self.call(way["command"], "--json")
            self.assertEqual(planned.returncode, 0, f"{way['command']}\n{planned.stderr}")
            self.assertEqual(json.loads(planned.stdout)["disk"]["planned_bytes"], way["disk_bytes"], way)
        return {way["effect"]: way["command"] for way in ways}

    def test_devices_that_divide_a_disk_are_offered_one_for_all_of_them(self):
        effects = self.effects(QWEN_MODEL, "--method", "full", "--device", "card", "--memory", "2GiB", "--host-memory", "2GiB",
                               "--disk", "16MiB", "--devices", "2")
        self.assertIn("same result, with a larger disk", effects)

    def test_a_larger_disk_is_offered_where_it_relieves_the_host(self):
        effects = self.effects(MISTRAL_MODEL, "--method", "qlora", "--device", "card", "--memory", "10GiB", "--host-memory", "2GiB",
                               "--disk", "64MiB", "--set", "memory.offload=[weights, states, gradients]")
        self.assertIn("--host-memory 2GiB", effects["same result, with a larger disk"])

    def test_where_nothing_fits_the_memory_the_least_that_does_is_named_for_the_run_and_its_smallest_method(self):
        """Its embeddings alone are more than the memory: no disk and no method helps by itself."""
        words = (MISTRAL_MODEL, "--method", "full", "--memory", "300MiB", "--disk", "2GiB", "--batch", "1")
        effects = self.effects(*words)
        self.assertIn("same result, on a machine with as much", effects)
        with_disk = effects["same result, with a larger disk, on a machine with as much"]
        with_method = effects["trains adapters on 4-bit weights, with a larger disk, on a machine with as much"]
        self.assertIn("--method qlora", with_method)
        memory = [int(re.search(r"--memory (\d+)MiB", command)[1]) for command in (with_method, with_disk)]
        self.assertLess(memory[0], memory[1])

    def test_shorter_rows_with_a_larger_disk_are_offered_where_neither_does_alone(self):
        effects = self.effects(QWEN_MODEL, "--method", "qlora", "--memory", "600MiB", "--disk", "16MiB", "--length", "8192")
        self.assertTrue([one for one in effects if re.fullmatch(r"rows of at most [\d,]+ tokens, with a larger disk", one)], effects)

    def test_a_card_and_a_host_that_are_both_short_are_both_named_and_a_larger_host_is_offered(self):
        for words, both in (((MISTRAL_MODEL, "--method", "full", "--gpu", "RTX 4090", "--host-memory", "400MiB", "--length", "512"), True),
                            ((MISTRAL_MODEL, "--method", "full", "--gpu", "RTX 4090", "--host-memory", "16GiB", "--length", "512"), False)):
            refused = run("plan", *words, "--max-isa", "avx2")
            self.assertEqual(refused.returncode, 3, refused.stderr)
            self.assertRegex(refused.stderr, r"does not fit   device needs [\d.]+ GiB, 24.0 GiB may be used \(RTX 4090 24GB\)")
            host = re.search(r"and host needs (\d+) MiB, 400 MiB may be used \(memory.host: 400 MiB\)\n", refused.stderr)
            self.assertEqual(bool(host), both, refused.stderr)
            least = re.search(r"smallest possible: [\d.]+ GiB(?: and (\d+) MiB of the host)? \(", refused.stderr)
            self.assertEqual(least[1], host[1] if both else None, "what the host needs is said as part of the least")
            larger = re.search(r"same result, with (\d+) GiB of host memory: .*\n +(plimsoll .*)", refused.stderr)
            self.assertTrue(larger, refused.stderr)
            self.assertIn(f"--host-memory {larger[1]}GiB", larger[2])
            commands = re.findall(r"^ +(plimsoll .*)", refused.stderr, re.MULTILINE)
            self.assertEqual(len(set(commands)), len(commands))
            for command in commands:
                self.assertEqual(self.call(command).returncode, 0, command)

    def test_a_tier_that_holds_the_planner_back_is_let_go_by_its_own_key(self):
        words = (MISTRAL_MODEL, "--method", "full", "--device", "card", "--memory", "12GiB", "--host-memory", "128GiB", "--set", "memory.tier=stage3",
                 "--max-isa", "avx2")
        refused = run("plan", *words)
        self.assertEqual(refused.returncode, 3, refused.stderr)
        self.assertNotIn("memory.offload=auto", refused.stderr)
        self.assertRegex(refused.stderr, r"lossless ways that fit:\n.*--set memory.tier=null")
        self.assertEqual(run("plan", *words, "--set", "memory.tier=null").returncode, 0)
        self.assertTrue([way for way in json.loads(run("plan", *words, "--json").stdout)["ways"] if "memory.tier=null" in way["command"]])

    def test_what_keeps_the_result_says_so_and_what_does_not_says_what_it_changes(self):
        ways = json.loads(run("plan", MISTRAL, "--memory", "8GiB", "--json").stdout)["ways"]
        effects = {re.search(r"--(disk|method|length)|$", way["command"])[1]: way for way in ways}
        self.assertTrue(effects["disk"]["same_result"])
        self.assertFalse(effects["method"]["same_result"])
        self.assertIn("4-bit", effects["method"]["effect"])

    def test_smaller_states_save_no_more_than_states_are(self):
        """Also in a plan that fetches some of its layers."""
        plan = json.loads(run("plan", MISTRAL, "--memory", "12GiB", "--host-memory", "32GiB", "--gpu", "RTX 3060 12GB", "--json").stdout)
        saved = {saving["means"]: plan["device"]["arena_bytes"] - saving["device_bytes"] for saving in plan["would_save"]}
        trained = 3_407_872  # parameters of rank 8 beside q_proj and v_proj, whose states are of 8 bytes
        self.assertLess(saved.get("adamw8bit", 0), 8 * trained)
        self.assertTrue(saved, plan["would_save"])

    def test_4_bits_save_what_the_same_variant_takes_less_with_them(self):
        """Also in a plan that fetches some of its layers."""
        words = ("plan", MISTRAL, "--memory", "12GiB", "--host-memory", "32GiB", "--gpu", "RTX 3060 12GB", "--json")
        plan = json.loads(run(*words).stdout)
        self.assertIn("weights of 22 of 32 layers on the host", plan["variant"]["words"])
        saving = next(one for one in plan["would_save"] if one["means"] == "nf4")
        sets = [word for key, value in plan["variant"]["keys"].items() for word in ("--set", f"{key}={json.dumps(value)}")]
        with_it = json.loads(run(*words, "--method", "qlora", *sets).stdout)
        self.assertEqual(with_it["variant"]["words"], plan["variant"]["words"])
        self.assertAlmostEqual(saving["device_bytes"] / with_it["device"]["arena_bytes"], 1, delta=0.01)

    def test_a_refused_training_ends_in_commands_that_train(self):
        path = recipe(self.folder, memory={"device": "40MiB"}, data={"max_length": 256}, batch={"effective": 32, "micro": 32})
        refused = run("train", path)
        self.assertEqual(refused.returncode, 3, refused.stderr)
        commands = [line.strip() for line in refused.stderr.splitlines() if line.strip().startswith("plimsoll train ")]
        self.assertTrue(commands, refused.stderr)
        self.assertFalse((self.folder / "run").exists())
        for command in commands:
            done = self.call(command, "--quiet", *(() if command == commands[0] else ("--overwrite",)))
            self.assertEqual(done.returncode, 0, f"{command}\n{done.stderr}")
            self.assertTrue((self.folder / "run/run.json").exists())

    def test_a_command_is_quoted_for_the_shell(self):
        odd = self.folder / "a folder of 'mine'"
        shutil.copytree(QWEN_MODEL, odd)
        for way in json.loads(run("plan", odd, "--memory", "800MiB", "--json").stdout)["ways"]:
            self.assertEqual(shlex.split(way["command"])[2], str(odd))
            self.assertEqual(self.call(way["command"]).returncode, 0)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train_test.PLIMSOLL = Path(sys.argv.pop(1)).resolve()
    os.environ.pop("PLIMSOLL_SET", None)
    unittest.main()
