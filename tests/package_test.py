"""The Python package drives the program: answers, trainings, callbacks, errors, bad input.

Usage: package_test.py PLIMSOLL (from the repository's root). Standard library only; what a test needs besides (pandas, pyarrow) it skips without.
"""
import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any, Callable, Type, TypeVar

from command_run import PLIMSOLL, ROOT, main

os.environ["PLIMSOLL_BINARY"] = str(PLIMSOLL)
os.environ["PLIMSOLL_NO_PROBE"] = "1"
sys.path.insert(0, str(ROOT / "python"))
import plimsoll_ml as pm  # noqa: E402

E = TypeVar("E", bound=BaseException)
STEPS = 6
RECIPE: "dict[str, Any]" = {"model": ROOT / "demo/model", "init": "random", "method": {"type": "full"}, "precision": "fp32",
          "data": {"train": ROOT / "demo/data/facts/train.parquet", "max_length": 16}, "batch": {"effective": 4}, "schedule": {"max_steps": STEPS},
          "threads": 1, "output": "run"}
ENDLESS = {**RECIPE, "schedule": {"max_steps": 1_000_000}, "save": {"every": "100%"}}


def has(module: str) -> bool:
    import importlib.util
    return importlib.util.find_spec(module) is not None


def until(seen: "list[int]", goes_on: "Callable[[], bool]") -> "Callable[[pm.Run, dict[str, Any]], bool]":
    """A callback that notes its steps and says when to stop."""
    def callback(run: pm.Run, row: "dict[str, Any]") -> bool:
        seen.append(row["step"])
        return goes_on()
    return callback


class Case(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)

    def raised(self, kind: "Type[E]", call: "Callable[[], object]") -> E:
        with self.assertRaises(kind) as caught:
            call()
        return caught.exception

    def child(self, program: str, **options: Any) -> Any:
        """Another Python with the package."""
        return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, **options)


