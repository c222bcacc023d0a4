"""What tests of bad input share: a small finished run to damage, and commands that must be refused."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

import command_run
from command_run import ROOT, run

USAGE, DAMAGED, STOPPED = 2, 4, 5  # exit codes
SHIM = command_run.PLIMSOLL.parent / "tests/libfailing_files.so"  # tests/failing_files.cc
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

    def model_whose_expression_gives_up(self):
        """On 200 times "a": its tokenizer's expression has exponentially many ways to fail there."""
        model = self.model()
        tokenizer = json.loads((model / "tokenizer.json").read_text())
        split = {"type": "Split", "pattern": {"Regex": "(?:a|aa)+c|[^a]+|a"}, "behavior": "Isolated", "invert": False}
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, byte_level]}
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
        return model

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

    def waiting_run(self, recipe, *words, lines=2, **options):
        """A run that waits for `go_on` once its metrics have so many lines."""
        self.assertTrue(SHIM.exists(), "build the target failing_files")
        stops = {"LD_PRELOAD": str(SHIM), "FAIL_CALL": "write", "FAIL_PATH": "/metrics.jsonl", "FAIL_ERRNO": "stop",
                 "FAIL_AFTER": str(lines)}
        process = subprocess.Popen([str(command_run.PLIMSOLL), "train", str(recipe), "--quiet", *words], text=True,
                                   stderr=subprocess.PIPE, env={**os.environ, **stops, **options.pop("env", {})}, **options)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            process.returncode = os.waitstatus_to_exitcode(status)
            self.fail(f"it did not come so far: {process.returncode}\n{process.stderr.read()}")
        return process

    def go_on(self, process, code):
        """It ends with this exit code; its standard error."""
        process.send_signal(signal.SIGCONT)
        _, text = process.communicate(timeout=600)
        self.assertEqual(process.returncode, code, text)
        self.assertNotIn("bug in plimsoll", text)
        return text

    def train(self, *words, code=0, model=ROOT / "demo/model", init="random", **changes):
        """A run with the test's recipe; standard error."""
        path = write_recipe(self.folder, model, changes.pop("output", self.output), init=init, **changes)
        done = run("train", path, "--quiet", *words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertNotIn("bug in plimsoll", done.stderr)
        return done.stderr
