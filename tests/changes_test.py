"""What a run reads, and where it writes, changes while it goes on: its work is kept, its result is whole or no success.

Usage: changes_test.py PLIMSOLL (from the repository's root). Standard library, and pyarrow where setup put it.
"""
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import command_run
from command_run import run
from shard import SuiteLoader
from refusals import DAMAGED, MODEL_FILES, ROWS, SHIM, STOPPED, USAGE, TrainingTest, write_recipe

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / ".deps/py"))
ARROW = ("parquet", "arrow") if importlib.util.find_spec("pyarrow") else ()
LORA = {"type": "lora", "r": 4}
STEPS = {"schedule": {"max_steps": 6, "warmup": 1}, "save": {"every": 3}}
LOGS = ("metrics.jsonl", "events.jsonl", "run.json", "recipe.yaml", "README.md", "lock", "manifest.jsonl")


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def results(folder):
    """All that a run wrote, but what tells times or its own place."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*")
            if path.is_file() and path.name not in LOGS and path.name != "checksums.json"}


class ModelFolders(TrainingTest):
    def both(self, model, method, change, code):
        """A run under which the model changes, and the results of one under which it does not; standard error."""
        changes = {"model": model, "method": method, **STEPS}
        (model / "merges.txt").write_text("copied by every save")
        path = write_recipe(self.folder, output=self.folder / "undisturbed", **changes)
        command_run.output("train", path, "--quiet")
        want = results(self.folder / "undisturbed")
        process = self.waiting_run(write_recipe(self.folder, output=self.output, **changes))
        change(model)
        text = self.go_on(process, code)
        self.assertEqual(sorted(results(self.output)), sorted(want))
        self.assertTrue(results(self.output) == want)  # without megabytes of differences
        self.assertTrue(json.loads((self.output / "run.json").read_text())["finished"])
        return text

    def replaced(self, model):
        for name in ("tokenizer.json", "config.json", "merges.txt"):
            (model / name).write_text("another one's")
        (model / "tokenizer_config.json").unlink()
        (model / "tokenizer_config.json").mkdir()

    def test_one_that_is_removed_or_overwritten_does_not_matter_to_a_full_fine_tuning(self):
        for change in (shutil.rmtree, self.replaced):
            shutil.rmtree(self.output, ignore_errors=True)
            shutil.rmtree(self.folder / "undisturbed", ignore_errors=True)
            self.assertEqual(self.both(self.model(), {"type": "full"}, change, 0), "")
            done = run("generate", self.output, "--prompt", "What", "--max-new-tokens", "2")
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_an_adapter_whose_base_is_gone_is_whole_and_no_success(self):
        text = self.both(self.model(), LORA, lambda model: model.rename(self.folder / "moved"), STOPPED)
        self.assertIn(f"{self.output}: the adapter is whole, but its base model, {self.folder / 'model'}, was changed", text)
        self.assertIn("has no config.json", text.replace("no such folder", "has no config.json"))
        words = ("--prompt", "What", "--max-new-tokens", "2")
        self.refused(USAGE, "base_model_name_or_path", "generate", self.output, *words)
        done = run("generate", self.folder / "moved", "--adapter", self.output, *words)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_an_adapter_whose_base_has_other_weights_is_no_success(self):
        def change(model):
            weights = bytearray((model / "model.safetensors").read_bytes())
            at = 8 + int.from_bytes(weights[:8], "little") + 1  # of the first tensor
            weights[at] ^= 1
            (model / "model.safetensors").write_bytes(weights)
        self.assertIn("its files are other ones now", self.both(self.model(), LORA, change, STOPPED))

    def test_one_that_is_gone_before_the_first_step_is_named(self):
        model = self.model()
        (model / "tokenizer_config.json").unlink()
        (model / "tokenizer_config.json").symlink_to(self.folder / "absent")
        (model / "special_tokens_map.json").mkdir()
        text = self.train(code=USAGE, model=model, init="weights")
        self.assertIn("special_tokens_map.json: is a folder", text)
        self.assertFalse(self.output.exists())


class OtherFiles(TrainingTest):
    def data_of(self, ending, answer="answer", note="x"):
        """Rows of three megabytes: the last of them are not read before the run waits."""
        rows = [{"prompt": f"question {i}", "response": f"{answer} {i}", "note": note * 10_000} for i in range(300)]
        if ending == "jsonl":
            return "".join(json.dumps(row) + "\n" for row in rows).encode()
        if ending == "json":
            return json.dumps(rows).encode()
        if ending == "csv":
            return ("prompt,response,note\n" + "".join(",".join(row.values()) + "\n" for row in rows)).encode()
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
        table, written = pyarrow.Table.from_pylist(rows), io.BytesIO()
        if ending == "parquet":
            pyarrow.parquet.write_table(table, written, row_group_size=50, compression="none", use_dictionary=False)
        else:
            with pyarrow.ipc.new_file(written, table.schema) as writer:
                writer.write_table(table, max_chunksize=50)
        return written.getvalue()

    def data(self, ending):
        path = self.folder / f"rows.{ending}"
        path.write_bytes(self.data_of(ending))
        return path

    def recipe_of(self, path):
        return write_recipe(self.folder, self.run_folder, self.output, batch={"effective": 16},
                            schedule={"max_steps": 18}, data={"train": str(path), "max_length": 16, "shuffle": False})

    def test_rows_that_are_cut_off_stop_the_run_which_keeps_its_work(self):
        for ending in ("jsonl", "csv"):
            shutil.rmtree(self.output, ignore_errors=True)
            path = self.data(ending)
            recipe = self.recipe_of(path)
            process = self.waiting_run(recipe, lines=1)
            os.truncate(path, 100)
            text = self.go_on(process, DAMAGED)
            self.assertRegex(text, f"(?s){path}: ends at byte .* is saved: --resume continues from there")
            self.data(ending)
            command_run.output("train", recipe, "--quiet", "--resume")
            self.assertEqual((self.output / "metrics.jsonl").read_text().count("\n"), 18)

    def test_rows_that_are_overwritten_in_place_stop_the_run_which_keeps_its_work(self):
        for ending in ("jsonl", "json", "csv", *ARROW):
            with self.subTest(ending):
                shutil.rmtree(self.output, ignore_errors=True)
                path = self.data(ending)
                before = path.read_bytes()
                self.assertGreater(len(before), 1 << 20)
                recipe = self.recipe_of(path)
                process = self.waiting_run(recipe, lines=1)
                with open(path, "r+b") as file:  # as many bytes, and rows that can be read
                    if ending in ("parquet", "arrow"):
                        file.write(self.data_of(ending, "absent", "y"))
                    else:
                        file.write(before.replace(b"answer 29", b"omitted 9"))
                text = self.go_on(process, DAMAGED)
                self.assertRegex(text, f"(?s){path} changed while .* is saved: --resume continues from there")
                self.refused(USAGE, "data", "train", recipe, "--quiet", "--resume")
                path.write_bytes(before)
                command_run.output("train", recipe, "--quiet", "--resume")
                self.assertEqual((self.output / "metrics.jsonl").read_text().count("\n"), 18)

    def test_rows_that_are_only_touched_do_not_matter(self):
        for ending in ("jsonl", *ARROW[:1]):
            shutil.rmtree(self.output, ignore_errors=True)
            path = self.data(ending)
            process = self.waiting_run(self.recipe_of(path), lines=1)
            os.utime(path)
            path.chmod(0o600)
            self.assertEqual(self.go_on(process, 0), "")

    def test_rows_that_get_company_or_are_removed_are_those_that_were_counted(self):
        path = self.data("jsonl")
        command_run.output("train", self.recipe_of(path), "--quiet")
        want = (self.output / "model.safetensors").read_bytes()

        def grow():
            with open(path, "a") as file:
                file.write("no JSON\n" * 100)
        for change in (grow, path.unlink, lambda: path.write_text("")):
            shutil.rmtree(self.output)
            self.data("jsonl")
            process = self.waiting_run(self.recipe_of(path), lines=1)
            if change not in (grow, path.unlink):  # another file takes the name
                path.rename(self.folder / "before")
            change()
            self.assertEqual(self.go_on(process, 0), "")
            self.assertTrue((self.output / "model.safetensors").read_bytes() == want)

    def test_an_output_that_is_removed_or_replaced(self):
        path = write_recipe(self.folder, self.run_folder, self.output, **STEPS)

        def replace(with_a_file):
            self.output.rename(self.folder / f"moved-{with_a_file}")
            self.output.mkdir()
            if with_a_file:
                (self.output / "thesis.txt").write_text("mine")
        for change, is_saved in ((lambda: shutil.rmtree(self.output), True), (lambda: replace(False), True),
                                 (lambda: replace(True), False)):
            shutil.rmtree(self.output, ignore_errors=True)
            process = self.waiting_run(path)
            change()
            text = self.go_on(process, STOPPED)
            self.assertIn(f"{self.output}: was removed or replaced", text)
            if is_saved:
                self.assertIn("the state after step 3 is saved: --resume continues from there", text)
                command_run.output("train", path, "--quiet", "--resume")
                self.assertTrue((self.output / "model.safetensors").exists())
            else:
                self.assertIn("was replaced by another folder", text)
                self.assertEqual(contents(self.output), {"thesis.txt": b"mine"})

    def test_a_recipe_and_an_adapter_that_are_removed_were_read(self):
        adapter = self.folder / "lora"
        self.train(output=adapter, method=LORA)
        shutil.rmtree(self.output, ignore_errors=True)
        path = write_recipe(self.folder, self.run_folder, self.output, method=LORA, adapter=str(adapter), **STEPS)
        process = self.waiting_run(path)
        shutil.rmtree(adapter)
        path.unlink()
        self.assertEqual(self.go_on(process, 0), "")
        done = run("generate", self.output, "--prompt", "What", "--max-new-tokens", "2")
        self.assertEqual(done.returncode, 0, done.stderr)


class Rights(TrainingTest):
    """As nobody where the test is root; its files belong to another one then, and to itself where it is not."""

    def setUp(self):
        super().setUp()
        self.model()
        shutil.copy(ROWS, self.folder / "rows.parquet")
        self.place = self.folder / "place"
        self.place.mkdir()
        self.open_to_all()
        self.nobody = {"env": {**os.environ, "LD_PRELOAD": str(SHIM), "FAIL_CALL": "rights"}}

    def open_to_all(self):
        subprocess.run(["chmod", "-R", "u+rwX,a+rX,go-w", str(self.folder)], check=True)

    def tearDown(self):
        self.open_to_all()

    def recipe(self, output):
        return write_recipe(self.folder, self.folder / "model", output, data={"train": str(self.folder / "rows.parquet")})

    def denied(self, name, *words):
        self.refused(USAGE, [name, "Permission denied"], *words, **self.nobody)

    def test_to_read(self):
        out = self.place / "out"
        self.place.chmod(0o777)
        names = [f"model/{name}" for name in MODEL_FILES] + ["model", "rows.parquet", "recipe.json"]
        for name in names:
            self.recipe(out)
            self.open_to_all()
            self.place.chmod(0o777)
            (self.folder / name).chmod(0)
            self.denied(self.folder / name, "train", self.folder / "recipe.json", "--quiet")
            self.assertEqual(list(self.place.iterdir()), [], name)
            if name.startswith("model"):
                self.denied(self.folder / name, "generate", self.folder / "model", "--prompt", "x")
                done = run("inspect", self.folder / "model", **self.nobody)
                self.assertIn(done.returncode, (0, USAGE), done.stderr)
                self.assertNotIn("bug in plimsoll", done.stderr)
        self.open_to_all()
        self.recipe(out)
        self.place.chmod(0o777)
        done = run("train", self.folder / "recipe.json", "--quiet", **self.nobody)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("metrics.jsonl", "run.json", "events.jsonl"):
            (out / name).chmod(0)
            self.denied(out / name, "report", out)
            (out / name).chmod(0o644)

    def test_to_write(self):
        path = self.recipe(self.place / "run")
        self.place.chmod(0o555)
        self.denied(self.place / "run", "train", path, "--quiet")
        self.denied(self.place / "page.html", "report", self.run_copy(), "--html", self.place / "page.html")
        self.denied(self.place / "new", "convert", self.folder / "model", "--dtype", "bf16", "--out", self.place / "new")
        self.denied(self.place / "a.yaml", "init", self.folder / "model", self.folder / "rows.parquet", "--out",
                    self.place / "a.yaml")
        self.refused(USAGE, [self.place / "answers", "cannot be written"], "generate", self.folder / "model",
                     "--prompt", "x", "--max-new-tokens", "1", "--out", self.place / "answers", **self.nobody)
        self.assertEqual(list(self.place.iterdir()), [])

    def run_copy(self):
        folder = self.folder / "mine"
        if not folder.exists():
            shutil.copytree(self.run_folder, folder)
        subprocess.run(["chmod", "-R", "a+rX,a-w", str(folder)], check=True)
        return folder

    def test_a_run_of_somebody_else(self):
        folder = self.run_copy()
        before = contents(folder)
        path = self.recipe(folder)
        for words in ((), ("--resume",), ("--overwrite",)):
            text = self.refused(USAGE, str(folder), "train", path, "--quiet", *words, **self.nobody)
            self.assertRegex(text, "Permission denied|holds a run already")
        self.assertEqual(run("report", folder, **self.nobody).returncode, 0)
        self.assertTrue(contents(folder) == before)


class Disks(TrainingTest):
    """Small file systems in mounts that only the run sees."""
    MOUNT = ["unshare", "--mount", "--map-root-user", "sh", "-c"]

    def on_disk(self, options, script):
        """What the script prints, in the new file system; and the path of a recipe whose output is `run` there."""
        disk = self.folder / "disk"
        disk.mkdir(exist_ok=True)
        mount = f"mount -t tmpfs -o {options} tmpfs {disk} && "
        if subprocess.run([*self.MOUNT, mount + "true"], capture_output=True).returncode != 0:
            self.skipTest("no mounts here")
        path = write_recipe(self.folder, self.run_folder, disk / "run", **STEPS)
        script = script.replace("TRAIN", f"{command_run.PLIMSOLL} train {path} --quiet")
        done = subprocess.run([*self.MOUNT, f"{mount} cd {disk}\n{script}"], capture_output=True, text=True, timeout=300)
        return done.stdout + done.stderr

    def test_one_that_somebody_else_fills(self):
        self.assertTrue(SHIM.exists(), "build the target failing_files")
        stops = f"LD_PRELOAD={SHIM} FAIL_CALL=write FAIL_PATH=/metrics.jsonl FAIL_ERRNO=stop FAIL_AFTER=1"
        text = self.on_disk("size=64m", f"""
            {stops} TRAIN &
            until grep -q 'State:.*stopped' /proc/$!/status; do sleep 0.05; done
            head -c 100m /dev/zero > theirs 2> /dev/null; kill -CONT $!; wait $!; echo first $?
            tail -n 1 run/events.jsonl
            rm theirs; TRAIN --resume; echo then $?; wc -l run/metrics.jsonl
            {command_run.PLIMSOLL} generate run --prompt x --max-new-tokens 1 > answer; echo answer $?""")
        for part in (f"first {STOPPED}\n", "a checkpoint takes", "0 B are free", '"event":"stop"', "then 0\n", "6 run/metrics.jsonl",
                     "answer 0\n"):
            self.assertIn(part, text)

    def test_one_that_takes_no_more_files(self):
        seen = set()
        for files in (4, 8, 12, 16, 20, 64):
            text = self.on_disk(f"size=64m,nr_inodes={files}", "TRAIN; echo exit $?; ls run; ls run/checkpoint-3")
            code = 0 if "exit 0\n" in text else STOPPED
            seen.add(code)
            self.assertIn(f"exit {code}\n", text)
            if code == STOPPED:
                self.assertIn("No space left on device", text)
                self.assertNotIn("metrics.jsonl\n", text)  # it ended before the first step
        self.assertEqual(seen, {0, STOPPED})


if __name__ == "__main__":
    unittest.main(testLoader=SuiteLoader("changes_test"))