class Plans(Case):
    def test_a_dict_a_text_and_a_file_are_the_same_plan(self) -> None:
        Path("recipe.json").write_text(json.dumps(RECIPE, default=str))
        text = "\n".join(f"{key}: {json.dumps(value, default=str)}" for key, value in RECIPE.items())
        tables = {pm.dump(recipe) for recipe in (RECIPE, "recipe.json", Path("recipe.json"), text + "\n")}
        self.assertEqual(len(tables), 1)
        plan = pm.plan(RECIPE)
        self.assertTrue(plan.fits and plan)
        self.assertEqual(sum(plan.components.values()), plan.raw["device"]["arena_bytes"])
        self.assertEqual(plan.bytes, plan.process_bytes)
        self.assertIn("fits", repr(plan))
        self.assertIn("<table>", plan._repr_html_())

    def test_a_plan_that_does_not_fit_is_a_plan_and_raises_on_demand(self) -> None:
        plan = pm.plan(RECIPE, memory="3MiB")
        self.assertFalse(plan)
        self.assertEqual(plan.short_by, plan.bytes - 3 * 2**20)
        error = self.raised(pm.DoesNotFit, lambda: pm.plan(RECIPE, memory="3MiB", must_fit=True))
        self.assertIsInstance(error, MemoryError)
        self.assertEqual((error.short_by, error.exit_code, error.ways), (plan.short_by, 3, plan.ways))

    def test_options_and_keys_are_those_of_the_command(self) -> None:
        plan = pm.plan(RECIPE, method="lora", rank=4, set={"batch.effective": 8, "save.every": "50%", "method.targets": ["q_proj", "v_proj"]})
        self.assertEqual(plan.raw["variant"]["effective_batch"], 8)
        done = subprocess.run([str(PLIMSOLL), "plan", "-", "--no-probe", "--dump", "table", "--method", "lora", "--rank", "4", "--set", "batch.effective=8",
                               "--set", "method.targets=[q_proj, v_proj]"], input=json.dumps(RECIPE, default=str), capture_output=True, text=True)
        self.assertEqual(pm.dump(RECIPE, method="lora", rank=4, set={"batch.effective": 8, "method.targets": ["q_proj", "v_proj"]}), done.stdout)
        card = pm.plan("qwen2.5-0.5b", gpu="RTX 3060 12GB", method="lora", length=512, host_memory="16GiB")
        self.assertTrue(card.on_card)
        self.assertGreater(card.device_bytes, 0)

    def test_sweep_and_compare_are_rows(self) -> None:
        points = pm.sweep(RECIPE, "2MiB..64MiB")
        self.assertEqual([row["budget_bytes"] for row in points], sorted(row["budget_bytes"] for row in points))
        self.assertGreater(points.smallest_bytes, 0)
        rows = pm.compare(RECIPE, method=["lora", "full"], set={"batch.effective": [4, 8]})
        self.assertEqual([(row["method"], row["batch.effective"]) for row in rows], [("lora", 4), ("lora", 8), ("full", 4), ("full", 8)])
        self.assertTrue(all(row["feasible"] for row in rows), rows)
        cards = pm.compare("qwen2.5-0.5b", gpu=["RTX 3060 12GB", "T4"], method="lora", precision="fp16", host_memory="16GiB")
        self.assertEqual([row["gpu"] for row in cards], ["RTX 3060 12GB", "T4"])
        self.assertIn("<table>", rows._repr_html_())
        norms = pm.compare(RECIPE, set={"optimizer.max_grad_norm": [None, 1.0]})
        self.assertEqual([(row["optimizer.max_grad_norm"], row.get("feasible")) for row in norms], [(None, True), (1.0, True)])
        self.raised(TypeError, lambda: pm.compare(RECIPE, method="lora"))

    def test_fit_answers_for_a_name_without_a_download(self) -> None:
        fit = pm.fit("qwen2.5-0.5b", gpu="RTX 3060 12GB", lengths=[512], methods=["lora", "full"])
        self.assertTrue(fit)
        self.assertEqual([(row["method"], row["length"]) for row in fit], [("lora", 512), ("full", 512)])
        self.assertIn("Qwen", repr(fit))
        error = self.raised(pm.InputError, lambda: pm.fit("qwen2.5-0.6b", gpu="RTX 3060 12GB"))
        self.assertIn("nearest", error.message)

    @unittest.skipUnless(has("pandas") and has("pyarrow"), "no pandas and pyarrow here")
    def test_rows_are_frames_and_tables(self) -> None:
        points = pm.sweep(RECIPE, "2MiB..64MiB")
        self.assertEqual(list(points.to_pandas().budget_bytes), points.to_arrow()["budget_bytes"].to_pylist())

    def test_arguments_of_a_trainer_without_adapters_train_all_weights(self) -> None:
        class Arguments:
            def __init__(self, output_dir: str, learning_rate: float = 5e-5) -> None:
                self.learning_rate = learning_rate

            def to_dict(self) -> "dict[str, Any]":
                return {"learning_rate": self.learning_rate}

        said = Arguments("out", learning_rate=3e-5)
        adapter = {"peft_type": "LORA", "r": 8, "lora_alpha": 16}
        for module, peft_config, method in (("transformers.training_args", None, "full"), ("transformers.training_args", adapter, "lora"), ("own", None, None)):
            Arguments.__module__ = module
            made, _ = pm.hf.recipe({"model": "m"}, peft_config, said, Path())
            self.assertEqual((made.get("method", {}).get("type"), made["learning_rate"]), (method, 3e-5))
            stated, _ = pm.hf.recipe({"model": "m", "method": {"type": "lora"}}, None, said, Path())
            self.assertEqual(stated["method"], {"type": "lora"})

    def test_doctor_models_and_devices(self) -> None:
        log = (ROOT / "tests/doctor/logs/torch-2.6-fragmentation.log")
        found = pm.doctor(log)
        self.assertEqual((found.out_of_memory, bool(found), found.raw), ("yes", True, pm.doctor(log.read_text()).raw))
        self.assertTrue(found.steps)
        self.assertFalse(pm.doctor("all is well\n"))
        with self.assertRaises(RuntimeError) as caught, pm.hf.doctor_on_oom(show=None):
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 1.10 GiB is free. Including "
                               "non-PyTorch memory, this process has 22.54 GiB memory in use. Of the allocated memory 21.30 GiB is allocated by PyTorch, "
                               "and 800.00 MiB is reserved by PyTorch but unallocated.")
        if hasattr(caught.exception, "__notes__"):
            self.assertIn("plimsoll doctor:", caught.exception.__notes__[0])
        with self.assertRaises(ValueError), pm.hf.doctor_on_oom(show=lambda text: self.fail(text)):
            raise ValueError("no matter of memory")
        names = {row["name"]: row for row in pm.models()}
        self.assertTrue(names["Qwen/Qwen2.5-0.5B"]["trained"])
        self.assertGreater(pm.devices().cpu["threads"], 0)


