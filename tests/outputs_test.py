"""Files that are none, and outputs other than a run's: new folders, answers, pages.

Usage: outputs_test.py PLIMSOLL (from the repository's root). Standard library alone.
"""
import json
import os
import shutil
import stat
import subprocess
import unittest
from pathlib import Path

import command_run
from command_run import run
from refusals import MODEL_FILES, STOPPED, USAGE, TrainingTest, write_recipe

GOOD = json.dumps({"prompt": "a", "response": "b"}) + "\n"
LORA = {"type": "lora", "r": 4}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


class Fifos(TrainingTest):
    """Nothing waits: every command ends, with an error that names the file."""

    def test_in_place_of_any_file(self):
        for name in MODEL_FILES + ("special_tokens_map.json", "merges.txt", "chat_template.jinja"):
            model = self.model()
            (model / name).unlink(missing_ok=True)
            os.mkfifo(model / name)
            self.training_refused(USAGE, [model / name, "is no regular file"], model)
        rows = self.folder / "rows.jsonl"
        for ending in ("jsonl", "json", "csv", "parquet", "arrow"):
            rows = self.folder / f"rows.{ending}"
            os.mkfifo(rows)
            self.training_refused(USAGE, [rows, "is no regular file"], self.run_folder, data={"train": str(rows)})
        recipe = self.folder / "fifo.yaml"
        os.mkfifo(recipe)
        self.refused(USAGE, recipe, "plan", recipe)
        self.refused(USAGE, recipe, "generate", self.run_folder, "--prompt-file", recipe)
        for name in ("metrics.jsonl", "events.jsonl", "eval.jsonl", "run.json"):
            path = self.copy_of_run()
            (self.output / name).unlink()
            os.mkfifo(self.output / name)
            self.refused(USAGE, name, "report", self.output)
            self.refused(USAGE, name, "train", path, "--quiet", "--resume")
            self.assertLess(run("inspect", self.output).returncode, 5)


