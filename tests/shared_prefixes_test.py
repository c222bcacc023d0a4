"""Rows that begin alike: their shared tokens computed once give the losses of rows apart, in the planned bytes.

Usage: shared_prefixes_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import json
import os
import random
import shutil
import tempfile
import unittest
from pathlib import Path

from command_run import ROOT, assert_curves_agree, losses_of, output
from shard import SuiteLoader

STEPS = 20
DROPS = {"method": {"type": "lora", "r": 4, "dropout": 0.2}}
NOISY = {"method": {"type": "full", "neftune_alpha": 5}}
SYSTEM = 24  # tokens that every chat begins with
DRAW = random.Random(5)


def ids(length, draw=DRAW):
    return [draw.randrange(3, 1500) for _ in range(length)]


def chats(rows=64, system=SYSTEM):
    """One system prompt, three instructions behind it, an answer each; of some rows everything is learnt. Two rows are
    the same, one is where others begin."""
    draw = random.Random(1)
    start, instructions = ids(system, draw), [ids(7, draw) for _ in range(3)]
    made = []
    for i in range(rows):
        prompt = start + instructions[i % 3]
        answer = ids(draw.randrange(3, 12), draw)
        labels = (prompt if i % 5 == 0 else [-100] * len(prompt)) + answer
        made.append({"input_ids": prompt + answer, "labels": labels})
    made[7] = made[10]
    made[9] = {"input_ids": start, "labels": start}
    return made


def apart(rows=64):
    draw = random.Random(2)
    return [{"input_ids": ids(draw.randrange(8, 30), draw)} for _ in range(rows)]


def pairs(rows=64, system=10):
    """Answers of a common prompt, of which some begin alike; all prompts have one beginning."""
    draw = random.Random(3)
    start, made = ids(system, draw), []
    for i in range(rows):
        prompt, alike = start + ids(draw.randrange(4, 16), draw), ids(2 if i % 3 == 0 else 0, draw)
        made.append({"prompt_input_ids": prompt, "chosen_input_ids": alike + ids(draw.randrange(2, 12), draw),
                     "rejected_input_ids": alike + ids(draw.randrange(2, 12), draw)})
    return made


def whole_pairs(rows):
    """As reward models read them."""
    return [{"chosen_input_ids": row["prompt_input_ids"] + row["chosen_input_ids"],
             "rejected_input_ids": row["prompt_input_ids"] + row["rejected_input_ids"]} for row in rows]


class SharedPrefixes(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.data = self.folder / "rows.jsonl"
        self.write(chats())

    def write(self, rows):
        self.data.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def recipe(self, name, share=None, **changes):
        settings = {"model": str(ROOT / "demo/model"), "init": "random", "precision": "fp32", "threads": 1,
                    "data": {"train": str(self.data), "max_length": 128}, "method": {"type": "full"},
                    "batch": {"effective": 8}, "optimizer": {"lr": 1e-3}, "schedule": {"max_steps": STEPS, "warmup": 1},
                    "memory": {"tie": "1%"}, "output": str(self.folder / name)}
        for key, value in changes.items():
            settings[key] = {**settings[key], **value} if isinstance(settings.get(key), dict) and key != "method" else value
        if share:
            settings["data"]["share_prefixes"] = share
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(settings))
        return path

    def train(self, name, share=None, **changes):
        output("train", self.recipe(name, share, **changes), "--quiet")
        done = json.loads((self.folder / name / "run.json").read_text())
        self.assertEqual(done["planned"]["device_arena_bytes"], done["measured"]["device_arena_bytes"])
        self.assertLessEqual(done["measured"]["process_peak_rss_bytes"], done["planned"]["process_peak_rss_bytes"])
        return losses_of(self.folder / name), done

    def plan(self, name, share=None, **changes):
        return json.loads(output("plan", self.recipe(name, share, **changes), "--json"))

    def assert_same(self, name, least_shared, **changes):
        """Losses of 20 steps with sharing and without, and the share that was computed once."""
        off, apart_run = self.train(name + "-off", "off", **changes)
        on, shared_run = self.train(name + "-on", "on", **changes)
        assert_curves_agree(self, [off, on], delta=1e-5 * max(1, off[0]))
        self.assertEqual(apart_run["shared"], 0)
        self.assertGreater(shared_run["shared"], least_shared)
        if apart_run["eval_loss"] is not None:
            self.assertAlmostEqual(apart_run["eval_loss"], shared_run["eval_loss"], delta=1e-5 * max(1, off[0]))
        return apart_run, shared_run


class Chats(SharedPrefixes):
    def test_every_method_learns_the_same_with_sharing_and_without(self):
        for method in ({"type": "full"}, {"type": "lora", "r": 4}, {"type": "qlora", "r": 4},
                       {"type": "lora", "r": 4, "targets": ["q_proj", "lm_head", "embed_tokens"]}):
            with self.subTest(method=method):
                self.assert_same("-".join(map(str, method.values())).replace("'", "")[:24], 0.4, method=method)

    def test_recomputation_offload_and_small_micro_steps_change_nothing(self):
        memory = {"recompute": "block", "offload": ["states", "gradients"], "disk": "1GiB"}
        self.assert_same("tight", 0.3, memory=memory, batch={"effective": 8, "micro_tokens": 100}, threads=2)
        self.assert_same("rows", 0.3, method={"type": "lora", "r": 4}, batch={"effective": 8, "micro": 3},
                         data={"eval": "20%"})

    def test_a_resumed_run_goes_on_sharing_with_the_same_bits(self):
        changes = dict(save={"every": 10, "keep": 3})
        self.train("whole", **changes)
        self.train("again", **changes)
        shutil.rmtree(self.folder / "again/checkpoint-20")
        output("train", self.folder / "again.json", "--resume", "--quiet")
        state = json.loads((self.folder / "again/checkpoint-20/trainer_state.json").read_text())
        self.assertTrue(state["share_prefixes"])
        self.assertEqual(state["common_begin"], SYSTEM)
        self.assertEqual((self.folder / "whole/model.safetensors").read_bytes(),
                         (self.folder / "again/model.safetensors").read_bytes())

    def test_a_run_that_began_apart_goes_on_apart(self):
        self.train("apart", "off", save={"every": 10, "keep": 3})
        shutil.rmtree(self.folder / "apart/checkpoint-20")
        whole = (self.folder / "apart/model.safetensors").read_bytes()
        output("train", self.folder / "apart.json", "--resume", "--quiet", "--set", "data.share_prefixes=auto")
        self.assertEqual(whole, (self.folder / "apart/model.safetensors").read_bytes())

    def test_the_plan_tells_what_is_shared_and_that_it_saves_time(self):
        on, off = self.plan("on"), self.plan("off", "off")
        self.assertTrue(on["variant"]["share_prefixes"])
        self.assertFalse(off["variant"]["share_prefixes"])
        self.assertGreater(on["data"]["shared_share"], 0.4)
        self.assertLess(on["predicted"]["seconds_per_step"], 0.75 * off["predicted"]["seconds_per_step"])
        self.assertIn("of a step shared by its rows", output("plan", self.recipe("words")))

    def test_what_all_rows_begin_with_has_room_once(self):
        on, off = self.plan("on", "on"), self.plan("off", "off")
        self.assertEqual(on["data"]["common_begin"], SYSTEM)
        self.assertLess(on["device"]["arena_bytes"], 0.85 * off["device"]["arena_bytes"])
        self.assertIn("24 tokens begin every row", " ".join(output("plan", self.recipe("words")).split()))
        batch = {"effective": 8, "micro_tokens": 2 * SYSTEM + 40}
        apart_run, shared_run = self.assert_same("tokens", 0.4, batch=batch)
        self.assertLess(shared_run["micro_steps"], 0.6 * apart_run["micro_steps"])
        self.assert_same("eval", 0.4, batch=batch, data={"eval": 9})

    def test_rows_that_begin_otherwise_than_was_counted_are_told(self):
        cache = {"PLIMSOLL_CACHE_DIR": str(self.folder / "cache"), "PATH": os.environ["PATH"]}
        self.write(chats(2100))
        recipe = self.recipe("begin", "on", batch={"effective": 8, "micro_tokens": 2 * SYSTEM}, schedule={"max_steps": 2, "warmup": 1})
        output("plan", recipe, "--count", env=cache)
        (file,) = (self.folder / "cache/rows").glob("*.json")
        counts = json.loads(file.read_text())
        self.assertEqual(counts["common_begin"], SYSTEM)
        counts.update(common_begin=SYSTEM + 9, sizes=[[SYSTEM + 12, 0, 0]])
        file.write_text(json.dumps(counts))
        said = output("train", recipe, "--quiet", code=2, env=cache)
        self.assertIn("share less than when the run was planned", said)

    def test_auto_is_off_where_nothing_is_shared_where_it_cannot_be_or_would_draw_otherwise(self):
        self.write(apart())
        self.assertFalse(self.plan("nothing")["variant"]["share_prefixes"])
        self.write(chats())
        for changes in (DROPS, NOISY):
            self.assertFalse(self.plan("auto", **changes)["variant"]["share_prefixes"], changes)
            self.assertTrue(self.plan("on", "on", **changes)["variant"]["share_prefixes"], changes)

    def test_auto_shares_on_gpus_too(self):
        """On the emulated one, and in plans for cards by their names, whose workspaces and seconds are others."""
        for changes in ({"device": "emulated"}, {"precision": "bf16", "memory": {"gpu": "RTX 3060 12GB"}}):
            on, off = self.plan("on", **changes), self.plan("off", "off", **changes)
            self.assertTrue(on["variant"]["share_prefixes"], changes)
            self.assertLess(on["device"]["arena_bytes"], off["device"]["arena_bytes"])
            # A toy's step on a card is launches, of which micro-steps of fewer tokens need a few more.
            most = 1 if "device" in changes else 1.04
            self.assertLess(on["predicted"]["seconds_per_step"], most * off["predicted"]["seconds_per_step"])

    def test_labels_of_their_own_count_for_each_row(self):
        """Rows of the same ids that learn different things: a token that rows share has one label."""
        rows = [{"input_ids": [7] * 8, "labels": [7] * 4 + [label] * 4} for label in (7, 7, 7, 7, 7, 9, 7, 7, 7, 9, 11, 7)]
        self.write(rows)
        own = {"format": "input-ids", "shuffle": False}
        self.assert_same("labels", 0.1, data=own)

    def test_what_is_drawn_for_a_token_goes_by_what_stands_before_it(self):
        """However rows are cut: one by one, where nothing is shared, all together, and by tokens with recomputation."""
        for name, changes in (("drops", DROPS), ("noisy", NOISY)):
            with self.subTest(name):
                off, _ = self.train(name, "off", **changes)
                every = [self.train(f"{name}-{i}", "on", **changes, batch={"effective": 8, **batch}, memory=memory)
                         for i, (batch, memory) in enumerate((({"micro": 1}, {}), ({"micro": 8}, {}),
                                                              ({"micro_tokens": 100}, {"recompute": "block"})))]
                self.assertEqual(every[0][1]["shared"], 0)
                self.assertGreater(every[1][1]["shared"], 0.4)
                assert_curves_agree(self, [losses for losses, _ in every], delta=1e-5 * off[0])
                self.assertGreater(abs(off[-1] - every[0][0][-1]), 1e-4 * off[0])

    def test_a_run_that_draws_for_shared_tokens_resumes_with_the_same_bits_and_not_apart(self):
        changes = dict(DROPS, save={"every": 10, "keep": 3})
        self.train("whole", "on", **changes)
        self.train("again", "on", **changes)
        shutil.rmtree(self.folder / "again/checkpoint-20")
        said = output("train", self.folder / "again.json", "--resume", "--quiet", "--set", "data.share_prefixes=off", code=2)
        self.assertIn("data.share_prefixes was on", said)
        output("train", self.folder / "again.json", "--resume", "--quiet")
        self.assertEqual((self.folder / "whole/adapter_model.safetensors").read_bytes(),
                         (self.folder / "again/adapter_model.safetensors").read_bytes())

    def test_windows_packing_and_dropout_together(self):
        model = self.model(model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=20)
        for method in ({"type": "lora", "r": 4, "dropout": 0.2, "neftune_alpha": 5}, {"type": "qlora", "r": 4, "dropout": 0.2},
                       {"type": "full", "neftune_alpha": 5}):
            with self.subTest(method=method):
                every = [self.train(f"{method['type']}-{micro}", "on", model=model, method=method, data={"packing": True, "eval": 9},
                                    batch={"effective": 4, "micro": micro}, schedule={"max_steps": 8, "warmup": 1})
                         for micro in (1, 4)]
                assert_curves_agree(self, [losses for losses, _ in every], delta=1e-5 * every[0][0][0])
                self.assertGreater(every[1][1]["shared"], 0.4)
                self.assertAlmostEqual(every[0][1]["eval_loss"], every[1][1]["eval_loss"], delta=1e-4)

    def model(self, **changes):
        """The demo's, with other keys in its config.json."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        config = json.loads((ROOT / "demo/model/config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        return str(folder)

    def test_sliding_windows_cut_what_rows_share(self):
        """Windows that rows' own tokens fill, and layers with and without one that ends within the system prompt."""
        for name, window, changes in (
                ("all", 7, {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}),
                ("mixed", 28, {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True,
                               "max_window_layers": 1})):
            with self.subTest(name):
                model = self.model(sliding_window=window, **changes)
                self.assertTrue(self.plan(name, model=model)["variant"]["share_prefixes"])
                self.assert_same(name, 0.3, model=model, data={"eval": "20%"}, threads=2)

    def test_packed_rows_share_across_their_sequences(self):
        packed = {"data": {"packing": True}, "batch": {"effective": 3, "micro": 2}}
        on, off = self.plan("on", **packed), self.plan("off", "off", **packed)
        self.assertTrue(on["variant"]["share_prefixes"])
        self.assertGreater(on["data"]["shared_share"], 0.4)
        self.assertLess(on["predicted"]["seconds_per_step"], 0.75 * off["predicted"]["seconds_per_step"])
        self.assert_same("full", 0.4, **packed)
        self.assert_same("qlora", 0.4, method={"type": "qlora", "r": 4}, threads=2, **{**packed, "data": {"packing": True, "eval": 9}})

    def test_models_whose_rotary_frequencies_go_by_lengths_do_not_share(self):
        model = self.model(rope_scaling={"rope_type": "dynamic", "factor": 2.0})
        self.assertFalse(self.plan("auto", model=model)["variant"]["share_prefixes"])
        self.assertIn("change with a row's length", output("plan", self.recipe("on", "on", model=model), code=2))