class Trainings(Case):
    def test_a_training_calls_back_for_each_step_once(self) -> None:
        seen, told = [], []

        class Watcher:
            def on_plan(self, run: pm.Run, row: "dict[str, Any]") -> None: told.append(("plan", row["total_steps"]))
            def on_evaluate(self, run: pm.Run, row: "dict[str, Any]") -> None: told.append(("evaluate", row["step"]))
            def on_save(self, run: pm.Run, row: "dict[str, Any]") -> None: told.append(("save", row["step"]))
            def on_end(self, run: pm.Run, row: "dict[str, Any]") -> None: told.append(("end", row["exit"]))

        recipe = {**RECIPE, "data": {**RECIPE["data"], "eval": "2%"}, "eval": {"every": 3}, "save": {"every": 3}}
        run = pm.train(recipe, callbacks=[lambda run, row: seen.append(row), Watcher()])
        self.assertEqual((run.status, [row["step"] for row in seen]), ("finished", list(range(1, STEPS + 1))))
        self.assertEqual(seen, list(run.metrics))
        self.assertEqual(told, [("plan", STEPS), ("evaluate", 3), ("save", 3), ("evaluate", 6), ("save", 6), ("end", 0)])
        self.assertLessEqual(run.measured["process_peak_rss_bytes"], run.planned["process_peak_rss_bytes"])
        self.assertEqual([row["step"] for row in run.evaluations], [3, 6])
        self.assertEqual(run.folder, self.folder / "run")
        self.assertIn("svg", run._repr_html_())
        self.assertIsInstance(run.generate("What is a knot?", max_new_tokens=2), str)
        exported = run.export("gguf", type="q8_0", limit=4, threads=1)
        self.assertEqual((exported.folder, set(exported.files)), (self.folder / "run-gguf", {"model.gguf", "README.md"}))
        self.assertLess(abs(exported.loss_of_run - exported.loss_of_export), 0.01)
        self.assertIn("llama-server", exported.next[0])
        error = self.raised(pm.DamagedData, lambda: run.export("merged", type="bf16", tolerance=0, limit=4))
        self.assertIn("nothing was exported", error.message)
        self.assertEqual((pm.Run("run").status, pm.Run("run").report()["step"]), ("finished", STEPS))
        again = []
        pm.train(recipe, overwrite=True, callbacks=[lambda run, row: again.append(row["step"])])
        self.assertEqual(again, list(range(1, STEPS + 1)))
        more = []
        run.resume(set={"schedule.max_steps": STEPS + 2}, callbacks=[lambda run, row: more.append(row["step"])])
        self.assertEqual(more, [STEPS + 1, STEPS + 2])
        refused = self.raised(pm.InputError, lambda: pm.train(recipe))
        self.assertIn("--overwrite", refused.message)

    def test_what_is_refused_is_raised_before_train_returns(self) -> None:
        unfit = self.raised(pm.DoesNotFit, lambda: pm.train(RECIPE, memory="3MiB", wait=False))
        self.assertIn("does not fit", unfit.message)
        self.assertTrue(all("plimsoll " in way["command"] for way in unfit.ways))
        error = self.raised(pm.InputError, lambda: pm.train({**RECIPE, "batch": {"efective": 4}}, wait=False))
        self.assertEqual((error.problems[0]["key"], error.problems[0]["nearest"], error.exit_code), ("batch.efective", "batch.effective", 2))
        self.assertFalse(Path("run").exists())
        damaged = Path("damaged.parquet")
        damaged.write_bytes((ROOT / "demo/data/facts/train.parquet").read_bytes()[:-200])
        self.assertEqual(self.raised(pm.DamagedData, lambda: pm.train({**RECIPE, "data": {**RECIPE["data"], "train": damaged}})).exit_code, 4)

    def test_a_callback_that_says_false_lets_the_run_save_and_end(self) -> None:
        error = self.raised(pm.Interrupted, lambda: pm.train(ENDLESS, callbacks=[lambda run, row: row["step"] < 3]))
        self.assertIsInstance(error, KeyboardInterrupt)
        run = error.run
        assert run is not None
        self.assertEqual((run.status, pm.Run("run").status, error.exit_code), ("stopped", "stopped", 130))
        steps = len(run.metrics)
        self.assertEqual([path.name for path in Path("run").glob("checkpoint-*")], [f"checkpoint-{steps}"])
        seen: "list[int]" = []
        self.raised(pm.Interrupted, lambda: run.resume(callbacks=[until(seen, lambda: seen[-1] < steps + 3)]))
        self.assertEqual(seen, list(range(steps + 1, steps + 1 + len(seen))))

    def test_an_error_of_a_callback_is_raised_once_the_run_saved(self) -> None:
        def broken(run: pm.Run, row: "dict[str, Any]") -> None:
            raise ZeroDivisionError("mine")
        self.assertEqual(str(self.raised(ZeroDivisionError, lambda: pm.train(ENDLESS, callbacks=[broken]))), "mine")
        self.assertEqual(len(list(Path("run").glob("checkpoint-*"))), 1)

    def test_ctrl_c_saves(self) -> None:
        program = ("import sys, json, plimsoll_ml as pm\n"
                   "try:\n  pm.train(json.loads(sys.stdin.readline()), callbacks=[lambda run, row: print(row['step'], flush=True)])\n"
                   "except KeyboardInterrupt as error:\n  print('saved', type(error).__name__, error.run.status, len(error.run.metrics))\n")
        child = self.child(program, stdin=subprocess.PIPE, start_new_session=True)
        child.stdin.write(json.dumps(ENDLESS, default=str) + "\n")
        child.stdin.flush()
        self.assertEqual(child.stdout.readline(), "1\n")
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does
        said, errors = child.communicate(timeout=600)
        last = said.splitlines()[-1].split()
        self.assertEqual(last[:3], ["saved", "Interrupted", "stopped"], errors)
        self.assertTrue(Path(f"run/checkpoint-{last[3]}").exists())

    def test_a_lost_kernel_ends_the_run_saved(self) -> None:
        program = ("import sys, json, plimsoll_ml as pm\n"
                   "run = pm.train(json.loads(sys.stdin.readline()), wait=False)\nprint(run.pid, flush=True)\nrun.wait()\n")
        child = self.child(program, stdin=subprocess.PIPE)
        child.stdin.write(json.dumps(ENDLESS, default=str) + "\n")
        child.stdin.flush()
        handle = os.pidfd_open(int(child.stdout.readline()))
        while len(pm.Run("run").metrics) < 2:
            threading.Event().wait(0.05)
        child.kill()
        child.communicate()
        import select
        self.assertTrue(select.select([handle], [], [], 300)[0])
        os.close(handle)
        self.assertEqual([event["event"] for event in pm.Run("run").events], ["start", "signal", "save"])
        self.assertEqual(pm.Run("run").status, "stopped")

    def test_a_killed_run_is_killed_and_continues(self) -> None:
        run = pm.train({**ENDLESS, "save": {"every": 2}}, wait=False)
        self.assertEqual(run.status, "running")
        while len(run.metrics) < 3:
            threading.Event().wait(0.05)
        assert run.pid is not None
        os.kill(run.pid, signal.SIGKILL)
        error = self.raised(pm.Killed, run.wait)
        self.assertIs(error.run, run)
        self.assertIn("resume", error.message)
        seen: "list[int]" = []
        self.raised(pm.Interrupted, lambda: run.resume(callbacks=[until(seen, lambda: len(seen) < 2)]))
        self.assertEqual(seen[0] % 2, 1)

    def test_a_killed_run_without_a_checkpoint_begins_again(self) -> None:
        run = pm.train(ENDLESS, wait=False)
        while not run.metrics:
            threading.Event().wait(0.05)
        assert run.pid is not None
        os.kill(run.pid, signal.SIGKILL)
        error = self.raised(pm.Killed, run.wait)
        self.assertIn("there is no checkpoint: the run begins again with overwrite=True", error.message)
        self.assertEqual((run.status, pm.Run("run").status), ("stopped", "stopped"))
        Path("run/metrics.jsonl").unlink()  # as one that was killed before its first step
        self.assertEqual(pm.Run("run").status, "stopped")
        self.assertEqual(pm.train(RECIPE, overwrite=True).status, "finished")

    def test_ten_runs_at_once_in_threads(self) -> None:
        runs, errors = {}, []

        def one(number: int) -> None:
            try:
                seen = []
                run = pm.train({**RECIPE, "output": f"run-{number}", "seed": number}, callbacks=[lambda run, row: seen.append(row["step"])])
                runs[number] = (run.status, seen)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=one, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        self.assertEqual(runs, {number: ("finished", list(range(1, STEPS + 1))) for number in range(10)})

    def test_a_run_outlives_the_thread_that_started_it(self) -> None:
        started = []
        thread = threading.Thread(target=lambda: started.append(pm.train(RECIPE, wait=False)))
        thread.start()
        thread.join()
        self.assertEqual(started[0].wait().status, "finished")

    def test_a_run_that_nobody_waits_for_goes_on(self) -> None:
        run = pm.train({**RECIPE, "schedule": {"max_steps": 2000}}, wait=False)
        assert run._watched is not None
        run._watched.process.wait()
        seen = []
        run._callbacks = [lambda run, row: seen.append(row["step"])]
        run.wait()
        self.assertEqual(seen, list(range(1, 2001)))


