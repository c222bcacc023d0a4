"""What a command tells the program that started it: --events, recipes on standard input, --die-with-parent.

Usage: events_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import fcntl
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

from command_run import PLIMSOLL, ROOT, main

STEPS = 8
RECIPE = {"model": str(ROOT / "demo/model"), "init": "random", "method": {"type": "full"}, "precision": "fp32",
          "data": {"train": str(ROOT / "demo/data/facts/train.parquet"), "max_length": 16, "eval": "2%"}, "batch": {"effective": 4},
          "schedule": {"max_steps": STEPS}, "eval": {"every": 3}, "save": {"every": 2, "keep": "all"}, "threads": 1}
SET_PIPE_SIZE = 1031  # fcntl.F_SETPIPE_SZ of Python 3.10


class Started:
    """A command with a pipe for its events."""

    def __init__(self, *words, text=None, pipe_bytes=None):
        ours, theirs = os.pipe()
        if pipe_bytes:
            fcntl.fcntl(ours, SET_PIPE_SIZE, pipe_bytes)
        self.process = subprocess.Popen([str(PLIMSOLL), *map(str, words), "--events", str(theirs)], pass_fds=[theirs], text=True,
                                        stdin=subprocess.PIPE if text is not None else subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.close(theirs)
        if text is not None:
            self.process.stdin.write(text)
            self.process.stdin.close()
            self.process.stdin = None
        self.events = os.fdopen(ours, "rb")

    def finish(self):
        """Exit code, events, standard error."""
        lines = self.events.read()
        self.events.close()
        _, said = self.process.communicate(timeout=600)
        assert not lines or lines.endswith(b"\n") or self.process.returncode < 0, lines[-200:]
        return self.process.returncode, [json.loads(line) for line in lines.splitlines()], said


def of_kind(events, kind):
    return [event for event in events if event["event"] == kind]


def log(folder, name):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.run_folder = self.folder / "run"

    def recipe(self, **changes):
        path = self.folder / "recipe.json"
        path.write_text(json.dumps({**RECIPE, "output": str(self.run_folder), **changes}))
        return path

    def train(self, *words, **changes):
        return Started("train", self.recipe(**changes), "--quiet", "--no-probe", *words)

    def result(self, folder=None):
        """What must not depend on who reads events."""
        folder = folder or self.run_folder
        return {"weights": (folder / "model.safetensors").read_bytes(),
                "states": (folder / f"checkpoint-{STEPS}/optimizer.safetensors").read_bytes(),
                "steps": [(line["step"], line["loss"], line["grad_norm"]) for line in log(folder, "metrics.jsonl")],
                "evaluations": [(line["step"], line["loss"]) for line in log(folder, "eval.jsonl")],
                "checkpoints": sorted(path.name for path in folder.glob("checkpoint-*"))}

    def expected(self):
        """Of a run that nobody watches."""
        done = subprocess.run([str(PLIMSOLL), "train", str(self.recipe()), "--quiet", "--no-probe", "--set", f"output={self.folder}/unwatched"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.result(self.folder / "unwatched")


class Events(Case):
    def test_a_training_tells_what_its_logs_hold_in_order(self):
        started = self.train()
        lines = started.events.read().splitlines()
        code, _, _ = started.finish()
        events = [json.loads(line) for line in lines]
        self.assertEqual(code, 0)
        kinds = [event["event"] for event in events]
        self.assertEqual((kinds[0], kinds[-1]), ("begin", "end"))
        self.assertEqual((events[0]["version"], events[0]["command"]), (1, "train"))
        self.assertEqual(events[-1]["exit"], 0)
        self.assertLess(kinds.index("plan"), kinds.index("start"))
        self.assertLess(kinds.index("start"), kinds.index("step"))
        plan = of_kind(events, "plan")[0]
        self.assertEqual((plan["total_steps"], plan["output"], plan["feasible"]), (STEPS, str(self.run_folder), True))
        self.assertGreater(plan["planned_process_bytes"], 0)
        steps = [{key: value for key, value in event.items() if key != "event"} for event in of_kind(events, "step")]
        self.assertEqual(steps, log(self.run_folder, "metrics.jsonl"))
        without = lambda event: {key: value for key, value in event.items() if key not in ("event", "time")}
        self.assertEqual([without(event) for event in of_kind(events, "evaluate")], log(self.run_folder, "eval.jsonl"))
        self.assertEqual([event["step"] for event in of_kind(events, "save")], [2, 4, 6, 8])
        self.assertTrue(all("time" in event for event in events))
        pairs = [json.loads(line, object_pairs_hook=lambda pairs: [key for key, _ in pairs]) for line in lines]
        self.assertTrue(all(len(keys) == len(set(keys)) for keys in pairs), pairs)

    def test_steps_are_seen_once_with_overwrite_and_after_resume(self):
        self.train().finish()
        code, events, _ = self.train("--overwrite").finish()
        self.assertEqual((code, [event["step"] for event in of_kind(events, "step")]), (0, list(range(1, STEPS + 1))))
        longer = {"schedule": {"max_steps": STEPS + 3}}
        code, events, said = self.train("--resume", **longer).finish()
        self.assertEqual((code, [event["step"] for event in of_kind(events, "step")]), (0, list(range(STEPS + 1, STEPS + 4))), said)

    def test_a_reader_that_is_gone_costs_neither_a_step_nor_a_checkpoint(self):
        expected = self.expected()
        for lines in (0, 1, 2, 4, 5, 9):
            with self.subTest(lines=lines):
                started = self.train("--overwrite")
                for _ in range(lines):
                    json.loads(started.events.readline())
                started.events.close()
                _, said = started.process.communicate(timeout=600)
                self.assertEqual(started.process.returncode, 0, said)
                self.assertEqual(self.result(), expected)

    def test_a_killed_reader_is_no_signal_to_the_run(self):
        expected = self.expected()
        reader = subprocess.Popen([sys.executable, "-c", "import os, sys; sys.stdin.readline(); print(1, flush=True); os.kill(os.getpid(), 9)"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        done = subprocess.Popen([str(PLIMSOLL), "train", str(self.recipe()), "--quiet", "--no-probe", "--events", str(reader.stdin.fileno())],
                                pass_fds=[reader.stdin.fileno()], stderr=subprocess.PIPE)
        reader.stdin.close()
        _, said = done.communicate(timeout=600)
        self.assertEqual((done.returncode, reader.wait()), (0, -signal.SIGKILL), said)
        reader.stdout.close()
        self.assertEqual(self.result(), expected)
        self.assertEqual([line["event"] for line in log(self.run_folder, "events.jsonl")], ["start", *["save"] * 4, "end"])

    def test_killed_at_any_line_it_left_whole_lines_and_continues(self):
        expected = self.expected()
        for lines in (1, 2, 3, 5, 8, 11):
            with self.subTest(lines=lines):
                shutil.rmtree(self.run_folder, ignore_errors=True)
                started = self.train()
                before = [json.loads(started.events.readline()) for _ in range(lines)]
                started.process.kill()
                before += [json.loads(line) for line in started.events.read().splitlines()]
                started.events.close()
                started.process.communicate()
                code, after, said = self.train("--resume").finish()
                self.assertEqual(code, 0, said)
                begun = of_kind(after, "start") + of_kind(after, "resume")
                self.assertEqual([event["step"] for event in of_kind(after, "step")], list(range(begun[0]["step"] + 1, STEPS + 1)))
                steps = [event["step"] for event in of_kind(before, "step")]
                self.assertEqual(steps, list(range(1, len(steps) + 1)))
                self.assertEqual(self.result(), expected)

    def test_a_reader_that_takes_nothing_does_not_hold_the_run_up(self):
        steps = 700
        started = Started("train", self.recipe(schedule={"max_steps": steps}, save={"every": "100%"}, eval={"every": "100%"}), "--quiet",
                          "--no-probe", pipe_bytes=4096)
        record = self.run_folder / "run.json"
        while not record.exists() and started.process.poll() is None:
            threading.Event().wait(0.05)
        code, events, said = started.finish()
        self.assertEqual(code, 0, said)
        self.assertEqual(len(log(self.run_folder, "metrics.jsonl")), steps)
        seen = [event["step"] for event in of_kind(events, "step")]
        self.assertEqual(seen, sorted(set(seen)))
        self.assertLess(len(seen), steps)
        self.assertTrue(any("events were left out" in event["text"] for event in of_kind(events, "note")), events[-3:])
        self.assertEqual(events[-1]["event"], "end")

    def test_a_full_disk_behind_the_events_is_no_error_of_the_run(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([str(PLIMSOLL), "train", str(self.recipe()), "--quiet", "--no-probe", "--events", str(full.fileno())],
                                  pass_fds=[full.fileno()], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(log(self.run_folder, "metrics.jsonl")), STEPS)

    def test_a_descriptor_that_is_not_open_for_writing_is_refused_before_anything_is_done(self):
        for descriptor, words in ((77, "is not open"), (0, "for reading")):
            with self.subTest(descriptor=descriptor), open("/dev/null", "rb") as nothing:
                done = subprocess.run([str(PLIMSOLL), "train", str(self.recipe()), "--events", str(descriptor)], stdin=nothing, capture_output=True,
                                      text=True)
                self.assertEqual(done.returncode, 2)
                self.assertIn(words, done.stderr)
                self.assertFalse(self.run_folder.exists())

    def test_an_error_says_its_exit_code_places_and_ways(self):
        path = self.recipe()
        path.write_text(path.read_text().replace('"effective"', '\n"efective"'))
        code, events, said = Started("train", path).finish()
        error = of_kind(events, "error")[0]
        self.assertEqual((code, error["exit"], events[-1]), (2, 2, {**events[-1], "event": "end", "exit": 2}))
        self.assertEqual(error["problems"][0] | {"message": ""}, {"message": "", "file": str(path), "line": 2, "key": "batch.efective",
                                                                  "nearest": "batch.effective"})
        self.assertIn(error["message"], said)
        for command in ("plan", "train"):
            code, events, _ = Started(command, self.recipe(), "--no-probe", "--memory", "3MiB").finish()
            error = of_kind(events, "error")[0]
            self.assertEqual((code, error["exit"], events[-1]["exit"]), (3, 3, 3))
            self.assertIn("does not fit", error["message"])
            for way in error["ways"]:
                self.assertIn("plimsoll ", way["command"])
        code, events, _ = Started("plan", self.recipe(), "--no-probe", "--json").finish()
        self.assertEqual((code, of_kind(events, "plan")[0]["feasible"], events[-1]["exit"]), (0, True, 0))

    def test_notes_are_told_with_their_level(self):
        code, events, _ = Started("train", self.recipe(), "--no-probe").finish()
        notes = of_kind(events, "note")
        self.assertEqual(code, 0)
        self.assertTrue(any(note["text"].startswith("plan ") and note["level"] == "info" for note in notes), notes)

    def test_an_interrupted_run_says_the_signal_and_the_save(self):
        started = self.train(schedule={"max_steps": 100_000}, save={"every": "100%"}, eval={"every": "100%"})
        events = []
        while not of_kind(events, "step"):
            events.append(json.loads(started.events.readline()))
        started.process.send_signal(signal.SIGINT)
        code, more, _ = started.finish()
        self.assertEqual(code, 130)
        self.assertEqual(of_kind(more, "signal")[0]["signal"], "SIGINT")
        self.assertEqual(of_kind(more, "save")[-1]["step"], (of_kind(more, "step") or of_kind(events, "step"))[-1]["step"])
        self.assertEqual(more[-1]["exit"], 130)

    def test_an_answer_has_events_too(self):
        self.train().finish()
        code, events, _ = Started("generate", self.run_folder, "--prompt", "What?", "--max-new-tokens", "2", "--json").finish()
        self.assertEqual((code, events[0]["command"], events[-1]["exit"]), (0, "generate", 0))
        self.assertEqual({event["what"] for event in of_kind(events, "load")}, {"weights"})
        code, events, _ = Started("generate", self.folder / "nothing", "--prompt", "What?").finish()
        self.assertEqual((code, of_kind(events, "error")[0]["exit"]), (2, 2))


class StandardInput(Case):
    def answer(self, *words, text):
        return subprocess.run([str(PLIMSOLL), *map(str, words)], input=text, capture_output=True, cwd=self.folder)

    def test_a_recipe_there_is_planned_as_the_same_file(self):
        path = self.recipe()
        yaml = "model: demo/model\ninit: random\nmethod: {type: lora}\ndata: {max_length: 16}\n"
        for text in (path.read_bytes(), yaml.encode()):
            with self.subTest(text=text[:20]):
                file = self.folder / ("file.json" if text.startswith(b"{") else "file.yaml")
                file.write_bytes(text.replace(b"demo/model", str(ROOT / "demo/model").encode()) if not text.startswith(b"{") else text)
                piped = self.answer("plan", "-", "--no-probe", "--dump", "table", text=file.read_bytes())
                named = self.answer("plan", file, "--no-probe", "--dump", "table", text=b"")
                self.assertEqual((piped.returncode, piped.stdout), (0, named.stdout), piped.stderr)

    def test_its_paths_start_at_the_working_folder_and_it_trains(self):
        shutil.copytree(ROOT / "demo/model", self.folder / "model")
        shutil.copy(ROOT / "demo/data/facts/train.parquet", self.folder)
        recipe = {**RECIPE, "model": "model", "data": {"train": "train.parquet", "max_length": 16, "eval": "2%"}, "output": "run"}
        done = self.answer("train", "-", "--quiet", "--no-probe", text=json.dumps(recipe).encode())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.run_folder / "model.safetensors").exists())
        shown = self.answer("recipe", "-", "--json", text=json.dumps(recipe).encode())
        self.assertEqual(json.loads(shown.stdout)["recipe"]["batch"]["effective"], 4)

    def test_a_config_there_is_planned_as_its_folder(self):
        config = (ROOT / "demo/model/config.json").read_bytes()
        piped = self.answer("plan", "-", "--no-probe", "--method", "lora", "--dump", "table", text=config)
        named = self.answer("plan", ROOT / "demo/model", "--no-probe", "--method", "lora", "--dump", "table", text=b"")
        self.assertEqual((piped.returncode, piped.stdout), (0, named.stdout), piped.stderr)
        rows = self.answer("plan", "-", "--no-probe", "--set", f"data.train={ROOT}/demo/data/facts/train.parquet", text=config)
        self.assertEqual(rows.returncode, 2)
        self.assertIn(b"standard input has its shape alone", rows.stderr)
        self.assertEqual(self.answer("train", "-", text=config).returncode, 2)

    def test_what_is_no_recipe_there_is_refused_with_its_place(self):
        for text, words in ((b"", b"is empty"), (b"model: [", b"standard input"), (b"\xff\xfe\x00", b"standard input"), (b"{\"model\": 1e999}", b""),
                            (b"x: y\n", b"standard input:1: unknown key 'x'"), (b"a: " + b"b" * 10_000_000, b"standard input"), (b"[1, 2]", b"a map of keys")):
            with self.subTest(text=text[:20]):
                done = self.answer("plan", "-", "--no-probe", text=text)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(words, done.stderr)


PARENT = """
import subprocess, sys, threading, os, time
def start():
    global child
    child = subprocess.Popen(sys.argv[1:] + ["--die-with-parent", str(os.getpid())], stderr=subprocess.DEVNULL, start_new_session=True)