class LinearAttention(SharedPrefixes):
    """GLA's state where segments part, and its convolution's rows before them."""

    def setUp(self):
        super().setUp()
        self.write(chats(system=90))  # more than a chunk
        self.model = self.folder / "gla"
        self.model.mkdir()
        config = {"model_type": "gla", "architectures": ["GLAForCausalLM"], "hidden_size": 32, "num_hidden_layers": 2,
                  "num_heads": 4, "num_kv_heads": 2, "vocab_size": 1500, "use_short_conv": True, "tie_word_embeddings": True}
        (self.model / "config.json").write_text(json.dumps(config))

    def test_every_method_learns_the_same_with_sharing_and_without(self):
        for method in ({"type": "full"}, {"type": "lora", "r": 4}, {"type": "qlora", "r": 4}):
            with self.subTest(method=method):
                self.assert_same("-".join(map(str, method.values())), 0.6, method=method, model=str(self.model))

    def test_small_micro_steps_recomputation_and_offload_change_nothing(self):
        memory = {"recompute": "block", "offload": ["states", "gradients"], "disk": "1GiB"}
        self.assert_same("tight", 0.4, memory=memory, batch={"effective": 8, "micro_tokens": 220}, threads=2,
                         model=str(self.model), data={"eval": "20%"})

    def test_pairs_are_learnt_alike(self):
        self.write(pairs(system=70))
        self.assert_same("orpo", 0.25, task="dpo", dpo={"loss": "orpo"}, batch={"effective": 8, "micro": 2},
                         model=str(self.model))
        self.write(whole_pairs(pairs(system=70)))
        self.assert_same("reward", 0.25, task="reward", model=str(self.model), optimizer={"lr": 5e-4})


