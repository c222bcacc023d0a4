#!/usr/bin/env python3
"""Recipes in the queue: planned, packed, in smaller plans, held and resumed: python3 tests/queue_trainings_test.py PLIMSOLL"""
import json
import sqlite3
import unittest

from command_run import not_sanitized, output, run
from queue_case import MIB, QueueTest
from shard import SuiteLoader


@not_sanitized("a training takes more memory than its plan")
class Trainings(QueueTest):
    def test_trainings_are_packed_by_their_plans_and_stay_within_them(self):
        entries = []
        for i in range(5):
            answer = self.queue("add", self.recipe(f"run{i}", 40 + 20 * i, 8 << (i % 3)), "--threads", 1, "--json")
            entries.append(json.loads(answer)["id"])
        needs = [self.show(one)["host_bytes"] for one in entries]
        capacity = sum(sorted(needs)[-2:]) + 20 * MIB
        self.run_all("--memory", capacity, "--threads", 2)
        for entry, need in zip(entries, needs):
            shown = self.show(entry)
            self.assertEqual((shown["state"], len(shown["attempts"])), ("done", 1), shown)
            self.assertLessEqual(shown["attempts"][0]["peak_host_bytes"], need)
        reserved, measured = self.peaks_at_once(entries)
        self.assertLessEqual(reserved, capacity)
        self.assertLessEqual(measured, capacity)

    def test_a_training_does_not_probe_which_nobody_reserved(self):
        self.environment["PLIMSOLL_NO_PROBE"] = "1"
        self.queue("add", self.recipe("run", 2), "--threads", 1)
        del self.environment["PLIMSOLL_NO_PROBE"]
        self.environment["PLIMSOLL_CACHE_DIR"] = str(self.folder / "cache")
        self.run_all()
        shown = self.show(1)
        self.assertEqual(shown["state"], "done")
        self.assertLessEqual(shown["attempts"][0]["peak_host_bytes"], shown["host_bytes"])
        self.assertNotIn("rates of this machine", self.queue("logs", 1))
        self.assertFalse((self.folder / "cache").exists())

    def test_two_share_the_threads_where_that_ends_both_sooner(self):
        for name in ("left", "right"):
            self.queue("add", self.recipe(name, 60))
        whole = self.show(1)
        if whole["threads"] < 2:
            self.skipTest("one thread here")
        fewer = [one for one in whole["smaller_plans"] if one["threads"] < whole["threads"]]
        self.assertIn(1, [one["threads"] for one in fewer])
        # How a run scales is the machine's; what follows from it is not.
        with sqlite3.connect(self.queue_folder / "queue.db") as database:
            database.execute("UPDATE entries SET smaller = ?",
                             [json.dumps([[fewer[0]["host_bytes"], 1.5 * whole["predicted_seconds"], 1]])])
        text = self.run_all("--memory", "2GiB", "--threads", 2)
        self.assertIn("threads 1 of", text)
        attempts = [self.show(one)["attempts"][0] for one in (1, 2)]
        for one in attempts:
            self.assertEqual(one["words"][-1], "1", "the training's threads are those of its plan")
            self.assertEqual(one["outcome"], "exit code 0")
        self.assertLess(max(one["started"] for one in attempts), min(one["ended"] for one in attempts))

    def losses(self, name):
        lines = (self.folder / name / "metrics.jsonl").read_text().splitlines()
        return [row["loss"] for row in map(json.loads, lines) if "loss" in row]

    def wide(self, name, steps, rows=64):
        """A recipe whose fastest plan takes far more than its smallest: of 256 rows more than twice as much on any machine."""
        return self.recipe(name, steps, rows, length=200, packed=True)

    def test_trainings_take_smaller_plans_where_that_ends_all_of_them_sooner(self):
        for name in ("left", "right"):
            self.queue("add", self.wide(name, 8), "--threads", 1)
        whole, plans = self.show(1)["host_bytes"], self.show(1)["smaller_plans"]
        self.assertGreater(len(plans), 1)
        self.assertEqual(plans, sorted(plans, key=lambda one: -one["host_bytes"]))
        self.assertTrue(all(one["host_bytes"] <= 0.95 * whole for one in plans), plans)
        # Two of the smallest fit where not even a large and the smallest one do.
        smallest, next_one = plans[-1]["host_bytes"], plans[-2]["host_bytes"]
        capacity = min(2 * smallest + 4 * MIB, smallest + next_one - 1)
        text = self.run_all("--memory", capacity, "--threads", 2)
        self.assertIn("a smaller plan", text)
        first, second = self.show(1), self.show(2)
        for shown in (first, second):
            (attempt,) = shown["attempts"]
            self.assertEqual(shown["state"], "done")
            self.assertLess(attempt["host_bytes"], whole)
            self.assertIn(str(attempt["host_bytes"]), attempt["words"])
            self.assertLessEqual(attempt["peak_host_bytes"], attempt["host_bytes"])
        self.assertLess(second["attempts"][0]["started"], first["attempts"][0]["ended"])
        self.assertLess(first["attempts"][0]["started"], second["attempts"][0]["ended"])
        # The same experiment as with its own plan.
        self.queue("add", self.wide("whole", 8), "--threads", 1, "--plan", "fastest")
        self.run_all("--memory", whole + MIB, "--threads", 1)
        left, right, own = (self.losses(name) for name in ("left", "right", "whole"))
        self.assertEqual(len(own), 8)
        self.assertEqual(left, right)
        for small, large in zip(left, own, strict=True):
            self.assertAlmostEqual(small, large, delta=1e-4 * large)

    def test_a_training_keeps_its_plan_where_a_smaller_one_gains_nothing_or_its_memory_was_said(self):
        self.queue("add", self.wide("alone", 2), "--threads", 1)
        whole = self.show(1)["host_bytes"]
        self.queue("add", self.wide("said", 2), "--threads", 1, "--memory", "1GiB")
        self.assertEqual(self.show(2)["smaller_plans"], [])
        self.assertNotIn("smaller plan", self.run_all("--memory", "2GiB", "--threads", 2))
        self.assertEqual(self.show(1)["attempts"][0]["host_bytes"], whole)

    def test_a_training_whose_plan_is_too_large_for_the_worker_takes_one_that_is_not(self):
        self.queue("add", self.wide("large", 2), "--threads", 1)
        smallest = self.show(1)["smaller_plans"][-1]["host_bytes"]
        self.assertIn("the largest that there is room for", self.run_all("--memory", smallest + MIB, "--threads", 1))
        self.assertEqual(self.show(1)["attempts"][0]["host_bytes"], smallest)

    def test_a_batch_takes_the_plan_that_was_asked_for(self):
        # What is within 5 % of the fastest depends on the kernels: there is a smaller plan with those of AVX2.
        self.environment["PLIMSOLL_MAX_ISA"] = "avx2"
        chosen = {}
        for plan in ("a", "b", "c", "fastest"):
            answer = json.loads(self.queue("add", self.wide(f"plan-{plan}", 1, 256), "--threads", 2, "--plan", plan, "--json"))
            chosen[plan] = answer
            self.assertEqual(answer["presets"][plan], {key: answer[key] for key in ("host_bytes", "threads", "predicted_seconds")})
            self.assertEqual(answer["smaller_plans"], [])
        a, b, c, fastest = chosen.values()
        self.assertEqual(a["presets"], c["presets"])
        self.assertLess(a["host_bytes"], fastest["host_bytes"])
        self.assertLessEqual(a["predicted_seconds"], 1.05 * fastest["predicted_seconds"])
        self.assertLess(b["host_bytes"], a["host_bytes"])
        self.assertLess(c["host_bytes"], a["host_bytes"])
        self.assertLessEqual(c["predicted_seconds"], 2 * fastest["predicted_seconds"])
        # The same letter is the same plan in the recipe.
        for letter, answer in zip("abc", (a, b, c), strict=True):
            planned = json.loads(output("plan", self.wide(f"plan-{letter}", 1, 256), "--threads", 2, "--set", f"memory.plan={letter}", "--json",
                                        env=self.environment, cwd=self.folder))
            self.assertEqual(planned["process"]["planned_peak_rss_bytes"], answer["host_bytes"])
        noted = run("queue", "add", self.recipe("noted", 5), "--plan", "c", env=self.environment, cwd=self.folder).stderr
        self.assertIn("--plan fastest", noted, "what the letter was before is said")
        self.assertIn("plan b", self.queue("add", self.recipe("table", 5), "--plan", "a"))
        self.run_all("--memory", "1GiB", "--threads", 2)
        for answer in chosen.values():
            shown = self.show(answer["id"])
            self.assertEqual(shown["state"], "done")
            self.assertLessEqual(shown["attempts"][0]["peak_host_bytes"], answer["host_bytes"])
        self.assertIn("--plan is for recipes", self.queue("add", "--memory", "1MiB", "--plan", "a", "--", "true", code=2))

    def test_a_training_that_is_held_saves_and_goes_on_from_there(self):
        entry = json.loads(self.queue("add", self.recipe("held", 3000), "--threads", 1, "--json"))["id"]
        self.worker("--memory", "1GiB", "--threads", 1)
        self.eventually((self.folder / "held" / "metrics.jsonl").exists, "it never started")
        self.assertIn("saves and stops", self.queue("pause", entry))
        self.eventually(lambda: self.show(entry)["state"] == "held", "it never stopped")
        self.queue("resume", entry)
        self.eventually(lambda: len(self.show(entry)["attempts"]) == 2 and self.show(entry)["state"] == "running",
                        "it never went on")
        events = self.folder / "held" / "events.jsonl"
        self.eventually(lambda: '"resume"' in events.read_text(), "it started from nothing")
        self.queue("cancel", entry)
        self.queue("wait", entry, code=5)

    def test_a_training_goes_on_in_a_smaller_plan_where_its_own_fits_no_more(self):
        self.queue("add", self.wide("shrunk", 8), "--threads", 1)
        whole, smallest = self.show(1)["host_bytes"], self.show(1)["smaller_plans"][-1]["host_bytes"]
        worker = self.worker("--memory", "2GiB", "--threads", 1)
        self.eventually(lambda: (self.folder / "shrunk/metrics.jsonl").exists() and self.losses("shrunk"), "it never stepped")
        self.queue("pause", 1)
        self.eventually(lambda: self.show(1)["state"] == "held", "it never stopped")
        worker.kill()
        worker.wait()
        self.queue("resume", 1)
        self.run_all("--memory", smallest + MIB, "--threads", 1)
        shown = self.show(1)
        first, second = shown["attempts"]
        self.assertEqual((shown["state"], first["host_bytes"], second["host_bytes"]), ("done", whole, smallest))
        self.assertLessEqual(second["peak_host_bytes"], smallest)
        self.assertIn('"resume"', (self.folder / "shrunk/events.jsonl").read_text())
        self.assertEqual(len(self.losses("shrunk")), 8, "no step was made twice")

    def test_a_sweep_is_a_run_for_each_combination_with_a_name_and_an_output_of_its_own(self):
        recipe = self.recipe("swept", 2)
        answer = json.loads(self.queue("add", recipe, "--threads", 1, "--sweep", "optimizer.lr=1e-3,2e-3", "--sweep",
                                       "batch.effective=4,8", "--json"))["entries"]
        names = ["swept-lr1e-3-effective4", "swept-lr1e-3-effective8", "swept-lr2e-3-effective4", "swept-lr2e-3-effective8"]
        self.assertEqual([one["name"] for one in answer], names)
        self.run_all("--memory", "1GiB", "--threads", 1)
        for name in names:
            kept = (self.folder / name / "recipe.yaml").read_text()
            self.assertIn("lr: 0.001" if "lr1e" in name else "lr: 0.002", kept)
            self.assertIn(f"effective: {name[-1]}", kept)
        self.assertFalse((self.folder / "swept").exists())

    def test_a_suite_goes_in_step_with_its_rows_and_ends_in_one_table(self):
        for task, rows in (("rte", "sentence1\tsentence2\tlabel\n"), ("sst2", "sentence\tlabel\n")):
            for part in ("train", "dev"):
                (self.folder / task).mkdir(exist_ok=True)
                words = ("entailment", "not_entailment") if task == "rte" else ("0", "1")
                lines = [f"text {i}\t" * (2 if task == "rte" else 1) + words[i % 2] for i in range(16)]
                (self.folder / task / f"{part}.tsv").write_text(rows + "\n".join(lines) + "\n")
        recipe = self.recipe("glue", 2)
        answer = json.loads(self.queue(
            "add", recipe, "--threads", 1, "--json", "--set", "task=classify", "--sweep", "classify.glue=rte,sst2", "--sweep", "optimizer.lr=1e-3,2e-3",
            "--set", f"data.train={self.folder}/{{classify.glue}}/train.tsv", "--set", f"data.eval={self.folder}/{{classify.glue}}/dev.tsv",
            "--set", "eval.every=1", "--set", "save.best=accuracy"))["entries"]
        self.assertEqual(len(answer), 4)
        self.assertEqual({one["group"] for one in answer}, {"glue"})
        self.assertIn("has begun", output("report", "--group", "glue", code=2, env=self.environment))
        self.run_all("--memory", "1GiB", "--threads", 1)
        page = self.folder / "table.html"
        text = output("report", "--group", "glue", "--by", "accuracy", "--html", page, env=self.environment)
        self.assertRegex(text, "4 runs, the best first, by accuracy")
        table = json.loads(output("report", "--group", "glue", "--by", "accuracy", "--json", env=self.environment))
        values = [one["best_evaluation"]["accuracy"] for one in table["runs"]]
        self.assertEqual(values, sorted(values, reverse=True))
        self.assertIn("classify.glue", table["differs"])
        self.assertIn("glue-gluesst2-lr2e-3", page.read_text())

    def test_a_sweep_with_one_run_that_fits_nothing_adds_none(self):
        text = self.queue("add", self.recipe("none", 2), "--sweep", "memory.device=1GiB,20MiB", code=3)
        self.assertIn("does not fit", text)
        self.assertEqual(json.loads(self.queue("list", "--json"))["entries"], [])

    def test_a_recipe_that_fits_nothing_is_not_added(self):
        self.assertIn("does not fit", self.queue("add", self.recipe("tiny", 5), "--memory", "20MiB", code=3))

    def test_a_queue_that_cannot_be_kept_names_where_it_may_be(self):
        self.environment["PLIMSOLL_QUEUE_DIR"] = str(self.recipe("file", 2) / "state/queue")
        self.assertRegex(self.queue("list", code=2), "cannot be made: .*PLIMSOLL_QUEUE_DIR names another folder")

    def test_a_folder_is_that_of_one_run(self):
        recipe = self.recipe("one", 2)
        self.queue("add", recipe)
        refused = self.queue("add", recipe, code=2)
        self.assertIn(f"output: {self.folder / 'one'} is the folder of entry 1 (one), which is waiting; name another folder: --output ", refused)
        self.queue("add", recipe, "--output", self.folder / "one-2")
        self.run_all()
        self.assertIn(f"output: {self.folder / 'one'} holds a run already; name another folder", self.queue("add", recipe, code=2))
        self.assertEqual([entry["state"] for entry in json.loads(self.queue("list", "--json"))["entries"]], ["done", "done"])


if __name__ == "__main__":
    unittest.main(testLoader=SuiteLoader("queue_trainings_test"))
