"""Rows as long as they are: plans for the longest row there is, micro-steps measured in tokens, counts that are kept.

Usage: lengths_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import json
import os
import random
import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from command_run import ROOT, assert_curves_agree, output, run
from shard import SuiteLoader

LIMIT = 256
ROWS = 96


def lengths(seed=1, rows=ROWS, most=70):
    """Many short rows and few long ones."""
    draw = random.Random(seed)
    return [min(most, 4 + int(draw.lognormvariate(2.3, 0.8))) for _ in range(rows)]


def ids(length, seed):
    draw = random.Random(seed)
    return [draw.randrange(3, 1500) for _ in range(length)]


class RowsTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.data = self.folder / "rows.jsonl"
        self.write(self.data, lengths())

    def write(self, path, rows):
        path.write_text("".join(json.dumps({"input_ids": ids(n, 7 * i + n)}) + "\n" for i, n in enumerate(rows)))

    def recipe(self, name="run", **changes):
        settings = {"model": str(ROOT / "demo/model"), "init": "random", "precision": "fp32", "threads": 1,
                    "data": {"train": str(self.data), "max_length": LIMIT}, "method": {"type": "full"},
                    "batch": {"effective": 8}, "optimizer": {"lr": 1e-3}, "schedule": {"max_steps": 20, "warmup": 1},
                    "output": str(self.folder / name)}
        for key, value in changes.items():
            settings[key] = {**settings[key], **value} if isinstance(settings.get(key), dict) else value
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(settings))
        return path

    def plan(self, recipe, *words):
        return json.loads(output("plan", recipe, "--json", *words))

    def train(self, recipe, *words):
        output("train", recipe, "--quiet", *words)
        folder = Path(json.loads(recipe.read_text())["output"])
        return ([json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()],
                json.loads((folder / "run.json").read_text()))

    def assert_planned(self, done):
        self.assertEqual(done["planned"]["device_arena_bytes"], done["measured"]["device_arena_bytes"])
        self.assertLessEqual(done["measured"]["process_peak_rss_bytes"], done["planned"]["process_peak_rss_bytes"])


class LengthsTest(RowsTest):
    def test_the_longest_row_is_planned_for_and_not_the_limit(self):
        short = self.plan(self.recipe(batch={"effective": 8, "micro": 2}))
        self.assertEqual(short["variant"]["max_length"], max(lengths()))
        at = self.plan(self.recipe(batch={"effective": 8, "micro": 2}, data={"max_length": max(lengths())}))
        self.assertEqual(short["device"]["arena_bytes"], at["device"]["arena_bytes"])
        self.assertEqual(short["process"]["planned_peak_rss_bytes"], at["process"]["planned_peak_rss_bytes"])

    def test_splits_in_rows_and_in_tokens_learn_the_same(self):
        for method in ({"type": "full"}, {"type": "lora", "r": 4, "dropout": 0.1}, {"type": "qlora", "r": 4}):
            curves = []
            for number, batch in enumerate(({"micro": 1}, {"micro": 8}, {"micro_tokens": max(lengths())},
                                            {"micro_tokens": 160}, {})):
                recipe = self.recipe(f"{method['type']}-{number}", method=method, batch={"effective": 8, **batch})
                curve, done = self.train(recipe)
                self.assert_planned(done)
                curves.append(curve)
            assert_curves_agree(self, curves, delta=1e-5 * max(1, curves[0][-1]))

    def test_micro_steps_are_filled_with_rows(self):
        by_tokens, done = self.train(self.recipe("tokens", batch={"effective": 8, "micro_tokens": 140}))
        _, in_rows = self.train(self.recipe("rows", batch={"effective": 8, "micro": 2}))
        self.assertLess(done["micro_steps"], 0.6 * in_rows["micro_steps"])
        self.assertGreater(done["fill"], 1.8 * in_rows["fill"])
        tokens = sum(json.loads(line)["tokens"] for line in (self.folder / "tokens/metrics.jsonl").read_text().splitlines())
        self.assertAlmostEqual(done["fill"], tokens / (done["micro_steps"] * 140), delta=1e-9)
        said = self.plan(self.recipe(batch={"effective": 8, "micro_tokens": 140}))["variant"]
        self.assertAlmostEqual(said["micro_steps"] * 20, done["micro_steps"], delta=0.15 * done["micro_steps"])
        self.assertEqual(said["micro_tokens"], 140)

    def test_less_memory_is_spent_on_smaller_rooms(self):
        recipe = self.recipe(method={"type": "lora"})
        free = self.plan(recipe)
        tight = (free["process"]["planned_peak_rss_bytes"] + free["smallest"]["memory_bytes"]) // 2
        plan = self.plan(recipe, "--memory", f"{tight}B")
        self.assertLessEqual(plan["process"]["planned_peak_rss_bytes"], tight)
        least = self.plan(recipe, "--memory", f"{free['smallest']['memory_bytes']}B")
        self.assertGreaterEqual(least["variant"]["micro_tokens"] or max(lengths()), max(lengths()))

    def test_a_resumed_run_keeps_its_room_and_its_bits(self):
        recipe = self.recipe("whole", batch={"effective": 8, "micro_tokens": 128}, save={"every": 10, "keep": 3})
        whole, _ = self.train(recipe)
        again = self.recipe("again", batch={"effective": 8, "micro_tokens": 128}, save={"every": 10, "keep": 3},
                            schedule={"max_steps": 20, "warmup": 1})
        self.train(again)
        shutil.rmtree(self.folder / "again/checkpoint-20")
        output("train", again, "--resume", "--quiet", "--set", "batch.micro_tokens=auto")
        state = json.loads((self.folder / "again/checkpoint-20/trainer_state.json").read_text())
        self.assertEqual(state["micro_tokens"], 128)
        self.assertEqual((self.folder / "whole/model.safetensors").read_bytes(),
                         (self.folder / "again/model.safetensors").read_bytes())

    def test_a_resumed_run_reads_evaluation_rows_longer_than_its_room_was(self):
        recipe = self.recipe("longer", batch={"effective": 8, "micro_tokens": max(lengths())}, save={"every": 10, "keep": 3})
        self.train(recipe)
        shutil.rmtree(self.folder / "longer/checkpoint-20")
        held = self.folder / "held.jsonl"
        self.write(held, [100, 20])
        _, done = self.train(recipe, "--resume", "--set", "batch.micro_tokens=auto", "--set", f"data.eval={held}")
        self.assert_planned(done)
        self.assertGreater(done["eval_loss"], 0)

    def test_evaluation_is_cut_likewise_and_says_the_same(self):
        losses = []
        for name, batch in (("a", {"micro": 1}), ("b", {"micro_tokens": 100})):
            recipe = self.recipe(name, data={"train": str(self.data), "max_length": LIMIT, "eval": "20%"},
                                 batch={"effective": 8, **batch}, schedule={"max_steps": 2, "warmup": 1})
            _, done = self.train(recipe)
            self.assert_planned(done)
            losses.append(done["eval_loss"])
        self.assertAlmostEqual(*losses, delta=1e-5 * losses[0])

    def test_sources_and_targets_have_room_of_their_own(self):
        model = self.folder / "t5"
        model.mkdir()
        (model / "config.json").write_text(json.dumps({
            "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 32, "d_kv": 8, "d_ff": 64,
            "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4, "vocab_size": 2048, "feed_forward_proj": "relu",
            "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16, "decoder_start_token_id": 0,
            "eos_token_id": 1, "pad_token_id": 0, "tie_word_embeddings": True, "dropout_rate": 0.1}))
        rows = [{"input_ids": ids(a, a), "labels": ids(b, b + 1)} for a, b in zip(lengths(2), lengths(3))]
        self.data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        curves = []
        for name, batch in (("one", {"micro": 1}), ("some", {"micro_tokens": 90}), ("all", {"micro": 8})):
            recipe = self.recipe(name, model=str(model), task="seq2seq", batch={"effective": 8, **batch},
                                 data={"train": str(self.data), "max_length": {"source": LIMIT, "target": LIMIT}})
            curve, done = self.train(recipe)
            self.assert_planned(done)
            curves.append(curve)
        assert_curves_agree(self, curves, delta=1e-5 * max(1, curves[0][-1]))

    def test_pairs_are_never_split(self):
        rows = [{"chosen": ids(a, a), "rejected": ids(b, b + 1)} for a, b in zip(lengths(2), lengths(3))]
        self.data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        longest = max(a + b for a, b in zip(lengths(2), lengths(3)))
        curves = []
        for name, batch in (("one", {"micro": 1}), ("some", {"micro_tokens": longest}), ("all", {"micro": 8})):
            recipe = self.recipe(name, task="reward", batch={"effective": 8, **batch})
            curve, done = self.train(recipe)
            self.assert_planned(done)
            curves.append(curve)
        assert_curves_agree(self, curves, delta=1e-5 * max(1, curves[0][-1]))
        said = run("plan", self.recipe("short", task="reward", batch={"effective": 8, "micro_tokens": longest - 1}))
        self.assertEqual(said.returncode, 2, said.stderr)
        self.assertIn(f"the longest may have {longest}", said.stderr)

    def test_packing_keeps_whole_sequences(self):
        recipe = self.recipe(data={"train": str(self.data), "max_length": LIMIT, "packing": True})
        self.assertEqual(self.plan(recipe)["variant"]["max_length"], LIMIT)
        said = run("plan", self.recipe(data={"packing": True}, batch={"effective": 8, "micro_tokens": 512}))
        self.assertIn("batch.micro_tokens: has no effect with data.packing", said.stderr)


class CountsTest(RowsTest):
    """Of data that a plan only samples."""

    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache"
        self.write(self.data, lengths(4, 6000, 60) + [200])
        self.enterContext(mock.patch.dict(os.environ, PLIMSOLL_CACHE_DIR=str(self.cache)))

    def counts(self):
        return sorted((self.cache / "rows").glob("*.json"))

    def test_a_run_counts_every_row_and_a_plan_knows_it_from_then_on(self):
        recipe = self.recipe(schedule={"max_steps": 2, "warmup": 1}, batch={"effective": 8, "micro": 1})
        sampled = self.plan(recipe)
        self.assertTrue(sampled["data"]["estimated"])
        self.assertLess(sampled["variant"]["max_length"], 200)
        _, done = self.train(recipe)
        self.assert_planned(done)
        self.assertEqual(len(self.counts()), 1)
        known = self.plan(recipe)
        self.assertFalse(known["data"]["estimated"])
        self.assertEqual(known["variant"]["max_length"], 200)
        self.assertEqual(known["device"]["arena_bytes"], done["planned"]["device_arena_bytes"])
        self.assertEqual(known["data"]["tokens"], sum(lengths(4, 6000, 60)) + 200)

    def test_what_few_long_rows_cost_is_told(self):
        recipe = self.recipe(memory={"recompute": "none"})  # what else a length saves is little where layers are recomputed
        self.assertRegex(output("plan", recipe, "--count"), r"would save.*length \d+, which 1 of 6,001 rows exceeds")

    def test_plan_counts_where_it_is_asked_to(self):
        recipe = self.recipe()
        self.assertEqual(self.plan(recipe, "--count")["variant"]["max_length"], 200)
        self.assertEqual(self.plan(recipe)["variant"]["max_length"], 200)

    def test_without_a_place_for_counts_rows_are_counted_each_time(self):
        bare = {"PATH": os.environ["PATH"], "OMP_WAIT_POLICY": "passive"}
        for _ in range(2):
            done = run("train", self.recipe(schedule={"max_steps": 1, "warmup": 0}), "--quiet", "--overwrite", env=bare)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.cache.write_text("no folder")
        self.assertEqual(self.plan(self.recipe(), "--count")["variant"]["max_length"], 200)

    def test_other_rows_lengths_or_words_are_counted_anew(self):
        self.plan(self.recipe(), "--count")
        self.write(self.data, lengths(5, 6000, 60) + [180])
        self.assertTrue(self.plan(self.recipe())["data"]["estimated"])
        self.assertEqual(self.plan(self.recipe(), "--count")["variant"]["max_length"], 180)
        self.assertTrue(self.plan(self.recipe(data={"max_length": 100}))["data"]["estimated"])
        self.assertEqual(self.plan(self.recipe(data={"max_length": 100}), "--count")["variant"]["max_length"], 100)

    def test_a_damaged_file_of_counts_is_no_answer(self):
        self.plan(self.recipe(), "--count")
        (file,) = self.counts()
        whole = json.loads(file.read_text())
        for text in ("", "{}", "[1]", json.dumps({**whole, "longest_sample": -1}), json.dumps({**whole, "sizes": [[1]]}),
                     json.dumps({**whole, "longest_sample": 3}), json.dumps({**whole, "key": "another"})):
            file.write_text(text)
            self.assertTrue(self.plan(self.recipe())["data"]["estimated"], text[:40])

    def test_rows_that_grow_under_a_run_are_told(self):
        recipe = self.recipe(schedule={"max_steps": 2, "warmup": 1})
        self.train(recipe)
        (file,) = self.counts()
        whole = json.loads(file.read_text())
        whole.update(longest=9, longest_sample=9, longest_shared=9, longest_sequence=9, sizes=[[9, 0, 0]])
        file.write_text(json.dumps(whole))
        said = run("train", recipe, "--overwrite", "--quiet")
        self.assertEqual(said.returncode, 2, said.stderr)
        self.assertIn("the longest row had 9 when the run was planned: the data changed since", said.stderr)


if __name__ == "__main__":
    unittest.main(testLoader=SuiteLoader("lengths_test"))