class BadInput(Case):
    def test_options_that_are_none_are_named(self) -> None:
        for call in (lambda: pm.plan(RECIPE, memroy="3GiB"), lambda: pm.train(RECIPE, memroy="3GiB"), lambda: pm.compare(RECIPE, memroy=["1GiB", "2GiB"])):
            self.assertIn("memory", str(self.raised(TypeError, call)))
        self.raised(TypeError, lambda: pm.plan(3))

    def test_keys_and_names_that_are_none(self) -> None:
        error = self.raised(pm.InputError, lambda: pm.plan(RECIPE, set={"batch.efective": 4}))
        self.assertIsInstance(error, ValueError)
        self.assertIn("batch.effective", error.message)
        error = self.raised(pm.InputError, lambda: pm.plan("Nobody/none", memory="8GiB"))
        self.assertIn("plimsoll fetch", error.message)

    def test_values_that_no_recipe_has_are_refused_by_key(self) -> None:
        loop: "dict[str, Any]" = {}
        loop["data"] = loop
        for value, words in ((float("nan"), "optimizer.lr: nan"), (float("inf"), "optimizer.lr: inf"), (b"1", "a bytes"), ("\udcff", "is not UTF-8"),
                             (object(), "a object"), ({1: 2}, "is no text")):
            with self.subTest(value=value):
                error = self.raised(pm.InputError, lambda: pm.plan({**RECIPE, "optimizer": {"lr": value}}))
                self.assertIn("optimizer.lr", error.message)
                self.assertIn(words, error.message)
                self.raised(pm.InputError, lambda: pm.plan(RECIPE, set={"optimizer.lr": value}))
        with self.assertRaises((pm.InputError, RecursionError)):
            pm.plan(loop)

    def test_hostile_texts_end_in_an_input_error(self) -> None:
        long = "x" * 10_000_000
        for recipe in ({**RECIPE, "model": long}, {**RECIPE, long: 1}, {**RECIPE, "a\nb": 1}, {**RECIPE, "model": "a\nb"}, {**RECIPE, "model": "a\0b"},
                       {**RECIPE, "method": long}, {}, {"model": "\u202e\x1b[31m"}, "a\n" + long, "", "-", "--help", "a\0b", long):
            with self.subTest(recipe=str(recipe)[:60]):
                error = self.raised(pm.InputError, lambda: pm.plan(recipe))
                self.assertLess(len(error.message), 20_000)
                self.assertNotIn("\x1b", error.message)
        hostile: "tuple[dict[str, Any], ...]" = (
            {"memory": long}, {"memory": "a\nb"}, {"memory": "a\0b"}, {"memory": float("nan")}, {"gpu": "--help"}, {"memory": "\udcff"})
        for options in hostile:
            with self.subTest(options=str(options)[:60]):
                self.raised(pm.InputError, lambda: pm.plan(RECIPE, **options))
        self.raised(pm.InputError, lambda: pm.train({**RECIPE, "output": "a\0b"}))

    def test_what_is_not_here_is_said(self) -> None:
        self.raised(RuntimeError, pm.Run("run").wait)
        self.raised(RuntimeError, pm.Run("run").stop)
        self.raised(pm.PlimsollError, lambda: pm.Run("run").status)
        self.assertEqual((list(pm.Run("run").metrics), pm.Run("run").record), ([], {}))
        program = "import sys; sys.modules['transformers'] = None\nimport plimsoll_ml as pm\npm.Run('run').load()"
        self.assertIn("writes with [hf]", self.child(program).communicate()[1])

    def test_without_a_program_the_package_says_what_to_do(self) -> None:
        env = {"PATH": "/nowhere", "PYTHONPATH": str(ROOT / "python")}
        done = subprocess.run([sys.executable, "-c", "import plimsoll_ml as pm; pm.plan('x')"], env=env, capture_output=True, text=True)
        self.assertIn("InternalError: this installation has no program", done.stderr)
        done = subprocess.run([sys.executable, "-c", "import plimsoll_ml as pm; pm.plan('x')"], env={**env, "PLIMSOLL_BINARY": "/nowhere/plimsoll"},
                              capture_output=True, text=True)
        self.assertIn("cannot be started", done.stderr)


