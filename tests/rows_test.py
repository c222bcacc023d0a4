"""What becomes of rows: Alpaca's, ranges, lengths, pieces of other tools, and what ends a run, with the built binary.

Usage: rows_test.py PLIMSOLL (from the repository's root). Standard library only.
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

    def refused(self, rows, *words, **changes):
        done = run("plan", self.recipe(rows, **changes), *words)
        self.assertEqual(done.returncode, 2, done.stderr + done.stdout)
        return " ".join(done.stderr.split())

    def test_pairs_of_columns_of_other_tools_are_known_the_right_way_round(self):
        expected = self.dump(self.recipe([{"prompt": "What is it?", "response": " A mark."}]))[0]
        for asks, says in (("prompt", "completion"), ("input", "output"), ("query", "response")):
            for row in ({asks: "What is it?", says: " A mark."}, {says: " A mark.", asks: "What is it?"}):
                self.assertEqual(self.dump(self.recipe([row]))[0], expected, row)

    def test_unclear_columns_are_asked_for_in_the_file_s_order(self):
        told = self.refused([{"zeta": "What is it?", "alpha": "A mark."}])
        self.assertIn("no known format has the columns zeta (a string), alpha (a string)", told)
        self.assertIn("Which is the prompt and which the response is not known", told)
        for first, second in (("zeta", "alpha"), ("alpha", "zeta")):
            self.assertIn(f"--set 'data.columns={{prompt: {first}, response: {second}}}'", told)
        self.assertIn("Which of q, a, why is the prompt", self.refused([{"q": "a", "a": "b", "why": "c"}]))
        for turn in ({"from": "human", "value": "What is it?"}, {"role": "user", "content": "What is it?"}):
            told = self.refused([turn])
            self.assertIn("has a turn of a conversation in each row", told)
            self.assertNotIn("data.columns", told)

    def test_an_object_of_one_conversation_is_one_row(self):
        turns = [{"from": "human", "value": "What is it?"}, {"from": "gpt", "value": "A mark."}]
        recipe = self.recipe([{"conversations": turns}], data={"template": "chatml"})
        expected = self.dump(recipe)
        for indent in (None, 2):
            path = self.folder / "one.json"
            path.write_text(json.dumps({"id": "x", "conversations": turns}, indent=indent))
            [row], [one] = self.dump(recipe, "--set", f"data.train={path}"), expected
            self.assertEqual((row["ids"], row["labels"]), (one["ids"], one["labels"]))
        path.write_text(json.dumps({"version": 1, "data": [{"prompt": "a", "response": "b"}] * 2}, indent=2))
        self.assertEqual(len(self.dump(recipe, "--set", f"data.train={path}")), 2)

    def test_a_file_of_two_lists_is_answered_with_commands_that_part_them(self):
        path = self.folder / "two lists.json"
        path.write_text(json.dumps({"train": [{"prompt": "a", "response": "b"}] * 3, "test": [{"prompt": "c", "response": "d"}]}))
        done = run("inspect", path)
        self.assertEqual(done.returncode, 4)
        told = done.stderr
        self.assertIn("two lists of rows, 'train' and 'test'", told)
        commands = [line for line in told.splitlines() if line.startswith("  python3")]
        self.assertEqual(len(commands), 2)
        for command in commands:
            subprocess.run(["sh", "-c", command], cwd=self.folder, check=True, timeout=60)
        self.assertEqual(len((self.folder / "train.jsonl").read_text().splitlines()), 3)
        self.assertEqual(json.loads((self.folder / "test.jsonl").read_text()), {"prompt": "c", "response": "d"})

    def test_rows_with_a_verdict_are_no_good_answers(self):
        talk = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "rude"}]
        for row, named in (({"messages": talk, "label": False}, "messages: messages"),
                           ({"prompt": "q", "completion": " rude", "label": True}, "prompt: prompt, response: completion"),
                           ({"instruction": "q", "input": "", "output": "rude", "kto_tag": False}, "instruction: instruction, output: output, input: input")):
            template = {"data": {"template": "chatml"}}
            told = self.refused([row], **template)
            self.assertIn("would train on the bad ones as well", told)
            self.assertIn(named, told)
            self.assertEqual(len(self.dump(self.recipe([row], **template), "--set", f"data.columns={{{named}}}")), 1)
            self.assertEqual(len(self.dump(self.recipe([row], **template), "--set", "data.reading=1",
                                           *(["--set", f"data.columns={{{named}}}"] if "completion" in row else []))), 1)
            for yes, no in ((1, 0), ("True", "False")):
                self.assertIn("would train on the bad ones", self.refused([{key: {True: yes, False: no}[value] if isinstance(value, bool) else value
                                                                         for key, value in row.items()}], **template))
            kept = {key: "fine" if isinstance(value, bool) else value for key, value in row.items()}
            self.assertEqual(len(self.dump(self.recipe([kept], **template))), 1)

        other = self.folder / "other.jsonl"
        other.write_text('{"prompt": "a", "response": " b"}\n')
        for label, code in (("fine", 0), (True, 2)):  # beside a file that has no such column
            recipe = self.recipe([{"prompt": "q", "response": " rude", "label": label}])
            done = run("plan", recipe, "--dump", "rows", "--set", f"data.train=[{self.folder / 'rows.jsonl'}, {other}]")
            self.assertEqual(done.returncode, code, done.stderr)

    def learnt(self, rows, *words):
        """The learnt ids of each row."""
        told = self.dump(self.recipe(rows, data={"template": "chatml"}), *words)
        return [[label for label in row["labels"] if label != -100] for row in told]

    def test_turns_that_are_not_to_be_learnt_are_not_by_whatever_key(self):
        turns = [("user", "q"), ("assistant", "one"), ("user", "why"), ("assistant", "two")]
        for role, content, names in (("role", "content", {}), ("from", "value", {"user": "human", "assistant": "gpt"})):
            def talk(*marked):
                return {"messages": [{role: names.get(who, who), content: said, **dict(marked).get(i, {})} for i, (who, said) in enumerate(turns)]}
            both, second = self.learnt([talk(), talk((1, {"weight": 0}))])
            self.assertLess(len(second), len(both))
            keys = [(key, no, yes) for key in ("loss", "train", "training") for no, yes in ((False, True), (0, 1))]
            rows = [row for key, no, yes in keys for row in (talk((1, {key: no})), talk((0, {key: no}), (1, {key: no}), (3, {key: yes})),
                                                             talk((1, {key: yes}), (3, {key: None})))]
            self.assertEqual(self.learnt(rows), [second, second, both] * len(keys))
            self.assertEqual(self.learnt(rows, "--set", "data.reading=1"), [both] * len(rows))
            for mark, why in (({"train_detail": []}, "has 'train_detail'"), ({"mask": 1}, "has 'mask'"), ({"masked": True}, "has 'masked'")):
                self.assertIn(f"message 2: {why}", self.refused([talk((1, mark))], data={"template": "chatml"}))
            self.assertIn("message 1 is marked as trained, but its role is \"user\"",
                          self.refused([talk((0, {"loss": True}))], data={"template": "chatml"}))
            self.assertIn("data.train_on_prompt trains on whole conversations", self.refused([talk((1, {"loss": False}))], data={"template": "chatml", "train_on_prompt": True}))
            done = run("train", self.recipe([talk((1, {"loss": "no"}))], data={"template": "chatml"}))
            self.assertEqual((done.returncode, "'loss' is a string" in done.stderr), (4, True), done.stderr)

    PRINTS = "{{ c.function.arguments | tojson }}", "{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}"

    def test_arguments_of_calls_that_are_texts_are_printed_as_objects_are(self):
        def rows(arguments):
            call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
            return [{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [call]}]}]
        for prints in self.PRINTS:
            (self.model / "chat_template.jinja").write_text(
                "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}" + prints + "{% endfor %}{{ eos_token }}{% endfor %}"
                "{% if add_generation_prompt %}<assistant>{% endif %}")
            as_object = self.dump(self.recipe(rows({"b": 1, "a": "x"})))
            self.assertEqual(self.dump(self.recipe(rows('{"b": 1, "a": "x"}'))), as_object)
        (self.model / "chat_template.jinja").write_text((self.model / "chat_template.jinja").read_text().replace(*reversed(self.PRINTS)))
        self.assertNotEqual(self.dump(self.recipe(rows('{"b": 1, "a": "x"}')), "--set", "data.reading=1"), as_object)
        done = run("train", self.recipe(rows("b is 1")))
        self.assertEqual((done.returncode, "message 2: the arguments of its call are a text that is no JSON object" in done.stderr), (4, True), done.stderr)

    def test_a_template_whose_tokens_are_missing_is_told_with_what_it_costs(self):
        def told(template):
            recipe = self.recipe([{"prompt": "a", "response": "b"}], data={"template": template}, schedule={"max_steps": 1})
            made = run("init", self.model, self.folder / "rows.jsonl", "--out", self.folder / "made.yaml", "--force", "--set", f"data.template={template}")
            return [" ".join(text.split()) for text in (run("plan", recipe).stdout, run("train", recipe, "--overwrite").stderr, made.stdout)]
        for text in told("llama3"):
            self.assertRegex(text, r"rows template llama3 writes .*<\|start_header_id\|>.*, for which this tokenizer has no tokens: a prompt with its "
                                   r"response costs \d+ tokens in addition to their texts instead of \d+")
        cost, instead = map(int, text.split("response costs ")[1].replace("tokens in addition to their texts instead of", "").split()[:2])
        def length(rounds):
            talk = [{"role": role, "content": said} for role, said in (("user", "a"), ("assistant", "b"))] * rounds
            return len(self.dump(self.recipe([{"messages": talk}], data={"template": "llama3", "max_length": 256}))[0]["ids"])
        self.assertEqual(length(2) - length(1) - 2, cost)
        self.assertLess(instead, cost / 2)
        for text in told("alpaca"):
            self.assertIn("rows rendered by template alpaca", text)
            self.assertNotIn("for which this tokenizer", text)

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
        self.assertIn("1 longer than 8 tokens are dropped", self.train(dropped, "--set", f"output={self.folder / 'd'}"))
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
        self.assertIn("not a token of", done.stderr)

    def test_pieces_of_llama_factory_learn_the_line_s_end_behind_the_answer(self):
        rows = [{"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ada."}]}]
        row = self.dump(self.recipe(rows, data={"template": "llama-factory/chatml"}))[0]
        self.assertEqual(row["ids"], self.ids("<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n") + self.ids("Ada.<|im_end|>\n"))
        learnt = [i for i, label in zip(row["ids"], row["labels"]) if label != -100]
        self.assertEqual(learnt, self.ids("Ada.<|im_end|>\n"))

    def test_calls_of_tools_are_refused_by_templates_that_do_not_render_them(self):
        call = {"type": "function", "function": {"name": "look", "arguments": {"at": "x"}}}
        rows = [{"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Wait.", "tool_calls": [call]}]}]
        for template in ("chatml", "qwen3_5"):
            done = run("plan", self.recipe(rows, data={"template": f"llama-factory/{template}"}))
            self.assertIn("calls of tools are not rendered by this template", " ".join(done.stderr.split()))

    def test_the_end_of_text_stands_once_behind_the_last_answer(self):
        # LLaMA-Factory's efficient_eos: behind an earlier answer it is the target beside the next prompt's first token.
        turns = [("user", "Who?"), ("assistant", "Ada."), ("user", "When?"), ("assistant", "Then.")]
        rows = [{"messages": [{"role": role, "content": content} for role, content in turns]}]
        end = json.loads((self.model / "tokenizer.json").read_text())["added_tokens"][0]["id"]
        first, second = self.ids("### User:\nWho?\n\n### Assistant:\n"), self.ids("### User:\nWhen?\n\n### Assistant:\n")
        ada, then = self.ids("Ada."), self.ids("Then.")
        row = self.dump(self.recipe(rows, data={"template": "llama-factory/solar"}))[0]
        self.assertEqual(row["ids"], first + ada + second + then + [end])
        self.assertEqual(row["labels"], [-100] * len(first) + ada + [end] + [-100] * (len(second) - 1) + then + [end])
        most = len(first) + len(ada) + 1  # where the second turn has no room, the end stays
        row = self.dump(self.recipe(rows, data={"template": "llama-factory/solar", "max_length": most}))[0]
        self.assertEqual((row["ids"], row["labels"][-1]), (first + ada + [end], end))

    def test_templates_of_other_tools_are_listed_in_the_docs(self):
        page = (ROOT / "docs" / "howto" / "data.md").read_text()
        done = run("generate", self.model, "--template", "nobody", "--prompt", "x")
        for tool in ("llama-factory", "axolotl", "torchtune"):
            known = set(re.findall(rf"\b{tool}/([^,\s)}}]+)", done.stderr))
            self.assertGreater(len(known), 5, done.stderr)
            title = {"llama-factory": "LLaMA-Factory"}.get(tool, tool)
            listed = re.search(rf"^- {title}: (.*(?:\n  .*)*)", page, re.M)[1]
            self.assertEqual(set(re.findall(r"`([^`]+)`", listed)), known, tool)

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
