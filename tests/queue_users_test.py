#!/usr/bin/env python3
"""Queues of two users on one machine: python3 tests/queue_users_test.py PLIMSOLL. It takes root to be both; skipped elsewhere."""
import json
import os
import signal
import subprocess
import unittest
from pathlib import Path

from command_run import main, PLIMSOLL
from queue_case import SECONDS, QueueTest

USERS = (64_001, 64_002)  # ids, for which the system needs no names


def may_become(user):
    """Whether this process may, and the program can be run there: not where it lies in a home that is closed to others."""
    if os.geteuid() != 0:
        return False
    return subprocess.run([str(PLIMSOLL), "--version"], user=user, group=user, extra_groups=[], cwd="/", capture_output=True).returncode == 0


class TwoUsers(QueueTest):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("two users take root")
        if not all(map(may_become, USERS)):
            self.skipTest(f"other users may not run {PLIMSOLL}")
        self.folder.chmod(0o1777)
        self.machine = self.folder / "machine"
        for user in USERS:
            (self.folder / str(user)).mkdir(mode=0o755)
            os.chown(self.folder / str(user), user, user)

    def start(self, user, *words, umask=-1):
        environment = {**self.environment, "PLIMSOLL_QUEUE_DIR": str(self.folder / str(user) / "queue")}
        process = subprocess.Popen(list(map(str, words)), user=user, group=user, extra_groups=[], umask=umask, env=environment, cwd=self.folder / str(user),
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.workers.append(process)
        return process

    def told(self, user, *words, code=0, **options):
        process = self.start(user, *words, **options)
        text, _ = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, code, text)
        return text

    def queue_of(self, user, *words, **options):
        return self.told(user, PLIMSOLL, "queue", *words, **options)

    def add_of(self, user, *command, **options):
        return json.loads(self.queue_of(user, "add", "--json", "--memory", "20MiB", "--", *command, **options))["id"]

    def show_of(self, user, entry):
        return json.loads(self.queue_of(user, "show", entry, "--json"))

    def run_all_of(self, user):
        return self.queue_of(user, "run", "--until-done", "--memory", "500MiB", umask=0o077)

    def test_results_have_the_mask_of_add_and_others_read_them_where_that_says_so(self):
        mine, yours = USERS
        for umask in (0o022, 0o027):
            self.add_of(mine, "sh", "-c", f"echo result > made-{umask:o}", umask=umask)
        self.run_all_of(mine)
        self.assertEqual(self.told(yours, "cat", self.folder / str(mine) / "made-22"), "result\n")
        self.assertIn("Permission denied", self.told(yours, "cat", self.folder / str(mine) / "made-27", code=1))
        self.assertIn("Permission denied", self.told(yours, "ls", self.folder / str(mine) / "queue", code=2))

    def test_a_promise_counts_for_processes_of_its_files_owner_alone(self):
        mine, yours = USERS
        self.run_all_of(mine)  # makes the machine's folder
        other = self.start(mine, "sleep", "1000")

        def promise(name, pid, owner):
            born = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
            path = self.machine / f"{owner}-{name}.json"
            path.write_text(json.dumps([{"supervisor": pid, "born": born, "host_bytes": 1 << 50, "device_bytes": 0, "devices": []}]))
            os.chown(path, owner, owner)
            return path
        promise("of-the-system", 1, mine)
        promise("of-another", other.pid, yours)
        entry = self.add_of(yours, "true")
        self.run_all_of(yours)
        self.assertEqual(self.show_of(yours, entry)["state"], "done")
        own = promise("of-its-own", other.pid, mine)
        entry = self.add_of(yours, "true")
        worker = self.start(yours, PLIMSOLL, "queue", "run", "--until-done", "--memory", "500MiB")
        self.eventually(lambda: self.show_of(yours, entry)["note"], "nothing is said of what waits")
        self.assertIn(f"user {mine} has promised 1024 TiB to runs of other queues", self.show_of(yours, entry)["note"])
        own.unlink()
        other.kill()
        other.communicate()
        worker.communicate(timeout=SECONDS)
        self.assertEqual(self.show_of(yours, entry)["state"], "done")

    def test_the_user_who_holds_the_lock_is_named(self):
        mine, yours = USERS
        self.run_all_of(mine)
        entry = self.add_of(yours, "true")
        holder = self.start(mine, "flock", self.machine / "lock", "sh", "-c", "touch held; exec sleep 1000")
        self.eventually((self.folder / str(mine) / "held").exists, "the lock was not taken")
        worker = self.start(yours, PLIMSOLL, "queue", "run", "--until-done", "--memory", "500MiB")
        self.eventually(lambda: self.show_of(yours, entry)["note"], "nothing is said of what waits")
        self.assertIn(f"/lock is held by user {mine} (process ", self.show_of(yours, entry)["note"])
        os.killpg(holder.pid, signal.SIGKILL)
        holder.communicate()
        text, _ = worker.communicate(timeout=SECONDS)
        self.assertIn(f"nothing starts for now: {self.machine}/lock is held by user {mine}", " ".join(text.split()))
        self.assertEqual(self.show_of(yours, entry)["state"], "done")

    def test_a_lock_that_another_user_keeps_to_themselves_stops_nobody(self):
        mine, yours = USERS
        self.machine.mkdir()
        self.machine.chmod(0o1777)
        lock = self.machine / "lock"
        for mode in (0o644, 0o600):
            lock.touch()
            os.chown(lock, mine, mine)
            lock.chmod(mode)
            entry = self.add_of(yours, "true")
            worker = self.start(yours, PLIMSOLL, "queue", "run", "--until-done", "--memory", "500MiB")
            if mode == 0o600:
                self.eventually(lambda: self.show_of(yours, entry)["note"], "nothing is said of what waits")
                self.assertIn(f"/lock belongs to user {mine} and cannot be opened", self.show_of(yours, entry)["note"])
                lock.chmod(0o644)  # a minute later it would go on without it
            text, _ = worker.communicate(timeout=SECONDS)
            self.assertEqual((worker.returncode, self.show_of(yours, entry)["state"]), (0, "done"), text)
            self.assertEqual("so that memory may be given out twice" in " ".join(text.split()), mode == 0o600, text)

    def test_a_machines_folder_of_another_user_is_named_and_works(self):
        mine, yours = USERS
        self.machine.mkdir()
        self.machine.chmod(0o1777)
        os.chown(self.machine, mine, mine)
        entry = self.add_of(yours, "true")
        self.assertIn(f"belongs to user {mine}, who can put away what other queues have promised", " ".join(self.run_all_of(yours).split()))
        self.assertEqual(self.show_of(yours, entry)["state"], "done")
        self.assertNotIn("belongs to", self.run_all_of(mine))

    def test_a_queue_of_another_user_is_refused(self):
        mine, yours = USERS
        self.queue_of(mine, "list")
        (self.folder / str(yours)).rmdir()
        (self.folder / str(yours)).symlink_to(self.folder / str(mine))
        self.assertIn("belongs to another user; a queue is its owner's alone", self.queue_of(yours, "list", code=2))


if __name__ == "__main__":
    main()
