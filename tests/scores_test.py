"""Tasks that score whole sequences, as whole commands: reward models and classifiers, trained, resumed, evaluated, merged, and what is refused."""
import json
import random
import shutil
import statistics
import struct
import unittest
from pathlib import Path

from command_run import CommandTest, ROOT, assert_curves_agree, assert_same_bits_in_little_memory, assert_splits_agree, output, run
from shard import SuiteLoader
from small_models import LLAMA, model, pairs, sentence, texts, write_rows


def names_in(path):
    """Tensor names of a safetensors file."""
    data = path.read_bytes()
    return set(json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])) - {"__metadata__"}


def tensor_in(path, name):
    """Bytes of a tensor of a safetensors file."""
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    first, end = json.loads(data[8:begin])[name]["data_offsets"]
    return data[begin + first:begin + end]


def add_tensor(path, name, elements):
    """Another tensor of fp32 zeros at the end of a safetensors file."""
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header, size = json.loads(data[8:begin]), len(data) - begin
    header[name] = {"dtype": "F32", "shape": [elements], "data_offsets": [size, size + 4 * elements]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.unlink()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[begin:] + bytes(4 * elements))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Scores(CommandTest):
    needs_run = False

    def recipe(self, name, **changes):
        recipe = {"model": str(ROOT / "demo/model"), "init": "random", "method": {"type": "full"}, "precision": "fp32",
                  "batch": {"effective": 8}, "optimizer": {"lr": 3e-3}, "schedule": {"max_steps": 30, "warmup": 2},
                  "output": str(self.folder / name)}
        for key, value in changes.items():
            recipe[key] = {**recipe[key], **value} if isinstance(recipe.get(key), dict) else value
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(recipe))
        return path, self.folder / name

    def reward(self, name, **changes):
        data = {"train": write_rows(self.folder / "pairs.jsonl", pairs(96)), "eval": 16, "max_length": 64}
        return self.recipe(name, **{"task": "reward", **changes, "data": {**data, **changes.get("data", {})}})

    def classifier(self, name, **changes):
        data = {"train": write_rows(self.folder / "texts.jsonl", texts(40)), "eval": 20, "max_length": 32}
        return self.recipe(name, **{"task": "classify", "classify": {"labels": ["question", "order", "fact"]}, **changes,
                                    "data": {**data, **changes.get("data", {})}})

    def test_a_reward_model_learns_in_the_planned_bytes_and_is_evaluated_and_loaded_again(self):
        recipe, out = self.reward("reward")
        told = run("train", recipe)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertIn(f'next       plimsoll score {out} --prompt "..." --response "..." · plimsoll report {out}', told.stdout + told.stderr)
        steps, done = lines(out / "metrics.jsonl"), json.loads((out / "run.json").read_text())
        self.assertEqual(done["planned"]["device_arena_bytes"], done["measured"]["device_arena_bytes"])
        for name in ("accuracy", "margin", "mean_reward", "min_reward", "max_reward"):
            self.assertIn(name, steps[0])
        evaluated = lines(out / "eval.jsonl")[-1]
        self.assertEqual(evaluated["target_tokens"], 16)
        self.assertGreaterEqual(evaluated["accuracy"], 0.9)
        config = json.loads((out / "config.json").read_text())
        self.assertEqual(config["architectures"], ["LlamaForSequenceClassification"])
        self.assertEqual((config["id2label"], config["pad_token_id"]), ({"0": "LABEL_0"}, config["eos_token_id"]))
        self.assertIn("score.weight", names_in(out / "model.safetensors"))
        again = json.loads(output("eval", out, "--json", "--out", self.folder / "scores.jsonl"))
        self.assertAlmostEqual(again["loss"], evaluated["loss"], places=5)
        self.assertEqual(again["metrics"]["accuracy"], evaluated["accuracy"])
        scores = lines(self.folder / "scores.jsonl")
        right = sum(row["chosen"] > row["rejected"] for row in scores) / len(scores)
        self.assertEqual((len(scores), right), (16, evaluated["accuracy"]))
        self.assertIn("a head that scores sequences", output("generate", out, "--prompt", "x", code=2))
        self.assertIn("task: reward and classify", output("plan", out, "--set", "task=sft", code=2))

    def test_pairs_are_never_split_and_splits_give_the_same_losses(self):
        losses = {}
        for micro in (1, 3, 8):
            recipe, out = self.reward(f"micro{micro}", batch={"micro": micro}, schedule={"max_steps": 4})
            output("train", recipe, "--quiet")
            losses[micro] = [step["loss"] for step in lines(out / "metrics.jsonl")]
        assert_curves_agree(self, losses.values())

    def test_adapters_are_saved_with_the_head_resumed_bit_for_bit_and_merged(self):
        lora = {"method": {"type": "lora", "r": 4}, "schedule": {"max_steps": 8, "warmup": 1}, "save": {"every": 4}}
        recipe, out = self.reward("lora", **lora)
        output("train", recipe, "--quiet")
        adapter = out / "adapter_model.safetensors"
        config = json.loads((out / "adapter_config.json").read_text())
        self.assertEqual((config["task_type"], config["modules_to_save"]), ("SEQ_CLS", ["classifier", "score"]))
        self.assertIn("base_model.model.score.weight", names_in(adapter))
        whole = adapter.read_bytes()
        shutil.rmtree(out / "checkpoint-8")
        output("train", recipe, "--quiet", "--resume")
        self.assertEqual(adapter.read_bytes(), whole)
        # Random weights are in no folder: those of a reward model trained in full are the base to merge into.
        base_recipe, base = self.reward("base", schedule={"max_steps": 2, "warmup": 1})
        output("train", base_recipe, "--quiet")
        rows = ["--data", self.folder / "pairs.jsonl", "--set", "task=reward", "--json"]
        same, untouched = self.reward("untouched", **{**lora, "schedule": {"max_steps": 1, "warmup": 0}}, optimizer={"lr": 0},
                                      model=str(base), init="weights")
        output("train", same, "--quiet")  # its head is where the training begins
        self.assertAlmostEqual(json.loads(output("eval", untouched, *rows))["loss"], json.loads(output("eval", base, *rows))["loss"], places=6)
        recipe, out = self.reward("on_base", **lora, model=str(base), init="weights")
        output("train", recipe, "--quiet")
        output("merge", out, "--out", self.folder / "merged")
        self.assertIn("score.weight", names_in(self.folder / "merged" / "model.safetensors"))
        merged = json.loads(output("eval", self.folder / "merged", *rows))
        beside = json.loads(output("eval", out, *rows))
        self.assertAlmostEqual(merged["loss"], beside["loss"], places=4)

    def test_a_classifier_learns_names_of_classes_and_says_them(self):
        recipe, out = self.classifier("classes")
        output("train", recipe, "--quiet")
        self.assertGreaterEqual(lines(out / "eval.jsonl")[-1]["accuracy"], 0.9)
        config = json.loads((out / "config.json").read_text())
        self.assertEqual(config["id2label"], {"0": "question", "1": "order", "2": "fact"})
        self.assertEqual(config["problem_type"], "single_label_classification")
        metrics = json.loads(output("eval", out, "--out", self.folder / "said.jsonl", "--json"))["metrics"]
        said = lines(self.folder / "said.jsonl")
        true = [lines(self.folder / "texts.jsonl")[row["row"]]["label"] for row in said]
        f1 = []
        for name in sorted({*true, *(row["label"] for row in said)}):
            right = sum(row["label"] == name == label for row, label in zip(said, true))
            f1.append(2 * right / (sum(row["label"] == name for row in said) + true.count(name)))
        self.assertAlmostEqual(metrics["f1"], sum(f1) / len(f1), places=9)
        self.assertGreater(metrics["matthews_correlation"], 0.8)
        self.assertEqual(len(said), 20)
        self.assertTrue(all(row["label"] in config["label2id"] and abs(sum(row["probabilities"]) - 1) < 1e-9
                            for row in said))

    def test_a_run_tells_metrics_at_its_evaluations_and_ends_with_the_best_by_one_of_them(self):
        recipe, out = self.classifier("best", schedule={"max_steps": 16, "warmup": 2}, eval={"every": 4},
                                      save={"every": 4, "keep": 2, "best": "f1"}, log={"tensorboard": True})
        told = run("train", recipe)
        self.assertEqual(told.returncode, 0, told.stderr)
        evaluated = lines(out / "eval.jsonl")
        self.assertEqual([line["step"] for line in evaluated], [4, 8, 12, 16])
        names = ("accuracy", "f1", "matthews_correlation")
        self.assertIn("  ".join(f"{name} {evaluated[-1][name]:.4f}" for name in names), told.stdout + told.stderr)
        # The first of the best ones, with what eval says of it.
        best = max(evaluated, key=lambda line: line["f1"])
        chosen = json.loads((out / "run.json").read_text())["best"]
        self.assertEqual((chosen["step"], chosen["metric"]), (best["step"], "f1"))
        self.assertAlmostEqual(chosen["value"], best["f1"], places=8)
        state = json.loads((out / f"checkpoint-{best['step']}/trainer_state.json").read_text())
        for name in names:
            self.assertAlmostEqual(state["eval_metrics"][name], best[name], places=8)
        again = json.loads(output("eval", out, "--json"))["metrics"]
        for name in names:
            self.assertAlmostEqual(again[name], best[name], places=5)
        self.assertIn(f"best f1 {best['f1']:.4f} at step {best['step']}", " ".join(output("report", out).split()))
        self.assertIn(b"eval/matthews_correlation", next(out.glob("events.out.tfevents.*")).read_bytes())
        # A run that goes on keeps what was the best before.
        whole = (out / "model.safetensors").read_bytes()
        shutil.rmtree(out / "checkpoint-16")
        output("train", recipe, "--quiet", "--resume")
        self.assertEqual(json.loads((out / "run.json").read_text())["best"], chosen)
        self.assertEqual((out / "model.safetensors").read_bytes(), whole)
        self.assertIn("evaluation answers", output("plan", recipe, "--explain"))

    def test_what_a_task_does_not_measure_chooses_no_checkpoint(self):
        recipe, _ = self.classifier("unmeasured", save={"best": "pearson"})
        self.assertIn("task: classify has loss, accuracy, f1, matthews_correlation", output("plan", recipe, code=2))
        recipe, _ = self.reward("unmeasured", save={"best": "f1"})
        self.assertIn("task: reward has loss, accuracy, margin", output("plan", recipe, code=2))
        recipe, out = self.reward("margin", save={"best": "margin", "every": 5}, schedule={"max_steps": 10}, stop={"patience": 1})
        output("train", recipe, "--quiet")
        told = {line["step"]: line["margin"] for line in lines(out / "eval.jsonl")}
        self.assertEqual(json.loads((out / "run.json").read_text())["best"]["step"], max(told, key=told.get))

    def encoder(self, name, family="bert", **changes):
        """A classifier by a tiny encoder with dropout, over pairs of texts."""
        folder = self.folder / f"tiny_{family}"
        folder.mkdir(exist_ok=True)
        shutil.copy(ROOT / "tests/golden/tokenizers/bert_cased.json", folder / "tokenizer.json")
        (folder / "config.json").write_text(json.dumps({
            "model_type": family, "vocab_size": 1600, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 64, "max_position_embeddings": 64, "initializer_range": 0.1, "pad_token_id": 0}))
        rows = [{"sentence1": sentence(i), "sentence2": row["text"], "label": row["label"]} for i, row in enumerate(texts(40))]
        data = {"train": write_rows(self.folder / "two_texts.jsonl", rows), "eval": 20, "max_length": 48}
        return self.classifier(name, **{"model": str(folder), "data": data, **changes})

    def test_encoders_learn_pairs_of_texts_in_the_planned_bytes_and_are_evaluated(self):
        for family, head in (("bert", "classifier.weight"), ("roberta", "classifier.out_proj.weight")):
            recipe, out = self.encoder(family, family, schedule={"max_steps": 60, "warmup": 4})
            output("train", recipe, "--quiet")
            done = json.loads((out / "run.json").read_text())
            self.assertEqual(done["planned"]["device_arena_bytes"], done["measured"]["device_arena_bytes"])
            self.assertGreaterEqual(lines(out / "eval.jsonl")[-1]["accuracy"], 0.9)
            config = json.loads((out / "config.json").read_text())
            self.assertEqual(config["architectures"], [{"bert": "Bert", "roberta": "Roberta"}[family] + "ForSequenceClassification"])
            self.assertLessEqual({head, f"{family}.encoder.layer.1.attention.self.key.bias"}, names_in(out / "model.safetensors"))
            told = json.loads(output("eval", out, "--json"))
            self.assertAlmostEqual(told["loss"], lines(out / "eval.jsonl")[-1]["loss"], places=4)

    def test_what_two_texts_tell_only_together_is_learnt(self):
        kinds, draw = ("What is the {}?", "Bring me the {} now!"), random.Random(1)
        rows = []
        for i in range(200):
            first, second = draw.choice(kinds), draw.choice(kinds)
            rows.append({"sentence1": first.format(sentence(i)), "sentence2": second.format(sentence(i + 3)),
                         "label": "same" if first == second else "other"})
        recipe, out = self.encoder("judged", data={"train": write_rows(self.folder / "judged.jsonl", rows), "eval": 40, "max_length": 48},
                                   classify={"labels": ["same", "other"]}, batch={"effective": 16}, schedule={"max_steps": 240, "warmup": 4})
        output("train", recipe, "--quiet")
        self.assertGreaterEqual(lines(out / "eval.jsonl")[-1]["accuracy"], 0.9)

    def test_an_encoder_reads_texts_between_the_tokens_of_its_tokenizer(self):
        recipe, _ = self.encoder("rows")
        row = json.loads(output("plan", recipe, "--dump", "rows").splitlines()[0])
        self.assertEqual((row["ids"][0], row["ids"][-1], row["ids"][row["second"] - 1]), (2, 3, 3))
        dump = output("plan", recipe, "--dump", "graph")
        for words in ("token_type_ids", "layer_norm(", "gelu(", "tanh(", "causal=0", "dropout="):
            self.assertIn(words, dump)

    def test_splits_recomputation_and_offload_of_an_encoder_draw_the_same(self):
        short = {"schedule": {"max_steps": 3, "warmup": 1}}
        assert_splits_agree(self, lambda name, **changes: self.encoder(name, **changes, **short))
        assert_same_bits_in_little_memory(self, lambda name, **changes: self.encoder(name, "roberta", **changes, **short))

    def test_adapters_of_an_encoder_resume_bit_for_bit_and_merge(self):
        base_recipe, base = self.encoder("encoder_base", schedule={"max_steps": 2, "warmup": 1})
        output("train", base_recipe, "--quiet")
        lora = {"method": {"type": "lora", "r": 4, "dropout": 0.1}, "schedule": {"max_steps": 8, "warmup": 1}, "save": {"every": 4}}
        recipe, out = self.encoder("encoder_lora", **lora, model=str(base), init="weights")
        output("train", recipe, "--quiet")
        adapter = out / "adapter_model.safetensors"
        config = json.loads((out / "adapter_config.json").read_text())
        self.assertEqual(config["target_modules"], ["query", "key", "value", "dense"])
        self.assertLessEqual({"base_model.model.classifier.bias", "base_model.model.bert.pooler.dense.lora_A.weight"}, names_in(adapter))
        whole = adapter.read_bytes()
        shutil.rmtree(out / "checkpoint-8")
        output("train", recipe, "--quiet", "--resume")
        self.assertEqual(adapter.read_bytes(), whole)
        output("merge", out, "--out", self.folder / "merged_encoder")
        rows = ["--data", self.folder / "two_texts.jsonl", "--set", "task=classify", "--set",
                "classify.labels=[question, order, fact]", "--json"]
        merged = json.loads(output("eval", self.folder / "merged_encoder", *rows))
        # A base with a head for words: transformers would report it as unexpected in a classifier.
        words = self.folder / "with_words"
        shutil.copytree(base, words)
        add_tensor(words / "model.safetensors", "cls.predictions.bias", 4)
        output("merge", out, "--base", words, "--out", self.folder / "merged_words")
        self.assertEqual(names_in(self.folder / "merged_words/model.safetensors"), names_in(self.folder / "merged_encoder/model.safetensors"))
        beside = json.loads(output("eval", out, *rows))
        self.assertAlmostEqual(merged["loss"], beside["loss"], places=4)

    def test_a_first_recipe_asks_which_column_is_the_label_and_reads_its_classes(self):
        self.encoder("first")
        config = self.folder / "tiny_bert"  # without a head and names of classes

        def init(*rows, sets=(), code=0):
            data = write_rows(self.folder / "first.jsonl", list(rows) * 2)
            return output("init", config, data, "--out", self.folder / "first.yaml", "--force", *sets, code=code)

        for rows, said in (
                (({"review": "a", "mood": "x"}, {"review": "b", "mood": "y"}),
                 "which of them is the text and which the label is not known: say\n  --set 'data.columns={sentence: review, label: mood}'\n"
                 "  or\n  --set 'data.columns={sentence: mood, label: review}'"),
                (({"id": 1, "The Review": "a", "mood": "x"},), "--set 'data.columns={sentence: The Review, label: mood}'"),
                (({"review": "a", "stars": 1},), "is not known: say --set 'data.columns={sentence: review, label: stars}'"),
                (({"sentence": "a", "mood": "x"},), "which of them is the label is not known: say --set 'data.columns={label: mood}'"),
                (({"label": "a", "review": "x"},), "which of them is the text is not known: say --set 'data.columns={sentence: review}'"),
                (({"title": "a", "body": "b", "mood": "x"},), "--set 'data.columns={sentence: COLUMN, label: COLUMN}'")):
            self.assertIn(said, init(*rows, code=2))
        init({"The Review": "a", "mood": "sad"}, {"The Review": "b", "mood": "glad"}, sets=("--set", "data.columns={sentence: The Review, label: mood}"))
        self.assertIn("\nclassify: {labels: [glad, sad]}", (self.folder / "first.yaml").read_text())

    def test_what_an_encoder_cannot_do_is_refused(self):
        recipe, out = self.encoder("refused")
        model = str(self.folder / "tiny_bert")
        for task in ("reward", "sft", "dpo", "seq2seq"):
            other, _ = self.reward("other", model=model, task=task)
            self.assertIn(f"an encoder: task: mlm (masked words) and classify are for it, not {task}", output("plan", other, code=2))
        self.assertIn("knows 64 positions", output("plan", recipe, "--set", "data.max_length=65", code=2))
        output("train", recipe, "--quiet", "--set", "schedule.max_steps=1", "--set", "schedule.warmup=0")
        self.assertIn("an encoder", output("generate", out, "--prompt", "river", code=2))

    def guesser(self, name, family="bert", **changes):
        """A tiny encoder that guesses words."""
        self.encoder(name, family)
        rows = [{"text": f"the ship holds {sentence(i)} and the deck holds {sentence(i + 1)}"} for i in range(64)]
        data = {"train": write_rows(self.folder / "words.jsonl", rows), "eval": 8, "max_length": 32}
        given = {"task": "mlm", "model": str(self.folder / f"tiny_{family}"), "mlm": {"probability": 0.3}, **changes}
        return self.recipe(name, **{**given, "data": {**data, **changes.get("data", {})}})

    def test_encoders_guess_words_in_the_planned_bytes_and_resume_bit_for_bit(self):
        for family, names in (("bert", ("cls.predictions.bias", "cls.predictions.transform.LayerNorm.weight")),
                              ("modernbert", ("decoder.bias", "head.norm.weight"))):
            recipe, out = self.guesser(family, family, schedule={"max_steps": 24, "warmup": 2}, save={"every": 12})
            output("train", recipe, "--quiet")
            done, told = json.loads((out / "run.json").read_text()), lines(out / "eval.jsonl")[-1]
            self.assertEqual(done["planned"]["device_arena_bytes"], done["measured"]["device_arena_bytes"])
            self.assertLess(told["loss"], 6.5)  # ln(1600) is 7.4
            self.assertEqual(json.loads((out / "config.json").read_text())["architectures"], [{"bert": "Bert", "modernbert": "ModernBert"}[family] + "ForMaskedLM"])
            whole = (out / "model.safetensors").read_bytes()
            self.assertLessEqual(set(names), names_in(out / "model.safetensors"))
            again = json.loads(output("eval", out, "--json"))
            self.assertAlmostEqual(again["loss"], told["loss"], places=4)
            self.assertEqual(again["target_tokens"], told["target_tokens"])
            shutil.rmtree(out / "checkpoint-24")
            output("train", recipe, "--quiet", "--resume")
            self.assertEqual((out / "model.safetensors").read_bytes(), whole)
            adapter, made = self.guesser(f"{family}_lora", family, model=str(out), init="weights", method={"type": "lora", "r": 4}, schedule={"max_steps": 2})
            output("train", adapter, "--quiet")
            self.assertIsNone(json.loads((made / "adapter_config.json").read_text())["task_type"])
            output("merge", made, "--out", self.folder / f"{family}_merged")
            self.assertEqual(names_in(self.folder / f"{family}_merged/model.safetensors"), names_in(out / "model.safetensors"))
            for folder in (made, self.folder / f"{family}_merged"):
                self.assertIn("pipeline_tag: fill-mask", (folder / "README.md").read_text())

    def test_an_epoch_that_hides_no_word_is_planned_as_others_may(self):
        rows = {"train": write_rows(self.folder / "few.jsonl", [{"text": "the ship"}, {"text": "a deck"}]), "eval": None}
        recipe, _ = self.guesser("few", mlm={"probability": 0.001}, schedule={"max_steps": 2})
        output("plan", recipe, *(word for key, value in (("data.train", rows["train"]), ("data.eval", "null")) for word in ("--set", f"{key}={value}")))

    def test_splits_packing_and_little_memory_hide_the_same_words(self):
        short = {"schedule": {"max_steps": 3, "warmup": 1}}
        assert_splits_agree(self, lambda name, **changes: self.guesser(name, "modernbert", **changes, **short))
        chunk = {"loss_chunk": 64}  # sums of other chunks are rounded differently
        assert_same_bits_in_little_memory(self, lambda name, memory, **changes: self.guesser(name, "roberta", memory={**memory, **chunk}, **changes, **short))
        recipe, out = self.guesser("joined", data={"packing": "joined"}, **short)
        output("train", recipe, "--quiet")
        self.assertEqual(len(lines(out / "metrics.jsonl")), 3)
        rows = [json.loads(line) for line in output("plan", recipe, "--set", "data.packing=true", "--dump", "rows").splitlines()]
        hidden = [(shown, word) for row in rows for shown, word in zip(row["ids"], row["labels"]) if word != -100]
        self.assertTrue(all(word > 4 for _, word in hidden))
        self.assertTrue(any(shown == 4 for shown, _ in hidden) and any(shown == word for shown, word in hidden))

    def test_what_cannot_be_guessed_is_refused(self):
        recipe, _ = self.guesser("guessed")
        def refused(why, *words):
            self.assertIn(why, output("plan", recipe, *words, code=2))
        refused("with mlm.mask: 0.8 they are more than 1", "--set", "mlm.random=0.3")
        refused("hides other words in every epoch", "--set", "memory.keep_frozen=on")
        refused("task: mlm reads text or input-ids", "--set", "data.format=messages")
        refused("is the output layer of the masked language modelling head", "--set", "method={type: lora, targets: [query, decoder]}")
        other, _ = self.recipe("decoder", task="mlm", data={"train": write_rows(self.folder / "words.jsonl", [{"text": "river"}] * 9)})
        self.assertIn("no encoder: task: mlm hides words from an encoder", output("plan", other, code=2))
        pairs_of, _ = self.guesser("pairs", data={"train": write_rows(self.folder / "pairs.jsonl", [{"prompt": "a", "response": "b"}] * 9), "eval": None})
        self.assertIn("these rows are prompt-response", output("plan", pairs_of, code=2))
        learnt, _ = self.recipe("sft", data={"train": str(self.folder / "words.jsonl")}, mlm={"probability": 0.2})
        self.assertIn("has no effect with task: sft", output("plan", learnt, code=2))
        tokenizer = self.folder / "tiny_bert/tokenizer.json"
        tokenizer.write_text(tokenizer.read_text().replace("[MASK]", "[HIDE]"))
        refused("names no token that hides words")

    def test_classes_are_called_as_people_call_them(self):
        kinds = ["good", "so so", "très: mauvais"]
        rows = [{"text": f"{sentence(i)} {kinds[i % 3]}", "label": kinds[i % 3]} for i in range(60)]
        recipe, out = self.classifier("called", classify={"labels": kinds}, schedule={"max_steps": 3},
                                      data={"train": write_rows(self.folder / "called.jsonl", rows), "eval": None})
        output("train", recipe, "--quiet")
        self.assertEqual(json.loads((out / "config.json").read_text())["id2label"], dict(zip("012", kinds)))
        said = json.loads(output("classify", out, "--text", "river", "--json").splitlines()[0])
        self.assertIn(said["label"], kinds)

    WORDS = {"labels": ["question", "order", "fact"], "words": [" what", " bring", " there"]}

    def test_words_of_the_vocabulary_stand_for_classes_without_a_new_head(self):
        recipe, out = self.classifier("words", classify=self.WORDS)
        graph = output("plan", recipe, "--dump", "graph")
        self.assertIn("word_scores(", graph)
        self.assertNotIn("score.weight", graph)
        output("train", recipe, "--quiet")
        evaluated = lines(out / "eval.jsonl")[-1]
        self.assertGreaterEqual(evaluated["accuracy"], 0.9)
        config = json.loads((out / "config.json").read_text())
        self.assertEqual(config["architectures"], ["LlamaForCausalLM"])
        self.assertNotIn("score.weight", names_in(out / "model.safetensors"))
        output("generate", out, "--prompt", "What is the river?", "--max-new-tokens", 2)
        again = json.loads(output("eval", out, "--json"))
        self.assertAlmostEqual(again["loss"], evaluated["loss"], places=5)
        self.assertEqual(again["metrics"]["accuracy"], evaluated["accuracy"])
        said = json.loads(output("classify", out, "--text", "Bring me the river stone cloud now!", "--json").splitlines()[0])
        self.assertEqual((said["label"], len(said["probabilities"])), ("order", 3))
        # A folder that is no run is told the words.
        asked = ["classify", out, "--text", "Bring me the river stone cloud now!", "--json"]
        (out / "recipe.yaml").unlink()
        self.assertIn("classify.labels: name the classes", output(*asked, code=2))
        told = json.loads(output(*asked, "--set", f"classify.words={self.WORDS['words']}").splitlines()[0])
        self.assertEqual((told["label"], told["probabilities"]), ("bring", said["probabilities"]))

    def test_adapters_of_a_classifier_by_words_hold_no_head_resume_and_merge(self):
        base_recipe, base = self.classifier("words_base", classify=self.WORDS, schedule={"max_steps": 2, "warmup": 1})
        output("train", base_recipe, "--quiet")
        lora = {"method": {"type": "lora", "r": 4}, "schedule": {"max_steps": 8, "warmup": 1}, "save": {"every": 4}}
        recipe, out = self.classifier("words_lora", classify=self.WORDS, **lora, model=str(base), init="weights")
        output("train", recipe, "--quiet")
        adapter = out / "adapter_model.safetensors"
        config = json.loads((out / "adapter_config.json").read_text())
        self.assertEqual((config["task_type"], config["modules_to_save"]), ("CAUSAL_LM", None))
        whole = adapter.read_bytes()
        shutil.rmtree(out / "checkpoint-8")
        output("train", recipe, "--quiet", "--resume")
        self.assertEqual(adapter.read_bytes(), whole)
        output("merge", out, "--out", self.folder / "merged_words")
        rows = ["--data", self.folder / "texts.jsonl", "--json"]
        merged = json.loads(output("eval", self.folder / "merged_words", *rows, "--set", "task=classify", "--set",
                                   f"classify.labels={self.WORDS['labels']}", "--set", f"classify.words={self.WORDS['words']}"))
        beside = json.loads(output("eval", out, *rows))
        self.assertAlmostEqual(merged["loss"], beside["loss"], places=4)

    def test_words_that_cannot_stand_for_classes_are_refused(self):
        recipe, _ = self.classifier("wrong_words", classify=self.WORDS)
        for change, words in (("classify.words=[' what', ' what it', ' there']", "' what' and ' what it' begin with the same token"),
                              ("classify.words=[' what', ' there']", "2 words for 3 classes"),
                              ("classify.words=['', ' bring', ' there']", "classify.words"),
                              ("classify.problem=any-of", "needs a head of its own")):
            self.assertIn(words, output("plan", recipe, "--set", change, code=2))
        encoder, _ = self.encoder("words_of_an_encoder", classify=self.WORDS)
        self.assertIn("a model that predicts next tokens", output("plan", encoder, code=2))
        rows = texts(4) + [{"text": "Who knows.", "label": "guess"}]
        other = write_rows(self.folder / "guess.jsonl", rows)
        told = output("train", recipe, "--set", f"data.train={other}", "--set", "data.eval=null", "--set", "schedule.max_steps=2", code=4)
        self.assertIn('the label is "guess", the classes are question, order, fact', told)

    def test_numbers_and_sets_of_classes_are_learnt_too(self):
        rows = [{"sentence": sentence(i), "label": float(i % 5)} for i in range(40)]
        data = {"train": write_rows(self.folder / "numbers.jsonl", rows), "eval": None}
        recipe, out = self.classifier("numbers", data=data, classify={"labels": None, "problem": "numbers"})
        output("train", recipe, "--quiet")
        steps = lines(out / "metrics.jsonl")
        self.assertLess(steps[-1]["loss"], steps[0]["loss"] / 2)
        told = json.loads(output("eval", out, "--data", self.folder / "numbers.jsonl", "--out", self.folder / "values.jsonl", "--json"))
        said = [row["values"][0] for row in lines(self.folder / "values.jsonl")]
        self.assertAlmostEqual(told["metrics"]["pearson"], statistics.correlation(said, [row["label"] for row in rows]), places=6)
        self.assertGreater(told["metrics"]["spearmanr"], 0)
        rows = [{"sentence": sentence(i), "label": [["a", "b"][i % 2], "c"][:1 + i % 2]} for i in range(40)]
        data = {"train": write_rows(self.folder / "sets.jsonl", rows), "eval": None}
        recipe, out = self.classifier("sets", data=data, classify={"labels": ["a", "b", "c"], "problem": "any-of"})
        output("train", recipe, "--quiet")
        self.assertLess(lines(out / "metrics.jsonl")[-1]["loss"], lines(out / "metrics.jsonl")[0]["loss"])
        told = json.loads(output("eval", out, "--data", self.folder / "sets.jsonl", "--json"))["metrics"]
        self.assertEqual(sorted(told), ["accuracy", "f1"])

    def targets(self, labels, names, *words, **changes):
        """Of each row, as learnt."""
        rows = [{"sentence": sentence(i), "label": label} for i, label in enumerate(labels)]
        classify = {"labels": names, **changes}
        recipe, _ = self.classifier("labels", data={"train": write_rows(self.folder / "labels.jsonl", rows), "eval": None}, classify=classify)
        return [json.loads(line)["targets"] for line in output("plan", recipe, "--dump", "rows", *words).splitlines()]

    def refused(self, code, labels, names, *words, **changes):
        rows = [{"sentence": sentence(i), "label": label} for i, label in enumerate(labels)]
        data = {"train": write_rows(self.folder / "labels.jsonl", rows), "eval": None}
        recipe, _ = self.classifier("labels", data=data, classify={"labels": names, **changes}, schedule={"max_steps": 1, "warmup": 0})
        return " ".join(output("train", recipe, "--overwrite", *words, code=code).split())

    def test_a_zero_or_one_for_each_class_is_a_set_of_classes(self):
        sets = {"problem": "any-of"}
        hot = [[0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1]]
        for of in (int, float, bool):
            labels = [[of(x) for x in one] for one in hot]
            self.assertEqual(self.targets(labels, ["a", "b", "c"], **sets), hot)
        self.assertEqual(self.targets([["a", "c"], [2], [], [0, 2]], ["a", "b", "c"], **sets), [[1, 0, 1], [0, 0, 1], [0, 0, 0], [1, 0, 1]])
        self.assertEqual(self.targets(hot, ["a", "b", "c"], "--set", "data.reading=1", **sets)[0], [1, 1, 0])
        self.assertIn("names 1 twice", self.refused(4, [[1, 2, 1]], ["a", "b", "c"], **sets))
        self.assertIn("4 of zeros and ones for 3 classes", self.refused(4, [[0.0, 1.0, 1.0, 0.0]], ["a", "b", "c"], **sets))
        # Of two classes the file says which form its lists have.
        self.assertEqual(self.targets([[0, 1], [1, 0], [1, 1]], ["a", "b"], **sets), [[0, 1], [1, 0], [1, 1]])
        self.assertEqual(self.targets([[0, 1], [1, 0], [1]], ["a", "b"], **sets), [[1, 1], [1, 1], [0, 1]])
        self.assertEqual(self.targets([[0.0, 1.0], [1.0, 0.0]], ["a", "b"], **sets), [[0, 1], [1, 0]])
        for on_error in ("stop", "skip"):
            self.assertIn("may be a list of classes or a 0 or 1 for each class", self.refused(2, [[0, 1], [1, 0]], ["a", "b"], "--set", f"data.on_error={on_error}", **sets))

    def test_classes_that_are_called_by_numbers_are_meant_by_their_names(self):
        stars = ["1", "2", "3", "4", "5"]
        for labels in ([1, 5, 3], ["1", "5", "3"], [1.0, 5.0, 3.0]):
            self.assertEqual(self.targets(labels, stars), [[0], [4], [2]], labels)
        self.assertEqual(self.targets([1, 4, 3], stars, "--set", "data.reading=1"), [[1], [4], [3]])
        self.assertEqual(self.targets([0, 1], ["0", "1"]), [[0], [1]])
        self.assertIn("the label is 7, and the classes are called 1, 2", self.refused(4, [1, 7], stars))
        for labels in ([1, 2, 0], ["1", "0"]):  # nothing that skips rows may shift the others
            for on_error in ("stop", "skip"):
                told = self.refused(2, labels, stars, "--set", f"data.on_error={on_error}")
                self.assertIn("the label is 0, and the classes are called 1, 2, 3, 4, 5: it is the number of a class and the name of none", told)

    # Of each task of GLUE: a file as the benchmark has it, a row as data sets on the hub have it, and its label's number.
    GLUE = {
        "cola": ("gj04\t1\t\tHe said \"go.\n", {"sentence": 'He said "go.', "label": 1, "idx": 0}, 1),
        "sst2": ("sentence\tlabel\n\"quoted and not closed\t0\n", {"sentence": '"quoted and not closed', "label": 0}, 0),
        "mrpc": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t70\t71\tOne.\t\"Two.\n", {"sentence1": "One.", "sentence2": '"Two.', "label": 1}, 1),
        "qqp": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\tOne?\tTwo?\t0\n", {"question1": "One?", "question2": "Two?", "label": 0}, 0),
        "stsb": ("index\tgenre\tsentence1\tsentence2\tscore\n0\tnews\tOne.\tTwo.\t3.25\n", {"sentence1": "One.", "sentence2": "Two.", "label": 3.25}, 3.25),
        "mnli": ("index\tsentence1\tsentence2\tlabel1\tgold_label\n0\tOne.\tTwo.\tneutral\tcontradiction\n", {"premise": "One.", "hypothesis": "Two.", "label": 2}, 2),
        "qnli": ("index\tquestion\tsentence\tlabel\n0\tOne?\tTwo.\tnot_entailment\n", {"question": "One?", "sentence": "Two.", "label": 1}, 1),
        "rte": ("index\tsentence1\tsentence2\tlabel\n0\tOne.\tTwo.\tentailment\n", {"sentence1": "One.", "sentence2": "Two.", "label": 0}, 0),
        "wnli": ("index\tsentence1\tsentence2\tlabel\n0\tOne.\tTwo.\t1\n", {"sentence1": "One.", "sentence2": "Two.", "label": 1}, 1)}

    def test_the_nine_tasks_of_glue_are_read_by_name(self):
        for task, (own, row, number) in self.GLUE.items():
            dumps = []
            for name, text in ((f"{task}.tsv", own), (f"{task}.jsonl", json.dumps(row) + "\n")):
                (self.folder / name).write_text(text)
                dumps.append(json.loads(output("plan", ROOT / "demo/model", "--set", "task=classify", "--set", f"classify.glue={task}", "--set",
                                               f"data.train={self.folder / name}", "--set", "data.max_length=64", "--dump", "rows")))
            self.assertEqual(dumps[0]["ids"], dumps[1]["ids"], task)
            self.assertEqual([dump["targets"] for dump in dumps], [[number], [number]], task)
        recipe, out = self.classifier("glue", classify={"labels": None, "glue": "sst2"}, schedule={"max_steps": 4, "warmup": 1}, data={
            "train": write_rows(self.folder / "sst2.jsonl", [{"sentence": sentence(i), "label": i % 2} for i in range(40)]), "eval": 8})
        output("train", recipe, "--quiet")
        self.assertEqual(json.loads((out / "config.json").read_text())["id2label"], {"0": "negative", "1": "positive"})
        self.assertEqual(sorted(json.loads(output("eval", out, "--json"))["metrics"]), ["accuracy", "f1", "matthews_correlation"])
        self.assertEqual(run("train", recipe, "--resume").returncode, 0)
        other = run("plan", recipe, "--set", "classify.labels=[bad, good]")
        self.assertEqual(other.returncode, 2)
        self.assertIn("classify.glue: sst2", other.stderr)
        self.assertIn("wnli", run("plan", recipe, "--set", "classify.glue=boolq").stderr)

    def test_a_reward_model_scores_rows_and_given_answers_as_eval_does(self):
        recipe, out = self.reward("asked")
        output("train", recipe, "--quiet")
        rows = pairs(6)
        file = write_rows(self.folder / "some.jsonl", rows)
        output("eval", out, "--data", file, "--out", self.folder / "told.jsonl")
        told = lines(self.folder / "told.jsonl")
        said = [json.loads(line) for line in output("score", out, "--data", file).splitlines()]
        self.assertEqual(said, told)
        same = [{**row, "rejected": row["chosen"]} for row in rows]  # nothing to learn, and still scored
        said = [json.loads(line) for line in output("score", out, "--data", write_rows(self.folder / "same.jsonl", same)).splitlines()]
        self.assertTrue(all(line["chosen"] == line["rejected"] for line in said) and len(said) == 6)
        answers = [{"prompt": row["prompt"], "response": row["rejected"]} for row in rows]
        output("score", out, "--data", write_rows(self.folder / "answers.jsonl", answers), "--out", self.folder / "one.jsonl", "--batch", 4)
        one = lines(self.folder / "one.jsonl")
        self.assertEqual([line["row"] for line in one], list(range(6)))
        for line, pair in zip(one, told):
            self.assertAlmostEqual(line["score"], pair["rejected"], places=5)
        asked = [json.loads(line) for line in output("score", out, "--prompt", rows[0]["prompt"], "--response", rows[0]["chosen"],
                                                     "--response", rows[0]["rejected"], "--json").splitlines()]
        self.assertAlmostEqual(asked[0]["score"], told[0]["chosen"], places=5)
        self.assertAlmostEqual(asked[1]["score"], told[0]["rejected"], places=5)
        table = output("score", out, "--prompt", rows[0]["prompt"], "--response", rows[0]["rejected"])
        self.assertEqual(table.split(maxsplit=1), [f"{asked[1]['score']:.4f}", f"{rows[0]['rejected'].strip()}\n"])
        before = (self.folder / "answers.jsonl").read_bytes()  # a file that is read is not written over
        self.assertIn("--out", output("score", out, "--data", self.folder / "answers.jsonl", "--out", self.folder / "answers.jsonl", code=2))
        self.assertEqual((self.folder / "answers.jsonl").read_bytes(), before)
        kept = write_rows(self.folder / "kept.jsonl", [{"a": 1}])
        output("score", out, "--data", self.folder / "answers.jsonl", "--set", "data.columns={response: x}", "--out", kept, code=2)
        self.assertEqual(lines(Path(kept)), [{"a": 1}])  # refused: what was there stays
        renamed = [{"q": row["prompt"], "a": row["chosen"]} for row in rows]
        file = write_rows(self.folder / "renamed.jsonl", renamed)
        self.assertIn("no column is known", output("score", out, "--data", file, code=2))
        by_name = output("score", out, "--data", file, "--set", "data.columns={prompt: q, response: a}").splitlines()
        self.assertAlmostEqual(json.loads(by_name[0])["score"], told[0]["chosen"], places=5)
        self.assertIn("plimsoll score", output("classify", out, "--text", "x", code=2))
        self.assertIn("--response", output("score", out, code=2))
        self.assertIn("without a head that scores sequences", output("score", ROOT / "demo/model", "--response", "x", code=2))

    def test_a_classifier_says_labels_of_texts_and_of_rows_without_any(self):
        recipe, out = self.classifier("said")
        output("train", recipe, "--quiet")
        rows = texts(2)
        unlabelled = write_rows(self.folder / "unlabelled.jsonl", [{"text": row["text"]} for row in rows])
        said = [json.loads(line) for line in output("classify", out, "--data", unlabelled).splitlines()]
        self.assertEqual([line["label"] for line in said], [row["label"] for row in rows])
        asked = output("classify", out, *(word for row in rows[:2] for word in ("--text", row["text"])), "--json").splitlines()
        for line, row in zip(asked, said):
            for a, b in zip(json.loads(line)["probabilities"], row["probabilities"], strict=True):
                self.assertAlmostEqual(a, b, places=5)
        copy = self.folder / "copy"
        shutil.copytree(out, copy)
        (copy / "recipe.yaml").unlink()  # a model folder: labels come from its config
        table = output("classify", copy, "--text", rows[1]["text"])
        self.assertIn(rows[1]["label"], table)
        self.assertIn(rows[1]["text"], table)
        self.assertIn("plimsoll classify", output("score", out, "--response", "x", code=2))
        self.assertIn("--text", output("classify", out, "--text-pair", "x", "--data", unlabelled, code=2))

    def test_quantised_bases_have_heads_too(self):
        recipe, out = self.reward("quantised", method={"type": "qlora", "r": 4}, schedule={"max_steps": 3, "warmup": 1})
        output("train", recipe, "--quiet")
        self.assertIn("base_model.model.score.weight", names_in(out / "adapter_model.safetensors"))
        self.assertIn("score.weight", output("plan", recipe, "--dump", "graph"))

    def test_answers_are_messages_or_columns_of_other_names_too(self):
        said = [{"question": [{"role": "user", "content": row["prompt"]}],
                 "better": [{"role": "assistant", "content": row["chosen"]}],
                 "worse": [{"role": "assistant", "content": row["rejected"]}]} for row in pairs(12)]
        columns = {"prompt": "question", "chosen": "better", "rejected": "worse"}
        data = {"train": write_rows(self.folder / "said.jsonl", said), "eval": None, "columns": columns, "template": "chatml"}
        recipe, out = self.reward("said", data=data, schedule={"max_steps": 2, "warmup": 1})
        ids = json.loads(output("plan", recipe, "--dump", "rows").splitlines()[0])["ids"]
        plain = dict(data, template="plain")
        self.assertGreater(len(ids), 10)
        output("train", recipe, "--quiet")
        self.assertIn("plain", output("plan", self.reward("plain", data=plain)[0], code=2))

    def test_answers_are_whole_dialogues_in_one_text_too(self):
        def rows(name, rows, **changes):
            data = {"train": write_rows(self.folder / f"{name}.jsonl", rows), "eval": None, "max_length": 256, **changes}
            return json.loads(output("plan", self.reward(name, data=data)[0], "--dump", "rows").splitlines()[0])

        prompt = "\n\nHuman: What is it?\n\nAssistant:"
        row = {"chosen": prompt + " A stone.", "rejected": prompt + " A cloud."}
        split = {"prompt": prompt, "chosen": " A stone.", "rejected": " A cloud."}
        self.assertEqual(rows("kept", [row])["ids"], rows("split", [split])["ids"])
        say = lambda text: [{"role": "user", "content": "What is it?"}, {"role": "assistant", "content": text}]
        said = rows("talk", [{"chosen": say("A stone."), "rejected": say("A cloud.")}], template="chatml")
        self.assertEqual(rows("rendered", [row], template="chatml")["ids"], said["ids"])
        self.assertNotEqual(said["ids"], rows("kept", [row])["ids"])
        data = {"train": write_rows(self.folder / "many.jsonl", [{"chosen": prompt + f" {sentence(i)}", "rejected": prompt + " No."}
                                                                 for i in range(16)]), "eval": None, "template": "chatml"}
        recipe, out = self.reward("many", data=data, schedule={"max_steps": 2, "warmup": 1})
        output("train", recipe, "--quiet")
        self.assertIn("im_start", (out / "chat_template.jinja").read_text())
        self.assertEqual(len(output("score", out, "--data", self.folder / "many.jsonl", "--limit", 2).splitlines()), 2)

    def test_a_value_head_is_trained_saved_and_read_as_llama_factory_has_it(self):
        words = {"train": write_rows(self.folder / "words.jsonl", pairs(16)), "eval": None,
                 "columns": {"prompt": "prompt", "response": "chosen"}}
        base_recipe, base = self.recipe("writes", data={**words, "max_length": 64}, schedule={"max_steps": 2})
        output("train", base_recipe, "--quiet")
        changes = {"model": str(base), "init": "weights", "reward": {"head": "value"}, "schedule": {"max_steps": 8, "warmup": 1}}
        recipe, out = self.reward("value", **changes, method={"type": "lora", "r": 4}, save={"every": 4})
        output("train", recipe, "--quiet")
        done, file = json.loads((out / "run.json").read_text()), out / "value_head.safetensors"
        self.assertEqual(done["planned"]["device_arena_bytes"], done["measured"]["device_arena_bytes"])
        self.assertEqual(names_in(file), {"v_head.summary.weight", "v_head.summary.bias"})
        config = json.loads((out / "adapter_config.json").read_text())
        self.assertEqual((config["task_type"], config["modules_to_save"]), ("CAUSAL_LM", None))
        self.assertFalse([name for name in names_in(out / "adapter_model.safetensors") if "lora_" not in name])
        whole = file.read_bytes(), (out / "adapter_model.safetensors").read_bytes()
        shutil.rmtree(out / "checkpoint-8")
        output("train", recipe, "--quiet", "--resume")
        self.assertEqual((file.read_bytes(), (out / "adapter_model.safetensors").read_bytes()), whole)
        self.assertIn("v_head.dropout", output("plan", recipe, "--dump", "graph"))
        rows = ["--data", self.folder / "pairs.jsonl", "--set", "task=reward", "--json"]
        told = json.loads(output("eval", out, *rows))["loss"]
        output("merge", out, "--out", self.folder / "merged_value")
        self.assertAlmostEqual(json.loads(output("eval", self.folder / "merged_value", *rows))["loss"], told, places=4)
        self.assertIn('"score"', output("score", self.folder / "merged_value", "--response", "Thank you.", "--json"))
        # In full, where the head for next tokens is the embedding: the folder still writes.
        recipe, full = self.reward("value_full", **changes)
        output("train", recipe, "--quiet")
        self.assertEqual(json.loads((full / "config.json").read_text())["architectures"], json.loads((base / "config.json").read_text())["architectures"])
        self.assertNotIn("v_head.summary.weight", names_in(full / "model.safetensors"))
        self.assertEqual(run("generate", full, "--prompt", "river", "--max-new-tokens", 2).returncode, 0)
        going_on, _ = self.reward("going_on", **{**changes, "model": str(full), "reward": {"head": "score"}}, method={"type": "lora", "r": 4})
        self.assertIn("v_head.summary.bias", output("plan", going_on, "--dump", "graph"))  # what lies there is gone on with
        # And where it is not: no pair asks that head, which stays as it was.
        untied_recipe, untied = self.recipe("untied", data={**words, "max_length": 64}, schedule={"max_steps": 2},
                                            model=str(model(self.folder / "untied_model", {**LLAMA, "tie_word_embeddings": False})))
        output("train", untied_recipe, "--quiet")
        recipe, full = self.reward("value_untied", **{**changes, "model": str(untied)}, save={"every": 4})
        output("train", recipe, "--quiet")
        head = tensor_in(untied / "model.safetensors", "lm_head.weight")
        self.assertEqual(tensor_in(full / "model.safetensors", "lm_head.weight"), head)
        self.assertNotEqual(tensor_in(full / "model.safetensors", "model.norm.weight"), tensor_in(untied / "model.safetensors", "model.norm.weight"))
        whole = (full / "model.safetensors").read_bytes()
        shutil.rmtree(full / "checkpoint-8")
        output("train", recipe, "--quiet", "--resume")
        self.assertEqual((full / "model.safetensors").read_bytes(), whole)
        self.assertEqual(run("generate", full, "--prompt", "river", "--max-new-tokens", 2).returncode, 0)
        file.rename(out / "value_head.bin")
        self.assertIn("safetensors.torch", output("eval", out, "--data", self.folder / "pairs.jsonl", code=2))

    def test_rows_that_cannot_be_read_are_counted_where_the_recipe_skips_them(self):
        rows = texts(6) + [{"text": "x", "label": "poem"}]
        data = {"train": write_rows(self.folder / "some.jsonl", rows), "eval": None, "on_error": "skip"}
        recipe, out = self.classifier("skips", data=data, schedule={"epochs": 1, "max_steps": None, "warmup": 1})
        output("train", recipe, "--quiet")
        self.assertEqual(json.loads((out / "run.json").read_text())["rows"]["damaged"], 1)

    def test_bad_rows_say_where_and_what(self):
        def refused(code, expected, rows, of="classify", **changes):
            data = {"train": write_rows(self.folder / "bad.jsonl", rows), "eval": None}
            make = self.classifier if of == "classify" else self.reward
            recipe, out = make("bad", data=data, **changes)
            message = output("train", recipe, "--quiet", code=code)
            self.assertIn(expected, message)
            self.assertFalse(out.exists())
        good = texts(2)
        refused(4, "bad.jsonl:7: the label is \"poem\", the classes are question, order, fact",
                good + [{"text": "x", "label": "poem"}])
        refused(4, "bad.jsonl:7: the label is 3", good + [{"text": "x", "label": 3}])
        for missing in ("NaN", "inf"):  # as pandas writes what is not there
            refused(4, f"bad.jsonl:3: the label is \"{missing}\", a number is expected",
                    [{"text": "x", "label": 1.5}, {"text": "y", "label": 2}, {"text": "z", "label": missing}], classify={"labels": None, "problem": "numbers"})
        refused(2, "label", [{"text": "x", "kind": "question"}])
        refused(2, "name the classes", good, classify={"labels": None})
        refused(2, "rejected", [{"chosen": "x", "worse": "y"}], of="reward")
        refused(4, "an answer is a number", pairs(1) + [{"prompt": "a", "chosen": 4, "rejected": "b"}], of="reward")
        refused(2, "no pair has a difference to learn", [{"chosen": "same", "rejected": "same"}] * 3, of="reward")
        refused(2, "task: dpo and task: reward learn from", pairs(2), of="reward", task="sft")

    def test_a_class_that_no_row_has_is_told(self):
        rows = {"train": write_rows(self.folder / "two.jsonl", [row for row in texts(6) if row["label"] != "order"]), "eval": None}
        for classify, expected in (({}, "has the class 'order': it was not trained"), ({"labels": ["question", "fact"]}, None)):
            recipe, _ = self.classifier("unseen", data=rows, classify={"labels": ["question", "order", "fact"], **classify},
                                        schedule={"epochs": 1, "max_steps": None, "warmup": 1})
            told = run("train", recipe, "--overwrite")
            self.assertEqual(told.returncode, 0, told.stderr)
            self.assertIn(expected, told.stderr) if expected else self.assertNotIn("it was not trained", told.stderr)

    def test_pairs_that_are_the_same_are_counted_and_left_out(self):
        rows = pairs(16) + [{"prompt": "a", "chosen": "b", "rejected": "b"}]
        data = {"train": write_rows(self.folder / "some.jsonl", rows), "eval": None}
        recipe, out = self.reward("some", data=data, schedule={"epochs": 1, "max_steps": None, "warmup": 1})
        output("train", recipe, "--quiet")
        self.assertEqual(json.loads((out / "run.json").read_text())["rows"]["without_targets"], 1)

    def test_what_means_nothing_beside_a_task_is_refused(self):
        for key, words in (("data.packing=true", "is not supported with task: reward"),
                           ("memory.loss_chunk=64", "has no effect with task: reward"),
                           ("classify.problem=numbers", "has no effect with task: reward"),
                           ("data.format=text", "does not belong to task: reward")):
            recipe, _ = self.reward("odd")
            self.assertIn(words, output("plan", recipe, "--set", key, code=2))
        recipe, _ = self.reward("odd")
        self.assertIn("has no effect with task: sft", output("plan", recipe, "--set", "task=sft", "--set",
                                                               "reward.centering=0.1", code=2))

    def test_budgets_and_recomputation_change_no_bit_of_a_reward_model(self):
        weights = {}
        for name, memory in (("free", {}), ("tight", {"recompute": "block", "offload": ["states"], "disk": "1GiB"})):
            recipe, out = self.reward(name, batch={"micro": 2}, schedule={"max_steps": 3, "warmup": 1}, memory=memory)
            output("train", recipe, "--quiet")
            weights[name] = (out / "model.safetensors").read_bytes()
        self.assertEqual(weights["free"], weights["tight"])

    def test_its_programs_are_printed_and_the_head_is_new(self):
        recipe, _ = self.reward("printed", method={"type": "lora", "r": 4})
        dump = output("plan", recipe, "--dump", "graph")
        head = next(line for line in dump.splitlines() if line.startswith("tensor score.weight"))
        self.assertIn("trainable", head)
        self.assertIn("origin=fresh", head)
        self.assertIn("pair_loss(", dump)
        self.assertIn("pair_loss_grad(", output("plan", recipe, "--dump", "program"))
        row = json.loads(output("plan", recipe, "--dump", "rows").splitlines()[0])
        self.assertEqual((len(row["ends"]), row["ends"][1], row["targets"]), (2, len(row["ids"]), [0.0, 0.0]))

    def test_a_7b_reward_model_is_planned_from_its_config_alone(self):
        (self.folder / "mistral").mkdir()
        (self.folder / "mistral" / "config.json").write_text(json.dumps({
            "model_type": "mistral", "architectures": ["MistralForSequenceClassification"], "hidden_size": 4096,
            "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
            "vocab_size": 32000, "max_position_embeddings": 32768, "sliding_window": None, "rms_norm_eps": 1e-5,
            "num_labels": 1, "eos_token_id": 2, "torch_dtype": "bfloat16"}))
        words = [self.folder / "mistral", "--set", "task=reward", "--set", "data.max_length=384",
                 "--set", "batch.effective=8", "--no-probe"]
        report = output("plan", *words, "--set", "method.type=full", "--memory", "200GiB")
        self.assertIn("7110.7 M", report)
        self.assertIn("reward", report)
        self.assertEqual(run("plan", *words, "--memory", "24GiB").returncode, 0)


if __name__ == "__main__":
    unittest.main(testLoader=SuiteLoader("scores_test"))