class NewFolders(TrainingTest):
    def test_a_slash_at_the_end_and_names_beside(self):
        for command, words in (("convert", (self.run_folder, "--dtype", "bf16")), ):
            (self.folder / "new.tmp").mkdir()
            (self.folder / "new.tmp/mine").write_text("mine")
            command_run.output(command, *words, "--out", f"{self.folder}/new/")
            self.assertTrue((self.folder / "new/model.safetensors").exists())
            self.assertEqual((self.folder / "new.tmp/mine").read_text(), "mine")
            self.assertEqual([name for name in names(self.folder) if name.startswith(".")], [])
            self.refused(USAGE, "exists already", command, *words, "--out", f"{self.folder}/new/")
        (self.folder / "dangling").symlink_to("nowhere")
        self.refused(USAGE, "exists already", "convert", self.run_folder, "--dtype", "bf16", "--out", self.folder / "dangling")
        self.train(model=self.run_folder, init="weights", method=LORA)
        command_run.output("merge", self.output, "--out", f"{self.folder}/merged/")
        self.assertTrue((self.folder / "merged/model.safetensors").exists())

    def test_a_folder_that_is_read_gets_no_new_folder(self):
        model = self.model()
        (self.folder / "link").symlink_to(model)
        self.train(model=model, init="weights", method=LORA)
        before = [names(model), names(self.output)]
        for out in (model / "new", model / "a/b", self.folder / "link/new"):
            self.refused(USAGE, [out, "lies in"], "convert", model, "--dtype", "bf16", "--out", out)
            self.refused(USAGE, [out, "lies in"], "merge", self.output, "--out", out)
        self.refused(USAGE, "lies in", "merge", self.output, "--out", self.output / "merged")
        self.assertEqual([names(model), names(self.output)], before)

    def test_of_two_commands_with_one_output_one_wins_and_the_other_is_told(self):
        told = 0
        for i in range(8):
            out = self.folder / f"out{i}"
            words = [str(command_run.PLIMSOLL), "convert", str(self.run_folder), "--dtype", "bf16", "--out", str(out)]
            both = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
            ends = [(process, *process.communicate(timeout=120)) for process in both]
            self.assertEqual(sorted(process.returncode for process, _, _ in ends), [0, USAGE], ends)
            (error,) = [error for process, _, error in ends if process.returncode == USAGE]
            self.assertRegex(error, "is writing there|exists already")
            told += "is writing there" in error
            self.assertIn("model.safetensors", names(out))
            self.assertEqual(run("inspect", out).returncode, 0)
        self.assertEqual([name for name in names(self.folder) if name.startswith(".")], [])

    def test_of_two_merges_and_of_a_merge_and_a_conversion_one_wins(self):
        self.train(model=self.run_folder, init="weights", method=LORA)
        merge = ("merge", self.output)
        convert = ("convert", self.run_folder, "--dtype", "bf16")
        for i, (first, second) in enumerate([(merge, merge)] * 4 + [(merge, convert)] * 4):
            out = self.folder / f"out{i}"
            both = [subprocess.Popen([str(command_run.PLIMSOLL), *map(str, words), "--out", str(out)], text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE) for words in (first, second)]
            ends = [(process, *process.communicate(timeout=120)) for process in both]
            self.assertEqual(sorted(process.returncode for process, _, _ in ends), [0, USAGE], ends)
            (error,) = [error for process, _, error in ends if process.returncode == USAGE]
            self.assertRegex(error, "is writing there|exists already")
            self.assertIn("model.safetensors", names(out))
            self.assertEqual(run("generate", out, "--ids", "5,17", "--max-new-tokens", "2").returncode, 0)
        self.assertEqual([name for name in names(self.folder) if name.startswith(".")], [])

    def test_a_run_and_a_merge_with_one_output(self):
        adapter = self.folder / "lora"
        self.train(output=adapter, model=self.run_folder, init="weights", method=LORA)
        path = write_recipe(self.folder, self.run_folder, self.output)
        for _ in range(4):
            shutil.rmtree(self.output, ignore_errors=True)
            both = [subprocess.Popen([str(command_run.PLIMSOLL), *map(str, words)], text=True, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE)
                    for words in (("train", path, "--quiet"), ("merge", adapter, "--out", self.output))]
            ends = [(process.returncode, error) for process in both for _, error in [process.communicate(timeout=120)]]
            self.assertEqual(sorted(code for code, _ in ends), [0, USAGE], ends)
            self.assertEqual((self.output / "run.json").exists(), ends[0][0] == 0)
            self.assertEqual(run("generate", self.output, "--ids", "5,17", "--max-new-tokens", "2").returncode, 0)

    def test_devices_as_a_recipe_to_write(self):
        words = ("init", self.run_folder, self.folder / "rows.jsonl", "--out")
        (self.folder / "rows.jsonl").write_text(GOOD * 20)
        null, full = self.folder / "null", self.folder / "full"
        try:
            os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
            os.mknod(full, stat.S_IFCHR | 0o666, os.makedev(1, 7))
            full.write_text("")
        except PermissionError:
            self.skipTest("no devices can be made here")
        self.refused(USAGE, "exists; --force", *words, null)
        command_run.output(*words, null, "--force")
        self.refused(STOPPED, "No space left on device", *words, full, "--force")
        self.assertTrue(null.is_char_device() and full.is_char_device())
        os.mkfifo(self.folder / "fifo")
        self.refused(USAGE, "cannot be written", *words, self.folder / "fifo", "--force")

    def test_links_that_lead_out_of_a_model_are_not_copied(self):
        model = self.model()
        (self.folder / "secret.txt").write_text("secret")
        (model / "notes.txt").symlink_to("../secret.txt")
        self.refused(USAGE, [model / "notes.txt", "leads out of the folder"], "convert", model, "--dtype", "bf16", "--out",
                     self.folder / "new")
        self.assertFalse((self.folder / "new").exists())
        (model / "notes.txt").unlink()
        (model / "vocab.json").symlink_to("config.json")
        command_run.output("convert", model, "--dtype", "bf16", "--out", self.folder / "new")
        # The cache of the hub is made of links.
        cache = self.folder / "models--a--b"
        (cache / "snapshots/123").mkdir(parents=True)
        shutil.copytree(self.run_folder, cache / "blobs", ignore=shutil.ignore_patterns("checkpoint-*", ".*"))
        for name in MODEL_FILES:
            (cache / "snapshots/123" / name).symlink_to(f"../../blobs/{name}")
        command_run.output("convert", cache / "snapshots/123", "--dtype", "bf16", "--out", self.folder / "hub")

    def test_answers_do_not_overwrite_their_questions(self):
        rows = self.folder / "rows.jsonl"
        rows.write_text(GOOD)
        (self.folder / "link.jsonl").symlink_to(rows)
        for out in (rows, self.folder / "link.jsonl"):
            self.refused(USAGE, "--out", "generate", self.run_folder, "--data", rows, "--out", out)
            self.refused(USAGE, "--out", "eval", self.run_folder, "--data", rows, "--generate", "--out", out)
        self.refused(USAGE, "--out", "generate", self.run_folder, "--prompt-file", rows, "--out", rows)
        self.assertEqual(rows.read_text(), GOOD)

    def test_a_page_that_cannot_be_written_is_a_wrong_path(self):
        self.refused(USAGE, "cannot be written", "report", self.run_folder, "--html", self.folder / "absent/page.html")
        for device in ("/dev/null",):
            command_run.output("report", self.run_folder, "--html", device)
        self.assertTrue(Path("/dev/null").is_char_device())
        page = self.folder / "page.html"
        page.write_text("old")
        (self.folder / "link").symlink_to("page.html")
        command_run.output("report", self.run_folder, "--html", self.folder / "link")
        self.assertTrue((self.folder / "link").is_symlink())
        self.assertIn("<html", page.read_text())


if __name__ == "__main__":
    unittest.main()
