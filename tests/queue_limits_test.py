#!/usr/bin/env python3
"""Commands within their reservation are left alone, those beyond it are ended: python3 tests/queue_limits_test.py PLIMSOLL [--within N] [--beyond N]

N commands of four processes that map the same 200 MiB again and again, in 300 MiB: the queue ends none. N commands that take more than they
reserved, each in one of several ways: it ends all. Where the test is root, a user without control groups runs every second one: there the
queue's own looks decide. `make limits` is 200 and 100.
"""
import json
import os
import subprocess
import sys
import unittest

from command_run import PLIMSOLL, not_sanitized
from queue_case import MIB, SECONDS, QueueTest
from queue_users_test import USERS, may_become

COUNTS = {"--within": 6, "--beyond": 12}
for option in COUNTS:
    if option in sys.argv:
        COUNTS[option] = int(sys.argv.pop(sys.argv.index(option) + 1))
        sys.argv.remove(option)

SHARE = ("import mmap, os; f = os.memfd_create('x'); os.ftruncate(f, 200 << 20); [os.fork() for _ in 'ab']\n"
         "for _ in range(12): sum(mmap.mmap(f, 200 << 20)[::4096])\n"
         "try:\n  while True: os.wait()\nexcept ChildProcessError: pass")
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable  # every user's
STAY = "; __import__('time').sleep(1000)"
BEYOND = {  # 200 MiB and more, of 100
    "at once": "x = bytearray(200 << 20)" + STAY,
    "step by step": "x = [(bytearray(1 << 20), __import__('time').sleep(0.005)) for _ in range(250)]" + STAY,
    "two processes": "import os; os.fork(); x = bytearray(120 << 20)" + STAY,
    "shared memory": "import mmap, os; f = os.memfd_create('x'); os.ftruncate(f, 200 << 20); m = mmap.mmap(f, 200 << 20); os.fork(); sum(m[::4096])" + STAY,
    "a session of its own": "import os; os.fork() or os.setsid(); x = bytearray(120 << 20)" + STAY,
    # Others may not read the maps of such a process.
    "undumpable": "import ctypes, os; os.fork(); ctypes.CDLL(None).prctl(4, 0); x = bytearray(120 << 20)" + STAY,
}


class Limits(QueueTest):
    def run_batch(self, commands, memory):
        """The last attempt of each command, by queues of this user and of one who may make no control group."""
        whose = [{}]
        if may_become(USERS[0]):
            whose.append({"user": USERS[0], "group": USERS[0], "extra_groups": []})
        attempts = []
        for number, user in enumerate(whose):
            place = self.folder / f"queue of {user.get('user', 'this one')} in {memory}"
            place.mkdir()
            self.folder.chmod(0o1777)
            if user:
                os.chown(place, USERS[0], USERS[0])
            environment = {**self.environment, "PLIMSOLL_QUEUE_DIR": str(place / "queue")}

            def queue(*words):
                done = subprocess.run([str(PLIMSOLL), "queue", *map(str, words)], env=environment, cwd=place, capture_output=True, text=True, timeout=SECONDS + 30 * len(commands), **user)
                self.assertEqual(done.returncode, 0, done.stderr)
                return done.stdout
            ids = [json.loads(queue("add", "--json", "--memory", memory, "--retries", 0, "--", PYTHON, "-c", command))["id"]
                   for command in commands[number::len(whose)]]
            queue("run", "--until-done", "--memory", "1300MiB", "--threads", 4)
            groups = sum((place / "queue/runs" / str(one) / "1" / "group").exists() for one in ids)
            self.assertTrue(not user or groups == 0, "the other user has control groups")
            print(f"{len(ids)} commands in {memory}, {groups} of them in a control group", file=sys.stderr)
            attempts += [json.loads(queue("show", one, "--json"))["attempts"][-1] for one in ids]
        return attempts

    @not_sanitized("a command takes more memory")
    def test_processes_that_share_memory_within_their_reservation_are_left_alone(self):
        attempts = self.run_batch([SHARE] * COUNTS["--within"], "300MiB")
        ended = [one["outcome"] for one in attempts if one["outcome"] != "exit code 0"]
        self.assertEqual(ended, [])
        self.assertLess(max(one["peak_host_bytes"] for one in attempts), 300 * MIB)

    @not_sanitized("a command takes more memory")
    def test_every_command_beyond_its_reservation_is_ended(self):
        kinds = [list(BEYOND)[number // 2 % len(BEYOND)] for number in range(COUNTS["--beyond"])]  # each by each user
        attempts = self.run_batch([BEYOND[kind] for kind in kinds], "100MiB")
        self.assertEqual([one["outcome"] for one in attempts if "more than its reservation of 100 MiB" not in one["outcome"]], [])


if __name__ == "__main__":
    unittest.main()
