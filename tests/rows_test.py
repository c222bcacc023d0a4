"""What becomes of rows: Alpaca's, ranges, lengths, pieces of other tools, and what ends a run, with the built binary.

Usage: rows_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLIMSOLL = ROOT / "build" / "plimsoll"
MODEL = ROOT / "demo" / "model"
ROWS = [{"instruction": f"Where is number {i}?", "input": "Look around." if i % 2 else "", "output": f"Here {i}."}
        for i in range(10)]


def run(*words, **options):
    environment = {k: v for k, v in os.environ.items() if k != "PLIMSOLL_SET"}
    return subprocess.run([str(PLIMSOLL), *map(str, words)], capture_output=True, text=True, timeout=600,
                          env=environment, **options)


class RowsTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.model = self.folder / "model"
        shutil.copytree(MODEL, self.model)

    def recipe(self, rows, **changes):
        path = self.folder / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        settings = {"model": str(self.model), "init": "random", "data": {"train": str(path), "max_length": 96},
                    "method": {"type": "full"}, "batch": {"effective": 4, "micro": 2}, "precision": "fp32",
                    "schedule": {"max_steps": 2, "warmup": 0}, "output": str(self.folder / "run")}
        for key, value in changes.items():
            settings[key] = {**settings[key], **value} if isinstance(settings.get(key), dict) else value
        recipe = self.folder / "recipe.json"
        recipe.write_text(json.dumps(settings))
        return recipe

    def dump(self, recipe, *words):
        done = run("plan", recipe, "--dump", "rows", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def ids(self, text):
        self.train(self.recipe([{"text": "a"}], output=str(self.folder / "plain"), batch={"effective": 1, "micro": 1}),
                   "--overwrite")
        done = run("generate", self.folder / "plain", "--prompt", text, "--template", "plain", "--max-new-tokens", 1, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["prompt_ids"]

    def train(self, recipe, *words, expect=0):
        done = run("train", recipe, *words)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done.stderr

    def test_alpaca_rows_are_known_and_trained_with_their_input(self):
        rows = self.dump(self.recipe(ROWS))
        self.assertEqual(len(rows), 10)
        self.assertIn("alpaca (instruction, output, input)", run("inspect", self.folder / "rows.jsonl").stdout)
        system = ("Below is an instruction that describes a task, paired with an input that provides further context. Write a "
                  "response that appropriately completes the request.\n\n")
        text = system + "### Instruction:\nWhere is number 1?\n\n### Input:\nLook around.\n\n### Response:\nHere 1.<|endoftext|>"
        self.assertEqual(rows[1]["ids"], self.ids(text)[:96])

    def test_alpaca_rows_join_for_a_template_that_does_not_know_them(self):
        (self.model / "chat_template.jinja").write_text("{% for m in messages %}<{{ m.content }}>{% endfor %}")
        row = self.dump(self.recipe(ROWS, data={"train_on_prompt": True}))[1]
        self.assertEqual(row["ids"], self.ids("<Where is number 1?\nLook around.><Here 1.>"))

    def test_init_writes_a_recipe_for_alpaca_rows(self):
        self.recipe(ROWS * 3)
        out = self.folder / "first.yaml"
        done = run("init", self.model, self.folder / "rows.jsonl", "--out", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("format: alpaca", out.read_text())
        self.assertEqual(run("plan", out).returncode, 0)

    def test_trl_reads_the_text_of_rows_that_have_labels_too(self):
        recipe = self.recipe([{"text": f"film number {i}", "label": i % 2} for i in range(4)], data={"format": "text"})
        rows = self.dump(recipe)
        recipe.write_text(json.dumps({"model_name_or_path": str(self.model), "dataset_name": "rows.jsonl", "learning_rate": 1e-5,
                                      "max_length": 96}))
        self.assertEqual([row["ids"] for row in self.dump(recipe, "--set", "init=random")], [row["ids"] for row in rows])

    def test_a_range_takes_rows_of_a_source(self):
        path = str(self.folder / "rows.jsonl")
        recipe = self.recipe(ROWS, data={"train": [{"path": path, "rows": ":70%"}], "eval": {"path": path, "rows": "70%:"}})
        self.assertEqual([row["where"].rsplit(":", 1)[1] for row in self.dump(recipe)], [str(i) for i in range(1, 8)])
        self.assertIn("eval    step 2", self.train(recipe))
        self.assertEqual(run("plan", recipe, "--set", 'data.train={path: rows.jsonl, rows: "x"}').returncode, 2)

    def test_a_number_of_rows_is_held_out(self):
        self.assertEqual(len(self.dump(self.recipe(ROWS, data={"eval": 3}))), 7)

    def test_rows_that_are_too_long_are_left_out_cut_or_an_error(self):
        rows = [{"text": "one two"}, {"text": "a b c d e f g h i j k l m n o p"}, {"text": "three"}]
        cut = self.recipe(rows, data={"max_length": 8})
        self.assertEqual([len(row["ids"]) for row in self.dump(cut)][1], 8)
        dropped = self.recipe(rows, data={"max_length": 8, "truncation": "drop"}, batch={"effective": 2, "micro": 1})
        self.assertEqual(len(self.dump(dropped)), 2)
        self.assertIn("1 longer than 8 tokens are left out", self.train(dropped, "--set", f"output={self.folder / 'd'}"))
        refused = self.recipe(rows, data={"max_length": 8, "truncation": "refuse"}, batch={"effective": 1, "micro": 1})
        self.assertIn("more than data.max_length: 8", self.train(refused, expect=4))

    def test_without_a_length_the_longest_row_decides(self):
        rows = [{"text": "one two"}, {"text": "a b c d e f g h i j k l m n o p"}]
        whole = self.dump(self.recipe(rows, data={"max_length": 200}))
        recipe = self.recipe(rows, data={"max_length": None})
        longest = max(len(row["ids"]) for row in whole)
        self.assertEqual(json.loads(run("plan", recipe, "--json").stdout)["variant"]["max_length"], longest)
        self.assertEqual(self.dump(recipe), whole)

    def test_texts_begin_as_the_tokenizer_begins_them(self):
        tokenizer = json.loads((self.model / "tokenizer.json").read_text())
        end = tokenizer["added_tokens"][0]
        first = next(token for token, number in tokenizer["model"]["vocab"].items() if number == 7)
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": first, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {first: {"id": first, "ids": [7], "tokens": [first]}}}
        (self.model / "tokenizer.json").write_text(json.dumps(tokenizer))
        plain = self.dump(self.recipe([{"text": "one two"}]))[0]["ids"]
        self.assertEqual(self.dump(self.recipe([{"text": "one two"}], data={"bos": True}))[0]["ids"], [7] + plain)
        self.assertEqual(plain[-1], end["id"])

    def test_other_special_tokens_are_taken_where_they_exist(self):
        vocabulary = json.loads((self.model / "tokenizer.json").read_text())["model"]["vocab"]
        token, number = next((t, i) for t, i in vocabulary.items() if t.isalpha() and t.isascii())
        ids = self.dump(self.recipe([{"text": "one two"}], data={"special_tokens": {"eos_token": token}}))[0]["ids"]
        self.assertEqual(ids[-1], number)
        done = run("plan", self.recipe([{"text": "x"}], data={"special_tokens": {"eos_token": "<nobody>"}}))
        self.assertIn("no token of", done.stderr)

    def test_pieces_of_llama_factory_learn_the_line_s_end_behind_the_answer(self):
        rows = [{"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ada."}]}]
        row = self.dump(self.recipe(rows, data={"template": "llama-factory/chatml"}))[0]
        self.assertEqual(row["ids"], self.ids("<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n") + self.ids("Ada.<|im_end|>\n"))
        learnt = [i for i, label in zip(row["ids"], row["labels"]) if label != -100]
        self.assertEqual(learnt, self.ids("Ada.<|im_end|>\n"))

    def test_a_long_question_gives_way_to_its_answer(self):
        rows = [{"messages": [{"role": "user", "content": "a b c d e f g h i j k l m n o p q r s t"},
                              {"role": "assistant", "content": "Ada."}]}]
        row = self.dump(self.recipe(rows, data={"template": "llama-factory/empty", "max_length": 16}))[0]
        answer = self.ids("Ada.")
        self.assertEqual((len(row["ids"]), row["ids"][-len(answer):]), (16, answer))

    def test_an_answer_that_is_cut_off_is_no_damage(self):
        rows = [{"messages": [{"role": "user", "content": "a b c d e f g h i j k l m n o p q r s t"},
                              {"role": "assistant", "content": "Ada."}]},
                {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}]
        row = self.dump(self.recipe(rows, data={"template": "torchtune/plain", "max_length": 16}))[0]
        self.assertEqual((len(row["ids"]), set(row["labels"])), (16, {-100}))
        self.assertGreater(row["whole_length"], 16)

    def test_a_loss_above_a_limit_ends_the_run_after_so_many_steps(self):
        recipe = self.recipe(ROWS, data={"max_length": 160}, schedule={"max_steps": 9}, stop={"above": 0.5, "above_steps": 3})
        self.assertIn("step 3: the loss is above 0.5", self.train(recipe, expect=5))

    def test_evaluations_without_a_lower_loss_end_the_run_in_time(self):
        recipe = self.recipe(ROWS, schedule={"max_steps": 9}, optimizer={"lr": 0}, stop={"patience": 2},
                             eval={"every": 1}, data={"eval": 2})
        log = self.train(recipe)
        self.assertIn("2 evaluations without a lower loss", log)
        self.assertEqual(len((self.folder / "run/metrics.jsonl").read_text().splitlines()), 3)

    def test_checkpoints_come_at_the_ends_of_epochs_and_the_upload_command_at_the_run_s(self):
        recipe = self.recipe(ROWS[:8], schedule={"max_steps": 6}, save={"every": "epoch", "keep": 9, "hub": "me/mine"})
        log = self.train(recipe)
        self.assertIn("save    step 2", log)
        self.assertIn("save    step 4", log)
        self.assertIn(f"hf upload me/mine {self.folder / 'run'}", log)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        PLIMSOLL = Path(sys.argv.pop(1)).resolve()
    unittest.main()
