"""The notebooks of examples/notebooks, run from their first cell to their last with a tiny model on the CPU.

Usage: notebooks_test.py PLIMSOLL (from the repository's root). Where papermill is (`make notebooks`), it sets the parameters and runs
the cells in a kernel; elsewhere they run one after the other in a Python of their own, the test's values after the cell `parameters`.
"""
import base64
import importlib.util
import json
import os
import subprocess
import sys

import small_models
from command_run import PLIMSOLL, ROOT, CommandTest, main, output

BOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))
SMALL = {"length": 32, "steps": 3, "changes": {"threads": 1, "device": "cpu"}}
HAS_PAPERMILL = all(importlib.util.find_spec(module) for module in ("papermill", "ipykernel"))


class Notebooks(CommandTest):
    needs_run = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        assert len(BOOKS) == 6

    def run_book(self, number, **values):
        """Runs a notebook with other values of its parameters."""
        path = BOOKS[number - 1]
        book = json.loads(path.read_text())
        cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
        for cell in cells:
            cell["source"] = [line for line in cell["source"] if not line.startswith("%")]
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PLIMSOLL_BINARY": str(PLIMSOLL), "PLIMSOLL_NO_PROBE": "1"}
        if HAS_PAPERMILL:
            (self.folder / "book.ipynb").write_text(json.dumps(book))
            words = [sys.executable, "-m", "papermill", "--no-progress-bar", "-k", "python3", "-b", base64.b64encode(json.dumps(values).encode()).decode(),
                     "book.ipynb", "done.ipynb"]
        else:
            text = ["".join(cell["source"]) for cell in cells]
            at = next(i for i, cell in enumerate(cells) if "parameters" in cell["metadata"].get("tags", []))
            text.insert(at + 1, "".join(f"{name} = {value!r}\n" for name, value in values.items()))
            (self.folder / "book.py").write_text("\n".join(text))
            words = [sys.executable, "book.py"]
        done = subprocess.run(words, cwd=self.folder, env=env, capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, f"{path.name}: {done.stdout}\n{done.stderr}")

    def model(self):
        """A tiny model with weights."""
        recipe = small_models.tiny_recipe(self.folder, small_models.LLAMA, "first", schedule={"max_steps": 1, "warmup": 0})
        output("train", recipe, "--quiet")
        return str(self.folder / "first")

    def test_qlora(self):
        self.run_book(1, **SMALL, model=self.model(), gpu=None, precision="fp32")

    def test_what_fits(self):
        self.run_book(2, lengths=[512])

    def test_dpo(self):
        self.run_book(3, **SMALL, model=self.model())

    def test_a_classifier(self):
        values = {**SMALL, "changes": {**SMALL["changes"], "init": "random"}}
        self.run_book(4, **values, model=str(small_models.model(self.folder / "bert", small_models.BERT)))

    def test_why_it_ran_out_of_memory(self):
        self.run_book(5, length=512)

    def test_export(self):
        self.run_book(6, **SMALL, model=self.model())

    def test_they_hold_no_outputs(self):
        for path in BOOKS:
            book = json.loads(path.read_text())
            for cell in book["cells"]:
                self.assertFalse(cell.get("outputs") or cell.get("execution_count"), path.name)
            self.assertEqual(sum("parameters" in cell["metadata"].get("tags", []) for cell in book["cells"]), 1, path.name)
            self.assertIn("%pip install", "".join(book["cells"][1]["source"]))


if __name__ == "__main__":
    main()
