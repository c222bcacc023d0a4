"""The output folder is the user's place: a run touches only what it provably wrote, and keeps its work.

Usage: run_folder_test.py PLIMSOLL (from the repository's root). Standard library alone.
"""
import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import command_run
from command_run import ROOT, run
from shard import SuiteLoader
from refusals import DAMAGED, ROWS, STOPPED, USAGE, TrainingTest, write_recipe

GOOD = json.dumps({"prompt": "a", "response": "b"}) + "\n"
LORA = {"type": "lora", "r": 4}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def contents(folder):
    """Of everything below but the number in a lock, links as what they point at."""
    return {str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
            for path in folder.rglob("*") if (path.is_symlink() or path.is_file()) and path.name != "lock"}


class Names(TrainingTest):
    def test_files_of_the_user_stay_whatever_they_are_called(self):
        self.output.mkdir()
        mine = ("thesis.tmp", "run.json.tmp.12", "photos.old", "README.md", "events.out.tfevents.1.laptop", "offload.1")
        for name in mine:
            (self.output / name).write_text(name)
        for name in ("cache.tmp", "data.old", "checkpoint-2.tmp", "checkpoint-last"):
            (self.output / name).mkdir()
            (self.output / name / "inside").write_text(name)
        before = contents(self.output)
        self.train(save={"every": 1, "keep": 1})
        self.train("--resume", save={"every": 1, "keep": 1})
        self.train("--overwrite", log={"tensorboard": True})
        self.assertTrue({name: content for name, content in contents(self.output).items() if name in before} == before)

    def test_a_name_of_ours_that_something_else_has_refuses_the_run_and_stays(self):
        for name in ("config.json", "model.safetensors", "recipe.yaml", "eval.jsonl", "metrics.jsonl", "run.json",
                     "events.jsonl", "tokenizer.json", "stopped-at-step-3.jsonl"):
            shutil.rmtree(self.output, ignore_errors=True)
            self.output.mkdir()
            (self.output / name).write_text("mine\n")
            for words in ((), ("--resume",), ("--overwrite",)):
                text = self.train(*words, code=USAGE)
                self.assertIn(f"{self.output / name}: is there already, and no run wrote it", text)
            self.assertEqual(contents(self.output), {name: b"mine\n"})
        (self.output / name).unlink()
        (self.output / "checkpoint-9").mkdir()
        self.assertIn("checkpoint-9: is there already", self.train("--resume", code=USAGE))
        (self.output / "checkpoint-9").rmdir()
        self.train("--profile", code=0)

    def test_what_was_changed_after_the_run_is_not_overwritten(self):
        self.copy_of_run()
        (self.output / "recipe.yaml").write_text("# mine\n" + (self.output / "recipe.yaml").read_text())
        before = contents(self.output)
        for word in ("--resume", "--overwrite"):
            self.assertIn("recipe.yaml: was changed", self.train(word, code=USAGE, schedule={"max_steps": 4},
                                                                 save={"every": 2}))
        self.assertTrue(contents(self.output) == before)  # without megabytes of differences
        self.copy_of_run()
        (self.output / "checkpoint-4/notes.txt").write_text("mine")
        self.assertIn("checkpoint-4/notes.txt: was changed, or put there", self.train("--overwrite", code=USAGE))

    def test_a_model_card_that_was_edited_is_kept(self):
        self.train()
        made = (self.output / "README.md").read_text()
        (self.output / "README.md").write_text(made + "my evaluation\n")
        self.train("--resume", schedule={"max_steps": 3})
        self.assertEqual((self.output / "README.md").read_text(), made + "my evaluation\n")
        path = write_recipe(self.folder, ROOT / "demo/model", self.output, init="random")
        done = run("train", path, "--overwrite", "--log-level", "warn")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("README.old.md", done.stderr)
        self.assertEqual((self.output / "README.old.md").read_text(), made + "my evaluation\n")
        self.assertIn("Trained with Plimsoll", (self.output / "README.md").read_text())
        (self.output / "README.md").write_text("another\n")
        self.train("--overwrite")
        self.assertEqual([(self.output / f"README.old{number}.md").read_text() for number in ("", "-2")],
                         [made + "my evaluation\n", "another\n"])

    def test_a_checkpoint_with_a_note_in_it_is_kept(self):
        self.copy_of_run()
        (self.output / "checkpoint-4/notes.txt").write_text("mine")
        changes = {"schedule": {"max_steps": 4}, "save": {"every": 1, "keep": 1}}
        shutil.copytree(self.output / "checkpoint-4", self.output / "checkpoint-2", dirs_exist_ok=True)
        shutil.rmtree(self.output / "checkpoint-2")
        self.train("--resume", **changes)
        self.assertEqual((self.output / "checkpoint-4/notes.txt").read_text(), "mine")

    def test_a_checkpoint_that_a_stop_kept_from_going_goes_with_the_next_command(self):
        self.copy_of_run()
        shutil.copytree(self.run_folder, self.output, dirs_exist_ok=True)
        self.train("--resume", schedule={"max_steps": 4}, save={"every": 2, "keep": 1})
        self.assertEqual([name for name in names(self.output) if name.startswith("checkpoint-")], ["checkpoint-4"])

    @unittest.skipUnless(os.access("/dev/shm", os.W_OK), "no /dev/shm here")
    def test_a_folder_below_dev_is_a_folder(self):
        place = Path(tempfile.mkdtemp(dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, place)
        self.train(output=place / "run", save={"every": 1})
        self.assertTrue((place / "run/checkpoint-2/config.json").exists())
        command_run.output("convert", place / "run", "--dtype", "bf16", "--out", place / "new")
        command_run.output("report", place / "run", "--html", place / "page.html")
        self.assertIn("<html", (place / "page.html").read_text())

    def test_a_backup_by_hard_links_does_not_change_with_the_run(self):
        changes = {"data": {"eval": "2%"}, "eval": {"every": 1}, "log": {"tensorboard": True}}
        self.train(schedule={"max_steps": 2}, save={"every": 1}, **changes)
        shutil.rmtree(self.output / "checkpoint-2")
        shutil.copytree(self.output, self.folder / "backup", copy_function=os.link)
        before = contents(self.folder / "backup")
        self.train("--resume", schedule={"max_steps": 3}, save={"every": 1}, **changes)
        self.assertTrue(contents(self.folder / "backup") == before)
        self.train("--overwrite", seed=3, **changes)
        self.assertTrue(contents(self.folder / "backup") == before)

    def test_links_planted_in_the_folder_are_not_followed(self):
        secret = self.folder / "secret"
        secret.write_text("twelve years of work\n")
        for name in (".plimsoll", ".lock", "metrics.jsonl", "eval.jsonl", "events.jsonl", "run.json", "recipe.yaml"):
            for finished in (False, True):
                shutil.rmtree(self.output, ignore_errors=True)
                if finished:
                    self.copy_of_run()
                    if name == ".plimsoll":
                        shutil.rmtree(self.output / name)
                    else:
                        (self.output / name).unlink(missing_ok=True)
                else:
                    self.output.mkdir()
                (self.output / name).symlink_to(secret)
                for words in ((), ("--resume",), ("--overwrite",)):
                    write_recipe(self.folder, ROOT / "demo/model", self.output, init="random",
                                 schedule={"max_steps": 4}, save={"every": 2})
                    run("train", self.folder / "recipe.json", "--quiet", *words)
                    self.assertEqual(secret.read_text(), "twelve years of work\n", (name, words))
        shutil.rmtree(self.output)
        self.output.mkdir()
        (self.output / ".plimsoll").mkdir()
        (self.output / ".plimsoll/lock").symlink_to(secret)
        self.assertIn("was not written by plimsoll", self.train(code=USAGE))
        self.assertEqual(secret.read_text(), "twelve years of work\n")


class Places(TrainingTest):
    def test_an_output_that_touches_what_is_read_is_refused(self):
        model = self.model()
        data = self.folder / "data"
        data.mkdir()
        shutil.copy(ROWS, data / "rows.parquet")
        (self.folder / "link").symlink_to(model)
        (self.folder / "above").symlink_to(self.folder)
        before = contents(self.folder)
        reads = {"model": model, "init": "weights", "data": {"train": str(data)}}
        for output, says in ((model, "is the model"), (self.folder / "link", "is the model"), (model / "run", "lies in the model"),
                             (self.folder / "link/run/x", "lies in the model"), (self.folder, "holds the model"),
                             (self.folder / "above", "holds the model"), (data, "is data.train"),
                             (data / "run", "lies in data.train")):
            for word in ("--overwrite", "--resume"):
                self.assertIn(says, self.train(word, code=USAGE, output=output, **reads))
            after = contents(self.folder)
            after.pop("recipe.json")
            self.assertEqual(after, {name: text for name, text in before.items() if name != "recipe.json"})
        for train in (str(data / "rows.parquet"), str(data / "*.parquet")):
            self.assertIn("data.train", self.train(code=USAGE, output=data, data={"train": train}))
        self.assertIn("data.eval", self.train(code=USAGE, output=data, data={"eval": str(data / "rows.parquet")}))
        adapter = self.folder / "lora"
        self.train(output=adapter, method=LORA)
        self.assertIn("the adapter", self.train("--overwrite", code=USAGE, output=adapter, method=LORA,
                                                adapter=str(adapter)))

    def test_an_output_that_holds_the_recipe_is_refused_but_for_the_one_a_run_saved(self):
        path = write_recipe(self.folder, ROOT / "demo/model", ".", init="random")
        before = contents(self.folder)
        self.refused(USAGE, "holds the recipe", "train", path, "--quiet")
        self.assertEqual(contents(self.folder), before)
        self.copy_of_run()
        text = (self.output / "recipe.yaml").read_text()
        text = text.replace(str(self.run_folder), str(self.output))
        for recipe in (self.output / "recipe.yaml", self.output / "checkpoint-4/recipe.yaml"):
            self.refused(USAGE, "holds the recipe", "train", recipe, "--quiet", "--overwrite", "--set", f"output={self.output}")
            command_run.output("train", recipe, "--quiet", "--resume", "--set", f"output={self.output}")

    def test_an_output_that_links_to_an_ordinary_folder_is_fine(self):
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        self.output.symlink_to(elsewhere)
        self.train(save={"every": 1})
        self.train("--resume", save={"every": 1})
        self.train("--overwrite", save={"every": 1})
        self.assertTrue(self.output.is_symlink())
        self.assertTrue((elsewhere / "model.safetensors").exists())

    def test_a_home_folder_in_a_recipe_is_the_users(self):
        path = write_recipe(self.folder, ROOT / "demo/model", "~/runs/a", init="random")
        command_run.output("train", path, "--quiet", env={**os.environ, "HOME": str(self.folder / "home")})
        self.assertTrue((self.folder / "home/runs/a/run.json").exists())
        self.assertFalse((self.folder / "~").exists())


class Unfinished(TrainingTest):
    def asked(self, folder):
        """What every command that asks a model says of the folder."""
        new = self.folder / "new"
        for words in (("generate", folder, "--prompt", "hi"), ("chat", folder), ("eval", folder),
                      ("score", folder, "--response", "a"), ("classify", folder, "--text", "a"),
                      ("merge", folder, "--out", new), ("convert", folder, "--dtype", "bf16", "--out", new),
                      ("convert", folder, "--to", "gguf", "--out", new),
                      ("generate", ROOT / "demo/model", "--adapter", folder, "--prompt", "hi"),
                      ("merge", folder, "--base", ROOT / "demo/model", "--out", new)):
            yield self.refused(USAGE, f"{folder}: has no result yet: ", *words, stdin=subprocess.DEVNULL)
            self.assertFalse(new.exists())

    def test_who_asks_it_is_told_how_far_it_is_and_what_to_do(self):
        for method, every in (({"type": "full"}, 0), (LORA, 1)):
            output = self.folder / f"{method['type']} run"
            recipe = write_recipe(self.folder, ROOT / "demo/model", output, init="random", method=method,
                                  schedule={"max_steps": 6, "warmup": 1}, save={"every": every})
            process = self.waiting_run(recipe, lines=3)
            last = "use its newest checkpoint: '" + str(output) + "/checkpoint-{}'"
            for text in self.asked(output):
                self.assertIn("the run is at step 3 of 6. Wait for its end", text)
                self.assertIn(last.format(3) if every else "it has no checkpoint to use instead", text)
            process.send_signal(signal.SIGINT)
            self.go_on(process, 130)
            step = len((output / "metrics.jsonl").read_text().splitlines())
            for text in self.asked(output):
                self.assertIn(f"the run stopped at step {step} of 6 (interrupted, saved). Continue it with "
                              f"`plimsoll train '{output}/recipe.yaml' --resume`, or " + last.format(step), text)
            if method["type"] == "full":
                command_run.output("generate", output / f"checkpoint-{step}", "--prompt", "hi")
            command_run.output("train", output / "recipe.yaml", "--quiet", "--resume")
            command_run.output("convert", output, "--dtype", "bf16", "--out", self.folder / f"{step} of {every}")

    def test_nor_does_one_that_has_not_taken_a_step(self):
        self.copy_of_run()
        for path in self.output.iterdir():
            if path.is_file():
                path.unlink()
        shutil.rmtree(self.output / "checkpoint-4")
        with open(self.output / ".plimsoll/lock", "w") as lock:
            self.assertIn("has no tokenizer.json", self.refused(USAGE, self.output, "generate", self.output, "--prompt", "hi"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            for text in self.asked(self.output):
                self.assertIn("the run is at step 0. Wait for its end; it has no checkpoint", text)


class Overwrite(TrainingTest):
    def test_what_replaces_a_run_leaves_nothing_of_it(self):
        self.train(model=self.run_folder, init="weights", method=LORA)
        self.assertTrue((self.output / "adapter_model.safetensors").exists())
        self.train("--overwrite", schedule={"max_steps": 1})
        self.assertEqual([name for name in names(self.output) if "adapter" in name], [])
        want = run("generate", self.output / "checkpoint-1", "--prompt", "x", "--max-new-tokens", 4).stdout
        self.assertEqual(run("generate", self.output, "--prompt", "x", "--max-new-tokens", 4).stdout, want)

    def test_an_interrupted_one_leaves_its_own_files_or_none(self):
        self.train(model=self.run_folder, init="weights", method=LORA)
        path = write_recipe(self.folder, ROOT / "demo/model", self.output, init="random", schedule={"max_steps": 100_000})
        running = subprocess.Popen([str(command_run.PLIMSOLL), "train", str(path), "--quiet", "--overwrite"])
        self.addCleanup(running.kill)
        deadline = time.monotonic() + 60

        def has_begun():
            try:
                return json.loads((self.output / "events.jsonl").read_text().splitlines()[0])["total_steps"] == 100_000
            except (OSError, IndexError):  # the old one goes, the new one comes
                return False
        while not has_begun():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        running.kill()
        running.wait()
        self.assertEqual([name for name in names(self.output) if "adapter" in name or "safetensors" in name], [])
        self.refused(USAGE, f"{self.output}: has no", "generate", self.output, "--prompt", "x")

    def test_a_refused_one_leaves_the_old_run_as_it_was(self):
        self.copy_of_run()
        before = contents(self.output)
        model = self.model()
        weights = model / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-4] + b"\xff\xff\xff\x7f")  # NaN, met while it is loaded
        self.train("--overwrite", code=DAMAGED, model=model, init="weights")
        self.train("--overwrite", code=3, memory={"device": "1KiB"})
        after = contents(self.output)
        self.assertEqual({name: text for name, text in after.items() if not name.startswith(".plimsoll")},
                         {name: text for name, text in before.items() if not name.startswith(".plimsoll")})


class WorkIsKept(TrainingTest):
    def events(self):
        return [json.loads(line) for line in (self.output / "events.jsonl").read_text().splitlines()]

    def damaged(self, bad, good=GOOD, **changes):
        """A recipe's keys with rows of which number 8,001 is `bad`, put there after they were counted: the file's size
        and time are as before."""
        self.enterContext(mock.patch.dict(os.environ, PLIMSOLL_CACHE_DIR=str(self.folder / "cache")))
        rows = self.folder / "rows.jsonl"
        length = max(len(bad), len(good.strip()))
        fine, broken = (text.strip().ljust(length) + "\n" for text in (good, bad))
        rows.write_text(good * 8000 + fine + good * 500)
        before = rows.stat()
        changes = {"data": {"train": str(rows), "shuffle": False}, "batch": {"effective": 500},
                   "schedule": {"max_steps": 17}, **changes}
        recipe = write_recipe(self.folder, changes.get("model", ROOT / "demo/model"), self.output, init="random",
                              **{name: value for name, value in changes.items() if name != "model"})
        counted = run("plan", recipe, "--count")
        self.assertEqual(counted.returncode, 0, counted.stderr)
        rows.write_text(good * 8000 + broken + good * 500)
        os.utime(rows, ns=(before.st_atime_ns, before.st_mtime_ns))
        return changes

    def test_a_damaged_row_in_the_middle(self):
        changes = self.damaged("{broken")
        text = self.train(code=DAMAGED, **changes)
        self.assertIn("rows.jsonl:8001: is not valid JSON", text)
        self.assertIn("data.on_error: skip", text)
        self.assertIn("the state after step 16 is saved: --resume", text)
        self.assertEqual([event["event"] for event in self.events()], ["start", "save", "stop"])
        self.assertIn("stopped", run("report", self.output).stdout)
        self.assertIn("rows.jsonl:8001", self.train("--resume", code=DAMAGED, **changes))
        # The key that the message names lets the run go on: it decides nothing about the rows that are fine.
        self.train("--resume", **{**changes, "data": {**changes["data"], "on_error": "skip"}})
        self.assertEqual(json.loads((self.output / "run.json").read_text())["steps"], 17)

    def test_a_damaged_row_is_found_before_the_run_where_rows_are_counted(self):
        rows = self.folder / "rows.jsonl"
        rows.write_text(GOOD * 8000 + "{broken\n" + GOOD * 500)
        text = self.train(code=DAMAGED, data={"train": str(rows), "shuffle": False})
        self.assertIn("rows.jsonl:8001: is not valid JSON", text)
        self.assertFalse((self.output / "metrics.jsonl").exists())

    def test_a_row_in_the_middle_that_the_expression_gives_up_on(self):
        model = self.model_whose_expression_gives_up()
        changes = self.damaged(json.dumps({"prompt": "a" * 200, "response": "b"}), GOOD.replace("a", "d"), model=model)
        text = self.train(code=DAMAGED, **changes)
        self.assertIn("rows.jsonl:8001: ", text)
        self.assertIn("data.on_error: skip", text)
        self.assertIn("the state after step 16 is saved: --resume", text)
        changes["data"]["on_error"] = "skip"
        self.train("--resume", **changes)

    def test_a_log_that_cannot_be_written(self):
        for name, saved, logged in (("metrics.jsonl", 3, [1, 2, 4, 5, 6]), ("events.jsonl", 4, [1, 2, 3, 4, 5, 6])):
            shutil.rmtree(self.output, ignore_errors=True)
            path = write_recipe(self.folder, ROOT / "demo/model", self.output, init="random", schedule={"max_steps": 6},
                                save={"every": 2})
            environment = {**os.environ, "LD_PRELOAD": str(command_run.PLIMSOLL.parent / "tests/libfailing_files.so"),
                           "FAIL_CALL": "write", "FAIL_PATH": f"run/{name}", "FAIL_ERRNO": "28", "FAIL_AFTER": "2"}
            text = self.refused(STOPPED, [self.output / name, "No space left on device"], "train", path, "--quiet",
                                env=environment)
            self.assertIn(f"the state after step {saved} is saved: --resume", text)
            command_run.output("train", path, "--quiet", "--resume")
            lines = [json.loads(line) for line in (self.output / "metrics.jsonl").read_text().splitlines()]
            self.assertEqual([line["step"] for line in lines], logged)

    def test_room_for_the_first_checkpoint_is_looked_at_before_the_first_step(self):
        disk = self.folder / "disk"
        disk.mkdir()
        mount = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
        script = f"mount -t tmpfs -o size=8m tmpfs {disk} && "
        if subprocess.run([*mount, script + "true"], capture_output=True).returncode != 0:
            self.skipTest("no mounts here")
        path = write_recipe(self.folder, ROOT / "demo/model", disk / "run", init="random", schedule={"max_steps": 100_000})
        done = subprocess.run([*mount, script + f"{command_run.PLIMSOLL} train {path} --quiet; echo exit $?; "
                               f"find {disk} -name '*.jsonl' -size +0"], capture_output=True, text=True, timeout=120)
        self.assertIn("exit 5", done.stdout, done.stderr)
        self.assertIn("the first checkpoint takes", done.stderr)
        self.assertNotIn("metrics.jsonl", done.stdout)

    def test_room_for_the_files_that_a_checkpoint_copies_is_looked_at_too(self):
        disk, model = self.folder / "disk", self.model()
        disk.mkdir()
        with (model / "tokenizer.json").open("a") as file:
            file.write(" " * (4 << 20))  # of 4 MiB, as large models' are; it is kept once beside the checkpoints
        mount = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
        if subprocess.run([*mount, f"mount -t tmpfs tmpfs {disk}"], capture_output=True).returncode != 0:
            self.skipTest("no mounts here")
        path = write_recipe(self.folder, model, disk / "run", method={"type": "lora", "r": 2}, schedule={"max_steps": 2})
        for size, code, steps in ((6, STOPPED, 0), (14, 0, 2)):
            done = subprocess.run([*mount, f"mount -t tmpfs -o size={size}m tmpfs {disk} && {command_run.PLIMSOLL} train {path} --quiet; echo exit $?; "
                                   f"cat {disk}/run/metrics.jsonl"], capture_output=True, text=True, timeout=120)
            self.assertIn(f"exit {code}", done.stdout, done.stderr)
            self.assertEqual("the first checkpoint takes" in done.stderr, code == STOPPED, done.stderr)
            self.assertEqual(done.stdout.count('"step"'), steps, done.stdout)

    def test_files_that_a_save_copies_are_looked_at_before_the_first_step(self):
        for name in ("merges.txt", "special_tokens_map.json"):
            model = self.model()
            (model / name).mkdir()
            text = self.train(code=USAGE, model=model, schedule={"max_steps": 100_000})
            self.assertIn(f"{model / name}: is a folder", text)
            self.assertFalse((self.output / "metrics.jsonl").exists())

    def test_a_removed_output_is_made_again_with_the_work_in_it(self):
        path = write_recipe(self.folder, ROOT / "demo/model", self.output, init="random", schedule={"max_steps": 100_000})
        running = subprocess.Popen([str(command_run.PLIMSOLL), "train", str(path), "--quiet"], stderr=subprocess.PIPE, text=True)
        self.addCleanup(running.kill)
        metrics = self.output / "metrics.jsonl"
        deadline = time.monotonic() + 60
        while not (metrics.exists() and metrics.read_text().count("\n") > 2):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.output.rename(self.folder / "moved")
        _, text = running.communicate(timeout=60)
        self.assertEqual(running.returncode, STOPPED, text)
        self.assertIn(f"{self.output}: was removed or replaced", text)
        self.assertIn("is saved: --resume", text)
        (checkpoint,) = self.output.glob("checkpoint-*")
        step = int(checkpoint.name.split("-")[1])
        self.assertGreater(step, 2)
        self.assertEqual([event["event"] for event in self.events()], ["save", "stop"])
        again = subprocess.Popen([str(command_run.PLIMSOLL), "train", str(path), "--quiet", "--resume"])
        self.addCleanup(again.kill)
        while not (metrics.exists() and metrics.read_text().count("\n") > 2):
            self.assertIsNone(again.poll())
            time.sleep(0.01)
        again.send_signal(signal.SIGINT)
        self.assertEqual(again.wait(timeout=60), 130)
        self.assertEqual(json.loads(metrics.read_text().splitlines()[0])["step"], step + 1)

    def test_a_bit_that_flipped_in_a_checkpoint_is_noticed(self):
        path = self.copy_of_run()
        shutil.copytree(self.output, self.folder / "good")
        for name in ("model.safetensors", "optimizer.safetensors", "recipe.yaml", "tokenizer.json", "trainer_state.json"):
            file = self.output / "checkpoint-4" / name
            content = bytearray(file.read_bytes())
            file.unlink()
            at = content.index(b'"last_loss": ') + 15 if name == "trainer_state.json" else len(content) // 2 + 1
            content[at] ^= 1
            file.write_bytes(content)
            self.refused(DAMAGED, [file, "checksum"], "train", path, "--quiet", "--resume")
            shutil.copy(self.folder / "good/checkpoint-4" / name, file)
        (self.output / "checkpoint-4/checksums.json").unlink()  # as earlier versions saved them
        command_run.output("train", path, "--resume")


if __name__ == "__main__":
    unittest.main(testLoader=SuiteLoader("run_folder_test"))