NOTEBOOK = """
import asyncio, sys
import nbformat
from nbclient import NotebookClient
cells = ["import json, plimsoll_ml as pm", "run = pm.train(json.load(open('recipe.json')))\\nrun", "pm.plan(json.load(open('recipe.json')))"]
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
NotebookClient(book, timeout=600, kernel_name="python3").execute()
shown = [output for cell in book.cells for output in cell.outputs]
print(*[output["data"].get("text/html", "") for output in shown if "data" in output], sep="\\n----\\n")
print([output for output in shown if output.output_type in ("stream", "error")], file=sys.stderr)
"""


class Notebook(Case):
    @unittest.skipUnless(has("nbclient") and has("ipykernel"), "no nbclient and ipykernel here")
    def test_a_notebook_shows_a_run_that_is_updated_and_a_plan(self) -> None:
        Path("recipe.json").write_text(json.dumps(RECIPE, default=str))
        said, errors = self.child(NOTEBOOK.replace("\\\\n", "\\n")).communicate(timeout=600)
        progress, run, plan = said.split("\n----\n")
        self.assertIn(f"{STEPS} of {STEPS}", progress, errors)
        self.assertIn("<progress value='1.0000'", progress)
        self.assertIn("aria-label='loss from", run)
        self.assertIn("fits", plan)
        self.assertIn("[]", errors)


