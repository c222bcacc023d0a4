#!/usr/bin/env python3
"""plimsoll fit, and plans of models that are known by name: python3 tests/fit_test.py PLIMSOLL FAKE_NVML

Goldens are tests/golden/fit-*.txt; PLIMSOLL_GOLDEN=write writes them. Standard library and what tests share."""
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import command_run
from command_run import ROOT, built_library, not_sanitized, output, run
from shard import SuiteLoader

LIBRARY = built_library("fake_nvml")
SHAPES = [json.loads(line) for line in (ROOT / "src/models/model-shapes.jsonl").read_text().splitlines()]
# A card and its host, so that nothing is asked of this machine; its instructions choose nothing of a card's plan.
CARD = ("--gpu", "RTX 3060 12GB", "--host-memory", "24GiB")
GIB = 2**30


def shape(name):
    return next(row for row in SHAPES if row["name"] == name)


class FitCase(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = {**os.environ, "HF_HUB_CACHE": str(self.folder / "hub"), "PLIMSOLL_CACHE_DIR": str(self.folder / "cache"),
                            "PLIMSOLL_NO_PROBE": "1", "CUDA_VISIBLE_DEVICES": ""}

    def fit(self, *words, code=0, cwd=None, **environment):
        return output("fit", *words, code=code, cwd=cwd, env={**self.environment, **environment})

    def fit_json(self, *words, code=0):
        done = run("fit", *words, "--json", env=self.environment)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout)

    def plan(self, *words, code=0):
        done = run("plan", *words, env=self.environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def config(self, folder, config):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def cached(self, name, config):
        """A model in the Hugging Face cache."""
        repository = self.folder / "hub" / ("models--" + name.replace("/", "--"))
        self.config(repository / "snapshots" / "abc", config)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text("abc")


class Screens(FitCase):
    def compare(self, name, text):
        golden = ROOT / "tests/golden" / name
        if os.environ.get("PLIMSOLL_GOLDEN") == "write":
            golden.write_text(text)
        self.assertEqual(text, golden.read_text(), f"{name}: read the difference; PLIMSOLL_GOLDEN=write writes it")

    def test_a_screen_of_100_columns(self):
        self.compare("fit-100.txt", self.fit("qwen2.5-0.5b", *CARD, COLUMNS="100"))

    def test_a_screen_of_80_columns_has_speeds_below_bytes(self):
        self.compare("fit-80.txt", self.fit("qwen2.5-0.5b", *CARD, COLUMNS="80"))

    def test_a_screen_where_little_fits(self):
        words = ("--memory", "6GiB", "--lengths", "512,4096,65536", "--gpu", "RTX 3060 12GB", "--host-memory", "4GiB")
        self.compare("fit-little.txt", self.fit("Qwen/Qwen2.5-1.5B", *words, COLUMNS="100"))

    def test_no_cell_touches_the_next_on_a_fast_card(self):
        for columns in (80, 100):
            text = self.fit("smollm2-135m", "--gpu", "H200", "--lengths", "512,1024,2048,4096", COLUMNS=str(columns))
            self.assertNotRegex(text, r"(tok/s|GiB|MiB|tokens)[^\s,;:.)]")
            self.assertRegex(text, "[0-9]{3},[0-9]{3} tok/s|[0-9] M tok/s")

    def test_host_memory_that_is_not_stated_is_named(self):
        words = ("--gpu", "RTX 3060 12GB", "--lengths", "512,2048")
        text = self.fit("qwen2.5-7b", *words, COLUMNS="80")
        self.assertIn("RTX 3060 12GB: 12.0 GiB, any amount of host memory (--host-memory), bf16\n", text)
        self.assertRegex(text, r"\n  what fits takes up to [0-9.]+ [GM]iB of host memory\n")
        stated = self.fit("qwen2.5-7b", *words, "--host-memory", "24GiB")
        self.assertNotIn("any amount", stated)
        self.assertNotIn("takes up to", stated)

    def test_rows_without_speeds_take_one_line(self):
        words = ("--gpu", "RTX 3060 12GB", "--host-memory", "2GiB", "--methods", "full")
        done = run("fit", "qwen2.5-7b", *words, env={**self.environment, "COLUMNS": "80"})
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stdout, "(?m)^  full .*\n\n  nothing of it fits")

    def test_lines_stay_within_the_screen(self):
        for columns in (60, 80, 100):
            for line in self.fit("qwen2.5-0.5b", *CARD, COLUMNS=str(columns)).splitlines():
                if not line.startswith("    plimsoll "):
                    self.assertLessEqual(len(line), columns, line)


