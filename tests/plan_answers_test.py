"""The answers of `plimsoll plan` beside the report: --compare, --sweep, --max, --explain, --timeline, --html.

Usage: plan_answers_test.py PLIMSOLL (from the repository's root).
"""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PLIMSOLL = Path("build/plimsoll").resolve()
QWEN = "examples/qwen2.5-0.5b-lora/recipe.yaml"
MISTRAL = "examples/mistral-7b-lora/recipe.yaml"
FIXED = ("--max-isa", "avx2", "--set", "threads=1")  # the same numbers on every machine


def plan(*words, code=0):
    done = subprocess.run([str(PLIMSOLL), "plan", *map(str, words), *FIXED], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def plan_json(*words, code=0):
    return json.loads(plan(*words, "--json", code=code))


class Compare(unittest.TestCase):
    def test_rows_are_the_plans_of_their_values(self):
        rows = plan_json(QWEN, "--compare", "micro_batch=1,4")["rows"]
        for row, micro in zip(rows, (1, 4), strict=True):
            alone = plan_json(QWEN, "--set", f"batch.micro={micro}")
            self.assertEqual(row["device_bytes"], alone["device"]["arena_bytes"])
            self.assertEqual(row["seconds_per_step"], alone["predicted"]["seconds_per_step"])
            self.assertTrue(row["same_result"])

    def test_two_rows_are_compared_component_by_component(self):
        text = plan(QWEN, "--compare", "micro_batch=1,4", "--set", "memory.recompute=none")
        frozen = next(line for line in text.splitlines() if "weights (frozen)" in line)
        kept = next(line for line in text.splitlines() if "activations kept" in line)
        self.assertTrue(frozen.endswith("same"), text)
        self.assertRegex(kept, r"\+\S+ GiB$")
        rows = plan_json(QWEN, "--compare", "micro_batch=1,4", "--set", "memory.recompute=none")["rows"]
        for row in rows:
            self.assertEqual(sum(row["device_components"].values()), row["device_bytes"])
            self.assertEqual(sum(row["host_components"].values()), row["host_bytes"])

    def test_all_combinations_of_methods_and_optimizers_from_a_recipe_with_lora_keys(self):
        rows = plan_json(MISTRAL, "--compare", "method=full,lora,qlora", "optimizer=adamw,adamw8bit")["rows"]
        self.assertEqual(len(rows), 6)
        by_set = {(r["set"]["method.type"], r["set"]["optimizer.name"]): r for r in rows}
        self.assertFalse(by_set["full", "adamw"]["feasible"])
        self.assertEqual(by_set["full", "adamw"]["difference"], "other method")
        self.assertEqual(by_set["full", "adamw8bit"]["difference"], "other method, lossy states")
        self.assertTrue(by_set["lora", "adamw"]["same_result"])
        self.assertEqual(by_set["qlora", "adamw"]["difference"], "other method, lossy base")
        self.assertLess(by_set["full", "adamw8bit"]["device_bytes"], by_set["full", "adamw"]["device_bytes"])

    def test_what_does_not_fit_says_so(self):
        self.assertIn("does not fit 2.00 GiB", plan(QWEN, "--compare", "method=full,lora", "--memory", "2GiB"))

    def test_what_is_not_possible_says_so_in_its_row(self):
        rows = plan_json(QWEN, "--compare", "optimizer=adamw,adam17")["rows"]
        self.assertIn("device_bytes", rows[0])
        self.assertIn("adam17", rows[1]["problem"])
        self.assertIn("adam17", plan(QWEN, "--compare", "optimizer=adamw,adam17"))

    def test_a_list_of_values_is_joined_by_plus(self):
        row, = plan_json(QWEN, "--compare", "targets=q_proj+v_proj")["rows"]
        alone = plan_json(QWEN, "--set", "method.targets=[q_proj, v_proj]")
        self.assertEqual(row["device_bytes"], alone["device"]["arena_bytes"])

    def test_mistakes_are_usage_errors(self):
        plan(QWEN, "--compare", "micro_batch", code=2)
        plan(QWEN, "--compare", "no_such_key=1", code=2)
        plan(QWEN, "--compare", "micro_batch=1,2", "--timeline", code=2)


class Page(unittest.TestCase):
    def test_html_is_written_beside_the_report(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "plan.html"
            self.assertIn("fits", plan(MISTRAL, "--html", page))
            text = page.read_text()
            self.assertLess(len(text), 1_000_000)
            self.assertTrue(text.startswith("<!doctype html>"))

    def test_html_is_written_where_the_plan_does_not_fit(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "plan.html"
            plan(QWEN, "--html", page, "--memory", "400MiB", code=3)
            self.assertIn("does not fit", page.read_text())

    def test_the_timeline_fits_the_terminal(self):
        for line in plan(QWEN, "--timeline").splitlines():
            self.assertLessEqual(len(line), 100)


if __name__ == "__main__":
    PLIMSOLL = Path(sys.argv.pop(1)).resolve()
    unittest.main()
