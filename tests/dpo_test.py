"""Preference training as whole commands: DPO, IPO and ORPO, with adapters and in full; trained, resumed, evaluated, merged, and what is refused."""
import json
import math
import shutil
import unittest

from command_run import as_if_written_by_the_run, CommandTest, ROOT, assert_curves_agree, assert_same_bits_in_little_memory, output, run
from shard import SuiteLoader
from scores_test import lines, pairs, write_rows

METRICS = ["rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected"]


class Dpo(CommandTest):
    needs_run = False

    def recipe(self, name, **changes):
        data = {"train": write_rows(self.folder / "pairs.jsonl", pairs(96)), "eval": 16, "max_length": 64}
        recipe = {"model": str(ROOT / "demo/model"), "init": "random", "task": "dpo", "data": data, "method": {"type": "lora", "r": 4},
                  "precision": "fp32", "batch": {"effective": 8}, "optimizer": {"lr": 1e-2}, "memory": {"loss_chunk": 64},
                  "schedule": {"max_steps": 3, "warmup": 1}, "output": str(self.folder / name)}
        for key, value in changes.items():
            recipe[key] = {**recipe[key], **value} if isinstance(recipe.get(key), dict) else value
        if recipe["method"]["type"] == "full":
            recipe["method"] = {"type": "full"}
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(recipe))
        return path, self.folder / name

    def trained(self, name, **changes):
        recipe, out = self.recipe(name, **changes)
        output("train", recipe, "--quiet")
        return out

    def losses(self, name, **changes):
        return [step["loss"] for step in lines(self.trained(name, **changes) / "metrics.jsonl")]

    def base(self):
        """A folder with weights: random ones are in none."""
        folder = self.folder / "base"
        if not folder.exists():
            self.trained("base", task="sft", method={"type": "full"}, schedule={"max_steps": 2}, optimizer={"lr": 1e-3},
                         data={"columns": {"prompt": "prompt", "response": "chosen"}})
        return folder

    def test_a_model_learns_what_is_preferred_in_the_planned_bytes(self):
        out = self.trained("learns", schedule={"max_steps": 20, "warmup": 2})
        steps, done = lines(out / "metrics.jsonl"), json.loads((out / "run.json").read_text())
        self.assertEqual(done["planned"]["device_arena_bytes"], done["measured"]["device_arena_bytes"])
        self.assertEqual([name for name in METRICS if name not in steps[0]], [])
        # Before the first update the model is the reference.
        self.assertAlmostEqual(steps[0]["loss"], math.log(2), places=5)
        self.assertAlmostEqual(steps[0]["rewards/margins"], 0, places=5)
        evaluated = lines(out / "eval.jsonl")[-1]
        self.assertEqual(evaluated["target_tokens"], 16)
        self.assertGreaterEqual(evaluated["rewards/accuracies"], 0.9)
        self.assertGreater(evaluated["rewards/margins"], 0)
        adapter = json.loads((out / "adapter_config.json").read_text())
        self.assertEqual((adapter["task_type"], adapter["modules_to_save"]), ("CAUSAL_LM", None))

    def test_every_loss_learns(self):
        for loss in ("sigmoid_norm", "ipo", "orpo"):
            evaluated = lines(self.trained(loss, dpo={"loss": loss}, schedule={"max_steps": 15}) / "eval.jsonl")[-1]
            self.assertGreaterEqual(evaluated["rewards/accuracies"], 0.9, loss)
        for name in ("nll_loss", "log_odds_ratio", "log_odds_chosen"):
            self.assertIn(name, evaluated)
        evaluated = lines(self.trained("more", dpo={"label_smoothing": 0.1, "ftx": 0.5}) / "eval.jsonl")[-1]
        self.assertIn("nll_loss", evaluated)
        self.assertNotIn("log_odds_ratio", evaluated)

    def test_splits_give_the_same_losses(self):
        losses = {micro: self.losses(f"micro{micro}", batch={"micro": micro}) for micro in (1, 3, 8)}
        assert_curves_agree(self, losses.values())

    def test_means_of_memory_change_no_bit(self):
        weights = {}
        for name, memory in (("free", {}), ("blocks", {"recompute": "block"}), ("mlp", {"recompute": "mlp"}),
                             ("tight", {"recompute": "attention", "offload": ["weights", "activations"], "disk": "1GiB"})):
            for kind in ("lora", "qlora"):
                out = self.trained(f"{name}-{kind}", method={"type": kind}, batch={"micro": 2}, memory=memory)
                weights.setdefault(kind, set()).add((out / "adapter_model.safetensors").read_bytes())
        self.assertEqual({kind: len(files) for kind, files in weights.items()}, {"lora": 1, "qlora": 1})
        assert_same_bits_in_little_memory(self, lambda name, **changes: self.recipe(name, method={"type": "full"}, **changes))

    def test_a_run_resumes_bit_for_bit_is_evaluated_and_merged(self):
        model = {"model": str(self.base()), "init": "weights"}
        recipe, out = self.recipe("resumed", **model, schedule={"max_steps": 6}, save={"every": 3})
        output("train", recipe, "--quiet")
        adapter, told = out / "adapter_model.safetensors", lines(out / "eval.jsonl")[-1]
        whole = adapter.read_bytes()
        shutil.rmtree(out / "checkpoint-6")
        output("train", recipe, "--quiet", "--resume")
        self.assertEqual(adapter.read_bytes(), whole)
        again = json.loads(output("eval", out, "--json"))
        self.assertEqual(again["mean_over"], "pairs")
        self.assertAlmostEqual(again["loss"], told["loss"], places=4)
        self.assertEqual(again["metrics"]["rewards/accuracies"], told["rewards/accuracies"])
        self.assertIn("pairs of answers", output("eval", out, "--generate", code=2))
        self.assertNotEqual(output("generate", out, "--prompt", "Say something", "--max-new-tokens", "2"), "")
        output("merge", out, "--out", self.folder / "merged")
        self.assertTrue((self.folder / "merged" / "model.safetensors").exists())

    def test_orpo_trains_in_full_and_needs_no_reference(self):
        out = self.trained("full", method={"type": "full"}, dpo={"loss": "orpo"}, optimizer={"lr": 3e-3},
                           schedule={"max_steps": 15})
        self.assertGreaterEqual(lines(out / "eval.jsonl")[-1]["rewards/accuracies"], 0.9)
        again = json.loads(output("eval", out, "--json"))
        self.assertAlmostEqual(again["loss"], lines(out / "eval.jsonl")[-1]["loss"], places=4)
        dump = output("plan", self.recipe("full", method={"type": "full"}, dpo={"loss": "orpo"})[0], "--dump", "graph")
        self.assertNotIn("reference.", dump)

    def test_full_fine_tuning_compares_with_what_the_model_said_before_the_first_step(self):
        full = {"method": {"type": "full"}, "optimizer": {"lr": 1e-3}, "save": {"every": 2}}
        recipe, out = self.recipe("whole", **full, schedule={"max_steps": 14})
        output("train", recipe, "--quiet")
        steps, told = lines(out / "metrics.jsonl"), lines(out / "eval.jsonl")[-1]
        self.assertAlmostEqual(steps[0]["loss"], math.log(2), places=5)
        self.assertGreaterEqual(told["rewards/accuracies"], 0.9)
        known = lines(out / "reference.jsonl")
        self.assertEqual(len({(line["data"], line["row"]) for line in known[1:-1]}), 96)
        self.assertEqual(known[-1]["rows"], 96)
        done = json.loads((out / "run.json").read_text())
        self.assertEqual(done["planned"]["device_arena_bytes"], done["measured"]["device_arena_bytes"])
        again = json.loads(output("eval", out, "--json"))
        self.assertAlmostEqual(again["loss"], told["loss"], places=4)
        self.assertIn("log-probabilities", output("eval", out, "--data", self.folder / "pairs.jsonl", code=2))
        # Every epoch's order finds its rows; resumed runs read them.
        whole = (out / "model.safetensors").read_bytes()
        shutil.rmtree(out / "checkpoint-14")
        output("train", recipe, "--quiet", "--resume")
        self.assertEqual((out / "model.safetensors").read_bytes(), whole)
        self.assertIn("reference", output("plan", recipe))
        self.assertNotIn("@reference.", output("plan", recipe, "--dump", "program"))
        # A run that was killed before its first step goes on where it was: what is there, but for a torn line, is not computed anew.
        for step in (10, 12):
            shutil.rmtree(out / f"checkpoint-{step}", ignore_errors=True)
        shutil.rmtree(out / "checkpoint-14", ignore_errors=True)
        kept = (out / "reference.jsonl").read_text().splitlines()
        (out / "reference.jsonl").write_text("\n".join(kept[:50]) + "\n" + kept[50][:20])
        output("train", recipe, "--quiet", "--resume")
        self.assertEqual((out / "reference.jsonl").read_text().splitlines()[:50], kept[:50])
        self.assertEqual(sorted((out / "reference.jsonl").read_text().splitlines()), sorted(kept))
        self.assertEqual((out / "model.safetensors").read_bytes(), whole)
        # From a checkpoint too: what a power cut has taken, or what was changed, is computed again with the weights of before the first step.
        for spoilt in ("", "\0" * 4000, "\n".join(kept[:30]) + "\n" + kept[30].replace('"chosen": -', '"chosen": -1') + "\n" + "\n".join(kept[31:]) + "\n"):
            shutil.rmtree(out / "checkpoint-14")
            (out / "reference.jsonl").write_text(spoilt)
            done = run("train", recipe, "--resume")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("they are recomputed with the weights of", done.stderr)
            self.assertEqual(sorted((out / "reference.jsonl").read_text().splitlines()), sorted(kept))
            self.assertEqual((out / "model.safetensors").read_bytes(), whole)
        # A file of an earlier version has no checksums, and no last line.
        shutil.rmtree(out / "checkpoint-14")
        (out / "reference.jsonl").write_text("".join(line[:line.index(', "crc32c"')] + "}\n" for line in kept if '"rows"' not in line))
        self.assertNotIn("computed again", run("train", recipe, "--resume").stderr)
        self.assertEqual((out / "model.safetensors").read_bytes(), whole)
        (out / "reference.jsonl").write_text("\n".join(kept).replace('"chosen": -', '"chosen": -1'))
        self.assertIn("is damaged", output("eval", out, code=4))
        weighted = "data.train={path: %s, weight: 2}" % (self.folder / "pairs.jsonl")
        self.assertIn("weights select other rows", output("plan", recipe, "--set", weighted, code=2))

    def test_the_reference_is_the_base_without_adapters_and_nothing_of_it_is_kept(self):
        recipe, _ = self.recipe("printed", method={"dropout": 0.1})
        program = output("plan", recipe, "--dump", "program").splitlines()
        passed = [line for line in program if "@reference." in line]
        self.assertTrue(any("linear_log_prob(" in line for line in passed))
        self.assertFalse([line for line in passed if "lora" in line or "dropout" in line or "backward" in line])
        backward = [line for line in program if " backward" in line and "preference_loss_grad(" not in line]
        self.assertTrue(backward)
        self.assertFalse([line for line in backward if "(reference." in line or ", reference." in line])
        self.assertEqual(sum(line.startswith("tensor lm_head") or line.startswith("tensor model.embed") for line in program
                             if "frozen" in line), sum("frozen" in line and ("lm_head" in line or "embed_tokens" in line)
                                                       for line in program))
        self.assertFalse([line for line in program if line.startswith("tensor reference.")])

    def rows(self, rows, name="rows", **changes):
        data = {"train": write_rows(self.folder / f"{name}.jsonl", rows), "eval": None, "max_length": 256, **changes}
        recipe, _ = self.recipe(name, data=data)
        return [json.loads(line) for line in output("plan", recipe, "--dump", "rows").splitlines()]

    def answers(self, row):
        """Per answer: ids, and where its labels begin."""
        parts, begin = [], 0
        for end in row["ends"]:
            labels = row["labels"][begin:end]
            first = next(i for i, label in enumerate(labels) if label != -100)
            self.assertEqual(labels[first:], row["ids"][begin:end][first:])
            parts.append((row["ids"][begin:end], first))
            begin = end
        return parts

    def test_labels_are_those_of_the_answers(self):
        prompt, chosen, rejected = "Say something of the river.", " Thank you, gladly.", " No. It is nothing to me."
        apart = self.rows([{"prompt": prompt, "chosen": chosen, "rejected": rejected}])[0]
        (a, first), (b, other) = self.answers(apart)
        self.assertEqual((first, a[:first]), (other, b[:first]))
        self.assertNotEqual(a[first:], b[first:])
        # Without a prompt the answers part where their texts do, as TRL has it.
        joined = self.rows([{"chosen": prompt + chosen, "rejected": prompt + rejected}])[0]
        self.assertEqual(joined["ids"], apart["ids"])
        self.assertEqual(joined["labels"], apart["labels"])
        # A longer shared beginning is the prompt's.
        shared = self.rows([{"chosen": prompt + " No.", "rejected": prompt + " No. Never."}])[0]
        self.assertGreaterEqual(self.answers(shared)[0][1], first)

    def test_messages_are_answered_behind_the_whole_conversation(self):
        before = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hello you"}, {"role": "user", "content": "what is it"}]
        say = lambda text: [{"role": "assistant", "content": text}]
        apart = self.rows([{"prompt": before, "chosen": say("a stone"), "rejected": say("a cloud")}], template="chatml")[0]
        (a, first), (b, other) = self.answers(apart)
        self.assertEqual((first, a[:first]), (other, b[:first]))
        whole = self.rows([{"chosen": before + say("a stone"), "rejected": before + say("a cloud")}], template="chatml")[0]
        self.assertEqual((whole["ids"], whole["labels"]), (apart["ids"], apart["labels"]))
        short = self.rows([{"prompt": before[:1], "chosen": say("a stone"), "rejected": say("a cloud")}], template="chatml")[0]
        self.assertLess(self.answers(short)[0][1], first)

    def test_a_system_message_and_earlier_turns_of_columns_of_their_own_stand_before_the_question(self):
        talk = lambda role, text: {"role": role, "content": text}
        before = [talk("system", "be short"), talk("user", "hello"), talk("assistant", "hello you")]
        said = self.rows([{"prompt": [*before, talk("user", "what is\nit")], "chosen": "a stone", "rejected": "a cloud"}], template="chatml")[0]
        columns = {"prompt": "instruction", "input": "input", "system": "rules", "history": "before"}
        row = {"instruction": "what is", "input": "it", "chosen": "a stone", "rejected": "a cloud"}
        context = {"rules": "be short", "before": [["hello", "hello you"]]}
        apart = self.rows([{**row, **context}], template="chatml", columns=columns)[0]
        self.assertEqual((apart["ids"], apart["labels"]), (said["ids"], said["labels"]))
        written = self.rows([{**row, **context, "before": json.dumps(context["before"])}], template="chatml", columns=columns)[0]
        self.assertEqual(written["ids"], said["ids"])
        none = self.rows([{**row, "rules": "", "before": []}], template="chatml", columns=columns)[0]
        alone = self.rows([{"prompt": "what is\nit", "chosen": "a stone", "rejected": "a cloud"}], template="chatml")[0]
        self.assertEqual((none["ids"], none["labels"]), (alone["ids"], alone["labels"]))
        for template, told in (("plain", "need a chat template"),):
            recipe, _ = self.recipe("no_template", data={"train": write_rows(self.folder / "context.jsonl", [{**row, **context}]), "eval": None,
                                                         "columns": columns, "template": template})
            done = run("plan", recipe, "--dump", "rows")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(told, done.stderr)

    def test_texts_are_a_question_and_its_answer_where_a_template_is_named_and_whole_conversations_are_no_prompts_twice(self):
        talk = lambda role, text: {"role": role, "content": text}
        said = self.rows([{"prompt": [talk("user", "what is it")], "chosen": [talk("assistant", "a stone")],
                           "rejected": [talk("assistant", "a cloud")]}], template="chatml")[0]
        texts = self.rows([{"prompt": "what is it", "chosen": "a stone", "rejected": "a cloud"}], template="chatml")[0]
        self.assertEqual((texts["ids"], texts["labels"]), (said["ids"], said["labels"]))
        whole = self.rows([{"prompt": "what is it", "chosen": [talk("user", "what is it"), talk("assistant", "a stone")],
                            "rejected": [talk("user", "what is it"), talk("assistant", "a cloud")]}], template="chatml")[0]
        self.assertEqual((whole["ids"], whole["labels"]), (said["ids"], said["labels"]))
        one = self.rows([{"prompt": [{"from": "human", "value": "what is it"}], "chosen": {"from": "gpt", "value": "a stone"},
                          "rejected": {"from": "gpt", "value": "a cloud"}}], template="chatml")[0]
        self.assertEqual((one["ids"], one["labels"]), (said["ids"], said["labels"]))

    OWN = ("{% for m in messages %}{{ '<' + m.role + '>' + m.content + eos_token }}{% endfor %}"
           "{% if add_generation_prompt %}<assistant>{% endif %}")

    def chat_model(self):
        folder = self.folder / "chat"
        if not folder.exists():
            shutil.copytree(self.base(), folder)
            (folder / "chat_template.jinja").write_text(self.OWN)
        return str(folder)

    def test_texts_are_turns_of_the_model_s_own_template(self):
        text = {"prompt": "what is it", "chosen": "a stone", "rejected": "a cloud"}
        turns = [{"prompt": [{"role": "user", "content": text["prompt"]}], **{key: [{"role": "assistant", "content": text[key]}] for key in ("chosen", "rejected")}}]
        for task, changes, sets in (("dpo", {}, []), ("dpo", {"dpo": {"loss": "orpo"}}, []), ("reward", {}, ["--set", "memory.loss_chunk=null"])):
            def read(rows, *words, **data):
                path, words = write_rows(self.folder / "own.jsonl", rows), [*sets, *words]
                recipe, _ = self.recipe("own", model=self.chat_model(), task=task, data={"train": path, "eval": None, **data}, **changes)
                return json.loads(output("plan", recipe, "--dump", "rows", *words).splitlines()[0]), output("plan", recipe, *words)
            said, told = read(turns)
            self.assertIn("chat_template.jinja", told)
            rendered, told = read([text])
            self.assertEqual(rendered, said)
            self.assertIn("rendered by", told)
            self.assertEqual(read([{**text, "prompt": turns[0]["prompt"]}])[0], said)
            plain = read([text], template="plain")[0]
            self.assertLess(len(plain["ids"]), len(said["ids"]))
            asked = {"instruction": text["prompt"], **{key: text[key] for key in ("chosen", "rejected")}}
            self.assertEqual(read([asked], template="plain")[0]["ids"], plain["ids"])
            before = read([asked], "--set", "data.reading=4", template="plain")[0]["ids"]
            self.assertLess(len(before), len(plain["ids"]), "a run that began without the question has none")
            renamed = {"instruction": text["prompt"], "good": text["chosen"], "bad": text["rejected"]}
            named = ("--set", "data.columns={chosen: good, rejected: bad}")
            self.assertEqual(read([renamed], *named, template="plain")[0]["ids"], plain["ids"])
            self.assertEqual(read([renamed], *named, "--set", "data.reading=4", template="plain")[0]["ids"], before)
            whole = {key: [{"role": "user", "content": text["prompt"]}, {"role": "assistant", "content": text[key]}] for key in ("chosen", "rejected")}
            self.assertEqual(read([{"instruction": text["prompt"], **whole}])[0], read([whole])[0], "a conversation has its question already")
            alone = {key: turns[0][key] for key in ("chosen", "rejected")}
            for name in ("question", "query", "input"):
                self.assertEqual(read([{name: text["prompt"], **alone}])[0], said, "messages alone follow their question")
                self.assertEqual(read([{name: text["prompt"], **whole}])[0], read([whole])[0], "a conversation has its question already")
                if task == "reward":  # dpo refuses answers without a question
                    self.assertEqual(read([{name: text["prompt"], **alone}], "--set", "data.reading=5")[0], read([alone])[0], "a run that began without it goes on so")
            for kept, why in ((read([text], "--set", "data.template=trl"), "as TRL has texts"),
                              (read([text], "--set", "data.reading=1"), "as when the run began"),
                              (read([{key: text["prompt"] + text[key] for key in ("chosen", "rejected")}]), "no column 'prompt'")):
                self.assertEqual(kept[0]["ids"], plain["ids"], why)
                self.assertIn(why, " ".join(kept[1].split()))
        made = output("init", self.chat_model(), write_rows(self.folder / "own.jsonl", [text]), "--out", self.folder / "made.yaml")
        self.assertIn("rows    rendered by", made)

    def test_a_run_that_began_with_plain_texts_goes_on_with_them(self):
        changes = {"model": self.chat_model(), "init": "weights", "schedule": {"max_steps": 6}, "save": {"every": 3}}
        recipe, out = self.recipe("before", **changes)
        output("train", recipe, "--quiet", "--set", "data.reading=1")
        tokens = lambda: [step["tokens"] for step in lines(out / "metrics.jsonl")]
        whole, planned = (out / "adapter_model.safetensors").read_bytes(), tokens()
        self.assertFalse((out / "chat_template.jinja").exists())
        said = (out / "recipe.yaml").read_text()
        self.assertIn("  reading: 1\n", said)
        (out / "recipe.yaml").write_text(said.replace("  reading: 1\n", ""))  # as versions without the key wrote it
        as_if_written_by_the_run(out, "recipe.yaml")
        evaluated = json.loads(output("eval", out, "--json"))["loss"]
        self.assertAlmostEqual(evaluated, lines(out / "eval.jsonl")[-1]["loss"], places=4)
        shutil.rmtree(out / "checkpoint-6")
        output("train", recipe, "--quiet", "--resume")
        self.assertEqual((out / "adapter_model.safetensors").read_bytes(), whole)
        self.assertEqual(tokens(), planned)
        shutil.rmtree(out / "checkpoint-6")
        output("train", recipe, "--quiet", "--overwrite")
        self.assertGreater(tokens()[0], planned[0])
        self.assertTrue((out / "chat_template.jinja").exists())
        asked = json.loads(output("generate", out, "--prompt", "what is it", "--max-new-tokens", "1", "--json"))["prompt_ids"]
        plain = json.loads(output("generate", out, "--prompt", "<user>what is it<|endoftext|><assistant>", "--template", "plain", "--max-new-tokens", "1", "--json"))
        self.assertEqual(asked, plain["prompt_ids"])

    def test_an_answer_of_a_pair_is_weighed_whole(self):
        talk = lambda role, text, **more: {"role": role, "content": text, **more}
        before = [talk("user", "hello"), talk("assistant", "hello you"), talk("user", "what is it")]
        row = {"prompt": before, "chosen": [talk("assistant", "a stone")], "rejected": [talk("assistant", "a cloud")]}
        whole = self.rows([row], template="chatml")[0]
        masked = {**row, "prompt": [before[0], {**before[1], "weight": 0}, before[2]]}
        self.assertEqual(self.rows([masked], template="chatml")[0], whole)
        recipe, _ = self.recipe("masked", data={"train": write_rows(self.folder / "m.jsonl", [{**row, "chosen": [talk("assistant", "a", loss=False)]}]),
                                                "eval": None, "template": "chatml"})
        self.assertIn("scores whole answers", output("plan", recipe, code=2))

    def test_dialogues_in_one_text_part_behind_their_last_shared_turn(self):
        prompt = "\n\nHuman: hello\n\nAssistant: hello you\n\nHuman: what is it\n\nAssistant:"
        row = {"chosen": prompt + " a stone", "rejected": prompt + " a cloud"}
        told = self.rows([{"prompt": prompt, "chosen": " a stone", "rejected": " a cloud"}])[0]
        kept = self.rows([row])[0]  # the model has no template; " a" is the answer's, though both have it
        self.assertEqual((kept["ids"], kept["labels"]), (told["ids"], told["labels"]))
        talk = lambda role, text: {"role": role, "content": text}
        before = [talk("user", "hello"), talk("assistant", "hello you"), talk("user", "what is it")]
        said = self.rows([{"prompt": before, "chosen": [talk("assistant", "a stone")], "rejected": [talk("assistant", "a cloud")]}],
                         template="chatml")[0]
        rendered = self.rows([row], template="chatml")[0]
        self.assertEqual((rendered["ids"], rendered["labels"]), (said["ids"], said["labels"]))
        # One that is none is no dialogue's answer; where the first row is none, texts are texts.
        recipe, _ = self.recipe("mixed", data={"train": write_rows(self.folder / "mixed.jsonl", [row, {"chosen": "a", "rejected": "b"}]),
                                               "eval": None, "template": "chatml"})
        self.assertIn("mixed.jsonl:2: 'chosen' is no dialogue", output("train", recipe, "--quiet", code=4))
        half = self.rows([{"chosen": row["chosen"], "rejected": "a cloud"}], name="half")[0]
        self.assertEqual(len(half["ends"]), 2)

    def test_an_answer_of_a_chat_ends_as_the_template_ends_it(self):
        """No end of text stands behind it, as TRL's ORPO trainer has one; texts of a prompt's end with it."""
        begin, end = "<|im_start|>user\nwhat<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>"
        said = self.rows([{"prompt": [{"role": "user", "content": "what"}], "chosen": [{"role": "assistant", "content": "a stone"}],
                           "rejected": [{"role": "assistant", "content": "a cloud"}]}], template="chatml")[0]
        texts = self.rows([{"prompt": begin, "chosen": f"a stone{end}\n", "rejected": f"a cloud{end}\n"}], name="texts")[0]
        first, both = said["ends"]
        shown = json.loads(output("plan", self.recipe("end", data={"train": write_rows(self.folder / "end.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "c"}]),
                                                                   "eval": None})[0], "--dump", "rows").splitlines()[0])
        stop = shown["ids"][-1]  # of the text
        self.assertEqual((texts["ids"][texts["ends"][0] - 1], texts["ids"][-1]), (stop, stop))
        self.assertNotIn(stop, (said["ids"][first - 1], said["ids"][-1]))
        self.assertEqual([said["ids"][:first], said["ids"][first:both]],
                         [texts["ids"][:texts["ends"][0] - 1], texts["ids"][texts["ends"][0]:-1]])

    def test_ready_ids_and_prompts_that_are_learnt_too(self):
        row = {"prompt_input_ids": [5, 6, 7], "chosen_input_ids": [8, 9, 1], "rejected_input_ids": [8, 4]}
        ready = self.rows([row])[0]
        self.assertEqual(ready["ids"], [5, 6, 7, 8, 9, 1, 5, 6, 7, 8, 4])
        self.assertEqual(ready["labels"], [-100] * 3 + [8, 9, 1] + [-100] * 3 + [8, 4])
        whole = self.rows([{"chosen_input_ids": [5, 6, 7, 8, 9], "rejected_input_ids": [5, 6, 7, 4]}])[0]
        self.assertEqual(whole["labels"], [-100] * 3 + [8, 9] + [-100] * 3 + [4])
        data = {"train": write_rows(self.folder / "learnt.jsonl", [row]), "eval": None, "train_on_prompt": True}
        recipe, _ = self.recipe("learnt", data=data, dpo={"loss": "orpo"})
        learnt = json.loads(output("plan", recipe, "--dump", "rows").splitlines()[0])
        self.assertEqual(learnt["labels"], [-106, -107, -108, 8, 9, 1] + [-100] * 3 + [8, 4])
        self.assertIn("without dpo.ftx", output("plan", recipe, "--set", "dpo.loss=sigmoid", code=2))

    def test_pairs_that_teach_nothing_are_counted(self):
        long = "Say " + "the river and the stone " * 20
        rows = pairs(16) + [{"prompt": "a", "chosen": "b", "rejected": "b"}, {"prompt": long, "chosen": " yes", "rejected": " no"}]
        data = {"train": write_rows(self.folder / "some.jsonl", rows), "eval": None, "truncation": "right"}
        out = self.trained("some", data=data, schedule={"epochs": 1, "max_steps": None})
        self.assertEqual(json.loads((out / "run.json").read_text())["rows"]["without_targets"], 2)
        recipe, _ = self.recipe("none", data={"train": write_rows(self.folder / "same.jsonl", rows[16:17] * 3), "eval": None})
        self.assertIn("no pair has a difference to learn", output("train", recipe, code=2))
        dropped, _ = self.recipe("dropped", data={**data, "truncation": "drop"})
        report = output("plan", dropped)
        self.assertIn("17 rows", report)
        self.assertIn("dpo (pairs)", report)

    def test_what_means_nothing_is_refused_by_name(self):
        recipe, _ = self.recipe("odd")
        for key, words in (("data.packing=true", "is not supported with task: dpo"),
                           ("data.format=text", "does not belong to task: dpo"),
                           ("reward.centering=0.1", "has no effect with task: dpo"),
                           ("dpo.label_smoothing=0.5", "dpo.label_smoothing")):
            self.assertIn(words, output("plan", recipe, "--set", key, code=2))
        self.assertIn("sigmoid and sigmoid_norm", output("plan", recipe, "--set", "dpo.loss=ipo", "--set", "dpo.label_smoothing=0.1", code=2))
        self.assertIn("has no effect with task: sft", output("plan", recipe, "--set", "task=sft", "--set", "dpo.beta=0.2", code=2))

    def test_a_7b_model_is_planned_from_its_config_alone(self):
        (self.folder / "mistral").mkdir()
        (self.folder / "mistral" / "config.json").write_text(json.dumps({
            "model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
            "max_position_embeddings": 32768, "sliding_window": None, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16"}))
        words = [self.folder / "mistral", "--set", "data.max_length=1024", "--set", "batch.effective=8", "--no-probe", "--memory", "24GiB", "--json"]
        plan = json.loads(output("plan", *words, "--set", "task=dpo"))
        alone = json.loads(output("plan", *words, "--set", "task=sft"))

        def weights(report):
            return next(part["bytes"] for part in report["device"]["components"] if "weights" in part["name"] and "frozen" in part["name"])
        self.assertEqual(weights(plan), weights(alone))


if __name__ == "__main__":
    unittest.main(testLoader=SuiteLoader("dpo_test"))