class Cells(FitCase):
    def test_a_cell_is_the_plan_of_its_command(self):
        told = self.fit_json("qwen2.5-0.5b", *CARD, "--lengths", "512,8192", "--methods", "lora,full")
        self.assertEqual((told["model"], told["parameters"], told["task"], told["shape"], told["differs"], told["fits"]),
                         ("Qwen/Qwen2.5-0.5B", 494032768, "sft", "catalogue", [], True))
        [device] = told["devices"]
        self.assertEqual((device["device"], device["kind"], device["precision"], device["host_budget_bytes"]),
                         ("RTX 3060 12GB", "gpu", "bf16", 24 * GIB))
        self.assertEqual([(cell["method"], cell["length"]) for cell in device["cells"]],
                         [("lora", 512), ("lora", 8192), ("full", 512), ("full", 8192)])
        for cell in device["cells"]:
            plan = json.loads(self.plan("qwen2.5-0.5b", *CARD, "--json", "--method", cell["method"], "--length", cell["length"]).stdout)
            self.assertTrue(plan["feasible"])
            self.assertEqual(cell["memory_bytes"], plan["device"]["arena_bytes"] + plan["device"]["outside_bytes"])
            self.assertEqual(cell["host_bytes"], plan["host"]["planned_peak_bytes"])
            self.assertEqual(cell["variant"], plan["variant"]["words"])
            self.assertEqual(cell["tokens_per_second"], plan["predicted"]["tokens_per_second"])

    def test_what_does_not_fit_names_the_least_and_is_exit_code_3(self):
        words = ("--gpu", "RTX 3060 12GB", "--host-memory", "2GiB", "--lengths", "512,1024", "--methods", "full")
        told = self.fit_json("qwen2.5-7b", *words, code=3)
        self.assertFalse(told["fits"])
        for cell in told["devices"][0]["cells"]:
            self.assertFalse(cell["fits"])
            self.assertIsNone(cell["tokens_per_second"])
            plan = json.loads(self.plan("qwen2.5-7b", *words[:4], "--json", "--method", "full", "--length", cell["length"], code=3).stdout)
            self.assertEqual(cell["memory_bytes"], plan["smallest"]["memory_bytes"])
        done = run("fit", "qwen2.5-7b", *words, env=self.environment)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("nothing of it fits", done.stdout)
        self.assertNotIn("plimsoll init", done.stdout)

    def test_precision_follows_the_card(self):
        self.assertEqual(self.fit_json("smollm2-135m", "--gpu", "T4", "--lengths", "512")["devices"][0]["precision"], "f16")

    def test_this_machine_is_its_cpu_where_no_card_is(self):
        told = self.fit_json("smollm2-135m", "--memory", "3GiB", "--lengths", "256", "--max-isa", "avx2")
        [device] = told["devices"]
        self.assertEqual((device["kind"], device["budget_bytes"]), ("cpu", 3 * GIB))
        self.assertRegex(device["device"], "^CPU, [0-9]+ threads?$")
        self.assertTrue(device["fits"])

    def test_a_length_beyond_the_positions_is_no_plan(self):
        told = self.fit_json("bert-base-uncased", *CARD, "--lengths", "512,1024", "--methods", "full")
        self.assertEqual(told["task"], "classify")
        inside, beyond = told["devices"][0]["cells"]
        self.assertTrue(inside["fits"])
        self.assertEqual(beyond, {"method": "full", "length": 1024, "fits": False, "why_not": "the model knows 512 positions"})
        self.assertIn("-: longer than the model's 512 positions", self.fit("bert-base-uncased", *CARD, "--lengths", "512,1024"))

    def test_an_encoder_with_a_decoder_is_planned_for_its_task(self):
        self.assertEqual(self.fit_json("t5-small", *CARD, "--lengths", "256")["task"], "seq2seq")

    def test_printed_commands_work(self):
        for name in ("qwen2.5-0.5b", "bert-base-uncased"):
            text = self.fit(name, *CARD, "--lengths", "256", "--methods", "lora")
            [command] = re.findall("    plimsoll (plan .*)", text)
            self.assertIn("largest length", self.plan(*shlex.split(command)[1:]).stdout)


