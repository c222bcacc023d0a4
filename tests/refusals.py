"""What tests of bad input share: a small finished run to damage, and commands that must be refused."""
import json
import shutil
import tempfile
import unittest
from pathlib import Path

import command_run
from command_run import ROOT, run

USAGE, DAMAGED, STOPPED = 2, 4, 5  # exit codes
ROWS = ROOT / "demo/data/facts/train.parquet"
MODEL_FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def write_recipe(folder, model, output, **changes):
    settings = {"model": str(model), "method": {"type": "full"}, "precision": "fp32",
                "data": {"train": str(ROWS), "max_length": 48}, "batch": {"effective": 8},
                "schedule": {"max_steps": 2, "warmup": 1}, "output": str(output)}
    for key, value in changes.items():
        settings[key] = {**settings[key], **value} if isinstance(settings.get(key), dict) else value
    path = folder / "recipe.json"
    path.write_text(json.dumps(settings))
    return path


class BadInputTest(unittest.TestCase):
    """Each test has a folder; run_folder is a finished run of four steps that nobody changes."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.run_folder = Path(folder.name) / "run"
        path = write_recipe(Path(folder.name), ROOT / "demo/model", cls.run_folder, init="random",
                            schedule={"max_steps": 4, "warmup": 1}, save={"every": 2})
        command_run.output("train", path, "--quiet")

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.output = self.folder / "run"

    def model(self):
        """A copy of the model that may be damaged."""
        folder = self.folder / "model"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in MODEL_FILES:
            shutil.copy(self.run_folder / name, folder / name)
        return folder

    def copy_of_run(self):
        """The run, and the recipe to resume it by."""
        shutil.rmtree(self.output, ignore_errors=True)
        shutil.copytree(self.run_folder, self.output)
        shutil.rmtree(self.output / "checkpoint-2")
        return write_recipe(self.folder, ROOT / "demo/model", self.output, init="random",
                            schedule={"max_steps": 4, "warmup": 1}, save={"every": 2})

    def refused(self, code, says, *words, **options):
        """The command ends with this exit code and an error that says these things."""
        done = run(*words, errors="replace", **options)
        self.assertEqual(done.returncode, code, f"{words}\n{done.stdout}{done.stderr}")
        for what in [says] if isinstance(says, (str, Path)) else says:
            self.assertIn(str(what), done.stderr)
        self.assertNotIn("bug in plimsoll", done.stderr)
        self.assertNotIn("json.exception", done.stderr)
        return done.stderr

    def training_refused(self, code, says, model, **changes):
        """So is a training run, which leaves nothing."""
        path = write_recipe(self.folder, model, self.output, **changes)
        text = self.refused(code, says, "train", path, "--quiet")
        self.assertFalse(self.output.exists(), text)
        return text


class TrainingTest(BadInputTest):
    """Runs of its own in `output`."""

    def train(self, *words, code=0, model=ROOT / "demo/model", init="random", **changes):
        """A run with the test's recipe; standard error."""
        path = write_recipe(self.folder, model, changes.pop("output", self.output), init=init, **changes)
        done = run("train", path, "--quiet", *words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertNotIn("bug in plimsoll", done.stderr)
        return done.stderr