class Package(Case):
    def test_importing_it_loads_nothing_of_others_and_little_of_pythons(self) -> None:
        program = ("import sys; before = set(sys.modules); import plimsoll_ml; new = sorted({name.split('.')[0] for name in set(sys.modules) - before})\n"
                   "print(*new)")
        loaded = set(self.child(program).communicate()[0].split())
        heavy = {"asyncio", "http", "urllib.request", "tempfile", "importlib.metadata", "inspect", "logging", "dataclasses", "email", "ssl", "socket", "random",
                 "multiprocessing", "concurrent", "shutil", "traceback", "unittest"}
        self.assertEqual(loaded & heavy, set())
        self.assertEqual(loaded - set(sys.stdlib_module_names) - {"plimsoll_ml"}, set())

    def test_the_sources_are_python_3_9(self) -> None:
        for path in (ROOT / "python/plimsoll_ml").glob("*.py"):
            text = path.read_text()
            ast.parse(text, feature_version=(3, 9))
            if "__main__" not in path.name:
                self.assertIn("from __future__ import annotations", text, path.name)

    def test_its_command_is_the_program(self) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        done = subprocess.run([sys.executable, "-m", "plimsoll_ml", "--version"], env=env, capture_output=True, text=True)
        self.assertEqual(done.stdout, subprocess.run([str(PLIMSOLL), "--version"], capture_output=True, text=True).stdout)

    def test_what_python_was_told_about_itself_is_not_passed_on(self) -> None:
        from plimsoll_ml import _process
        told = {"LD_PRELOAD": "/nowhere.so", "PYTHONPATH": "a", "PYTHONHOME": "b", "HOME": "/here"}
        site = self.folder / "site"
        (site / "nvidia/cublas/lib").mkdir(parents=True)
        with unittest.mock.patch.dict(os.environ, told, clear=True), unittest.mock.patch.object(sys, "path", [str(site)]):
            self.assertEqual(_process.environment(), {"HOME": "/here", "LD_LIBRARY_PATH": str(site / "nvidia/cublas/lib")})


if __name__ == "__main__":
    import unittest.mock
    main()