class Cards(FitCase):
    def test_each_model_of_card_and_the_cpu_have_a_block(self):
        cards = self.folder / "cards"
        uuids = [f"GPU-{letter * 8}-1111-2222-3333-444444444444" for letter in "abc"]
        cards.write_text("\n" + "".join(f"card {uuid} {12288 * 2**20} 0\nname NVIDIA GeForce RTX 3060\n\n" for uuid in uuids[:2]) +
                         f"card {uuids[2]} {15360 * 2**20} 0\nname Tesla T4\n\n")
        self.environment |= {"PLIMSOLL_NVML": str(LIBRARY), "FAKE_NVML": str(cards), "PLIMSOLL_NVML_SECONDS": "60,0.1",
                             "PLIMSOLL_EMULATED_CARDS": "1"}
        self.environment.pop("CUDA_VISIBLE_DEVICES")
        told = self.fit_json("smollm2-135m", "--lengths", "256", "--methods", "lora", "--memory", "3GiB")
        self.assertEqual([(device["kind"], device["precision"]) for device in told["devices"]],
                         [("gpu", "bf16"), ("gpu", "f16"), ("cpu", "bf16")], told)
        self.assertTrue(all(device["fits"] for device in told["devices"]))
        self.assertIn("3060", told["devices"][0]["device"])
        self.assertIn("T4", told["devices"][1]["device"])
        self.environment.pop("PLIMSOLL_EMULATED_CARDS")  # nothing here computes on such a card
        told = self.fit_json("smollm2-135m", "--lengths", "256", "--methods", "lora", "--memory", "3GiB")
        for device, card in zip(told["devices"], ("NVIDIA GeForce RTX 3060", "Tesla T4")):
            self.assertTrue(device["problem"].startswith("cannot be used: "), device)
            self.assertNotIn("--device cpu", device["problem"])
            self.assertIn(f". What fits such a card elsewhere: plimsoll fit HuggingFaceTB/SmolLM2-135M --gpu '{card}'", device["problem"])


