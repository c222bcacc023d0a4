"""What a long run meets: signals, full disks, losses that break down, folders that move, terminals.

Usage: long_run_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path

import train_test
from train_test import ROOT, losses, recipe, run, tensors

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def state(checkpoint):
    return json.loads((checkpoint / "trainer_state.json").read_text())


def checkpoints(output):
    return sorted(int(path.name.split("-")[1]) for path in output.glob("checkpoint-*") if path.suffix == "")


def events(output, *kinds):
    lines = [json.loads(line) for line in (output / "events.jsonl").read_text().splitlines()]
    return [line for line in lines if not kinds or line["event"] in kinds]


PATIENCE = 600  # seconds that nothing takes, however busy the machine is


def token_rows(path, *parts):
    """Rows of eight equal tokens, `count` of each (token, label, count): what is learnt depends on nothing but the labels."""
    rows = [{"input_ids": [token] * 8, "labels": [label] * 8} for token, label, count in parts for _ in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"train": str(path), "format": "input-ids", "max_length": 8, "shuffle": False}


class LongRunTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.output = self.folder / "run"

    def train(self, *words, code=0, **changes):
        done = run("train", recipe(self.folder, **changes), *words)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def start(self, steps=3, **changes):
        """A run that goes on until it is told otherwise, once it has taken some steps."""
        path = recipe(self.folder, schedule={"max_steps": 100000}, **changes)
        running = subprocess.Popen([str(train_test.PLIMSOLL), "train", str(path), "--quiet"], stderr=subprocess.PIPE, text=True)
        self.addCleanup(running.stderr.close)
        self.addCleanup(running.kill)
        metrics = self.output / "metrics.jsonl"
        self.wait(lambda: metrics.exists() and metrics.read_text().count("\n") >= steps, running)
        return running

    def wait(self, condition, running=None):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            if running is not None and running.poll() is not None:
                self.fail(f"ended with {running.returncode}: {running.stderr.read()}")
            time.sleep(0.01)

    def test_signals_save_or_end_the_run_after_the_step_at_hand(self):
        running = self.start(save={"keep": 5})
        running.send_signal(signal.SIGUSR1)
        self.wait(lambda: checkpoints(self.output), running)
        (first,) = checkpoints(self.output)
        self.wait(lambda: len(losses(self.output)) > first, running)  # it goes on
        running.send_signal(signal.SIGTERM)
        self.assertEqual(running.wait(timeout=PATIENCE), 130)
        last = len(losses(self.output))
        self.assertEqual(checkpoints(self.output), [first, last])
        self.assertEqual([e["signal"] for e in events(self.output, "signal")], ["SIGUSR1", "SIGTERM"])
        self.assertEqual(state(self.output / f"checkpoint-{last}")["step"], last)

    def test_a_closed_terminal_and_a_pipe_without_a_reader_stop_a_run_that_saves(self):
        path = recipe(self.folder, schedule={"max_steps": 100000}, log={"every": 1})
        for what in ("SIGHUP", "SIGPIPE"):
            running = subprocess.Popen([str(train_test.PLIMSOLL), "train", str(path), "--overwrite"],
                                       stderr=subprocess.PIPE, text=True)
            self.addCleanup(running.kill)
            while not running.stderr.readline().startswith("train "):
                self.assertIsNone(running.poll())
            if what == "SIGHUP":
                running.send_signal(signal.SIGHUP)
                running.stderr.read()  # to its end: a pipe closed before would be a signal too, and come first where both wait
            running.stderr.close()
            self.assertEqual(running.wait(timeout=PATIENCE), 130)
            self.assertEqual([e["event"] for e in events(self.output)], ["start", "signal", "save"])
            self.assertEqual(events(self.output, "signal")[0]["signal"], what)
            self.assertEqual(checkpoints(self.output), [len(losses(self.output))])

    def test_the_best_checkpoint_stays_beside_the_newest_and_ends_as_the_result(self):
        # The second half of the rows teaches the opposite of what the first half does and the evaluation asks.
        data = token_rows(self.folder / "rows.jsonl", (7, 7, 72), (7, 9, 72))
        asked = token_rows(self.folder / "asked.jsonl", (7, 7, 4))["train"]
        text = self.train(data={**data, "eval": asked}, schedule={"max_steps": 24, "name": "constant", "warmup": 1},
                          save={"every": 3, "keep": 1, "best": "loss"}, stop={"loss": None})
        by_step = {e["step"]: e["loss"] for e in map(json.loads, (self.output / "eval.jsonl").read_text().splitlines())}
        self.assertEqual(sorted(by_step), list(range(3, 25, 3)))  # each checkpoint knows its evaluation
        best = min(by_step, key=by_step.get)
        self.assertLess(best, 24)
        self.assertEqual(checkpoints(self.output), [best, 24])
        self.assertIn(f"best loss at {best}", text)
        own = state(self.output / f"checkpoint-{best}")["eval_loss"]
        self.assertEqual(json.loads((self.output / "run.json").read_text())["best"],
                         {"step": best, "eval_loss": own, "metric": "loss", "value": own})
        self.assertEqual(tensors(self.output / "model.safetensors"),
                         tensors(self.output / f"checkpoint-{best}/model.safetensors"))
        self.assertNotEqual(tensors(self.output / "model.safetensors"),
                            tensors(self.output / "checkpoint-24/model.safetensors"))

    def test_a_loss_that_is_not_finite_stops_the_run_and_leaves_its_rows(self):
        # The decay turns each weight into -99 times itself: soon it is beyond f32.
        changes = {"optimizer": {"lr": 10, "weight_decay": 10}, "save": {"every": 1, "keep": 1}, "stop": {"loss": None},
                   "schedule": {"max_steps": 200, "name": "constant", "warmup": 1}}
        message = self.train("--quiet", code=5, **changes)
        step = int(re.search(r"step (\d+): ", message)[1])
        (kept,) = checkpoints(self.output)
        self.assertLess(kept, step)
        values = b"".join(tensors(self.output / f"checkpoint-{kept}/model.safetensors").values())
        self.assertTrue(all(abs(value) < float("inf") for (value,) in struct.iter_unpack("<f", values)))
        refuse = lambda name: self.fail(f"{name} is no JSON")
        lines = [json.loads(line, parse_constant=refuse) for line in (self.output / "metrics.jsonl").read_text().splitlines()]
        self.assertGreaterEqual(len(lines), kept)
        self.assertIn(f"checkpoint-{kept}", message)
        self.assertTrue((self.output / f"stopped-at-step-{step}.jsonl").exists())
        self.assertEqual(events(self.output)[-1]["event"], "stop")
        self.assertIn("stopped", run("report", self.output).stdout)

    def test_what_is_not_finite_is_null_in_the_log(self):
        self.train("--quiet", schedule={"max_steps": 1})
        broken = self.folder / "broken"
        shutil.copytree(self.output / "checkpoint-1", broken)
        weights = bytearray((broken / "model.safetensors").read_bytes())
        weights[-4:] = struct.pack("<f", 3e38)  # finite, as damaged weights would be refused
        (broken / "model.safetensors").write_bytes(weights)
        message = self.train("--quiet", "--overwrite", code=5, model=str(broken), init="weights")
        self.assertRegex(message, "step 1: the loss is (nan|inf)")
        self.assertIn("there is no checkpoint", message)
        (line,) = (self.output / "metrics.jsonl").read_text().splitlines()
        self.assertIsNone(json.loads(line, parse_constant=self.fail)["loss"])
        self.assertEqual(run("report", self.output).returncode, 0)

    def test_a_loss_that_breaks_down_stops_the_run_before_the_last_good_checkpoint_goes(self):
        # A model that is sure of one answer, learning all but nothing: its loss is what the rows say, and from step
        # 11 on they say another answer, which one row of each earlier step had said, too: no new kind of rows.
        sure = self.folder / "sure"
        self.train("--quiet", data=token_rows(self.folder / "rows.jsonl", (7, 7, 240)), output=str(sure),
                   schedule={"max_steps": 40, "name": "constant"}, optimizer={"lr": 3e-3})
        self.assertLess(losses(sure)[-1], 0.5)
        message = self.train("--quiet", code=5, model=str(sure), init="weights", optimizer={"lr": 1e-9},
                             data=token_rows(self.folder / "rows.jsonl", *[(7, 7, 5), (7, 9, 1)] * 10, (7, 9, 240)),
                             schedule={"max_steps": 50, "name": "constant"}, save={"every": 2, "keep": 1}, stop={"loss": 12})
        step = int(re.search(r"step (\d+): the mean loss of \d+ steps is .* above 12", message)[1])
        rows = [json.loads(line) for line in (self.output / f"stopped-at-step-{step}.jsonl").read_text().splitlines()]
        self.assertEqual(len(rows), 6)
        for row in rows:
            self.assertEqual(len(row["input_ids"]), len(row["labels"]))
            self.assertGreaterEqual(row["row"], 60)
        log = losses(self.output)
        self.assertEqual([i for i, loss in enumerate(log, 1) if loss > 12], list(range(11, len(log) + 1)))
        self.assertEqual(checkpoints(self.output)[0], 10)  # saved while all was well, and not the last one
        # The rows are themselves data.
        again = self.folder / "again"
        again.mkdir()
        done = run("train", recipe(again, data={"train": str(self.output / f"stopped-at-step-{step}.jsonl")},
                                   schedule={"max_steps": 1}), "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_full_disk_stops_the_run_and_leaves_the_last_checkpoint_whole(self):
        disk = self.folder / "disk"
        disk.mkdir()
        mount = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
        script = f"mount -t tmpfs -o size=30m tmpfs {disk} && "
        if subprocess.run([*mount, script + "true"], capture_output=True).returncode != 0:
            self.skipTest("no mounts here")
        path = recipe(self.folder, output=str(disk / "run"), save={"every": 2, "keep": 9})
        command = f"{train_test.PLIMSOLL} train {path} --quiet; echo exit $?; ls {disk}/run; " \
                  f"cat {disk}/run/checkpoint-4/trainer_state.json"
        done = subprocess.run([*mount, script + command], capture_output=True, text=True, timeout=PATIENCE)
        self.assertIn("exit 5", done.stdout, done.stderr)
        self.assertIn("a checkpoint takes", done.stderr)
        self.assertIn("are free there", done.stderr)
        self.assertIn("checkpoint-4\n", done.stdout)
        self.assertNotIn("checkpoint-6", done.stdout)
        self.assertIn('"step": 4', done.stdout)

    def test_another_micro_batch_goes_on_and_says_what_that_does(self):
        self.train(save={"every": 4, "keep": 3})
        shutil.rmtree(self.output / "checkpoint-8")
        want = losses(self.output)
        text = self.train("--resume", batch={"micro": 2}, save={"every": 4, "keep": 3})
        self.assertIn("saved with micro-batch 3", text)
        self.assertIn("continues with micro-batch 2", text)
        self.assertIn("the last bits differ", text)
        for a, b in zip(want, losses(self.output), strict=True):
            self.assertLess(abs(a - b), 1e-5)
        self.assertEqual(run("train", recipe(self.folder, batch={"effective": 5}), "--resume").returncode, 2)

    def test_a_resumed_run_keeps_its_micro_batch_where_the_recipe_leaves_it_open(self):
        self.train(batch={"micro": 2}, save={"every": 4, "keep": 3})
        want = tensors(self.output / "model.safetensors")
        shutil.rmtree(self.output / "checkpoint-8")
        text = self.train("--resume", batch={"micro": "auto"}, save={"every": 4, "keep": 3})
        self.assertNotIn("last bits", text)
        self.assertIn("2 x 3 = 6", text)
        self.assertEqual(tensors(self.output / "model.safetensors"), want)

    def test_folders_may_move_between_a_run_and_its_continuation(self):
        places = [self.folder / name for name in ("here", "there")]
        model, data = (place / name for place, name in zip(places[:1] * 2, ("model", "data")))
        shutil.copytree(ROOT / "demo/model", model)
        shutil.copytree(ROOT / "demo/data/facts", data)
        first = dict(model=str(model), data={"train": str(data / "train.parquet")}, output=str(places[0] / "run"),
                     save={"every": 4, "keep": 3})
        self.train("--quiet", **first)
        want = tensors(places[0] / "run/model.safetensors")
        shutil.rmtree(places[0] / "run/checkpoint-8")
        places[0].rename(places[1])
        moved = dict(first, model=str(places[1] / "model"), data={"train": str(places[1] / "data/train.parquet")},
                     output=str(places[1] / "run"))
        self.train("--quiet", "--resume", **moved)
        self.assertEqual(tensors(places[1] / "run/model.safetensors"), want)
        config = json.loads((places[1] / "model/config.json").read_text())
        (places[1] / "model/config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-3}))
        self.assertIn("model was", self.train("--resume", code=2, **moved))
        (places[1] / "model/config.json").write_text(json.dumps(config, indent=4))  # other blanks, the same model
        moved["data"] = {"train": str(ROOT / "demo/data/facts/heldout.parquet")}
        self.assertIn("data.train was", self.train("--resume", code=2, **moved))

    def test_other_weights_under_the_same_names_are_another_model(self):
        for name, seed in (("a", 1), ("b", 2)):
            done = run("train", recipe(self.folder, schedule={"max_steps": 1}, seed=seed, output=str(self.folder / name)), "--quiet")
            self.assertEqual(done.returncode, 0, done.stderr)
        lora = dict(init="weights", method={"type": "lora", "r": 4})
        self.train("--quiet", model=str(self.folder / "a"), **lora)
        message = self.train("--quiet", "--resume", code=2, model=str(self.folder / "b"), **lora)
        self.assertIn("weights", message)

    def test_what_a_killed_run_left_half_written_is_cleared(self):
        self.train("--quiet", save={"every": 4, "keep": 3})
        unfinished = self.output / ".plimsoll/tmp"
        (unfinished / "checkpoint-6").mkdir(parents=True)
        (unfinished / "checkpoint-6/model.safetensors").write_text("half")
        (unfinished / "run.json").write_text("half")
        with open(self.output / "events.jsonl", "a") as log:
            log.write('{"time": 1, "st')
        self.train("--quiet", "--resume", save={"every": 4, "keep": 3})
        self.assertFalse(unfinished.exists())
        self.assertEqual(events(self.output)[-1]["event"], "end")

    def test_evaluations_that_a_signal_cut_short_are_made_up_for(self):
        changes = dict(data={"eval": "50%"}, eval={"every": 2}, save={"every": 2, "best": "loss", "keep": 50})
        running = self.start(**changes)
        running.send_signal(signal.SIGTERM)
        self.assertEqual(running.wait(timeout=PATIENCE), 130)
        path = recipe(self.folder, schedule={"max_steps": 100000}, **changes)
        again = subprocess.Popen([str(train_test.PLIMSOLL), "train", str(path), "--quiet", "--resume"])
        self.addCleanup(again.kill)
        before = checkpoints(self.output)[-1]
        self.wait(lambda: checkpoints(self.output)[-1] > before + 2)
        again.send_signal(signal.SIGINT)
        self.assertEqual(again.wait(timeout=PATIENCE), 130)
        known = [state(self.output / f"checkpoint-{step}")["eval_loss"] for step in checkpoints(self.output)[:-1]
                 if step % 2 == 0]
        self.assertGreater(len(known), 1)
        self.assertNotIn(None, known)

    def test_metrics_hold_what_the_report_shows(self):
        self.train("--quiet", data={"eval": "2%"}, eval={"every": 4})
        page = self.folder / "run.html"
        done = run("report", self.output, "--html", page)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("finished   8 of 8 steps", done.stdout)
        report = json.loads((self.output / "run.json").read_text())
        for line in map(json.loads, (self.output / "metrics.jsonl").read_text().splitlines()):
            self.assertLess(0.5 * report["measured"]["process_peak_rss_bytes"], line["rss"])
            self.assertLessEqual(line["rss"], report["measured"]["process_peak_rss_bytes"])
        text = page.read_text()
        self.assertNotIn("http", text)
        for name in ("loss", "learning rate", "speed", "memory of the process"):
            self.assertIn(f"<h2>{name}", text)
        self.assertEqual(run("report", self.folder).returncode, 2)


class TerminalTest(unittest.TestCase):
    """What is shown on a terminal, read through a pseudo-terminal."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def watch(self, widths, *words, term="xterm", code=0, **changes):
        """Runs on a terminal that takes the next of `widths` whenever some steps went by, and ends after the last."""
        path = recipe(self.folder, **changes)
        parent, child = pty.openpty()
        self.addCleanup(os.close, parent)
        resize = lambda columns: fcntl.ioctl(parent, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        resize(widths[0])
        running = subprocess.Popen([str(train_test.PLIMSOLL), "train", str(path), "--overwrite", *words], stderr=child,
                                   stdout=child, env={**os.environ, "TERM": term})
        self.addCleanup(running.kill)
        os.close(child)
        parts, at = [b""], 0
        while True:
            if select.select([parent], [], [], PATIENCE)[0] == []:
                self.fail("nothing was shown for minutes")
            try:
                data = os.read(parent, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            parts[-1] += data
            if at < len(widths) and parts[-1].count(b"train ") >= 4:
                at += 1
                if at < len(widths):
                    resize(widths[at])
                    parts.append(b"")
                elif len(widths) > 1:
                    running.send_signal(signal.SIGTERM)
        self.assertEqual(running.wait(timeout=PATIENCE), code, parts[-1].decode())
        return [part.decode() for part in parts]

    def drawn(self, text):
        """Lines of the bar as they stand on the terminal."""
        pieces = re.split(r"\r(?:\x1b\[\d+A)?\x1b\[[JK]|\r\n|\n", text)
        return [ESCAPE.sub("", piece) for piece in pieces if re.match(r"train   |\d+/\d+", piece)]

    def test_the_bar_fits_the_terminal_however_it_is_resized(self):
        wide, narrow, tiny = self.watch([120, 60, 30], schedule={"max_steps": 100000}, code=130)
        self.assertTrue(any(re.search("[█░]", line) and "mem " in line for line in self.drawn(wide)), wide)
        for part, width in ((wide, 120), (narrow, 60), (tiny, 30)):
            lines = self.drawn(part)[1:]  # the first may have been drawn before the terminal changed
            self.assertGreater(len(lines), 1)
            self.assertLess(max(map(len, lines)), width, part)
        # What the narrower terminal broke into two rows is taken away whole.
        self.assertIn("\r\x1b[1A\x1b[J", narrow)

    def test_events_scroll_above_the_bar(self):
        (text,) = self.watch([100], schedule={"max_steps": 30}, save={"every": 10})
        for step in (10, 20, 30):
            self.assertRegex(text, rf"(\r\x1b\[K|\n)save    step {step}\r\n")
        self.assertTrue(text.endswith("\r\n"))

    def test_a_dumb_terminal_and_a_pipe_get_plain_lines(self):
        (text,) = self.watch([100], term="dumb", schedule={"max_steps": 6})
        self.assertNotIn("\x1b", text)
        piped = run("train", recipe(self.folder, schedule={"max_steps": 6}, log={"every": 3}), "--overwrite")
        self.assertEqual(piped.stdout, "")
        self.assertNotIn("\x1b", piped.stderr)
        self.assertEqual(re.findall(r"^train   (\d+)/6 ", piped.stderr, re.M), ["3", "6"])

    def test_levels_say_more_and_more(self):
        path = recipe(self.folder, schedule={"max_steps": 3}, precision="bf16")
        lengths = []
        for level in ("error", "warn", "info", "debug"):
            done = run("train", path, "--overwrite", "--log-level", level, "--max-isa", "avx2")
            self.assertEqual(done.returncode, 0, done.stderr)
            lengths.append(len(done.stderr))
        self.assertEqual(lengths[0], 0)
        self.assertEqual(lengths, sorted(set(lengths)))
        self.assertIn("gradient norm", done.stderr)
        self.assertEqual(run("train", path, "--overwrite", "--log-level", "loud").returncode, 2)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train_test.PLIMSOLL = Path(sys.argv.pop(1)).resolve()
    os.environ.pop("PLIMSOLL_SET", None)
    unittest.main()
