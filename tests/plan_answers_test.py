"""The answers of `plimsoll plan` beside the report: --compare, --sweep, --max, --explain, --timeline, --html.

Usage: plan_answers_test.py PLIMSOLL (from the repository's root).
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

from shard import SuiteLoader
from small_models import BERT, LLAMA, tiny_recipe

PLIMSOLL = Path("build/plimsoll").resolve()
ROWS = Path("tests/golden/llama_lora/train.jsonl").resolve()
MISTRAL = "examples/mistral-7b-lora/recipe.yaml"
SMALL = "small.json"  # written by setUpModule, like the model it names
CONFIG = {"model_type": "qwen2", "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 8,
          "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 8000, "tie_word_embeddings": True,
          "max_position_embeddings": 4096}
RECIPE = {"model": "model", "data": {"max_length": 1024}, "method": {"type": "lora"},
          "batch": {"effective": 16}, "memory": {"device": "2GiB", "offload": "none"}}
FIXED = ("--max-isa", "avx2", "--set", "threads=1", "--no-probe")  # the same numbers on every machine, with no cache


def setUpModule():
    global SMALL
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    os.environ["PLIMSOLL_CACHE_DIR"] = folder.name + "/cache"  # rates that this machine's owner measured are not asked
    model = Path(folder.name) / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    SMALL = str(Path(folder.name) / "small.json")
    Path(SMALL).write_text(json.dumps(RECIPE))


def plan(*words, code=0, **options):
    done = subprocess.run([str(PLIMSOLL), "plan", *map(str, words), *FIXED], capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def plan_json(*words, code=0):
    return json.loads(plan(*words, "--json", code=code))


class Opens(unittest.TestCase):
    """Commands open the recipe and the files of its model once, and a plan no file of rows again: later opens fail here (tests/failing_files.cc)."""

    FILES = ("/recipe.json", "/config.json", "/tokenizer.json")
    RUN_FILES = ("/recipe.yaml", "/config.json", "/tokenizer.json")
    WORDS = "/tokenizer_config.json"  # which BERT's folder lacks

    CASES = {"lora": (LLAMA, {"method": {"type": "lora", "r": 4}}), "dpo": (LLAMA, {"task": "dpo"}),
             "words": (LLAMA, {"task": "classify", "classify": {"words": ["question", "order", "fact"]}}),
             "classify": ({**BERT, "id2label": {"0": "question", "1": "order", "2": "fact"}}, {"task": "classify"})}

    def setUp(self):
        self.shim = PLIMSOLL.parent / "tests/libfailing_files.so"
        self.assertTrue(self.shim.exists(), "build the target failing_files")

    def run_failing(self, recipe, *words, command="plan", fixed=FIXED, file=None, after=0):
        """Exit code, output and errors where every open of the file fails after so many; without a file nothing does."""
        fails = {"LD_PRELOAD": str(self.shim), "FAIL_CALL": "open", "FAIL_PATH": file, "FAIL_AFTER": str(after), "FAIL_ERRNO": "5"} if file else {}
        done = subprocess.run([str(PLIMSOLL), command, *map(str, (recipe, *words, *fixed))], capture_output=True, text=True, env={**os.environ, **fails}, timeout=600)
        return done.returncode, done.stdout, done.stderr

    def check(self, recipe, *words, command="plan", fixed=FIXED, files=FILES, code=0, timed=False):
        """What the command says; where that has seconds, its exit codes alone are compared."""
        run = lambda **fails: self.run_failing(recipe, *words, command=command, fixed=fixed, **fails)
        expected = run()
        self.assertEqual(expected[0], code, expected)
        for file in files:
            with self.subTest(command=command, file=file, words=words):
                again = run(file=file, after=1)
                self.assertEqual(again[:1] if timed else again, expected[:1] if timed else expected, again)
                self.assertNotIn(run(file=file)[0], (0, 3), "the library meets no open of the file")
        return expected[1] + expected[2]

    def opens(self, recipe, file, *words, command="plan"):
        """How often the command opens a file."""
        expected = self.run_failing(recipe, *words, command=command)
        return next(count for count in range(1, 20) if self.run_failing(recipe, *words, command=command, file=file, after=count) == expected)

    def recipe(self, name):
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        model, settings = self.CASES[name]
        return tiny_recipe(folder, model, "recipe", **settings)

    def files_of(self, name, files=FILES):
        return files if name == "classify" else (*files, self.WORDS)

    def trained(self, **settings):
        """A run of a model in full."""
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        recipe = tiny_recipe(folder, self.CASES["classify"][0] if settings.get("task") == "classify" else LLAMA, "run", **settings)
        subprocess.run([str(PLIMSOLL), "train", str(recipe), *FIXED], check=True, capture_output=True, timeout=600)
        return folder / "run", folder / "rows.jsonl"

    def test_previews_and_first_recipes_open_each_file_once(self):
        for name in self.CASES:
            recipe = self.recipe(name)
            self.check(recipe, command="preview", files=self.files_of(name))
            rows, made = recipe.parent / "rows.jsonl", recipe.parent / "first.yaml"
            files = self.files_of(name, ("/config.json", "/tokenizer.json"))
            self.check(recipe.parent / "model", rows, command="init", fixed=("--out", made, "--force"), files=files)

    def test_inference_opens_each_file_once(self):
        machine = ("--max-isa", "avx2", "--threads", 1)
        answer = ("--max-new-tokens", 2)
        run, rows = self.trained()
        inference = lambda run, *words, command, files: self.check(run, *words, command=command, fixed=machine, files=files, timed=True)
        files = (*self.RUN_FILES, self.WORDS)
        inference(run, "--data", rows, command="eval", files=files)
        inference(run, "--data", rows, "--generate", *answer, command="eval", files=files)
        inference(run, "--prompt", "hello", *answer, command="generate", files=files)
        run, rows = self.trained(task="reward")
        inference(run, "--prompt", "hello", "--response", "yes", command="score", files=files)
        run, rows = self.trained(task="classify")
        inference(run, "--text", "hello", command="classify", files=self.RUN_FILES)

    def test_a_plan_opens_each_file_once(self):
        for name in self.CASES:
            with self.subTest(name):
                self.check(self.recipe(name), "--memory", "1GiB", files=self.files_of(name))

    def test_plans_of_several_values_open_each_file_once(self):
        recipe = self.recipe("lora")
        self.check(recipe, "--memory", "1GiB", "--compare", "method.type=full,lora", "micro_batch=1,2")
        self.check(recipe, "--sweep", "memory=100MiB..2GiB")
        self.check(recipe, "--memory", "1GiB", "--explain")
        self.check(recipe, "--memory", "1GiB", "--max", "length")
        config = recipe.parent / "model/config.json"
        self.check(config, "--memory", "1GiB", "--compare", "length=16,32", "method.type=full,lora", files=("/config.json",))

    def test_a_refusal_with_its_advice_opens_each_file_once(self):
        for name in self.CASES:
            with self.subTest(name):
                recipe = self.recipe(name)
                said = self.check(recipe, "--memory", "41MiB", code=3, files=self.files_of(name))
                self.assertIn("what would fit", said)
                self.assertIn('"ways"', self.check(recipe, "--memory", "41MiB", "--json", code=3))
                self.assertEqual(self.opens(recipe, "/rows.jsonl", "--memory", "41MiB"), self.opens(recipe, "/rows.jsonl", "--memory", "1GiB"))

    def test_the_refusal_of_a_training_opens_each_file_once(self):
        recipe = self.recipe("lora")
        self.assertIn("plimsoll train", self.check(recipe, "--memory", "41MiB", command="train", code=3, files=self.files_of("lora")))
        self.assertEqual(self.opens(recipe, "/rows.jsonl", "--memory", "41MiB", command="train"), self.opens(recipe, "/rows.jsonl", "--memory", "1GiB"))


class Compare(unittest.TestCase):
    def test_rows_are_the_plans_of_their_values(self):
        rows = plan_json(SMALL, "--compare", "micro_batch=1,4")["rows"]
        for row, micro in zip(rows, (1, 4), strict=True):
            alone = plan_json(SMALL, "--set", f"batch.micro={micro}")
            self.assertEqual(row["device_bytes"], alone["device"]["arena_bytes"])
            self.assertEqual(row["seconds_per_step"], alone["predicted"]["seconds_per_step"])
            self.assertTrue(row["same_result"])

    def test_two_rows_are_compared_component_by_component(self):
        text = plan(SMALL, "--compare", "micro_batch=1,4", "--set", "memory.recompute=none")
        frozen = next(line for line in text.splitlines() if "weights (frozen)" in line)
        kept = next(line for line in text.splitlines() if "activations kept" in line)
        self.assertTrue(frozen.endswith("same"), text)
        self.assertRegex(kept, r"\+\S+ MiB$")
        rows = plan_json(SMALL, "--compare", "micro_batch=1,4", "--set", "memory.recompute=none")["rows"]
        for row in rows:
            self.assertEqual(sum(row["device_components"].values()), row["device_bytes"])
            self.assertEqual(sum(row["host_components"].values()), row["host_bytes"])

    def test_8_bit_states_are_compared_beside_bf16_pure(self):
        rows = plan_json(SMALL, "--set", "method.type=full", "--compare", "optimizer=adamw,adamw8bit", "precision=bf16,bf16-pure")["rows"]
        self.assertTrue(all("problem" not in row for row in rows), rows)
        states = {(row["set"]["optimizer.name"], row["set"]["precision"]): row["device_components"].get("optimizer states", 0) for row in rows}
        self.assertLess(states["adamw8bit", "bf16-pure"], states["adamw", "bf16-pure"])
        self.assertEqual(states["adamw8bit", "bf16-pure"], states["adamw8bit", "bf16"])

    def test_a_table_of_tiers_shows_what_each_could_do_with(self):
        asked = ("--set", "method.type=full", "--set", "memory.offload=null", "--device", "card", "--memory", "4GiB", "--host-memory", "8GiB", "--compare", "tier=deepspeed,stage2_offload,stage3,minimal")
        rows = plan_json(SMALL, *asked)["rows"]
        least = [row["least_bytes"] for row in rows]
        self.assertEqual(least, sorted(least, reverse=True), "what leaves the card makes room")
        self.assertTrue(all(row["least_bytes"] <= row["memory_bytes"] for row in rows))
        self.assertIn("least GiB", plan(SMALL, *asked))
        self.assertNotIn("least GiB", plan(SMALL, "--compare", "micro_batch=1,4"))

    def test_cards_are_compared_with_what_is_said_of_their_host(self):
        rows = plan_json(SMALL, "--compare", "gpu=RTX 3060 12GB,RTX 4090", "--host-memory", "8GiB")["rows"]
        for row in rows:
            alone = plan_json(SMALL, "--gpu", row["set"]["memory.gpu"], "--host-memory", "8GiB")
            self.assertEqual((row["device_bytes"], row["same_result"]), (alone["device"]["arena_bytes"], True))
        plan(SMALL, "--compare", "micro_batch=1,4", "--host-memory", "8GiB", code=2)  # a CPU's

    def test_all_combinations_of_methods_and_optimizers_from_a_recipe_with_lora_keys(self):
        rows = plan_json(SMALL, "--compare", "method=full,lora,qlora", "optimizer=adamw,adamw8bit",
                         "--memory", "150MiB", "--set", "method.r=8")["rows"]
        self.assertEqual(len(rows), 6)
        by_set = {(r["set"]["method.type"], r["set"]["optimizer.name"]): r for r in rows}
        self.assertFalse(by_set["full", "adamw"]["feasible"])
        self.assertEqual(by_set["full", "adamw"]["difference"], "other method")
        self.assertEqual(by_set["full", "adamw8bit"]["difference"], "other method, lossy states")
        self.assertTrue(by_set["lora", "adamw"]["same_result"])
        self.assertEqual(by_set["qlora", "adamw"]["difference"], "other method, lossy base")
        self.assertLess(by_set["full", "adamw8bit"]["device_bytes"], by_set["full", "adamw"]["device_bytes"])

    def test_what_does_not_fit_says_so(self):
        self.assertIn("does not fit 100 MiB", plan(SMALL, "--compare", "method=full,lora", "--memory", "100MiB"))

    def test_what_is_not_possible_says_so_in_its_row(self):
        rows = plan_json(SMALL, "--compare", "optimizer=adamw,adam17")["rows"]
        self.assertIn("device_bytes", rows[0])
        self.assertIn("adam17", rows[1]["problem"])
        self.assertIn("adam17", plan(SMALL, "--compare", "optimizer=adamw,adam17"))

    def test_what_only_planning_finds_impossible_says_so_in_its_row(self):
        rows = plan_json(SMALL, "--compare", "memory.keep_frozen=off,on")["rows"]
        self.assertTrue(rows[0]["feasible"])
        self.assertRegex(rows[1]["problem"], "memory.keep_frozen: on, but")

    def test_a_problem_of_several_rows_is_said_once(self):
        text = plan(SMALL, "--compare", "method=full,lora", "method.r=8,16")
        line, = [line for line in text.splitlines() if "has no effect" in line]
        self.assertTrue(line.startswith("  full, method.r 8; full, method.r 16: method.r: has no effect"), text)
        self.assertIn("lora, method.r 16", text)

    def test_a_list_of_values_is_joined_by_plus(self):
        row, = plan_json(SMALL, "--compare", "targets=q_proj+v_proj")["rows"]
        alone = plan_json(SMALL, "--set", "method.targets=[q_proj, v_proj]")
        self.assertEqual(row["device_bytes"], alone["device"]["arena_bytes"])

    def test_mistakes_are_usage_errors(self):
        plan(SMALL, "--compare", "micro_batch", code=2)
        plan(SMALL, "--compare", "no_such_key=1", code=2)
        plan(SMALL, "--compare", "micro_batch=1,2", "--timeline", code=2)


class Words(unittest.TestCase):
    def test_one_layer_is_one(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 1}))
            self.assertIn(", 1 layer of width ", plan(folder, "--memory", "8GiB"))
        self.assertIn(f", {CONFIG['num_hidden_layers']} layers of width ", plan(SMALL))


class Folders(unittest.TestCase):
    def test_a_model_of_few_positions_is_planned_with_rows_as_long_as_it_knows(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps({**CONFIG, "max_position_embeddings": 512}))
            self.assertEqual(plan_json(folder, "--memory", "8GiB")["variant"]["max_length"], 512)
            self.assertIn("length 512", plan(folder, "--memory", "8GiB"))
            for stated in (("--length", 1024), ("--set", "data.max_length=1024")):  # is what was asked for
                plan(folder, "--memory", "8GiB", *stated, code=2)
            rows = plan_json(folder, "--memory", "8GiB", "--compare", "length=256,1024")["rows"]
            self.assertIn("say data.max_length: 512, or less", rows[1]["problem"])


class Explain(unittest.TestCase):
    def test_components_are_those_of_the_report(self):
        report = plan_json(SMALL)
        explained = plan_json(SMALL, "--explain")
        self.assertEqual([(c["name"], c["bytes"]) for c in explained["device"]],
                         [(c["name"], c["bytes"]) for c in report["device"]["components"]])
        self.assertEqual(len(explained["host"]), len(report["host"]["components"]))

    def test_components_of_a_card_are_all_of_its_memory_and_each_says_what_it_is(self):
        words = (SMALL, "--gpu", "RTX 3060 12GB", "--host-memory", "8GiB", "--set", f"data={{train: {ROWS}, format: input-ids}}")
        explained, report = plan_json(*words, "--explain"), plan_json(*words)
        self.assertEqual(sum(c["bytes"] for c in explained["device"]), report["device"]["arena_bytes"] + report["device"]["outside_bytes"])
        self.assertEqual([(c["name"], c["bytes"]) for c in explained["host"]], [(c["name"], c["bytes"]) for c in report["host"]["components"]])
        self.assertEqual([c["name"] for c in explained["device"] + explained["host"] if not c["meaning"]], [])

    def test_batches_grow_with_length_and_effective_batch_and_weights_do_not(self):
        explained = plan_json(SMALL, "--explain", "--set", f"data={{train: {ROWS}, format: input-ids}}")
        growth = {c["name"]: c["when_doubled"] for c in explained["device"] + explained["host"]}
        self.assertGreater(growth["batches"]["length"], 1.5)
        self.assertGreater(growth["batches"]["effective batch"], 1.5)
        self.assertEqual(set(growth["weights (frozen)"].values()) - {growth["weights (frozen)"]["layers"],
                                                                     growth["weights (frozen)"]["vocab"]}, {1.0})

    def test_attention_scores_are_what_storing_them_would_take(self):
        scores = plan_json(SMALL, "--explain", "--set", "batch.micro=2")["attention_scores"]
        self.assertEqual(scores, {"stored_bytes": 0, "would_take_bytes": 8 * 2 * 8 * 1024 * 1024 * 2})


class Sweep(unittest.TestCase):
    def test_a_larger_budget_is_never_slower_and_no_plan_is_larger_than_its_budget(self):
        points = plan_json(SMALL, "--sweep", "memory=90MiB..1GiB")["points"]
        self.assertGreater(len(points), 2)
        for point in points:
            self.assertLessEqual(point["memory_bytes"], point["budget_bytes"])
        for smaller, larger in zip(points, points[1:]):
            self.assertGreaterEqual(smaller["seconds_per_step"] * 1.05, larger["seconds_per_step"])  # memory.tie, of a guess

    def test_nor_is_it_where_weights_move_and_seconds_are_estimated_from_a_few_layers(self):
        with tempfile.TemporaryDirectory() as folder:
            deep = {**CONFIG, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16, "vocab_size": 151936}
            (Path(folder) / "config.json").write_text(json.dumps(deep))
            points = plan_json(folder, "--gpu", "RTX 4060 Ti 16GB", "--host-memory", "16GiB", "--method", "qlora", "--length", 128, "--batch", 1,
                               "--set", "memory.tie=1%", "--sweep", "memory=1.6GiB..2.4GiB")["points"]
        self.assertGreater(len(points), 4)
        seconds = [point["seconds_per_step"] for point in points]
        for i, one in enumerate(seconds[1:], 1):
            self.assertLessEqual(one, 1.0101 * min(seconds[:i]), seconds)  # memory.tie

    def test_its_points_are_the_plans_of_their_budgets(self):
        disk = ("--set", "memory={disk: 1GiB, offload: auto}", "--method", "full")
        for more in (), disk:
            points = plan_json(SMALL, *more, "--sweep", "memory=90MiB..1GiB")["points"]
            for point in points[0], points[-1]:
                alone = plan_json(SMALL, *more, "--memory", point["budget_bytes"])
                self.assertEqual(point["device_bytes"], alone["device"]["arena_bytes"])
                self.assertEqual(point["seconds_per_step"], alone["predicted"]["seconds_per_step"])

    def test_slow_ones_are_told_in_tenths_and_in_seconds_a_token(self):
        for layers, said in ((32, r"^[3-9]\.\d$"), (200, r"^\d+ ms a token$")):
            with tempfile.TemporaryDirectory() as folder:
                wide = {**CONFIG, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": layers}
                (Path(folder) / "config.json").write_text(json.dumps(wide))
                lines = plan(folder, "--sweep", "memory=200GiB..201GiB").splitlines()
            self.assertRegex(re.split(r"  +", lines[1].strip())[3], said, lines)

    def test_the_least_that_is_printed_does_as_a_budget_and_less_does_not(self):
        words = subprocess.run([str(PLIMSOLL), "plan", SMALL, "--memory", "5MiB", *FIXED], capture_output=True,
                               text=True, timeout=600).stderr
        least = re.search(r"smallest possible: ([0-9.,]+) (\w+)", words)
        self.assertTrue(plan_json(SMALL, "--memory", least[1] + least[2])["feasible"], words)
        smallest = plan_json(SMALL, "--memory", "5MiB", code=3)["smallest"]["memory_bytes"]
        plan(SMALL, "--memory", smallest * 99 // 100, code=3)

    def test_it_begins_at_the_least_that_a_refusal_names(self):
        """A deep model whose activations move too: copies of them say nothing of what recomputing leaves."""
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 24}))
            for words in (("--disk", "100GiB"), ("--device", "card", "--host-memory", "16GiB")):
                words = (folder, "--method", "lora", "--length", 512, "--batch", 8, *words)
                least = plan_json(*words, "--memory", "30MiB", code=3)["smallest"]["memory_bytes"]
                self.assertLessEqual(plan_json(*words, "--memory", f"{least}B")["smallest"]["memory_bytes"], least)
                sweep = plan_json(*words, "--sweep", f"memory={least}B..1GiB")
                self.assertEqual((sweep["points"][0]["budget_bytes"], sweep["smallest_bytes"]), (least, least))
                plan_json(*words, "--memory", f"{least * 99 // 100}B", code=3)

    def test_a_range_where_nothing_fits_names_the_smallest(self):
        self.assertEqual(plan_json(SMALL, "--sweep", "memory=1MiB..5MiB", code=3)["points"], [])

    def test_mistakes_are_usage_errors(self):
        for text in ("memory=4GiB", "length=1..2", "memory=4GiB..2GiB", "memory=a..b"):
            plan(SMALL, "--sweep", text, code=2)


class Max(unittest.TestCase):
    def test_the_longest_fits_and_one_token_more_does_not(self):
        answer = plan_json(SMALL, "--max", "length", "--memory", "100MiB")
        length = answer["max"]["value"]
        self.assertEqual(answer["max"]["limited_by"], "memory")
        self.assertEqual(answer["variant"]["max_length"], length)
        self.assertTrue(plan_json(SMALL, "--length", length, "--memory", "100MiB")["feasible"])
        plan(SMALL, "--length", length + 1, "--memory", "100MiB", code=3)

    def test_the_micro_batch_is_bounded_by_the_effective_batch(self):
        answer = plan_json(SMALL, "--max", "micro_batch", "--memory", "64GiB")
        self.assertEqual(answer["max"], {"key": "batch.micro", "value": 16, "limited_by": "it is the effective batch"})

    def test_with_a_disk_too_the_longest_fits_its_budget(self):
        words = (SMALL, "--memory", "100MiB", "--disk", "1GiB", "--set", "memory.offload=auto", "--max", "length")
        answer = plan_json(*words)
        self.assertEqual((answer["feasible"], answer["process"]["budget_bytes"]), (True, 100 << 20))
        self.assertGreater(answer["max"]["value"], plan_json(SMALL, "--max", "length", "--memory", "100MiB")["max"]["value"])
        self.assertIn(f"largest length   {answer['max']['value']:,} tokens", plan(*words))

    def test_what_never_fits_is_refused(self):
        plan(SMALL, "--max", "length", "--memory", "5MiB", code=3)
        answer = plan_json(SMALL, "--max", "length", "--memory", "5MiB", code=3)
        self.assertEqual((answer["feasible"], answer["max"]["value"]), (False, 0))
        plan(SMALL, "--max", "width", code=2)


class Report(unittest.TestCase):
    HELD = ("--set", "memory={recompute: none, loss_chunk: 512}", "--set", "batch.micro=4",
            "--memory", "2GiB", "--method", "full")

    def test_savings_are_the_bytes_of_the_plan_with_the_means(self):
        savings = {s["means"]: s["device_bytes"] for s in plan_json(SMALL, *self.HELD)["would_save"]}
        changes = {"adamw8bit": "optimizer.name=adamw8bit", "bf16-states": "precision.states=bf16",
                   "length 512": "data.max_length=512"}
        self.assertEqual(savings.keys(), changes.keys())
        for means, change in changes.items():
            self.assertEqual(savings[means], plan_json(SMALL, *self.HELD, "--set", change)["device"]["arena_bytes"])
        self.assertIn("would save", plan(SMALL, *self.HELD))

    def test_what_is_allowed_is_no_mere_saving(self):
        answer = plan_json(SMALL, *self.HELD, "--set", "memory.allow=[adamw8bit]")
        self.assertNotIn("adamw8bit", [s["means"] for s in answer["would_save"]])

    def test_what_a_model_does_not_allow_is_not_suggested(self):
        """NF4 packs weights in pairs: of an odd width there are none."""
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps({**CONFIG, "hidden_size": 255, "head_dim": 32}))
            for words, code in (("--memory", "2GiB"), 0), (("--memory", "40MiB"), 3):
                answer = plan_json(folder, "--length", 256, *words, code=code)
                self.assertNotIn("nf4", [saving["means"] for saving in answer["would_save"]])
                self.assertFalse([way for way in answer.get("ways", []) if "qlora" in way["command"]])
            plan(folder, "--length", 256, "--memory", "2GiB", "--method", "qlora", code=2)

    def test_a_start_that_4_bits_cannot_have_is_planned_without_suggesting_them(self):
        for init in ("pissa", "pissa_niter_4", "olora"):
            words = (SMALL, "--set", f"method.init={init}")
            means = [saving["means"] for saving in plan_json(*words)["would_save"]]
            self.assertTrue(means and "nf4" not in means, means)
            self.assertFalse([way for way in plan_json(*words, "--memory", "40MiB", code=3)["ways"] if "qlora" in way["command"]])

    def test_starts_of_adapters_are_no_quantised_weights(self):
        for init in ("pissa", "olora"):
            words = (SMALL, "--set", f"method.init={init}")
            names = [component["name"] for component in plan_json(*words)["device"]["components"]]
            self.assertIn("starts of adapters", names)
            self.assertNotIn("weights (nf4)", names)
            told = next(part for part in plan_json(*words, "--explain")["device"] if part["name"] == "starts of adapters")
            self.assertIn("PiSSA", told["meaning"])

    def test_the_disk_has_its_components(self):
        held = ("--method", "full", "--set", "memory={offload: [states], disk: 1GiB}")
        disk = plan_json(SMALL, *held)["disk"]
        self.assertGreater(disk["planned_bytes"], 0)
        self.assertEqual(sum(c["bytes"] for c in disk["components"]), disk["planned_bytes"])
        text = plan(SMALL, *held)
        self.assertIn("states on disk", text)
        for line in text.splitlines():
            self.assertLessEqual(len(line), 100)


class WholeRun(unittest.TestCase):
    """Rows of 16 tokens in sequences of 256."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.rows = self.folder / "rows.jsonl"
        self.rows.write_text("".join(json.dumps({"input_ids": list(range(1, 17))}) + "\n" for _ in range(100)))

    def words(self, *more):
        return (SMALL, "--set", f"data={{train: {self.rows}, format: input-ids, max_length: 256}}", *more)

    def test_steps_and_time_are_of_the_whole_run(self):
        answer = plan_json(*self.words("--set", "schedule.epochs=3"))
        run = answer["run"]
        self.assertEqual((run["steps"], run["epochs"]), (21, 3))
        self.assertAlmostEqual(run["seconds"], 21 * answer["predicted"]["seconds_per_step"])
        self.assertAlmostEqual(run["tokens_per_step"] * 7, 1600)
        self.assertEqual(run["row_length"], 16)
        first, second, third = plan(*self.words("--set", "schedule.epochs=3")).splitlines()[:3]
        self.assertRegex(first, r"^fits   \S+ MiB of 2\.00 GiB \(the whole process\)$")
        self.assertRegex(second, r"^       21 steps in about .+ \(3 epochs of 100 rows\)$")
        self.assertRegex(third, r"^       .+ a step, .+ \(guessed: ")
        self.assertEqual(plan_json(*self.words("--set", "schedule.max_steps=5"))["run"]["steps"], 5)
        self.assertIsNone(plan_json(SMALL)["run"])

    def test_short_rows_are_predicted_and_planned_as_such(self):
        held = ("--micro-batch", 4, "--set", "memory.recompute=none", "--set", "memory.loss_chunk=128")
        full = plan_json(SMALL, "--length", 256, *held)
        rows = plan_json(*self.words(*held, "--set", "data.share_prefixes=off"))  # the rows begin alike
        self.assertLess(rows["device"]["arena_bytes"], full["device"]["arena_bytes"])
        self.assertEqual(plan_json(SMALL, "--length", rows["variant"]["max_length"], *held)["device"]["arena_bytes"],
                         rows["device"]["arena_bytes"])
        short = plan_json(*self.words())  # another variant may be the fastest with them
        self.assertLess(short["predicted"]["seconds_per_step"], 0.5 * full["predicted"]["seconds_per_step"])
        point = plan_json(*self.words("--sweep", "memory=1GiB..2GiB"))["points"][-1]
        self.assertEqual(point["seconds_per_step"], short["predicted"]["seconds_per_step"])
        row, = plan_json(*self.words("--compare", "length=256"))["rows"]
        self.assertEqual(row["seconds_per_step"], short["predicted"]["seconds_per_step"])

    def test_packed_rows_make_fewer_steps(self):
        run = plan_json(*self.words("--set", "data.packing=true"))["run"]
        self.assertEqual(run["steps"], 1)
        self.assertFalse(run["estimated"])

    def test_a_run_of_days_says_what_would_be_faster_and_each_line_holds(self):
        long_run = self.words("--set", "schedule.epochs=1000000", "--set", "memory.device=100MiB")
        answer = plan_json(*long_run)
        self.assertGreater(answer["run"]["seconds"], 86400)
        self.assertIn("schedule.epochs=1", [f["set"][0] for f in answer["faster"]])
        text = plan(*long_run)
        for faster in answer["faster"]:
            changed = plan_json(*long_run, *(word for change in faster["set"] for word in ("--set", change)))
            self.assertEqual(changed["run"]["seconds"], faster["run_seconds"])
            self.assertEqual(changed["process"]["planned_peak_rss_bytes"], faster["memory_bytes"])
            self.assertLess(faster["run_seconds"], answer["run"]["seconds"])
            self.assertIn(" ".join(f"--set {change}" for change in faster["set"]), text)
        self.assertEqual(plan_json(*self.words())["faster"], [])


