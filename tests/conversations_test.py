"""Conversations from file to answer with the built binary, on the demo's small model.

Usage: conversations_test.py PLIMSOLL (from the repository's root). Standard library only.
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
TALK = [{"role": "user", "content": "Who asked for it?"}, {"role": "assistant", "content": "Samuel."}]
OWN = ("{% for m in messages %}{{ '<' + m.role + '>' + m.content + eos_token }}{% endfor %}"
       "{% if add_generation_prompt %}<assistant>{% endif %}")


def run(*words):
    return subprocess.run([str(PLIMSOLL), *map(str, words)], capture_output=True, text=True, timeout=600)


class ChatTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.model = self.folder / "model"
        shutil.copytree(ROOT / "demo/model", self.model)

    def train(self, rows, expect=0, name="run", task="sft", **data):
        if expect or (self.folder / name).exists():
            shutil.rmtree(self.folder / name, ignore_errors=True)
        path = self.folder / "train.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        recipe = {"model": str(self.model), "task": task, "init": "random", "data": {"train": str(path), "max_length": 96, **data},
                  "method": {"type": "full"}, "batch": {"effective": len(rows), "micro": 1}, "precision": "fp32",
                  "schedule": {"max_steps": 1, "warmup": 0}, "output": str(self.folder / name)}
        (self.folder / "recipe.json").write_text(json.dumps(recipe))
        done = run("train", self.folder / "recipe.json")
        self.assertEqual(done.returncode, expect, done.stderr)
        return done.stderr

    def tokens(self, name="run"):
        return json.loads((self.folder / name / "metrics.jsonl").read_text().splitlines()[0])["tokens"]

    def prompt_ids(self, *words):
        done = run("generate", *words, "--max-new-tokens", 1, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["prompt_ids"]

    def text_ids(self, text):
        return self.prompt_ids(self.folder / "run", "--prompt", text, "--template", "plain")

    def test_the_model_s_own_template_trains_and_answers(self):
        (self.model / "chat_template.jinja").write_text(OWN)
        log = self.train([{"messages": TALK}])
        self.assertIn("chat_template.jinja", log)
        self.assertEqual((self.folder / "run/chat_template.jinja").read_text(), OWN)
        # The row has the tokens of the whole rendering, an answer's prompt those of its beginning.
        whole = "<user>Who asked for it?<|endoftext|><assistant>Samuel.<|endoftext|>"
        self.assertEqual(self.tokens(), len(self.text_ids(whole)))
        asked = self.prompt_ids(self.folder / "run", "--prompt", "Who asked for it?")
        self.assertEqual(asked, self.text_ids("<user>Who asked for it?<|endoftext|><assistant>"))
        with_system = self.prompt_ids(self.folder / "run", "--prompt", "Who?", "--system", "Be brief.")
        self.assertEqual(with_system, self.text_ids(
            "<system>Be brief.<|endoftext|><user>Who?<|endoftext|><assistant>"))
        questions = self.folder / "questions.jsonl"
        questions.write_text(json.dumps({"messages": TALK}) + "\n")
        done = run("generate", self.folder / "run", "--data", questions, "--max-new-tokens", 1, "--json")
        self.assertEqual((json.loads(done.stdout)["rows"], json.loads(done.stdout)["exact"]), (1, 0), done.stderr)

    def test_thinking_is_what_the_template_makes_of_it_and_refused_where_it_knows_none(self):
        (self.model / "chat_template.jinja").write_text(OWN + "{% if add_generation_prompt %}{{ '' if enable_thinking | default(true) else '<no>' * 12 }}{% endif %}")
        self.train([{"messages": TALK}])
        asked = [self.prompt_ids(self.folder / "run", "--prompt", "Who?", *more) for more in ((), ("--thinking", "on"), ("--thinking", "off"))]
        begun = "<user>Who?<|endoftext|><assistant>"
        self.assertEqual(asked, [self.text_ids(begun), self.text_ids(begun), self.text_ids(begun + "<no>" * 12)])
        rows = self.folder / "rows.jsonl"
        rows.write_text(json.dumps({"messages": TALK}) + "\n")
        words = ("eval", self.folder / "run", "--data", rows, "--generate", "--max-new-tokens", 1)
        for more, context in (((), 32), (("--thinking", "off"), 96)):
            self.assertIn(f"context {context} tokens", run(*words, *more).stderr)
        refused = (("generate", self.folder / "run", "--ids", "5,6", "--thinking", "off"), ("eval", self.folder / "run", "--data", rows, "--thinking", "off"),
                   ("generate", self.folder / "run", "--prompt", "x", "--template", "chatml", "--thinking", "off"),
                   ("generate", self.folder / "run", "--prompt", "x", "--template", "plain", "--thinking", "on"),
                   ("chat", self.folder / "run", "--template", "chatml", "--thinking", "off"))
        for words, says in zip(refused, ("no effect with --ids", "add --generate", "template chatml does not read 'enable_thinking'", "needs a chat template",
                                         "template chatml does not read 'enable_thinking'")):
            done = run(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(says, done.stderr)

    def test_prompts_with_responses_are_rendered_too_and_a_plain_run_answers_plainly(self):
        (self.model / "chat_template.jinja").write_text(OWN)
        row = {"prompt": "Who asked for it?", "response": "Samuel."}
        self.train([row])
        rendered = self.tokens()
        self.train([row], name="plain", template="plain")
        self.assertGreater(rendered, self.tokens("plain"))
        self.assertFalse((self.folder / "plain/chat_template.jinja").exists())
        asked = self.prompt_ids(self.folder / "plain", "--prompt", "Who?")
        self.assertEqual(asked, self.text_ids("Who?"))

    def test_completions_are_compared_with_answers(self):
        self.train([{"prompt": "Who asked for it?", "completion": " Samuel."}])
        done = run("generate", self.folder / "run", "--data", self.folder / "train.jsonl", "--max-new-tokens", 1, "--json")
        self.assertEqual((json.loads(done.stdout)["rows"], json.loads(done.stdout)["exact"]), (1, 0), done.stderr)

    def test_built_in_templates_and_sharegpt_s_form(self):
        share = [{"from": "human", "value": "Who asked for it?"}, {"from": "gpt", "value": "Samuel."}]
        self.train([{"conversations": share}], template="mistral")
        self.assertEqual(self.tokens(), len(self.text_ids("[INST] Who asked for it? [/INST] Samuel.<|endoftext|>")))

    def test_tools_are_rendered_next_to_messages_and_preferences_and_named_where_no_template_prints_them(self):
        tools = [{"name": "weather"}]
        printed = 'TOOLS[{"name": "weather"}]'
        (self.model / "chat_template.jinja").write_text("{% if tools %}TOOLS{{ tools | tojson }}{% endif %}" + OWN)
        self.assertNotIn("prints no tools", self.train([{"messages": TALK, "tools": tools}]))
        whole = "<user>Who asked for it?<|endoftext|><assistant>Samuel.<|endoftext|>"
        self.assertEqual(self.tokens(), len(self.text_ids(printed + whole)))
        recipe = self.folder / "recipe.json"
        pair = {"prompt": TALK[:1], "chosen": TALK[1:], "rejected": [{"role": "assistant", "content": "Nobody."}]}
        for task in ("dpo", "reward"):
            (self.folder / "train.jsonl").write_text(json.dumps({**pair, "tools": json.dumps(tools)}) + "\n")
            shown = run("preview", recipe, "--set", f"task={task}")
            self.assertEqual((shown.returncode, shown.stdout.count(printed)), (0, 2), shown.stdout + shown.stderr)
            # A run of earlier rules goes on without them.
            shown = run("preview", recipe, "--set", f"task={task}", "--set", "data.reading=5")
            self.assertEqual((shown.returncode, shown.stdout.count("TOOLS")), (0, 0), shown.stdout + shown.stderr)
            (self.folder / "train.jsonl").write_text(json.dumps({**pair, "tools": {"name": "weather"}}) + "\n")
            shown = run("plan", recipe, "--set", f"task={task}")
            self.assertEqual(shown.returncode, 4, shown.stderr)
            self.assertIn("train.jsonl:1: the tools are an object, a list is expected", shown.stderr)
        scored = self.folder / "scored.jsonl"
        for reading, prints in ((5, False), (6, True)):
            self.train([{**pair, "tools": tools}], task="reward", reading=reading)
            found = []
            for row in ({"messages": TALK}, {"messages": TALK, "tools": tools}):
                scored.write_text(json.dumps(row) + "\n")
                done = run("score", self.folder / "run", "--data", scored, "--json")
                self.assertEqual(done.returncode, 0, done.stderr)
                found.append(done.stdout)
            self.assertEqual(found[0] != found[1], prints, found)
        (self.model / "chat_template.jinja").write_text(OWN)
        for row in ({"messages": TALK}, pair):
            log = self.train([{**row, "tools": tools}], task="dpo" if "chosen" in row else "sft")
            self.assertIn("train.jsonl: the chat template prints no tools, so that the column 'tools' is not trained on", log)
            self.assertIn("prints no tools", run("plan", recipe).stdout)

    def test_content_in_parts_is_its_text_and_what_is_no_text_is_refused(self):
        (self.model / "chat_template.jinja").write_text(OWN)
        self.train([{"messages": TALK}])
        whole = self.tokens()
        parts = [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in TALK]
        self.train([{"messages": parts}], name="parts")
        self.assertEqual(self.tokens("parts"), whole)
        parts[0]["content"].insert(0, {"type": "image", "image": "cat.png"})
        self.assertIn("train.jsonl:1: message 1: 'content' has a part of the type image", self.train([{"messages": parts}], expect=2, name="image"))
        self.train([{"messages": parts}, {"messages": TALK}], name="skipped", on_error="skip")
        self.assertEqual(self.tokens("skipped") % whole, 0)
        pictures = {"messages": TALK, "images": ["cat.png"]}
        said = self.train([{"messages": TALK, "images": []}, pictures], expect=2, name="images")
        self.assertIn("train.jsonl:2: column 'images' holds more than text", said)
        self.assertIn("--set 'data.columns={messages: messages}'", said)
        self.assertIn("train.jsonl:2: column 'images'", self.train([{"messages": TALK}, pictures], expect=2, name="later"))
        for number, nothing in enumerate(([], [None], None, "", False)):
            self.train([{"messages": TALK, "images": nothing}], name=f"none{number}")
        calls = [TALK[0], {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}]
        self.assertIn("message 2: has tool_calls, and the chat template prints no tool_calls", self.train([{"messages": calls}], expect=4, name="calls"))
        beside = [TALK[0], {**calls[1], "content": "Wait."}]
        for template in ("auto", "chatml", "llama2", "llama3", "mistral", "alpaca"):
            refused = self.train([{"messages": beside}], expect=4, name=f"beside-{template}", template=template)
            self.assertIn("message 2: has tool_calls, and the chat template prints no tool_calls", refused)
        self.check_asked_calls(beside)
        self.train([{"messages": beside}], name="began", reading=5)  # a run that began without the calls goes on so
        self.assertEqual(self.asked("began", {"messages": [*beside, *TALK]}).returncode, 0)
        (self.model / "chat_template.jinja").write_text(OWN.replace("m.content", "(m.content or m.tool_calls | tojson)"))
        self.train([{"messages": calls}], name="printed")

    def test_an_answer_that_calls_a_tool_is_compared_as_the_template_prints_the_call(self):
        prints = "{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{{ eos_token }}{% endfor %}"
        (self.model / "chat_template.jinja").write_text(prints + "{% if add_generation_prompt %}<assistant>{% endif %}")
        call = [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]
        rows = [{"messages": [TALK[0], {"role": "assistant", "content": content, "tool_calls": call}]} for content in (None, "Wait.")]
        self.train(rows)
        data, answers = self.folder / "train.jsonl", self.folder / "answers.jsonl"
        for command in (("eval", self.folder / "run", "--data", data, "--generate"), ("generate", self.folder / "run", "--data", data)):
            done = run(*command, "--max-new-tokens", 1, "--out", answers)
            self.assertEqual(done.returncode, 0, done.stderr)
            printed = '{"name": "f", "arguments": {"a": 1}}'
            self.assertEqual([json.loads(line)["expected"] for line in answers.read_text().splitlines()], [printed, "Wait." + printed])

    def asked(self, name, row, *words):
        rows = self.folder / "asked.jsonl"
        rows.write_text(json.dumps(row) + "\n")
        return run("generate", self.folder / name, "--data", rows, "--max-new-tokens", 1, *words)

    def check_asked_calls(self, beside):
        """Prompts whose calls no template prints are refused as rows of trainings are; tools are told of."""
        self.train([{"messages": TALK}], name="plain calls")
        refused = self.asked("plain calls", {"messages": [*beside, *TALK]})
        self.assertEqual(refused.returncode, 4, refused.stderr)
        self.assertIn("asked.jsonl:1: message 2: has tool_calls, and the chat template prints no tool_calls", refused.stderr)
        self.assertEqual(self.asked("plain calls", {"messages": beside}).returncode, 0)  # the last one is the answer
        told = self.asked("plain calls", {"messages": TALK, "tools": [{"name": "weather"}]})
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertIn("asked.jsonl:1: has tools, and the chat template prints none", told.stderr)
        self.assertNotIn("prints none", self.asked("plain calls", {"messages": TALK}).stderr)

    def test_bad_rows_and_templates_end_with_a_message_and_write_no_checkpoint(self):
        self.assertIn("has no chat template", self.train([{"messages": TALK}], expect=2))
        self.assertIn("plain has no place", self.train([{"messages": TALK}], expect=2, template="plain"))
        no_answer = self.train([{"messages": TALK[:1]}], expect=4, template="alpaca")
        self.assertIn("train.jsonl:1: the conversation has nothing to learn", no_answer)
        turns = self.train([{"messages": TALK + TALK[1:]}], expect=4, name="turns", template="mistral")
        self.assertIn("mistral takes turns", turns)
        (self.model / "chat_template.jinja").write_text("\n{% for m in messages %}")
        self.assertIn("chat_template.jinja:2: 'for' is not closed", self.train([{"messages": TALK}], expect=2))
        (self.model / "chat_template.jinja").write_text("{{ strftime_now('%Y') }}" + OWN)
        self.assertIn("data.date", self.train([{"messages": TALK}], expect=4, name="dated"))
        self.train([{"messages": TALK}], name="with_date", date="2025-01-31")
        for name in ("turns", "dated"):
            self.assertFalse(list((self.folder / name).glob("checkpoint-*")))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        PLIMSOLL = Path(sys.argv.pop(1)).resolve()
    os.environ.pop("PLIMSOLL_SET", None)
    os.environ["OMP_WAIT_POLICY"] = "passive"
    unittest.main()