class Names(FitCase):
    @not_sanitized("a hundred plans")
    def test_every_shape_plans_or_is_refused_by_name(self):
        trained = 0
        for row in SHAPES:
            kind = row["config"]["model_type"]
            task = {"t5": "seq2seq", "mt5": "seq2seq", "bert": "classify", "roberta": "classify", "xlm-roberta": "classify", "modernbert": "classify"}.get(kind, "sft")
            words = ["--json", "--gpu", "H200", "--method", "qlora", "--length", "128", "--batch", "1", "--set", f"task={task}"]
            if task == "classify":
                words += ["--set", "classify.labels=[no, yes]"]
            done = run("plan", row["name"], *words, env=self.environment)
            if done.returncode == 2:
                self.assertRegex(done.stderr, f"^error: {re.escape(row['name'])}: is known .*does not train it: .*('{kind}' is not supported|head size)")
                continue
            trained += 1
            self.assertEqual(done.returncode, 0, row["name"] + done.stderr)
            self.assertTrue(json.loads(done.stdout)["feasible"])
            self.assertIn(f"note    {row['name']}: its shape is that of the built-in catalogue", done.stderr)
        self.assertGreaterEqual(trained, 83)

    def test_a_plan_by_name_is_that_of_the_same_config(self):
        for name, *words in (("Qwen/Qwen2.5-7B", "--gpu", "RTX 4090"), ("google-t5/t5-base", "--set", "task=seq2seq", "--gpu", "T4"),
                             ("fla-hub/gla-1.3B-100B", "--memory", "8GiB", "--max-isa", "avx2"),
                             ("FacebookAI/roberta-base", "--set", "task=classify", "--set", "classify.labels=[a, b]", "--gpu", "T4")):
            folder = self.config(self.folder / name, shape(name)["config"])
            for more in ((), ("--json",), ("--explain",)):
                self.assertEqual(self.plan(name, *words, *more).stdout, self.plan(folder, *words, *more).stdout, (name, more))

    def test_names_that_are_nowhere_have_near_ones(self):
        for command in (("fit",), ("plan",)):
            text = output(*command, "qwen2.5-8b", code=2, env=self.environment)
            self.assertIn("nor is it in the catalogue of known models, where the nearest are", text)
            self.assertIn("Qwen/Qwen2.5-7B", text)
            self.assertIn("plimsoll fetch OWNER/qwen2.5-8b --config-only", text)
        self.assertNotIn("nearest", self.fit("zzzzzzzzzzzzzzz", code=2))

    def test_addresses_and_tags_are_understood(self):
        words = ("--gpu", "RTX 3060 12GB", "--lengths", "512", "--methods", "qlora")
        expected = self.fit("Qwen/Qwen2.5-0.5B", *words)
        for name in ("https://huggingface.co/Qwen/Qwen2.5-0.5B", "huggingface.co/Qwen/Qwen2.5-0.5B/tree/main", "Qwen/Qwen2.5-0.5B/"):
            self.assertEqual(self.fit(name, *words), expected, name)
        self.assertIn("on the Hugging Face hub the model is Qwen/Qwen2.5-7B", self.fit("qwen2.5:7b", code=2))
        self.assertIn("cannot be opened", self.fit("zzz:7b", code=2))

    def test_a_repository_of_quantised_weights_leads_to_its_base(self):
        for name in ("x/Qwen2.5-7B-Instruct-GGUF", "Qwen/Qwen2.5-7B-Instruct-AWQ", "unsloth/Qwen2.5-7B-Instruct-bnb-4bit"):
            text = self.fit(name, code=2)
            self.assertIn(f"{name}: holds weights quantised for ", text)
            self.assertIn("name the model that they are made of: Qwen/Qwen2.5-7B-Instruct", text)
        self.assertIn("name the model that they are made of: microsoft/phi-4", self.fit("bartowski/microsoft_phi-4-GGUF", code=2))

    def test_names_of_one_shape_may_have_other_positions(self):
        words = (*CARD, "--lengths", "65536", "--methods", "qlora")
        [cell] = self.fit_json("Qwen/Qwen3-4B", *words, code=3)["devices"][0]["cells"]
        self.assertEqual(cell["why_not"], "the model knows 40,960 positions")
        done = run("fit", "Qwen/Qwen3-4B-Instruct-2507", *words, "--json", env=self.environment)
        [cell] = json.loads(done.stdout)["devices"][0]["cells"]
        self.assertIsNone(cell["why_not"])
        self.plan("Qwen/Qwen2-0.5B", *CARD, "--method", "lora", "--max", "length")
        config = {**shape("Qwen/Qwen2.5-0.5B")["config"], "max_position_embeddings": 131072, "rope_theta": 5e5, "rms_norm_eps": 1e-5}
        folder = self.config(self.folder / "Qwen2-0.5B", config)
        self.assertEqual(self.fit_json(folder, *CARD, "--lengths", "512", "--methods", "lora")["differs"], [])

    def test_a_cached_model_is_named_as_its_owner_writes_it(self):
        self.cached("Qwen/Qwen2-0.5B", shape("Qwen/Qwen2.5-0.5B")["config"])
        text = self.fit("QWEN/qwen2-0.5b", *CARD, "--lengths", "512", "--methods", "lora")
        self.assertIn("    plimsoll init Qwen/Qwen2-0.5B rows.jsonl --method lora\n", text)
        self.assertNotIn("qwen2-0.5b", text)

    def test_bad_input(self):
        for words, message in ((("--lengths", "5x"), "--lengths: '5x' is not a length"), (("--lengths", "0"), "--lengths: '0'"),
                               (("--lengths", ",".join(map(str, range(1, 20)))), "19 lengths are more than the 16"),
                               (("--methods", "dora"), "--methods: 'dora' is not one of"),
                               (("--host-memory", "8GiB"), "--host-memory: is for the host of a GPU"),
                               (("--gpu", "GTX9"), "is not a card that is known"), (("--memory", "much"), "memory")):
            done = run("fit", "qwen2.5-0.5b", *words, env=self.environment)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(message, done.stderr)
            self.assertEqual(done.stdout, "")
        for name in ("a" * 5000, "", "\x1b[2J", "../" * 2000, "a/b/c"):
            self.fit(name, code=2)
        self.assertIn("For a recipe: plimsoll plan", self.fit(ROOT / "README.md", code=2))

    def test_a_config_that_is_here_decides_and_what_differs_is_named(self):
        config = {**shape("Qwen/Qwen2.5-7B")["config"], "vocab_size": 151936}
        folder = self.config(self.folder / "Qwen2.5-7B", config)
        self.cached("Qwen/Qwen2.5-7B", config)
        words = "config.json says vocab_size 151936, the catalogue 152064"
        for name in (folder, folder / "config.json", "Qwen/Qwen2.5-7B", "qwen2.5-7b", "qwen/qwen2.5-7b"):
            told = self.fit_json(name, *CARD, "--lengths", "512", "--methods", "qlora")
            self.assertEqual((told["shape"], told["differs"]),
                             ("config.json", [{"key": "vocab_size", "config": "151936", "catalogue": "152064"}]), name)
            self.assertEqual(told["parameters"], 7615616512 - 2 * 128 * 3584)
            self.assertIn(f"note    {words}", self.plan(name, *CARD, "--method", "qlora").stderr)
        self.assertIn(f"  note: {words}", self.fit(folder, *CARD, "--lengths", "512", "--methods", "qlora"))

    def test_a_config_alone_is_named_by_its_folder(self):
        folder = self.config(self.folder / "mine", shape("Qwen/Qwen2.5-0.5B")["config"])
        words = (*CARD, "--lengths", "512", "--methods", "lora")
        for name, where, told in ((folder / "config.json", None, folder), ("config.json", folder, "."), (folder, None, folder)):
            text = self.fit(name, *words, cwd=where)
            self.assertIn(f"    plimsoll init {told} rows.jsonl --method lora\n", text)
            self.assertNotIn("catalogue", text)
            self.assertNotIn("fetch", text)

    def test_training_and_rows_need_what_the_catalogue_lacks(self):
        self.assertIn("plimsoll fetch Qwen/Qwen2.5-7B\n", output("train", "qwen2.5-7b", code=2, env=self.environment))
        for name, words in (("openai/gpt-oss-20b", "this version does not train it"), ("x/Qwen2.5-7B-GGUF", "holds weights quantised for GGUF")):
            self.assertIn(words, output("train", name, code=2, env=self.environment))
        rows = self.folder / "rows.jsonl"
        rows.write_text('{"text": "a"}\n')
        refused = self.plan("qwen2.5-7b", "--set", f"data.train={rows}", code=2).stderr
        self.assertIn("data.train: rows are read with the tokenizer of Qwen/Qwen2.5-7B", refused)