class Pairs(SharedPrefixes):
    def setUp(self):
        super().setUp()
        self.write(pairs())

    def test_preferences_are_learnt_alike_and_a_pair_takes_the_room_of_what_it_does_not_share(self):
        for name, changes in (("sigmoid", {"dpo": {"loss": "sigmoid"}, "method": {"type": "lora", "r": 4}}),
                              ("full", {"dpo": {"loss": "ipo"}}),
                              ("orpo", {"dpo": {"loss": "orpo"}, "data": {"train_on_prompt": True}})):
            with self.subTest(name):
                off, on = self.assert_same(name, 0.25, task="dpo", batch={"effective": 8, "micro": 2},
                                           **{**changes, "data": {"eval": 16, **changes.get("data", {})}})
                self.assertLess(on["planned"]["device_arena_bytes"], off["planned"]["device_arena_bytes"])

    def test_what_is_drawn_does_not_go_by_how_pairs_are_cut(self):
        for task in ({"task": "dpo", "dpo": {"loss": "orpo"}}, {"task": "reward"}):
            with self.subTest(task=task):
                self.write(pairs() if task["task"] == "dpo" else whole_pairs(pairs()))
                memory = ({}, {"recompute": "block", "offload": ["gradients"], "disk": "1GiB"})
                every = [self.train(f"{task['task']}-{micro}", "on", **task, **DROPS, batch={"effective": 8, "micro": micro},
                                    optimizer={"lr": 5e-4}, memory=memory[micro > 1])[0] for micro in (1, 4)]
                assert_curves_agree(self, every, delta=1e-5 * max(1, every[0][0]))

    def test_answers_that_share_less_than_was_counted_are_told(self):
        cache = {"PLIMSOLL_CACHE_DIR": str(self.folder / "cache"), "PATH": os.environ["PATH"]}
        self.write(pairs(2100))  # more than a plan samples: their counts are kept
        for batch in ({"micro": 1}, {"micro_tokens": 100}):
            recipe = self.recipe("less", "on", task="dpo", dpo={"loss": "orpo"}, batch={"effective": 8, **batch},
                                 schedule={"max_steps": 2, "warmup": 1})
            output("plan", recipe, "--count", env=cache)
            (file,) = (self.folder / "cache/rows").glob("*.json")
            counts = json.loads(file.read_text())
            counts.update(longest_shared=20, sizes=[[30, 0, 12]])
            file.write_text(json.dumps(counts))
            room = ["--set", "batch.micro_tokens=20"] if "micro_tokens" in batch else []
            said = output("train", recipe, "--quiet", "--overwrite", *room, code=2, env=cache)
            self.assertIn("share less than when the run was planned", said)
            file.unlink()

    def test_rewards_and_classes_are_learnt_alike(self):
        rows = whole_pairs(pairs())
        rows[5] = rows[6] = rows[2]
        rows[3]["rejected_input_ids"] = rows[2]["rejected_input_ids"]
        self.write(rows)
        # At 1e-3 two cuts of rows apart differ by 1e-5 themselves in the eleventh step.
        self.assert_same("reward", 0.25, task="reward", batch={"effective": 8, "micro_tokens": 90}, data={"eval": 16},
                         optimizer={"lr": 5e-4})
        self.write([{"input_ids": row["input_ids"], "label": i % 2} for i, row in enumerate(chats())])
        self.assert_same("classify", 0.4, task="classify", classify={"labels": ["a", "b"]}, data={"eval": 16})


if __name__ == "__main__":
    unittest.main(testLoader=SuiteLoader("shared_prefixes_test"))
