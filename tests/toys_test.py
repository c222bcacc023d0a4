"""What CONTRIBUTING.md says how to add can be added in the files that it names: a toy of each is, and all of them are used.

Usage: toys_test.py PLIMSOLL_WITH_TOYS      (from the repository's root; standard library only)
"""
import json
import re
import unittest
from pathlib import Path

from command_run import CommandTest, output, ROOT
from toys.toys import NEW, TOYS, changed_files, with_toys

# What an object sees of a list that toys stand in; of enumerations alone it would agree with one that sees none.
SEES_A_LIST = re.compile(r'#include "(?:ops/ops|ops/optimizers|models/families|tasks/tasks|cli/commands)\.def"'
                         r"|\bkNumOpKinds\b|\bkOptimizers\b|\bfind_optimizer\(|\btraits_of\(|\bPassId::|\bk(?:First|Last)Pass\b")


def sections():
    """{"an op": text} of CONTRIBUTING.md."""
    parts = (ROOT / "CONTRIBUTING.md").read_text().split("\n## Add ")[1:]
    return {part.split("\n")[0]: part.split("\n## ")[0] for part in parts}


def is_named(text, file):
    """By its path, or by its name beside another file of the folder."""
    folder, _, name = file.rpartition("/")
    stem = name.rpartition(".")[0]
    beside = f"`{folder}/" in text and (f"`{name}`" in text or (name.endswith(".h") and f"{folder}/{stem}.cc` and its header" in text))
    return f"`{file}`" in text or beside


class TheRecipesForAdding(unittest.TestCase):
    def test_each_names_all_files_that_its_toy_touches(self):
        texts = sections()
        for toy in TOYS:
            for file in {*toy.new, *(file for file, _, _ in toy.lines)}:
                followed = file.replace(f"/{toy.name}", f"/{toy.example}") if toy.name else file
                with self.subTest(toy.section, file=file):
                    self.assertTrue(is_named(texts[toy.section], followed), f"'Add {toy.section}' names no {followed}")

    def test_each_has_a_toy_but_that_of_the_doctor_whose_own_test_adds_messages(self):
        self.assertEqual({toy.section for toy in TOYS} | {"a message to the doctor"}, set(sections()))

    def test_the_places_that_lines_of_toys_go_behind_are_there_once(self):
        for file in changed_files():
            with_toys(file, (ROOT / file).read_text())

    def test_every_file_of_a_toy_belongs_to_one(self):
        files = {f"src/{path.relative_to(NEW)}" for path in NEW.rglob("*.*")}
        self.assertEqual(files, {file for toy in TOYS for file in toy.new})

    def test_all_that_sees_a_list_is_compiled_with_the_toys_in_it(self):
        compiled = set(re.findall(r"src/\S+\.cc", (ROOT / "tests/toys/CMakeLists.txt").read_text()))
        sees = {str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.cc")
                if not path.name.endswith("_test.cc") and SEES_A_LIST.search(path.read_text())}
        self.assertEqual(sees - compiled, set())
        self.assertEqual({file for file in changed_files() if file.startswith("src/") and file.endswith(".cc")} - compiled, set())


class TheToys(CommandTest):
    needs_run = False

    def setUp(self):
        super().setUp()
        self.model = self.folder / "model"
        self.model.mkdir()
        for path in (ROOT / "demo/model").iterdir():
            (self.model / path.name).write_bytes(path.read_bytes())
        config = json.loads((self.model / "config.json").read_text())
        (self.model / "config.json").write_text(json.dumps(config | {"model_type": "toy", "architectures": ["ToyForCausalLM"]}))

    def recipe(self, name, **keys):
        recipe = {"model": str(self.model), "init": "random", "method": {"type": "full"}, "precision": "fp32",
                  "data": {"train": str(ROOT / "demo/data/facts/train.parquet"), "max_length": 48},
                  "batch": {"effective": 8, "micro": 4}, "optimizer": {"name": "heavy", "lr": 1e-2},
                  "schedule": {"max_steps": 6, "warmup": 0}, "output": str(self.folder / name), **keys}
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(recipe))
        return path

    def test_a_model_of_the_toy_family_learns_the_toy_task_by_the_toy_optimizer_on_the_toy_backend(self):
        lines = {}
        for device in ("toy", "cpu"):
            output("train", self.recipe(device, device=device, task="parrot"), "--quiet")
            lines[device] = [json.loads(line) for line in (self.folder / device / "metrics.jsonl").read_text().splitlines()]
        first, last = lines["toy"][0], lines["toy"][-1]
        self.assertLess(last["loss"], first["loss"])
        for line in lines["toy"]:
            self.assertAlmostEqual(line["perplexity"], 2.718281828459045 ** line["loss"], delta=1e-3 * line["perplexity"])
        self.assertEqual([line["loss"] for line in lines["toy"]], [line["loss"] for line in lines["cpu"]])
        self.assertIn('"toy: ', (self.folder / "toy" / "run.json").read_text() + (self.folder / "toy" / "events.jsonl").read_text())

    def test_the_toy_pass_has_its_place_and_makes_one_op_of_two_toy_ops(self):
        words = ("plan", self.recipe("run", task="parrot"), "--threads", "2", "--memory", "2GiB", "--no-probe")
        before, after = (output(*words, "--dump", name) for name in ("train-all", "fold-halves"))
        self.assertEqual([before.count(" = halve("), before.count(" = scale(")], [2, 0])
        self.assertEqual([after.count(" = halve("), after.count(" = scale(")], [0, 1])
        program = output(*words, "--dump", "program")
        self.assertEqual(program.count(" = scale("), 2)  # and its gradient
        self.assertIn("momentum=0.5", program)

    def test_the_toy_key_is_read_printed_and_used(self):
        recipe = self.recipe("run", shallow=True)
        self.assertIn("\nshallow: true", output("recipe", recipe))
        self.assertIn("shallow", output("recipe", "--explain"))
        words = ("--threads", "2", "--memory", "2GiB", "--no-probe", "--dump", "graph")
        self.assertEqual(output("plan", recipe, *words).count("\nblock "), 1)
        self.assertEqual(output("plan", self.recipe("deep"), *words).count("\nblock "), 4)
        self.assertIn("shallow: expected true or false", output("recipe", self.recipe("bad", shallow="very"), code=2))

    def test_the_toy_command_is_listed_explained_and_run(self):
        self.assertEqual(output("toy"), "a toy\n")
        self.assertIn("\n  toy ", output("--help"))
        self.assertIn("Says that it is one.", output("toy", "--help"))
        self.assertIn("toy", output("completion", "bash"))

    def test_toys_are_among_the_words_that_refusals_name(self):
        for keys, word in (({"task": "sing"}, "parrot"), ({"optimizer": {"name": "light"}}, "heavy"), ({"device": "abacus"}, "toy")):
            self.assertIn(word, output("recipe", self.recipe("bad", **keys), code=2))
        config = json.loads((self.model / "config.json").read_text())
        (self.model / "config.json").write_text(json.dumps(config | {"model_type": "dollhouse"}))
        self.assertIn("toy", output("plan", self.recipe("bad"), code=2))


if __name__ == "__main__":
    unittest.main()