class Page(unittest.TestCase):
    def test_html_is_written_beside_the_report(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "plan.html"
            self.assertIn("fits", plan(MISTRAL, "--html", page))
            text = page.read_text()
            self.assertLess(len(text), 1_000_000)
            self.assertTrue(text.startswith("<!doctype html>"))

    def test_the_page_of_a_card_adds_up_and_says_what_it_is_of(self):
        """The headline is the sum of the table's rows, what is outside the arena among them."""
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "plan.html"
            told = json.loads(plan(MISTRAL, "--method", "lora", "--gpu", "RTX 3060", "--host-memory", "64GiB", "--html", page, "--json"))
            text = page.read_text()
            table = text[text.index("<h2>Device"):]
            rows = re.findall(r"<tr( class=\"sum\")?><td>(?:<i[^>]*></i>)?([^<]*)</td><td class=\"n\" title=\"([0-9,]+) bytes\">", table[:table.index("</table>")])
            values = {name: (bool(summed), int(number.replace(",", ""))) for summed, name, number in rows}
            parts = {name: value for name, (summed, value) in values.items() if not summed}
            outside = {name for name in parts if name.startswith("outside the arena: ")}
            self.assertGreaterEqual(len(outside), 2, parts)
            self.assertEqual(values["arena"][1], sum(value for name, value in parts.items() if name not in outside))
            self.assertEqual(values["in all"][1], sum(parts.values()))
            self.assertTrue(f"device {values['in all'][1] / 2**30:.1f} GiB of 12.0 GiB" in text, "the headline is another sum")
            self.assertEqual(values["arena"][1], told["device"]["arena_bytes"])
            self.assertIn("--gpu", re.search(r"<p class=\"origin\"><code>(.*?)</code><br>\d{4}-\d\d-\d\d", text)[1])
            self.assertTrue("<title>Plimsoll: mistral-7b-lora: Mistral, 32 layers" in text, "the title names no model")

    def test_html_is_written_where_the_plan_does_not_fit(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "plan.html"
            plan(SMALL, "--html", page, "--memory", "10MiB", code=3)
            self.assertIn("does not fit", page.read_text())

    def test_the_timeline_fits_the_terminal(self):
        for line in plan(SMALL, "--timeline").splitlines():
            self.assertLessEqual(len(line), 100)


if __name__ == "__main__":
    PLIMSOLL = Path(sys.argv.pop(1)).resolve()
    unittest.main(testLoader=SuiteLoader("plan_answers_test"))
