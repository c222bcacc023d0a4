#!/usr/bin/env python3
"""The queue, its worker and what it survives: python3 tests/queue_test.py PLIMSOLL [--kills N]"""
import contextlib
import errno
import fcntl
import json
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import unittest
from pathlib import Path

from command_run import PLIMSOLL, ROOT, not_sanitized, output
from queue_case import MIB, PYTHON, SECONDS, QueueTest
from shard import SuiteLoader

KILLS = 8
if "--kills" in sys.argv:
    KILLS = int(sys.argv.pop(sys.argv.index("--kills") + 1))
    sys.argv.remove("--kills")


class Entries(QueueTest):
    def test_what_is_added_is_listed_without_a_worker_and_belongs_to_its_owner(self):
        self.assertIn("no worker runs", self.queue("add", "--memory", "1MiB", "--name", "first", "--", "true"))
        self.add("echo", "--memory", memory="2GiB", host_memory="1GiB", devices=2, threads=3, priority=5, env="A=b")
        first, second = json.loads(self.queue("list", "--json"))["entries"]
        self.assertEqual((first["name"], first["state"], first["host_bytes"], first["words"]), ("first", "waiting", MIB, ["true"]))
        self.assertEqual((second["devices"], second["device_bytes"], second["host_bytes"], second["threads"]), (2, 2 << 30, 1 << 30, 3))
        self.assertEqual((second["words"], second["environment"], second["priority"]), (["echo", "--memory"], ["A=b"], 5))
        self.assertIn("2 x 2.00 GiB + 1.00 GiB", self.queue("list"))
        self.assertEqual(os.stat(self.queue_folder).st_mode & 0o777, 0o700)
        for file in self.queue_folder.glob("queue.db*"):
            self.assertEqual(os.stat(file).st_mode & 0o777, 0o600, file)

    def test_what_cannot_be_added_says_why(self):
        for words, expected in ((["--", "true"], "--memory is missing"),
                                (["--memory", "1MiB", "--devices", 1, "--", "true"], "--host-memory is missing"),
                                (["--memory", "1MiB", "--host-memory", "1MiB", "--", "true"], "--host-memory is for"),
                                (["--memory", "lots", "--", "true"], "--memory"),
                                (["--memory", "1MiB", "--env", "A", "--", "true"], "expected NAME=VALUE"),
                (["--memory", "1MiB", "--on-oom", "batch=4", "--", "true"], "--batch=4 adds it"),
                                (["--memory", "1MiB", "--after", 7, "--", "true"], "no entry 7"),
                                (["none.yaml"], "none.yaml"), ([], "RUN is missing")):
            self.assertIn(expected, self.queue("add", *words, code=2))
        self.assertEqual(json.loads(self.queue("list", "--json"))["entries"], [])
        self.assertIn("no entry 3", self.queue("show", 3, code=2))

    def test_a_unit_for_systemd_has_the_workers_options_and_this_queue(self):
        queue = self.folder / "100% $HOME 'q"
        environment = {**self.environment, "PLIMSOLL_QUEUE_DIR": str(queue)}
        unit = output("queue", "unit", "--memory", "3GiB", "--threads", 2, "--device", 'GPU-"a=5GiB', "--gpu-plan", "2", env=environment)
        self.assertIn(f'ExecStart="{PLIMSOLL}" "queue" "run" "--memory" "3GiB" "--threads" "2" "--device" "GPU-\\"a=5GiB" "--gpu-plan" "2" "--grace" "30"\n', unit)
        self.assertIn("KillMode=process\n", unit)
        self.assertIn(f'Environment="PLIMSOLL_QUEUE_DIR={self.folder}/100%% $HOME \'q"\n', unit)
        self.assertFalse(queue.exists())
        for words in (["--memory", "x"], ["--device", "a"], ["--gpu-plan", "1"]):
            self.queue("unit", *words, code=2)
        if shutil.which("systemd-analyze"):
            path = self.folder / "plimsoll-queue.service"
            path.write_text(unit)
            done = subprocess.run(["systemd-analyze", "verify", "--user", "--man=no", str(path)], capture_output=True, text=True)
            self.assertNotIn("plimsoll-queue", done.stderr)

    def test_a_queue_that_others_could_write_to_is_refused(self):
        self.queue_folder.mkdir(mode=0o700)
        self.queue_folder.chmod(0o755)
        self.assertIn("chmod 700", self.queue("list", code=2))
        self.queue_folder.chmod(0o700)
        (self.queue_folder / "queue.db").write_text("no database at all" * 100)
        self.assertIn("queue.db", self.queue("list", code=4))

    def test_a_database_that_another_program_locks_is_waited_for(self):
        self.queue("list")
        other = sqlite3.connect(self.queue_folder / "queue.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        waiting = subprocess.Popen([str(PLIMSOLL), "queue", "add", "--memory", "1MiB", "--", "true"], env=self.environment,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(1)
        self.assertIsNone(waiting.poll())
        other.execute("COMMIT")
        self.assertEqual(waiting.wait(SECONDS), 0)
        waiting.communicate()

    def test_a_home_behind_a_link_has_a_queue(self):
        (self.folder / "real").mkdir()
        (self.folder / "home").symlink_to("real")
        home = {name: value for name, value in self.environment.items() if name not in ("PLIMSOLL_QUEUE_DIR", "XDG_STATE_HOME")}
        output("queue", "add", "--memory", "1MiB", "--", "true", env={**home, "HOME": str(self.folder / "home")})
        self.assertTrue((self.folder / "real/.local/state/plimsoll/queue/queue.db").exists())

    def test_a_link_of_the_owner_leads_to_the_queue(self):
        (self.folder / "disk").mkdir(mode=0o700)
        self.queue_folder.symlink_to("disk")
        self.add("true", memory="1MiB")
        self.assertTrue((self.folder / "disk/queue.db").exists())
        self.run_all("--memory", "10MiB")
        self.assertEqual(self.show(1)["state"], "done")
        if os.geteuid() == 0:
            os.lchown(self.queue_folder, 12345, 12345)
            self.assertIn("is no folder", self.queue("list", code=2))
            os.lchown(self.queue_folder, 0, 0)
        (self.folder / "disk").rename(self.folder / "away")
        self.assertIn("is a link that leads to no folder", self.queue("list", code=2))

    def test_the_folder_that_was_removed_under_a_shell_is_named(self):
        done = subprocess.run(["sh", "-c", f"mkdir gone && cd gone && rmdir ../gone && exec {PLIMSOLL} queue add --memory 1MiB -- true"],
                              env=self.environment, cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("the current folder: No such file or directory", done.stderr)

    def test_a_new_database_gives_no_number_whose_runs_are_there(self):
        for _ in range(2):
            self.add("true", memory="1MiB")
        self.run_all("--memory", "10MiB")
        for file in self.queue_folder.glob("queue.db*"):
            file.unlink()
        entry = self.add("touch", self.folder / "ran", memory="1MiB")
        self.assertEqual([entry, self.add("true", memory="1MiB")], [3, 4])
        self.run_all("--memory", "10MiB")
        self.assertEqual(self.show(entry)["state"], "done")
        self.assertTrue((self.folder / "ran").exists(), "the record of another run was taken for its own")

    def test_who_uses_a_database_that_was_moved_away_ends_and_says_so(self):
        self.add("sleep", "1000", memory="1MiB")
        worker = self.worker("--memory", "10MiB")
        self.eventually(lambda: self.show(1)["state"] == "running", "it does not start")
        waiting = subprocess.Popen([str(PLIMSOLL), "queue", "wait"], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.workers.append(waiting)
        self.eventually(lambda: self.has_open(waiting, "queue.db-shm"), "nobody waits")
        self.queue_folder.rename(self.folder / "moved")
        for one in (worker, waiting):
            text, _ = one.communicate(timeout=SECONDS)
            self.assertEqual(one.returncode, 5, text)
            self.assertRegex(text, "queue.db: was moved")
        self.assertFalse(self.queue_folder.exists(), "it was made again where it had been")

    def test_first_commands_wait_for_each_other(self):
        for number in range(4):
            environment = {**self.environment, "PLIMSOLL_QUEUE_DIR": str(self.folder / f"new-{number}")}
            first = [subprocess.Popen([str(PLIMSOLL), "queue", "add", "--memory", "1MiB", "--", "true"], env=environment, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True) for _ in range(6)]
            told = [(one.communicate(), one.returncode) for one in first]
            self.assertEqual([code for _, code in told], [0] * 6, told)
            entries = json.loads(output("queue", "list", "--json", env=environment))["entries"]
            self.assertEqual([one["id"] for one in entries], list(range(1, 7)))

    def test_no_umask_leaves_a_folder_that_its_owner_cannot_enter(self):
        for mask in (0o777, 0o177, 0o077):
            place = self.folder / f"{mask:o}" / "state" / "queue"
            output("queue", "list", env={**self.environment, "PLIMSOLL_QUEUE_DIR": str(place)}, preexec_fn=lambda mask=mask: os.umask(mask) and None)
            self.assertEqual(place.stat().st_mode & 0o777, 0o700)
            self.assertEqual(place.parent.stat().st_mode & 0o700, 0o700)

    def test_a_worker_starts_while_somebody_looks_for_one(self):
        self.queue("list")
        with open(self.queue_folder / "worker.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            worker = self.worker("--until-done")
            time.sleep(0.3)
            self.assertIsNone(worker.poll(), "it takes who looks for a worker")
        self.assertEqual(worker.wait(SECONDS), 0)

    def test_who_ends_the_worker_by_its_command_line_does_not_mean_the_runs(self):
        run = self.add("sleep", "60", memory="10MiB")
        self.worker()
        self.eventually(lambda: self.show(run)["state"] == "running", "it never started")
        shown = []
        for process in Path("/proc").iterdir():
            try:
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                place = os.readlink(process / "exe")
            except OSError:
                continue
            if place == str(Path(PLIMSOLL).resolve()) and words.startswith("plimsoll run"):
                shown.append(words.strip())
        self.assertIn(f"plimsoll run {run}", shown)
        self.queue("cancel", run)

    def test_what_is_shown_of_a_job_fits_the_terminal(self):
        entry = self.add("sh", "-c", "echo " + "word " * 40, memory="10MiB")
        self.run_all()
        shown = output("queue", "show", entry, env={**self.environment, "COLUMNS": "60"})
        self.assertIn("attempt 1 ", shown)
        self.assertEqual([line for line in shown.splitlines() if len(line) > 60 and "word word" not in line], [])

    def test_waiting_without_a_worker_says_so(self):
        self.add("true", memory="1MiB")
        waiting = subprocess.Popen([str(PLIMSOLL), "queue", "wait"], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.workers.append(waiting)
        self.assertEqual(waiting.stderr.readline(), "note    no worker runs: plimsoll queue run starts what waits\n")
        self.worker()
        self.assertEqual(waiting.wait(SECONDS), 0)
        waiting.communicate()

    def test_steering_what_waits(self):
        first, second = self.add("true", memory="1MiB"), self.add("true", memory="1MiB")
        self.assertIn("held", self.queue("pause", first))
        self.assertIn("priority 9", self.queue("priority", second, "--to", 9))
        self.assertIn("canceled", self.queue("cancel", second))
        self.assertIn("nothing to repeat", self.queue("retry", first, code=2))
        self.assertIn("not held", self.queue("resume", second, code=2))
        self.queue("retry", second)
        self.queue("resume", first)
        self.queue("pause")
        self.assertIn("paused", self.queue("list"))
        self.assertEqual(json.loads(self.queue("resume", "--json")), {"paused": False, "draining": False})
        for words in (["priority", "--to", 4], ["pause"], ["wait"], ["resume"], ["cancel"], ["retry"]):
            done = subprocess.run([str(PLIMSOLL), "queue", *map(str, words), str(first), "--json"], env=self.environment, capture_output=True)
            self.assertEqual(done.returncode, 5 if words == ["wait"] else 0, done.stderr)
            self.assertNotIn(b"no worker", done.stderr)  # nothing is waited for
            (told,) = json.loads(done.stdout)["entries"]
            self.assertEqual(told, {**self.show(first), "attempts": []})
            self.assertEqual((told["id"], told["priority"]), (first, 4))
        self.assertEqual([self.show(one)["state"] for one in (first, second)], ["waiting", "waiting"])


class Configs(QueueTest):
    def test_a_command_gets_a_copy_of_its_file_with_keys_changed_and_the_original_stays(self):
        config = self.folder / "train.yaml"
        text = "# mine\nmodel: {name: m, revision: \"1\"}\nlr: 1e-4  # slow\n"
        config.write_text(text)
        entries = []
        for lr in ("2e-4", "3e-4"):
            entries.append(json.loads(self.queue(
                "add", "--json", "--memory", "50MiB", "--yaml-set", f"train.yaml:lr={lr}", "--yaml-set",
                "train.yaml:model.dropout=0.1", "--env", f"CONFIG={config}", "--", "sh", "-c", 'cat "$1"; cat "$CONFIG" >&2', "-", "./train.yaml"))["id"])
        config.write_text(text + "new: 1\n")  # the copy is of when it was added
        self.run_all("--memory", "300MiB")
        for entry, lr in zip(entries, ("2e-4", "3e-4")):
            once = f'model:\n  name: m\n  revision: "1"\n  dropout: 0.1\nlr: {lr}\n'
            self.assertEqual(self.queue("logs", entry), once * 2)
        self.assertEqual(config.read_text(), text + "new: 1\n")

    def test_an_added_key_that_is_no_plain_word_is_quoted(self):
        (self.folder / "a.yaml").write_text("a: 1\n")
        entry = self.add("cat", "a.yaml", memory="50MiB", yaml_set="a.yaml:{b=2")
        self.run_all("--memory", "300MiB")
        self.assertEqual(self.queue("logs", entry), 'a: 1\n"{b": 2\n')

    def test_what_cannot_be_changed_is_refused_by_file_and_key(self):
        (self.folder / "a.yaml").write_text("a: 1\n")
        (self.folder / "deep.json").write_text('{"a":' + "[" * 50_000 + "]" * 50_000 + "}")
        (self.folder / "nul.yaml").write_text(": \0000\n")
        for words, expected in ((["--yaml-set", "a.yaml:a.b=1", "--", "true", "a.yaml"], "a.yaml:a.b"),
                                (["--yaml-set", "a.yaml:a=1", "--", "true"], "names a.yaml"),
                                (["--yaml-set", "b.yaml:a=1", "--", "true", "b.yaml"], "b.yaml"),
                                (["--yaml-set", "a.yaml", "--", "true"], "FILE:KEY=VALUE"),
                                (["--yaml-set", "a.yaml:a=\udcff", "--", "true", "a.yaml"], "UTF-8"),
                                (["--yaml-set", "deep.json:b=1", "--", "true", "deep.json"], "deep.json: is nested deeper than 100 levels"),
                                (["--yaml-set", "nul.yaml:A=", "--", "true", "nul.yaml"], "holds the character NUL"),
                                (["--set", "a=1", "--", "true"], "is for recipes")):
            self.assertIn(expected, self.queue("add", "--memory", "1MiB", *words, code=2))
        self.assertEqual(json.loads(self.queue("list", "--json"))["entries"], [])
        files = self.queue_folder / "files"
        self.assertEqual(list(files.iterdir()) if files.exists() else [], [], "a copy that nobody uses is left")


class Logs(QueueTest):
    def test_a_log_that_is_slow_to_read_keeps_no_worker_from_its_work(self):
        message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.50 GiB of which 8.00 MiB is free."
        first = self.add("sh", "-c", f"yes CUBLAS_STATUS_ALLOC_FAILED | tr -d '\\n' | head -c 16000000; echo; echo '{message}'; exit 1", memory="50MiB", retries="0")
        second = self.add("true", memory="50MiB")
        self.run_all("--memory", "300MiB")
        self.assertEqual([self.show(one)["state"] for one in (first, second)], ["failed", "done"])
        self.assertIn("CUBLAS", self.queue("logs", first)[:100])
        self.assertRegex(self.show(first)["attempts"][0]["outcome"], "(?i)memory")

    def test_an_entry_whose_answer_was_not_written_is_said_to_be_there(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([str(PLIMSOLL), "queue", "add", "--memory", "10MiB", "--", "true"], env=self.environment, cwd=self.folder,
                                  stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("added all the same: entry 1", done.stderr)
        self.assertEqual(self.show(1)["state"], "waiting")


class Draining(QueueTest):
    def test_drain_ends_the_worker_with_what_runs_and_keeps_what_waits(self):
        self.assertIn("no worker runs", self.queue("drain", code=2))
        first = self.add("sh", "-c", "touch started; while [ ! -e go ]; do sleep 0.05; done", memory="80MiB")
        second = self.add("true", memory="80MiB")
        worker = self.worker("--memory", "100MiB")
        self.eventually((self.folder / "started").exists, "it never started")
        self.assertIn("the worker ends", self.queue("drain"))
        self.assertTrue(json.loads(self.queue("list", "--json"))["draining"])
        self.assertIn("draining", self.queue("list"))
        self.assertIsNone(worker.poll(), "what runs is waited for")
        (self.folder / "go").touch()
        worker.communicate(timeout=SECONDS)
        self.assertEqual(worker.returncode, 0)
        self.assertEqual([self.show(one)["state"] for one in (first, second)], ["done", "waiting"])
        self.run_all("--memory", "100MiB")  # a later worker is not drained by what was asked of an earlier one
        self.assertEqual(self.show(second)["state"], "done")

    def test_drain_waits_where_asked_and_is_taken_back_by_resume(self):
        self.add("sh", "-c", "while [ ! -e go ]; do sleep 0.05; done", memory="80MiB")
        second = self.add("true", memory="10MiB", after=1)
        worker = self.worker("--memory", "100MiB", "--until-done")
        self.eventually(lambda: self.show(1)["state"] == "running", "it never started")
        waiting = subprocess.Popen([str(PLIMSOLL), "queue", "drain", "--wait"], env=self.environment, stdout=subprocess.DEVNULL)
        self.eventually(lambda: json.loads(self.queue("list", "--json"))["draining"], "it never drained")
        self.assertIsNone(waiting.poll())
        self.queue("resume")
        self.assertEqual(waiting.wait(SECONDS), 0)
        (self.folder / "go").touch()
        worker.communicate(timeout=SECONDS)
        self.assertEqual(self.show(second)["state"], "done")


class Running(QueueTest):
    def test_commands_run_with_their_environment_and_their_ends_are_explained(self):
        good = self.add("sh", "-c", 'echo "$WORD $OMP_NUM_THREADS $PWD"', memory="50MiB", env="WORD=hello", threads=2)
        bad = self.add("sh", "-c", "exit 3", memory="50MiB")
        full = self.add("sh", "-c", "echo 'OSError: [Errno 28] No space left on device'; exit 1", memory="50MiB")
        absent = self.add("/no/such/program", memory="50MiB")
        after = self.add("true", memory="50MiB", after=good)
        never = self.add("true", memory="50MiB", after=bad)
        huge = self.add("true", memory="1TiB")
        text = self.run_all("--memory", "300MiB", "--threads", 2)
        self.assertIn("cpu:0 300 MiB, 2 threads", text)
        self.assertEqual(self.queue("logs", good), f"hello 2 {self.folder}\n")
        self.assertEqual((self.show(full)["state"], self.show(full)["note"]), ("failed", "exit code 1: the disk is full"))
        by = {one: self.show(one) for one in (good, bad, absent, after, never, huge)}
        self.assertEqual([by[one]["state"] for one in by], ["done", "failed", "failed", "done", "held", "held"])
        self.assertEqual(by[bad]["note"], "exit code 3")
        self.assertIn("never started: /no/such/program", by[absent]["note"])
        self.assertGreaterEqual(by[after]["attempts"][0]["started"], by[good]["attempts"][0]["ended"])
        self.assertIn(f"{bad}, which it comes after, is failed", by[never]["note"])
        self.assertIn("the queue has 300 MiB", by[huge]["note"])
        self.assertIn("exit code 3", self.queue("show", bad))
        self.assertGreater(by[after]["attempts"][0]["peak_host_bytes"], 0, "true ends before anybody looks: the kernel knows")
        self.queue("wait", good)
        self.queue("wait", bad, code=5)

    def test_what_is_run_has_the_mask_of_add_and_files_for_people_have_theirs(self):
        before = os.umask(0o027)
        try:
            entry = self.add("sh", "-c", "umask; touch made", memory="20MiB")
            os.umask(0o002)
            self.run_all("--memory", "500MiB")
            self.queue("list")
            output("report", "--queue", "--html", self.folder / "page.html", env=self.environment, cwd=self.folder)
        finally:
            os.umask(before)
        self.assertEqual(self.queue("logs", entry), "0027\n")
        modes = [oct((self.folder / name).stat().st_mode & 0o777) for name in ("made", "page.html", "queue", "queue/queue.db")]
        self.assertEqual(modes, ["0o640", "0o644", "0o700", "0o600"])

    def test_who_holds_the_lock_of_all_queues_is_named(self):
        entry = self.add("true", memory="20MiB")
        (self.folder / "machine").mkdir(mode=0o1777)
        holder = subprocess.Popen(["flock", str(self.folder / "machine" / "lock"), "sleep", "1000"], start_new_session=True)
        self.addCleanup(lambda: (os.killpg(holder.pid, signal.SIGKILL), holder.wait()) if holder.poll() is None else None)
        self.eventually((self.folder / "machine" / "lock").exists, "the lock was not taken")
        self.worker("--memory", "500MiB")
        self.eventually(lambda: "is held by user" in self.show(entry)["note"], "nobody is named")
        self.assertRegex(self.show(entry)["note"], r"^waits: .*/lock is held by user \S+ \(process \d+\)$")
        os.killpg(holder.pid, signal.SIGKILL)
        self.eventually(lambda: self.show(entry)["state"] == "done", "it never started")

    def test_a_queue_of_an_earlier_version_goes_on_and_what_another_held_is_let_go(self):
        self.queue_folder.mkdir(mode=0o700, exist_ok=True)
        with contextlib.closing(sqlite3.connect(self.queue_folder / "queue.db")) as base:
            base.executescript((ROOT / "tests/golden/queue-version-5.sql").read_text())
        self.assertEqual([self.show(entry)["held_by"] for entry in (1, 2, 3, 4)], [0, 1, 2, 0])
        self.queue("retry", 1)
        self.assertEqual([self.show(entry)["state"] for entry in (1, 2, 3, 4)], ["waiting", "waiting", "waiting", "held"])

    def test_what_was_held_for_another_goes_on_when_that_is_tried_again(self):
        first = self.add("sh", "-c", "test -e flag || exit 3", memory="50MiB", name="first")
        second = self.add("true", memory="50MiB", after=first, name="second")
        third = self.add("true", memory="50MiB", after=second, name="third")
        paused = self.add("true", memory="50MiB", after=first, name="paused")
        self.run_all()
        note = f"held: {first}, which it comes after, is failed; continue it with plimsoll queue retry {first}"
        self.assertEqual((self.show(second)["state"], self.show(second)["note"]), ("held", note))
        self.assertEqual(self.show(third)["note"], f"held: {second}, which it comes after, is held; plimsoll queue show {second} says why")
        self.assertIn(f"plimsoll queue resume {second} continues it ({note})", self.refusal("retry", second))
        self.queue("resume", second)
        self.run_all()
        self.assertEqual(self.show(second)["note"], note, "what it comes after has failed still")
        self.queue("pause", paused)
        (self.folder / "flag").touch()
        self.queue("retry", first)
        self.assertEqual((self.show(second)["state"], self.show(second)["note"]), ("waiting", ""))
        self.run_all()
        self.assertEqual([self.show(one)["state"] for one in (first, second, third, paused)], ["done"] * 3 + ["held"])
        self.assertEqual(self.show(paused)["note"], f"paused; continue it with plimsoll queue resume {paused}")

    def test_cancel_names_what_comes_after(self):
        first = self.add("true", memory="50MiB")
        second = self.add("true", memory="50MiB", after=first)
        third = self.add("true", memory="50MiB", after=second)
        other = self.add("true", memory="50MiB")
        self.assertIn(f"{second}, {third} come after what was canceled, and do not start: plimsoll queue cancel {second} {third}",
                      self.queue("cancel", first))
        self.assertNotIn("after", self.queue("cancel", other), "of this command's jobs alone")
        self.assertNotIn("after", self.queue("cancel", second, third))

    def test_a_queue_with_a_hold_whose_reason_is_gone_goes_on(self):
        first, second = self.add("false", memory="50MiB"), self.add("true", memory="50MiB", after=1)
        self.run_all()
        with sqlite3.connect(self.queue_folder / "queue.db") as database:  # as it was left before
            database.execute("UPDATE entries SET state = 4 WHERE id = ?", [first])
        self.run_all()
        self.assertEqual([self.show(one)["state"] for one in (first, second)], ["done", "done"])

    def test_numbers_that_are_none_are_refused_with_a_range_that_can_be_read(self):
        add = ["add", "--memory", "1MiB", "--seconds"]
        for words, end in ((add, ["--", "true"]), (["run", "--grace"], []), (["run", "--backend", "slurm", "--poll"], [])):
            for bad in ("nan", "inf", "-1"):
                self.assertRegex(self.refusal(*words[:-1], f"{words[-1]}={bad}", *end),
                                 f"{words[-1]}: expected a number (from 0 on|above 0), found '{bad}'")
        self.assertIn("from 1 on", self.refusal("run", "--backend", "slurm", "--jobs", 0))
        self.assertEqual(self.queue("list").count("true"), 0)

    def refusal(self, *words):
        done = subprocess.run([str(PLIMSOLL), "queue", *map(str, words)], env=self.environment, cwd=self.folder,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done)
        return done.stderr

    def test_runs_are_packed_into_what_the_host_and_its_threads_allow(self):
        entries = [self.add("sleep", "0.4", memory=f"{80 + 5 * i}MiB") for i in range(6)]
        entries += [self.add("sleep", "0.3", memory="1MiB", threads=3) for i in range(2)]
        self.run_all("--memory", "250MiB", "--threads", 4)
        self.assertTrue(all(self.show(one)["state"] == "done" for one in entries))
        reserved, _ = self.peaks_at_once(entries)
        self.assertLessEqual(reserved, 250 * MIB)
        self.assertGreater(reserved, 105 * MIB, "two at a time fit")
        report = [str(PLIMSOLL), "report", "--queue"]
        told = json.loads(subprocess.run([*report, "--json"], env=self.environment, capture_output=True, check=True).stdout)
        self.assertEqual((told["runs"], told["done"]), (len(entries), len(entries)))
        self.assertEqual(told["devices"][0]["most_reserved_bytes"], reserved)
        page = self.folder / "batch.html"
        subprocess.run([*report, "--html", page], env=self.environment, capture_output=True, check=True)
        self.assertEqual(page.read_text().count('class="run"'), len(entries))
        self.assertEqual(subprocess.run([*report, self.folder], env=self.environment, capture_output=True).returncode, 2)

    def test_devices_are_given_by_name_and_never_beyond_their_memory_or_plan(self):
        show = 'echo "[$CUDA_VISIBLE_DEVICES]"; sleep 0.3'
        two = self.add("sh", "-c", show, memory="5GiB", host_memory="10MiB", devices=2)
        ones = [self.add("sh", "-c", show, memory="2GiB", host_memory="10MiB", devices=1) for _ in range(3)]
        none = self.add("sh", "-c", show, memory="10MiB")
        self.run_all("--memory", "500MiB", "--threads", 8, "--device", "GPU-a=6GiB", "--device", "GPU-b=6GiB", "--gpu-plan", "2,1")
        self.assertEqual(sorted(self.queue("logs", two).strip("[]\n").split(",")), ["GPU-a", "GPU-b"])
        self.assertEqual(self.queue("logs", none), "[]\n")
        spans = [one for entry in [two, *ones] for one in self.show(entry)["attempts"]]
        for at in spans:
            together = [one for one in spans if one["started"] <= at["started"] < one["ended"]]
            for name, most in (("GPU-a", 2), ("GPU-b", 1)):
                here = [one for one in together if name in one["devices"]]
                self.assertLessEqual(sum(one["device_bytes"] for one in here), 6 << 30)
                self.assertLessEqual(len(here), most)

    def test_on_devices_the_allocator_of_pytorch_is_told_what_its_version_knows(self):
        python = self.folder / "venv/bin/python"
        python.parent.mkdir(parents=True)
        python.write_text('#!/bin/sh\necho "[$PYTORCH_CUDA_ALLOC_CONF]"\n')
        python.chmod(0o700)
        torch = self.folder / "venv/lib/python3.11/site-packages/torch"
        torch.mkdir(parents=True)
        (torch / "version.py").write_text("__version__ = '2.4.1+cu121'\n")
        self.environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
        self.environment.pop("PYTORCH_ALLOC_CONF", None)
        card = {"memory": "1GiB", "host_memory": "30MiB", "devices": 1}
        told, said = self.add(python, **card), self.add(python, **card, env="PYTORCH_CUDA_ALLOC_CONF=a:b")
        host = self.add(python, memory="30MiB")
        self.run_all("--memory", "500MiB", "--threads", 4, "--device", "GPU-a=6GiB")
        self.assertEqual([self.queue("logs", one) for one in (told, said, host)], ["[expandable_segments:True]\n", "[a:b]\n", "[]\n"])

    @not_sanitized("a command takes more memory")
    def test_a_command_that_takes_more_than_it_said_is_ended_and_tried_again_with_more(self):
        entry = self.add(PYTHON, "-c", "import time; x = bytearray(150 << 20); time.sleep(1.5); print('whole')", memory="100MiB")
        self.run_all("--memory", "1GiB", "--threads", 2)
        shown = self.show(entry)
        self.assertEqual(shown["state"], "done")
        self.assertIn("took more than its reservation of 100 MiB", shown["attempts"][0]["outcome"])
        self.assertGreater(shown["attempts"][-1]["host_bytes"], 150 * MIB)
        self.assertEqual(self.queue("logs", entry), "whole\n")

    @not_sanitized("a command takes more memory")
    def test_where_groups_may_be_made_no_moment_goes_unseen(self):
        entry = self.add(PYTHON, "-c", "bytearray(700 << 20)", memory="100MiB", retries=0)
        self.run_all("--memory", "1GiB", "--threads", 2)
        group = self.queue_folder / "runs" / str(entry) / "1" / "group"
        if not group.exists():
            self.skipTest("no control groups may be made here")
        self.assertEqual(self.show(entry)["state"], "failed")
        self.assertIn("took more than its reservation of 100 MiB", self.show(entry)["note"])
        self.assertFalse(Path(group.read_text()).exists(), "the group is left behind")

    @not_sanitized("a command takes more memory")
    def test_memory_that_processes_share_and_pages_of_files_are_within_a_reservation(self):
        share = ("import mmap, os; f = os.memfd_create('x'); os.ftruncate(f, 100 << 20); [os.fork() for _ in 'ab']\n"
                 "for _ in range(40): sum(mmap.mmap(f, 100 << 20)[::4096])")
        (self.folder / "file").write_bytes(bytes(200 << 20))
        read = "import mmap, time; f = open('file', 'rb'); m = mmap.mmap(f.fileno(), 0, prot=1); sum(m[::4096]); time.sleep(0.6)"
        entries = [self.add(PYTHON, "-c", share, memory="190MiB", retries=0), self.add(PYTHON, "-c", read, memory="64MiB", retries=0)]
        self.run_all("--memory", "1GiB", "--threads", 2)
        for entry, most in zip(entries, (190, 64)):
            shown = self.show(entry)
            self.assertEqual(shown["state"], "done", shown["note"])
            self.assertLess(shown["attempts"][0]["peak_host_bytes"], most * MIB)

    def test_what_a_command_took_is_reserved_the_next_time(self):
        allocate = [PYTHON, "-c", "import time; x = bytearray(int(__import__('sys').argv[1]) << 20); time.sleep(1)"]
        self.assertIn("no earlier run of it", self.queue("add", "--", *allocate, 200, code=2))
        first = self.add(*allocate, 200, memory="400MiB")
        self.run_all("--memory", "800MiB")
        peak = self.show(first)["attempts"][0]["peak_host_bytes"]
        self.assertGreater(peak, 200 * MIB)
        course = self.show(first)["attempts"][0]["memory"]
        self.assertGreater(max(course["bytes"]), 200 * MIB)
        self.assertIsNone(course["growth_bytes_per_second"])
        self.assertIn("memory ", self.queue("show", first))
        said = subprocess.run([str(PLIMSOLL), "queue", "add", "--", *map(str, allocate), "200"], env=self.environment, cwd=self.folder,
                              capture_output=True, text=True, check=True)
        self.assertIn("in 1 run before", said.stderr)
        second = self.show(first + 1)
        self.assertEqual(second["host_bytes"], peak + max(peak // 10, 16 * MIB))
        self.assertGreater(second["predicted_seconds"], 0.9)
        self.assertIn("--memory is missing", self.queue("add", "--", *allocate, 100, code=2))
        self.queue("add", "--memory", "50MiB", "--", *allocate, 200)
        self.assertEqual(self.show(first + 2)["host_bytes"], second["host_bytes"], "50 MiB have been too little")
        self.run_all("--memory", "800MiB")
        self.assertEqual([(self.show(one)["state"], len(self.show(one)["attempts"])) for one in (first + 1, first + 2)], [("done", 1)] * 2)

    def test_where_all_of_it_is_too_little_a_command_becomes_what_was_said(self):
        script = "import sys, time; print(sys.argv[1:], flush=True); x = bytearray(int(sys.argv[2]) << 20); time.sleep(2)"
        entry = self.add(PYTHON, "-c", script, "--batch", 400, "accum=1", memory="100MiB", on_oom="batch=60 accum=7 --resume")
        self.run_all("--memory", "200MiB")
        shown = self.show(entry)
        ran = [one["words"][3:] for one in shown["attempts"]]
        whole = ["--batch", "400", "accum=1"]
        self.assertEqual((ran[0], ran[-2:]), (whole, [whole, ["--batch", "60", "accum=7", "--resume"]]))
        self.assertEqual((shown["state"], shown["on_oom"]), ("done", []))
        self.assertLessEqual(len(ran), 4)
        self.assertIn("next attempt: --on-oom batch=60 accum=7 --resume", shown["attempts"][-2]["outcome"])
        self.assertIn("--batch 400 accum=1", self.queue("show", entry), "what ran before is told")
        self.assertIn("'--batch', '60'", self.queue("logs", entry))

    def test_a_sweep_of_a_command_is_a_group_that_is_steered_and_reported_together(self):
        (self.folder / "train.yaml").write_text("lr: 0.1\nseed: 0\n")
        script = "import sys; print(open(sys.argv[1]).read().split(), sys.argv[2:])"
        text = self.queue("add", "--memory", "60MiB", "--name", "grid", "--zip", "task=qnli,rte", "--zip", "rows=105k,2.5k", "--sweep", "train.yaml:lr=1,2",
                          "--", PYTHON, "-c", script, "train.yaml", "task=none", "--rows", "0", "out/{task}-{train.yaml:lr}")
        self.assertIn("group grid: 4 runs; plimsoll report --queue --group grid shows them", text)
        listed = json.loads(self.queue("list", "--group", "grid", "--json"))["entries"]
        self.assertEqual([one["name"] for one in listed], ["grid-taskqnli-yaml_lr1", "grid-taskqnli-yaml_lr2", "grid-taskrte-yaml_lr1", "grid-taskrte-yaml_lr2"])
        self.add("true", memory="10MiB", name="alone")
        self.queue("add", "--memory", "60MiB", "--name", "grid", "--sweep", "task=a,b", "--", "sh", "-c", "echo {task}")
        self.assertEqual(self.show(6)["group"], "grid-2", "another sweep is another group")
        self.queue("pause", "--group", "grid")
        self.assertEqual([self.show(one)["state"] for one in (1, 2, 3, 4, 5, 6)], ["held"] * 4 + ["waiting"] * 2)
        self.assertEqual([self.show(one)["words"][-1] for one in (6, 7)], ["echo a", "echo b"], "braces need no option beside them")
        self.queue("cancel", "--group", "grid-2")
        self.run_all("--memory", "500MiB")
        self.queue("resume", "--group", "grid")
        self.queue("priority", "--group", "grid", "--to", 3)
        self.assertEqual(self.show(2)["priority"], 3)
        self.run_all("--memory", "500MiB")
        self.queue("wait", "--group", "grid")
        self.assertEqual(self.queue("logs", 1), "['lr:', '1', 'seed:', '0'] ['task=qnli', '--rows', '105k', 'out/qnli-1']\n")
        self.assertEqual(self.queue("logs", 4), "['lr:', '2', 'seed:', '0'] ['task=rte', '--rows', '2.5k', 'out/rte-2']\n")
        report = output("report", "--queue", "--group", "grid", "--json", env=self.environment, cwd=self.folder)
        self.assertEqual(sorted({one["id"] for one in json.loads(report)["attempts"]}), [1, 2, 3, 4])
        self.assertIn("a command, whose losses are unknown", output("report", "--group", "grid", code=2, env=self.environment))
        self.assertIn("it has grid, grid-2", self.queue("cancel", "--group", "gird", code=2))
        self.assertIn("--zip: task has 2 values and rows 1", self.queue("add", "--memory", "1MiB", "--zip", "task=1,2", "--zip", "rows=1", "--", "true", "task=1", code=2))
        self.assertIn("--sweep: neither the command nor --env has a 'nothing'", self.queue("add", "--memory", "1MiB", "--sweep", "nothing=1", "--", "true", code=2))

    def test_a_step_changes_keys_of_a_file_that_the_command_is_given_a_copy_of(self):
        (self.folder / "train.yaml").write_text("batch: 400\naccum: 1\nlr: 0.1\n")
        script = "import sys, time; text = open(sys.argv[1]).read(); print(text, sys.argv[2:], flush=True); x = bytearray(int(text.split()[1]) << 20); time.sleep(1)"
        words = ("--memory", "150MiB", "--yaml-set", "train.yaml:lr=0.2", "--env", "OTHER=1", "--on-oom", "train.yaml:batch=300 train.yaml:accum=2",
                 "--on-oom", "train.yaml:batch=60 --resume", "--retries", 0, "--", PYTHON, "-c", script, "train.yaml")
        self.queue("add", *words)
        text = self.queue("show", 1)
        for part in ("changed  train.yaml: lr: 0.1 -> 0.2", "environment  OTHER=1", "on oom  train.yaml:batch=300 train.yaml:accum=2"):
            self.assertRegex(text, part.replace("  ", " +").replace(".", r"\."))
        self.run_all("--memory", "200MiB")
        self.assertEqual(self.show(1)["state"], "done")
        logs = [self.queue("logs", 1, "--attempt", number) for number in (1, 2, 3)]
        self.assertEqual([one.split()[:6] for one in logs], [["batch:", "400", "accum:", "1", "lr:", "0.2"], ["batch:", "300", "accum:", "2", "lr:", "0.2"],
                                                             ["batch:", "60", "accum:", "2", "lr:", "0.2"]])
        self.assertIn("['--resume']", logs[2])
        self.assertEqual((self.folder / "train.yaml").read_text(), "batch: 400\naccum: 1\nlr: 0.1\n")
        self.assertRegex(self.queue("show", 1), "changed +train.yaml: .*batch: 400 -> 60")
        self.assertEqual(self.show(1)["changes"], ["train.yaml: lr: 0.1 -> 0.2", "train.yaml: accum: 1 -> 2", "train.yaml: batch: 400 -> 60"])
        (self.folder / "other.yaml").write_text("a: 2\n")
        self.assertIn("--on-oom: neither the command nor --env names other.yaml",
                      self.queue("add", "--memory", "1MiB", "--on-oom", "other.yaml:a=1", "--", "true", code=2))
        self.assertEqual(len(list((self.queue_folder / "files").iterdir())), 6, "copies and their changes of the entry that was added, and no others")

    def test_a_log_that_says_out_of_memory_raises_the_reservation_until_the_device_is_whole(self):
        says = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; " \
               "7.00 GiB already allocated; 0.50 GiB free; 7.20 GiB reserved in total by PyTorch)"
        entry = self.add("sh", "-c", f"echo '{says}'; exit 1", memory="4GiB", host_memory="10MiB", devices=1, retries=5)
        self.run_all("--memory", "500MiB", "--device", "0=8GiB")
        shown = self.show(entry)
        self.assertEqual(shown["state"], "failed")
        self.assertEqual([one["device_bytes"] >> 30 for one in shown["attempts"]], [4, 6, 8])
        self.assertIn("there is no more to reserve", shown["note"])

    def test_a_log_is_followed_until_its_run_is_over(self):
        entry = self.add("sh", "-c", "echo first; while [ ! -e go ]; do sleep 0.02; done; echo last", memory="30MiB")
        self.worker("--memory", "100MiB")
        self.eventually(lambda: self.show(entry)["state"] == "running", "it never started")
        follows = subprocess.Popen([str(PLIMSOLL), "queue", "logs", "-f", str(entry)], env=self.environment, stdout=subprocess.PIPE, text=True)
        self.assertEqual(follows.stdout.readline(), "first\n")
        (self.folder / "go").touch()
        self.assertEqual(follows.communicate(timeout=SECONDS)[0], "last\n")
        self.assertEqual(follows.returncode, 0)

    def test_a_log_is_followed_before_its_supervisor_has_made_it(self):
        entry = self.add("sh", "-c", "echo first; while [ ! -e go ]; do sleep 0.02; done", memory="30MiB")
        self.worker("--memory", "100MiB")
        self.eventually(lambda: self.show(entry)["state"] == "running", "it never started")
        log = self.queue_folder / f"runs/{entry}/1/log"
        self.eventually(log.exists, "it has no log")
        log.rename(self.folder / "later")
        follows = subprocess.Popen([str(PLIMSOLL), "queue", "logs", "-f", str(entry)], env=self.environment, stdout=subprocess.PIPE, text=True)
        self.eventually(lambda: self.has_open(follows, "queue.db-shm"), "it looks at no queue")
        time.sleep(0.2)
        (self.folder / "later").rename(log)
        self.assertEqual(follows.stdout.readline(), "first\n")
        (self.folder / "go").touch()
        self.assertEqual(follows.communicate(timeout=SECONDS)[0], "")

    def test_what_starts_later_than_predicted_says_so(self):
        first = self.add("sh", "-c", "while [ ! -e go ]; do sleep 0.05; done", memory="60MiB", seconds=1)
        worker = self.worker("--until-done", "--memory", "100MiB")
        self.eventually(lambda: self.show(first)["state"] == "running", "it never began")
        waits = self.add("true", memory="60MiB")
        self.eventually(lambda: "starts by  later than predicted (" in self.queue("show", waits), "its time was not seen to pass")
        (self.folder / "go").touch()
        text, _ = worker.communicate(timeout=SECONDS)
        self.assertEqual(worker.returncode, 0, text)

    def test_what_a_log_holds_does_not_steer_the_terminal(self):
        entry = self.add("printf", r"a\033[2Jb\n", memory="10MiB", name="x\033[31my")
        self.run_all("--memory", "500MiB")
        for text in (self.queue("logs", entry), self.queue("list"), self.queue("show", entry)):
            self.assertNotIn("\033", text)

    def of_two_queues(self, words, run, count=3):
        """When runs of two queues of one machine were there: [(started, ended)] of each."""
        spans = []
        for name in ("one", "two"):
            environment = {**self.environment, "PLIMSOLL_QUEUE_DIR": str(self.folder / name)}
            for _ in range(count):
                output("queue", "add", *words, "--", "sleep", "0.5", env=environment, cwd=self.folder)
            self.workers.append(subprocess.Popen([str(PLIMSOLL), "queue", "run", "--until-done", *run], env=environment, cwd=self.folder,
                                                 stdout=subprocess.DEVNULL))
        for name, worker in zip(("one", "two"), self.workers[-2:]):
            self.assertEqual(worker.wait(timeout=SECONDS), 0)
            environment = {**self.environment, "PLIMSOLL_QUEUE_DIR": str(self.folder / name)}
            told = json.loads(output("report", "--queue", "--json", env=environment))
            self.assertEqual(told["done"], count)
            spans += [(one["started"], one["ended"]) for one in told["attempts"]]
        return spans

    def most_at_once(self, spans):
        return max(sum(1 for begin, end in spans if begin <= at < end) for at, _ in spans)

    def test_two_queues_of_one_machine_give_no_device_out_twice(self):
        run = ["--memory", "2GiB", "--threads", 8, "--device", "GPU-a=6GiB", "--device", "GPU-b=6GiB"]
        add = ["--devices", 1, "--host-memory", "20MiB"]
        self.assertLessEqual(self.most_at_once(self.of_two_queues([*add, "--memory", "4GiB"], list(map(str, run)))), 2)

    def test_two_queues_of_one_machine_give_no_host_memory_out_twice(self):
        free = json.loads(output("top", "--once", "--json", env=self.environment))["available_bytes"]
        spans = self.of_two_queues(["--memory", str(int(0.6 * free))], ["--memory", str(int(0.95 * free)), "--threads", "8"])
        self.assertEqual(self.most_at_once(spans), 1)

    @not_sanitized("a program takes more memory")
    def test_a_worker_that_has_nothing_to_do_takes_next_to_nothing(self):
        self.queue("pause", self.add("true", memory="10MiB"))
        worker = self.worker("--memory", "500MiB")
        worker.stdout.readline()
        ticks = lambda: sum(map(int, Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
        time.sleep(0.5)
        before = ticks()
        time.sleep(2)
        self.assertLessEqual((ticks() - before) / os.sysconf("SC_CLK_TCK") / 2, 0.01)
        self.assertLess(int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{worker.pid}/status").read_text())[1]), 30 << 10)

    def test_one_queue_has_one_worker(self):
        self.add("sleep", "30", memory="10MiB")
        worker = self.worker("--memory", "500MiB")
        self.eventually(lambda: json.loads(self.queue("list", "--json"))["worker"], "no worker came")
        self.assertIn("has a worker already", self.queue("run", code=2))
        worker.send_signal(signal.SIGINT)
        self.assertIn("take", worker.communicate(timeout=SECONDS)[0])
        self.assertEqual(worker.returncode, 0)


class Ending(QueueTest):
    def test_cancel_ends_everything_that_a_command_started_also_what_detached_and_what_does_not_listen(self):
        script = self.folder / "stubborn.sh"
        script.write_text("trap '' TERM\n(setsid sleep 300 &)\nsleep 300 &\necho here\nwait\nsleep 300\n")
        entry = self.add("sh", script, memory="50MiB")
        self.worker("--memory", "500MiB", "--grace", 0.3)
        log = self.queue_folder / "runs" / str(entry) / "1" / "log"
        self.eventually(lambda: log.exists() and "here" in log.read_text(), "it never started")
        self.eventually(lambda: len(self.marked()) >= 3, "it started nothing")
        self.assertIn("asked to end", self.queue("cancel", entry))
        self.queue("wait", entry, code=5)
        self.assertEqual(self.show(entry)["state"], "canceled")
        self.eventually(lambda: not self.marked(), "something is left")

    def test_a_worker_ends_what_it_took_up_by_its_own_grace(self):
        script = self.folder / "stubborn.sh"
        script.write_text("trap '' TERM\necho here\nwhile true; do sleep 1; done\n")
        entry = self.add("sh", script, memory="50MiB")
        first = self.worker("--memory", "500MiB", "--grace", 3600)
        log = self.queue_folder / "runs" / str(entry) / "1" / "log"
        self.eventually(lambda: log.exists() and "here" in log.read_text(), "it never started")
        first.kill()
        first.wait()
        self.worker("--memory", "500MiB", "--grace", 0.3)
        self.eventually(lambda: json.loads(self.queue("list", "--json"))["worker"], "no worker came")
        self.eventually((log.parent / "grace").exists, "it was not taken up")
        self.queue("cancel", entry)
        self.eventually(lambda: self.show(entry)["state"] == "canceled", "it ended by another's grace")

    def test_what_a_command_leaves_behind_ends_with_it(self):
        entry = self.add("sh", "-c", "setsid sleep 300 & sleep 0.2", memory="50MiB")
        self.run_all("--memory", "500MiB")
        shown = self.show(entry)
        self.assertEqual(shown["state"], "done")
        self.assertIn("1 processes that it left were ended", shown["attempts"][0]["outcome"])
        self.assertEqual(self.marked(), [])

    def test_a_lost_supervisor_takes_its_run_with_it_and_the_run_starts_again(self):
        entry = self.add("sh", "-c", "echo started; if [ ! -e mark ]; then touch mark; (setsid sleep 300 &) ; sleep 300; fi",
                         memory="50MiB")
        worker = self.worker("--until-done", "--memory", "500MiB")
        self.eventually((self.folder / "mark").exists, "it never started")
        os.kill(self.supervisor(entry), signal.SIGKILL)
        worker.communicate(timeout=SECONDS)
        shown = self.show(entry)
        self.assertEqual((shown["state"], len(shown["attempts"])), ("done", 2))
        self.assertIn("supervisor was lost", shown["attempts"][0]["outcome"])
        self.assertEqual(self.marked(), [])

    def test_a_command_that_stops_its_supervisor_can_be_canceled(self):
        entry = self.add("sh", "-c", "kill -STOP $PPID; echo stopped; sleep 1000", memory="50MiB")
        self.worker("--memory", "500MiB", "--grace", 0.3)
        log = self.queue_folder / "runs" / str(entry) / "1" / "log"
        self.eventually(lambda: log.exists() and "stopped" in log.read_text(), "it never started")
        self.queue("cancel", entry)
        self.eventually(lambda: self.show(entry)["state"] == "canceled", "it runs on")
        self.eventually(lambda: not self.marked(), "something is left")

    def test_what_detached_with_another_environment_ends_with_its_lost_supervisor(self):
        script = self.folder / "detaches.sh"
        script.write_text("if [ ! -e pid ]; then env -i setsid sh -c 'echo $$ > pid; exec sleep 300' & sleep 300; fi\n")
        entry = self.add("sh", script, memory="50MiB")
        worker = self.worker("--until-done", "--memory", "500MiB")
        pid_file, seen = self.folder / "pid", self.queue_folder / "runs" / str(entry) / "1" / "processes"
        self.eventually(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"), "it never started")
        pid = pid_file.read_text().strip()
        self.eventually(lambda: seen.exists() and f"{pid} " in seen.read_text(), "it was not seen")
        os.kill(self.supervisor(entry), signal.SIGKILL)
        worker.communicate(timeout=SECONDS)
        self.assertEqual((self.show(entry)["state"], len(self.show(entry)["attempts"])), ("done", 2))
        with contextlib.suppress(FileNotFoundError):
            self.assertIn(") Z ", Path("/proc", pid, "stat").read_text(), "it runs beside the next attempt")

    def test_a_run_whose_record_is_removed_has_failed_and_keeps_nobody_out(self):
        removes = self.add("sh", "-c", "rm -rf $PLIMSOLL_QUEUE_DIR/runs/*; sleep 0.2", memory="20MiB", retries=0)
        waits = self.add("true", memory="20MiB")
        self.run_all("--threads", "1", "--memory", "100MiB")
        self.assertEqual((self.show(removes)["state"], self.show(waits)["state"]), ("failed", "done"))
        self.assertIn("its folder was removed while it ran", self.show(removes)["attempts"][-1]["outcome"])

    def test_a_log_is_a_file_of_its_own_whatever_lies_under_its_name(self):
        kept = self.folder / "kept"
        kept.write_text("mine\n")
        entries = [self.add("echo", "hello", memory="20MiB", retries=0) for _ in range(2)]
        logs = [self.queue_folder / "runs" / str(one) / "1/log" for one in entries]
        for log in logs:
            log.parent.mkdir(parents=True)
        logs[0].symlink_to(kept)
        os.mkfifo(logs[1])
        self.run_all("--memory", "100MiB")
        self.assertEqual([self.show(one)["state"] for one in entries], ["done", "done"])
        self.assertEqual(kept.read_text(), "mine\n")
        self.assertEqual([log.read_text() for log in logs], ["hello\n", "hello\n"])

    def test_a_worker_waits_while_its_disk_is_full(self):
        entry = self.add("sh", "-c", "echo x >> ran", memory="50MiB", after=self.add("true", memory="50MiB"))
        self.queue("pause", entry - 1)
        worker = self.worker("--memory", "100MiB", "--until-done")
        worker.stdout.readline()
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))  # no file of its takes more
        self.queue("resume", entry - 1)
        said = worker.stdout.readline()
        self.assertRegex(said, "queue.db: .* retrying")
        self.assertEqual(self.show(entry - 1)["attempts"], [])
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        text, _ = worker.communicate(timeout=SECONDS)
        self.assertEqual(worker.returncode, 0, text)
        self.assertIn("the queue continues", text)
        self.assertEqual([(self.show(one)["state"], len(self.show(one)["attempts"])) for one in (entry - 1, entry)], [("done", 1)] * 2)
        self.assertEqual((self.folder / "ran").read_text(), "x\n")

    def test_a_worker_that_is_to_end_gives_up_when_its_disk_stays_full(self):
        entry = self.add("true", memory="50MiB")
        self.queue("pause", entry)
        follower = self.add("true", memory="50MiB", after=entry)
        worker = self.worker("--memory", "100MiB", "--until-done", "--patience", "1s")
        worker.stdout.readline()
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        self.queue("resume", entry)
        text, _ = worker.communicate(timeout=SECONDS)
        self.assertEqual(worker.returncode, 5, text)
        self.assertEqual([self.show(one)["state"] for one in (entry, follower)], ["waiting"] * 2)
        self.assertRegex(text, "queue.db: .* retrying did not help for .* \\(--patience\\)")

    def test_a_run_whose_log_cannot_be_made_has_not_begun(self):
        entry = self.add("sh", "-c", "echo x >> ran", memory="50MiB")
        shim = {"LD_PRELOAD": str(PLIMSOLL.parent / "tests/libfailing_files.so"), "FAIL_CALL": "open", "FAIL_PATH": f"runs/{entry}/1/log",
                "FAIL_ERRNO": str(errno.ENOSPC)}
        own, self.environment = self.environment, {**self.environment, **shim}
        worker = self.worker("--memory", "100MiB")
        self.environment = own
        said = self.eventually(lambda: re.search(".*cannot begin.*", worker.stdout.readline()), "it says nothing")
        self.assertIn("is its disk full", said[0])
        self.assertEqual(self.show(entry)["state"], "running")
        worker.kill()
        worker.communicate()
        self.environment = {**self.environment, **shim}
        worker = self.worker("--memory", "100MiB", "--until-done", "--patience", "1s")
        self.environment = own
        text, _ = worker.communicate(timeout=SECONDS)
        self.assertEqual(worker.returncode, 5, text)
        self.assertRegex(text, "cannot begin.*retrying did not help")
        self.run_all("--memory", "100MiB")
        self.assertEqual([self.show(entry)["state"], len(self.show(entry)["attempts"])], ["done", 1])
        self.assertEqual((self.folder / "ran").read_text(), "x\n")

    def test_a_clock_that_is_set_back_all_the_time_changes_nothing(self):
        entries = [self.add("sh", "-c", f"echo {i} >> ran; sleep 0.3", memory="40MiB") for i in range(3)]
        shim = PLIMSOLL.parent / "tests/libfalling_clock.so"
        self.assertTrue(shim.exists(), "build the target falling_clock")
        true_clock = self.environment
        self.environment = {**true_clock, "LD_PRELOAD": str(shim)}
        self.run_all("--memory", "100MiB", "--threads", 4)
        self.environment = true_clock
        self.assertEqual(sorted((self.folder / "ran").read_text().split()), ["0", "1", "2"])
        for entry in entries:
            (attempt,) = self.show(entry)["attempts"]
            self.assertEqual(self.show(entry)["state"], "done")
            self.assertGreater(attempt["ended"] - attempt["started"], 0.25)
            self.assertLess(attempt["ended"] - attempt["started"], 60)

    def test_after_all_processes_ended_with_the_machine_the_next_worker_goes_on(self):
        entries = [self.add("sh", "-c", f"if [ ! -e m{i} ]; then touch m{i}; sleep 300; fi", memory="50MiB") for i in range(3)]
        worker = self.worker("--memory", "110MiB")
        self.eventually(lambda: len(list(self.folder.glob("m[0-9]"))) == 2, "two never started")
        supervisors = [self.supervisor(one) for one in entries if self.show(one)["state"] == "running"]
        for pid in (worker.pid, *supervisors, *self.marked()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # went with its supervisor
                pass
        worker.wait()
        (self.folder / "m2").touch()
        self.run_all("--memory", "110MiB")
        self.assertTrue(all(self.show(one)["state"] == "done" for one in entries))

    def test_workers_killed_at_random_lose_nothing_and_run_nothing_twice(self):
        chance = random.Random(19)
        entries = [self.add("sh", "-c", f"echo {i} >> ran; sleep 0.{chance.randint(1, 5)}; echo {i} >> over", memory="30MiB")
                   for i in range(24)]
        for _ in range(KILLS):
            worker = self.worker("--memory", "100MiB", "--threads", 4)
            time.sleep(chance.uniform(0.05, 0.8))
            worker.kill()
            worker.communicate()
        self.run_all("--memory", "100MiB", "--threads", 4)
        everything = sorted(map(str, range(24)))
        self.assertEqual(sorted((self.folder / "ran").read_text().split()), everything)
        self.assertEqual(sorted((self.folder / "over").read_text().split()), everything)
        for entry in entries:
            shown = self.show(entry)
            self.assertEqual((shown["state"], len(shown["attempts"])), ("done", 1))
        self.assertLessEqual(self.peaks_at_once(entries)[0], 100 * MIB)
        self.assertEqual(self.marked(), [])


if __name__ == "__main__":
    unittest.main(testLoader=SuiteLoader("queue_test"))