class StatedRows(FitCase):
    def run_of(self, *words):
        return json.loads(self.plan("smollm2-135m", "--gpu", "T4", "--json", *words).stdout)

    def test_steps_and_time_of_rows_that_are_nowhere(self):
        told = self.run_of("--rows", "50000", "--tokens", "120", "--epochs", "3", "--batch", "16")
        self.assertEqual((told["run"]["steps"], told["run"]["epochs"], told["run"]["row_length"], told["run"]["tokens_per_step"]),
                         (9375, 3, 120, 50000 * 120 / 3125))
        self.assertGreater(told["run"]["seconds"], 0)
        self.assertIn("50,000 of 120 tokens on average are stated", " ".join(told["notes"]))
        self.assertIsNone(self.run_of()["run"])
        longer = self.run_of("--rows", "50000", "--tokens", "240", "--epochs", "3", "--batch", "16")
        self.assertGreater(longer["run"]["seconds"], told["run"]["seconds"])

    def test_rows_are_cut_to_the_length_and_packed(self):
        cut = self.run_of("--rows", "1000", "--tokens", "5000", "--length", "512")["run"]
        self.assertEqual(cut["row_length"], 512)
        packed = self.run_of("--rows", "50000", "--tokens", "120", "--set", "data.packing=true", "--batch", "16")["run"]
        self.assertLess(packed["steps"], 50000 / 16 / 4)

    def test_a_way_out_and_a_comparison_know_them_too(self):
        words = ("Qwen/Qwen2.5-1.5B", "--memory", "2GiB", "--max-isa", "avx2", "--method", "full", "--rows", "100", "--tokens", "50")
        ways = json.loads(self.plan(*words, "--json", code=3).stdout)["ways"]
        self.assertTrue(ways)
        for way in ways:
            self.assertIn(" --rows 100 --tokens 50", way["command"])
        self.plan("smollm2-135m", "--gpu", "T4", "--rows", "100", "--tokens", "50", "--compare", "method=lora,full")

    def test_what_is_no_count_and_rows_that_are_named_are_refused(self):
        for words in (("--rows", "5"), ("--tokens", "5"), ("--rows", "0", "--tokens", "5"), ("--rows", "-3", "--tokens", "5"),
                      ("--rows", "5", "--tokens", "1e99")):
            self.assertEqual(run("plan", "smollm2-135m", *words, env=self.environment).returncode, 2, words)
        refused = self.plan(ROOT / "examples/qwen2.5-0.5b-lora/recipe.yaml", "--set", f"data.train={ROOT}/demo/data/facts/train.parquet",
                            "--rows", "5", "--tokens", "5", code=2).stderr
        self.assertIn("--rows, --tokens: the recipe names rows (data.train), which are read", refused)


if __name__ == "__main__":
    command_run.main(testLoader=SuiteLoader("fit_test"))