thread = threading.Thread(target=start)  # the kernel counts its end as that of a parent
thread.start()
thread.join()
print(child.pid, flush=True)
if sys.stdin.readline() == "wait\\n":
    sys.exit(child.wait())
os.kill(os.getpid(), 9)
"""


class Parent(Case):
    def start(self, steps):
        path = self.recipe(schedule={"max_steps": steps}, save={"every": "100%"}, eval={"every": "100%"})
        parent = subprocess.Popen([sys.executable, "-c", PARENT, str(PLIMSOLL), "train", str(path), "--quiet", "--no-probe"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        return parent, int(parent.stdout.readline())

    def test_a_run_whose_parent_is_killed_saves_and_ends(self):
        parent, pid = self.start(1_000_000)
        metrics = self.run_folder / "metrics.jsonl"
        while not (metrics.exists() and metrics.read_text().count("\n") > 2):
            threading.Event().wait(0.05)
        handle = os.pidfd_open(pid)
        parent.communicate("end\n")
        import select
        self.assertTrue(select.select([handle], [], [], 300)[0])
        os.close(handle)
        kinds = [(line["event"], line.get("signal")) for line in log(self.run_folder, "events.jsonl")]
        self.assertEqual(kinds, [("start", None), ("signal", "SIGTERM"), ("save", None)])
        self.assertEqual(len(list(self.run_folder.glob("checkpoint-*"))), 1)

    def test_the_end_of_the_thread_that_started_it_is_not_the_end_of_the_parent(self):
        parent, _ = self.start(STEPS)
        parent.communicate("wait\n")
        self.assertEqual(parent.returncode, 0)
        self.assertEqual([line["event"] for line in log(self.run_folder, "events.jsonl")], ["start", "save", "end"])

    def test_a_parent_that_is_gone_already_is_refused(self):
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        done = subprocess.run([str(PLIMSOLL), "train", str(self.recipe()), "--die-with-parent", str(gone.pid)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is gone already", done.stderr)
        self.assertFalse(self.run_folder.exists())


if __name__ == "__main__":
    main()
