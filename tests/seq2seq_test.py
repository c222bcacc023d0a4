"""An encoder and a decoder, as whole commands: a T5 trained on sources with their targets, resumed, evaluated, planned, and what is refused."""
import json
import shutil
import subprocess
import unittest

from command_run import CommandTest, PLIMSOLL, ROOT, assert_same_bits_in_little_memory, assert_splits_agree, output, run
from scores_test import lines, names_in
from shard import SuiteLoader
from small_models import T5 as CONFIG, pairs, sentence, sources as rows, texts, write_rows

CHATLM = {**CONFIG, "d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 10, "num_decoder_layers": 10, "num_heads": 12,
          "vocab_size": 29298, "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "dropout_rate": 0.1}


class Seq2Seq(CommandTest):
    needs_run = False

    def model(self, name="t5", **changes):
        """A folder of a T5 of the demo's words."""
        folder = self.folder / name
        if not folder.exists():
            folder.mkdir()
            vocab = json.loads((ROOT / "demo/model/config.json").read_text())["vocab_size"]
            (folder / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": vocab, **changes}))
            for file in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(ROOT / "demo/model" / file, folder)
        return folder

    def recipe(self, name, **changes):
        data = {"train": write_rows(self.folder / "rows.jsonl", rows(32)), "eval": 12, "max_length": {"source": 24, "target": 16}}
        recipe = {"task": "seq2seq", "model": str(self.model()), "init": "random", "method": {"type": "full"}, "precision": "fp32",
                  "batch": {"effective": 8}, "optimizer": {"lr": 3e-3}, "schedule": {"max_steps": 80, "warmup": 2},
                  "output": str(self.folder / name), **changes, "data": {**data, **changes.get("data", {})}}
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(recipe))
        return path, self.folder / name

    def losses(self, name, **changes):
        recipe, out = self.recipe(name, **changes)
        output("train", recipe, "--quiet")
        return [step["loss"] for step in lines(out / "metrics.jsonl")]

    def scored(self, name, task="classify", **changes):
        """A T5 whose head scores texts: classes of two texts each, or pairs of answers."""
        rows = [{"sentence1": row["text"], "sentence2": sentence(i), "label": row["label"]} for i, row in enumerate(texts(32))]
        reward = task == "reward"
        data = {"train": write_rows(self.folder / f"{task}.jsonl", pairs(64) if reward else rows), "eval": 12, "max_length": 48}
        classes = {} if reward else {"classify": {"labels": ["question", "order", "fact"]}}
        return self.recipe(name, **{"task": task, **classes, "data": data, **changes})

    def test_a_t5_learns_classes_and_rewards_by_a_head_behind_its_decoder(self):
        for task in ("classify", "reward"):
            recipe, out = self.scored(task, task)
            output("train", recipe, "--quiet")
            done = json.loads((out / "run.json").read_text())
            self.assertEqual(done["planned"]["device_arena_bytes"], done["measured"]["device_arena_bytes"])
            self.assertGreaterEqual(lines(out / "eval.jsonl")[-1]["accuracy"], 0.9)
            self.assertEqual(json.loads((out / "config.json").read_text())["architectures"], ["T5ForSequenceClassification"])
            names = names_in(out / "model.safetensors")
            self.assertLessEqual({"classification_head.dense.bias", "classification_head.out_proj.weight", "transformer.shared.weight",
                                  "transformer.decoder.final_layer_norm.weight"}, names)
            self.assertAlmostEqual(json.loads(output("eval", out, "--json"))["loss"], lines(out / "eval.jsonl")[-1]["loss"], places=4)
        said = json.loads(output("classify", self.folder / "classify", "--text", texts(1)[0]["text"], "--json"))
        self.assertEqual(len(said["probabilities"]), 3)
        self.assertIn("a head that scores sequences", output("generate", out, "--prompt", "x", code=2))
        # The text ends with its end-of-text token, two are two, and what is cut ends so too.
        recipe, _ = self.scored("rows")
        end = json.loads(output("plan", recipe, "--dump", "rows").splitlines()[0])["ids"]
        self.assertEqual(end.count(end[-1]), 2)
        cut = json.loads(output("plan", recipe, "--set", "data.max_length=8", "--dump", "rows").splitlines()[0])["ids"]
        self.assertEqual((len(cut), cut[-1]), (8, end[-1]))

    WORDS = {"labels": ["question", "order", "fact"], "words": [" what", " bring", " there"]}

    def test_a_t5_is_asked_which_word_it_would_write_first(self):
        base_recipe, base = self.recipe("untrained", schedule={"max_steps": 1, "warmup": 0})
        output("train", base_recipe, "--quiet")
        words = {"classify": self.WORDS, "model": str(base), "init": "weights"}
        recipe, out = self.scored("words", **words)
        graph = output("plan", recipe, "--dump", "graph")
        self.assertIn("word_scores(", graph)
        self.assertNotIn("classification_head", graph)
        output("train", recipe, "--quiet")
        done = json.loads((out / "run.json").read_text())
        self.assertEqual(done["planned"]["device_arena_bytes"], done["measured"]["device_arena_bytes"])
        self.assertGreaterEqual(lines(out / "eval.jsonl")[-1]["accuracy"], 0.9)
        self.assertEqual(json.loads((out / "config.json").read_text())["architectures"], ["T5ForConditionalGeneration"])
        names = names_in(out / "model.safetensors")
        self.assertIn("shared.weight", names)
        self.assertEqual([name for name in names if "classification_head" in name], [])
        output("generate", out, "--prompt", "What is the river?", "--max-new-tokens", 2)
        self.assertAlmostEqual(json.loads(output("eval", out, "--json"))["loss"], lines(out / "eval.jsonl")[-1]["loss"], places=4)
        told = json.loads(output("classify", out, "--text", "Bring me the river stone cloud now!", "--json").splitlines()[0])
        self.assertEqual((told["label"], len(told["probabilities"])), ("order", 3))
        lora, adapter = self.scored("words_lora", **words, method={"type": "lora", "r": 4}, schedule={"max_steps": 2, "warmup": 1})
        output("train", lora, "--quiet")
        config = json.loads((adapter / "adapter_config.json").read_text())
        self.assertEqual((config["task_type"], config["modules_to_save"]), ("SEQ_2_SEQ_LM", None))
        short = {"classify": self.WORDS, "model": str(self.model("dropping", dropout_rate=0.1)), "schedule": {"max_steps": 3, "warmup": 1}}
        assert_splits_agree(self, lambda name, **changes: self.scored(f"words_{name}", **changes, **short))
        assert_same_bits_in_little_memory(self, lambda name, **changes: self.scored(f"words_{name}", **changes, **short))

    def test_splits_and_memory_change_no_score_of_a_t5_that_drops_out(self):
        model = str(self.model("dropping", dropout_rate=0.1, classifier_dropout=0.2))
        short = {"model": model, "schedule": {"max_steps": 3, "warmup": 1}}
        assert_splits_agree(self, lambda name, **changes: self.scored(name, **changes, **short))
        assert_same_bits_in_little_memory(self, lambda name, **changes: self.scored(name, "reward", **changes, **short))

    def test_adapters_below_a_t5s_new_head_resume_bit_for_bit_and_merge_into_the_model_that_writes(self):
        base_recipe, base = self.recipe("writes", schedule={"max_steps": 2, "warmup": 1})
        output("train", base_recipe, "--quiet")
        recipe, out = self.scored("lora", model=str(base), init="weights", method={"type": "lora", "r": 4},
                                  schedule={"max_steps": 8, "warmup": 1}, save={"every": 4})
        output("train", recipe, "--quiet")
        adapter = out / "adapter_model.safetensors"
        config = json.loads((out / "adapter_config.json").read_text())
        self.assertEqual((config["task_type"], config["modules_to_save"]), ("SEQ_CLS", ["classifier", "score", "classification_head"]))
        self.assertLessEqual({"base_model.model.classification_head.dense.weight",
                              "base_model.model.transformer.encoder.block.0.layer.0.SelfAttention.q.lora_A.weight"}, names_in(adapter))
        whole = adapter.read_bytes()
        shutil.rmtree(out / "checkpoint-8")
        output("train", recipe, "--quiet", "--resume")
        self.assertEqual(adapter.read_bytes(), whole)
        output("merge", out, "--out", self.folder / "merged")
        names = names_in(self.folder / "merged" / "model.safetensors")
        self.assertIn("transformer.encoder.block.1.layer.1.DenseReluDense.wo.weight", names)
        self.assertNotIn("shared.weight", names)
        rows = ["--data", self.folder / "classify.jsonl", "--set", "task=classify", "--set", "classify.labels=[question, order, fact]", "--json"]
        merged = json.loads(output("eval", self.folder / "merged", *rows))
        self.assertAlmostEqual(merged["loss"], json.loads(output("eval", out, *rows))["loss"], places=4)
        self.assertEqual(run("eval", out, "--max-length", 16).returncode, 0)
        quantised, _ = self.scored("quantised", model=str(base), init="weights", method={"type": "qlora", "r": 4},
                                   schedule={"max_steps": 2, "warmup": 1})
        output("train", quantised, "--quiet")

    def test_a_t5_learns_in_the_planned_bytes_and_is_evaluated_again(self):
        recipe, out = self.recipe("t5run")
        told = run("train", recipe)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertIn(f"next       plimsoll generate {out}", told.stdout + told.stderr)
        steps, done = lines(out / "metrics.jsonl"), json.loads((out / "run.json").read_text())
        self.assertEqual(done["planned"]["device_arena_bytes"], done["measured"]["device_arena_bytes"])
        evaluated = lines(out / "eval.jsonl")[-1]
        self.assertLess(evaluated["loss"], 0.2 * steps[0]["loss"])
        names = names_in(out / "model.safetensors")
        self.assertIn("decoder.block.1.layer.1.EncDecAttention.k.weight", names)
        self.assertIn("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", names)
        self.assertNotIn("lm_head.weight", names)
        again = json.loads(output("eval", out, "--json"))
        self.assertAlmostEqual(again["loss"], evaluated["loss"], places=5)
        self.assertIn("task: seq2seq, reward and classify are for it", output("plan", out, "--set", "task=sft", code=2))
        self.answers(out)

    def answers(self, out):
        """Of a trained run: greedy, with beams, over rows and in eval."""
        expected = rows(1)[0]
        self.assertEqual(output("generate", out, "--prompt", expected["source"]).strip(), expected["target"])
        searched = json.loads(output("generate", out, "--prompt", expected["source"], "--num-beams", 4, "--num-return-sequences", 3,
                                     "--json"))
        self.assertEqual(searched["response"], expected["target"])
        self.assertEqual(searched["ended_by"], "end_token")
        scores = [searched["score"]] + [one["score"] for one in searched["next_best"]]
        self.assertEqual(len(scores), 3)
        self.assertEqual(scores, sorted(scores, reverse=True))
        file = self.folder / "answers.jsonl"
        output("generate", out, "--data", self.folder / "rows.jsonl", "--set", "data.columns={prompt: source, response: target}",
               "--limit", 6, "--num-beams", 2, "--out", file)
        answers = lines(file)
        self.assertEqual([one["expected"] for one in answers], [one["target"] for one in rows(2)])
        self.assertGreaterEqual(sum(one["response"] == one["expected"] for one in answers), 5)
        evaluated = json.loads(output("eval", out, "--generate", "--num-beams", 2, "--json"))["answers"]
        self.assertEqual((evaluated["rows"], evaluated["expected"]), (12, 12))
        self.assertGreaterEqual(evaluated["exact"], 10)
        self.assertGreater(evaluated["bleu"], 70)
        # Sources are cut as in training, to 24 tokens, and room is made in steps of 32.
        long = write_rows(self.folder / "long.jsonl", [{"source": expected["source"] * 20, "target": expected["target"]}])
        self.assertIn("32 tokens read, 8 written", run("eval", out, "--data", long, "--generate", "--max-new-tokens", 8).stderr)
        for arguments, reason in ((["--num-beams", 2, "--temperature", 1], "draws one"), (["--num-beams", 2, "--stop", "x"], "end tokens"),
                                  (["--num-return-sequences", 2], "--num-beams"), (["--system", "x"], "have no effect on an encoder"),
                                  (["--template", "chatml"], "have no effect on an encoder"), (["--context", 2], "the context only")):
            self.assertIn(reason, output("generate", out, "--prompt", "What is the capital?", *arguments, code=2))

    def test_splits_recomputation_and_disk_give_the_same(self):
        short = {"schedule": {"max_steps": 3, "warmup": 1}}
        rows_of_logits = {"loss_chunk": 64}
        whole = self.losses("whole", **short, batch={"effective": 8, "micro": 8}, memory=rows_of_logits)
        for micro in (1, 3):
            for ours, theirs in zip(self.losses(f"micro{micro}", **short, batch={"effective": 8, "micro": micro}), whole):
                self.assertAlmostEqual(ours, theirs, delta=1e-4)
        for name, memory in (("block", {"recompute": "block"}), ("cheap", {"recompute": "cheap"}),
                             ("disk", {"disk": "1GiB", "offload": ["weights", "states"]})):
            self.assertEqual(self.losses(name, **short, batch={"effective": 8, "micro": 8}, memory={**rows_of_logits, **memory}),
                             whole, name)

    def test_dropout_is_drawn_alike_however_a_batch_is_split_and_not_in_evaluation(self):
        dropped = {"model": str(self.model("dropped", dropout_rate=0.3)), "schedule": {"max_steps": 3, "warmup": 1}}
        whole = self.losses("d_whole", **dropped, batch={"effective": 8, "micro": 8})
        for ours, theirs in zip(self.losses("d_split", **dropped, batch={"effective": 8, "micro": 3}), whole):
            self.assertAlmostEqual(ours, theirs, delta=1e-4)
        plain = self.losses("d_none", schedule={"max_steps": 3, "warmup": 1}, batch={"effective": 8, "micro": 8})
        self.assertNotAlmostEqual(plain[0], whole[0], places=3)
        out = self.folder / "d_whole"
        first, second = (json.loads(output("eval", out, "--json"))["loss"] for _ in range(2))
        self.assertEqual(first, second)

    def test_adapters_are_those_of_peft_and_resume_bit_for_bit(self):
        recipe, out = self.recipe("lora", method={"type": "lora", "r": 4}, schedule={"max_steps": 8, "warmup": 1}, save={"every": 4})
        output("train", recipe, "--quiet")
        config = json.loads((out / "adapter_config.json").read_text())
        self.assertEqual((config["task_type"], sorted(config["target_modules"])), ("SEQ_2_SEQ_LM", ["k", "o", "q", "v", "wi", "wo"]))
        whole = (out / "adapter_model.safetensors").read_bytes()
        shutil.rmtree(out / "checkpoint-8")
        output("train", recipe, "--quiet", "--resume")
        self.assertEqual((out / "adapter_model.safetensors").read_bytes(), whole)

    def test_qlora_leaves_wo_whole_as_transformers_does_and_goes_on_as_it_was_begun(self):
        qlora = {"method": {"type": "qlora", "r": 4}, "schedule": {"max_steps": 6, "warmup": 1}, "save": {"every": 3}}
        base_recipe, base = self.recipe("base", schedule={"max_steps": 1})
        output("train", base_recipe, "--quiet")
        qlora |= {"model": str(base), "init": "weights"}
        adapters, loss = {}, {}
        for name, words in {"new": [], "old": ["--set", "method.unquantised=none"]}.items():
            recipe, out = self.recipe(name, **qlora)
            dump = output("plan", recipe, "--dump", "quantise", *words)
            self.assertEqual(dump.count("DenseReluDense.wo.weight.absmax"), 0 if name == "new" else dump.count("DenseReluDense.wi.weight.absmax"))
            output("train", recipe, "--quiet", *words)
            done = json.loads((out / "run.json").read_text())
            self.assertEqual(done["planned"]["device_arena_bytes"], done["measured"]["device_arena_bytes"])
            adapters[name] = (out / "adapter_model.safetensors").read_bytes()
            loss[name] = json.loads(output("eval", out, "--json"))["loss"]
            self.assertAlmostEqual(loss[name], lines(out / "eval.jsonl")[-1]["loss"], places=5)
        self.assertNotEqual(loss["new"], loss["old"])
        self.assertIn("unquantised: [wo]", (self.folder / "new/recipe.yaml").read_text())
        # Checkpoints of earlier versions say nothing of it: every module was in 4 bits.
        shutil.copytree(self.folder / "old", self.folder / "published")
        for folder in (self.folder / "published", self.folder / "old/checkpoint-3"):
            text = (folder / "recipe.yaml").read_text()
            self.assertIn("  unquantised: none\n", text)
            (folder / "recipe.yaml").unlink()
            (folder / "recipe.yaml").write_text(text.replace("  unquantised: none\n", ""))
            (folder / "checksums.json").unlink(missing_ok=True)
        self.assertEqual(json.loads(output("eval", self.folder / "published", "--json"))["loss"], loss["old"])
        for name in ("old", "new"):
            shutil.rmtree(self.folder / name / "checkpoint-6")
            output("train", self.folder / f"{name}.json", "--quiet", "--resume")
            self.assertEqual((self.folder / name / "adapter_model.safetensors").read_bytes(), adapters[name])
        self.assertIn("method.unquantised was [wo]",
                      output("train", self.folder / "new.json", "--resume", "--set", "schedule.max_steps=7", "--set", "method.unquantised=none", code=2))

    def test_chat_asks_a_t5_one_source_at_a_time(self):
        recipe, out = self.recipe("chatted")
        output("train", recipe, "--quiet")
        asked = "The river is cold."
        written = output("generate", out, "--prompt", asked, "--max-new-tokens", "8").strip()
        done = subprocess.run([str(PLIMSOLL), "chat", str(out), "--max-new-tokens", "8"], input=f"{asked}\n/reset\n{asked}\n", capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("each line is a source by itself", done.stderr)
        self.assertEqual([line for line in done.stdout.splitlines() if line], [line for line in (written + "\n" + written).splitlines() if line])
        long = subprocess.run([str(PLIMSOLL), "chat", str(out), "--context", "8"], input="The river " * 20 + "\n", capture_output=True, text=True, timeout=600)
        self.assertIn("--context makes it larger", long.stderr)
        self.assertIn("have no effect on an encoder", output("chat", out, "--system", "x", code=2))

    def test_a_budget_is_kept_with_two_stacks(self):
        (self.folder / "chatlm").mkdir()
        (self.folder / "chatlm/config.json").write_text(json.dumps(CHATLM))
        asked = [self.folder / "chatlm", "--set", "task=seq2seq", "--set", "data.max_length={source: 256, target: 256}", "--set",
                 "method.type=full", "--set", "batch.effective=8", "--no-probe", "--json"]
        free = json.loads(output("plan", *asked, "--memory", "20GiB"))
        tight = json.loads(output("plan", *asked, "--memory", "1500MiB", "--set", "memory.disk=20GiB"))
        self.assertEqual((free["feasible"], tight["feasible"]), (True, True))
        self.assertLessEqual(tight["process"]["planned_peak_rss_bytes"], 1500 * 2**20)
        self.assertIn("187.7 M parameters", output("plan", *asked[:-1], "--memory", "20GiB"))

    def test_rows_are_cut_apart_and_empty_targets_are_left_out(self):
        data = [{"source": "The river " * 40, "target": "This is long " * 30}, {"source": "The stone.", "target": ""},
                {"source": "The cloud.", "target": "This is a fact."}]
        recipe, _ = self.recipe("cut", data={"train": write_rows(self.folder / "odd.jsonl", data), "eval": None})
        shown = output("plan", recipe, "--dump", "rows")
        first, empty, last = map(json.loads, shown.splitlines())
        end = last["ids"][-1]
        start = first["ids"].index(end) + 1
        self.assertEqual((start, len(first["ids"]), first["ids"][-1], first["whole_length"] > 24), (24, 24 + 1 + 16, end, True))
        self.assertEqual(empty["ids"], [])
        self.assertEqual(sum(label != -100 for label in last["labels"]), len(last["ids"]) - last["ids"].index(end) - 2)
        told = run("train", recipe, "--set", "schedule.max_steps=1")
        self.assertEqual(told.returncode, 0, told.stderr)
        recipe, _ = self.recipe("empty", data={"train": write_rows(self.folder / "none.jsonl", data[1:2]), "eval": None})
        self.assertIn("targets are empty", output("train", recipe, code=2))

    def test_the_decoder_reads_padding_where_a_label_is_hidden(self):
        """As transformers' _shift_right has it: not the token that it starts with."""
        row = {"input_ids": [5, 6], "labels": [7, -100, -100, 8]}
        data = {"train": write_rows(self.folder / "hidden.jsonl", [row] * 8), "eval": None}
        recipe, _ = self.recipe("hidden", model=str(self.model("starts", decoder_start_token_id=3, pad_token_id=2)), data=data)
        told = json.loads(output("plan", recipe, "--dump", "rows").splitlines()[0])
        self.assertEqual((told["ids"], told["labels"]), ([5, 6, 3, 7, 2, 2, 8], [-100, -100, -100, 7, -100, -100, 8]))
        self.assertEqual(told["ends"], [2, 7])  # where the source ends, and the target

    def test_what_does_not_belong_is_refused(self):
        recipe, _ = self.recipe("bad")
        self.assertIn("data.packing", output("plan", recipe, "--set", "data.packing=true", code=2))
        self.assertIn("has no encoder", output("plan", "demo/model", "--set", "task=seq2seq", code=2))
        self.assertIn("of task: seq2seq", output("plan", "demo/model", "--set", "data.max_length={source: 8, target: 8}", code=2))
        self.assertIn("a source and a target", output("plan", recipe, "--set", "data.format=text", "--set", "data.columns={text: source}",
                                                     code=2))
        self.assertIn("feed_forward_proj", output("plan", self.model("odd", feed_forward_proj="gated-silu"), "--set", "task=seq2seq", code=2))
        self.assertIn("dense_act_fn", output("plan", self.model("other", dense_act_fn="gelu_new"), "--set", "task=seq2seq", code=2))


if __name__ == "__main__":
    unittest.main(testLoader=SuiteLoader("seq2seq_test"))
