"""What the tests of the queue share: a queue and a machine's folder of their own, entries, workers, and their end."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from command_run import PLIMSOLL, ROOT, CommandTest, output

MIB = 1 << 20
PYTHON = sys.executable
SECONDS = 900  # of anything that is waited for, however busy the machine is


class QueueTest(CommandTest):
    needs_run = False

    def setUp(self):
        super().setUp()
        self.queue_folder = self.folder / "queue"
        self.environment = {**os.environ, "PLIMSOLL_QUEUE_DIR": str(self.queue_folder),
                            "PLIMSOLL_MACHINE_DIR": str(self.folder / "machine"),
                            "PLIMSOLL_NVML": "libno-such-library.so.1"}  # whatever cards this machine has
        self.environment.pop("CUDA_VISIBLE_DEVICES", None)  # a worker's own, not this test's
        self.workers = []
        self.addCleanup(self.end_all)

    def end_all(self):
        """Workers, supervisors and runs; none is left that writes into the folder while it is removed."""
        for worker in self.workers:
            worker.kill()
            worker.wait()
        end = time.monotonic() + SECONDS
        while (left := self.with_variable(f"PLIMSOLL_MACHINE_DIR={self.folder}/")) and time.monotonic() < end:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        self.assertFalse(left, "processes of the queue that do not end")

    def queue(self, *words, code=0):
        return output("queue", *words, code=code, env=self.environment, cwd=self.folder)

    def add(self, *command, **options):
        """The id of a new entry."""
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
        return json.loads(self.queue("add", "--json", *words, "--", *command))["id"]

    def show(self, entry):
        return json.loads(self.queue("show", entry, "--json"))

    def recipe(self, name, steps, effective=8, length=48, packed=False):
        """A file of a small training whose output is the folder `name`."""
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps({
            "model": str(ROOT / "demo/model"), "init": "random", "method": {"type": "full"}, "precision": "fp32",
            "data": {"train": str(ROOT / "demo/data/facts/train.parquet"), "max_length": length, "packing": packed},
            "batch": {"effective": effective}, "optimizer": {"lr": 3e-3}, "schedule": {"max_steps": steps, "warmup": 1},
            "save": {"every": 50}, "log": {"every": 1}, "output": str(self.folder / name)}))
        return path

    def worker(self, *words):
        worker = subprocess.Popen([str(PLIMSOLL), "queue", "run", *map(str, words)], env=self.environment,
                                  cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.workers.append(worker)
        return worker

    def run_all(self, *words):
        worker = self.worker("--until-done", *words)
        text, _ = worker.communicate(timeout=SECONDS)
        self.assertEqual(worker.returncode, 0, text)
        return text

    def eventually(self, condition, what):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            found = condition()
            if found:
                return found
            time.sleep(0.05)
        self.fail(what)

    @staticmethod
    def has_open(process, name):
        """Whether the process has a file of this name open."""
        try:
            return any(os.readlink(one).endswith("/" + name) for one in Path(f"/proc/{process.pid}/fd").iterdir())
        except OSError:  # closed meanwhile
            return False

    def marked(self):
        """Processes that belong to this queue's runs, whoever their parent is."""
        return self.with_variable(f"PLIMSOLL_QUEUE_RUN={self.queue_folder}/")

    @staticmethod
    def with_variable(text):
        """Other processes whose environment has a variable that begins so."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environment = (folder / "environ").read_bytes()
            except OSError:
                continue
            if any(one.startswith(text.encode()) for one in environment.split(b"\0")) and int(folder.name) != os.getpid():
                found.append(int(folder.name))
        return found

    def supervisor(self, entry, attempt=1):
        lock = self.queue_folder / "runs" / str(entry) / str(attempt) / "lock"
        self.eventually(lambda: lock.exists() and lock.read_text().endswith("\n"), f"{lock} never came")
        return int(lock.read_text())

    def peaks_at_once(self, entries):
        """The highest sums of (reserved, measured) of attempts that overlap in time."""
        spans = [one for entry in entries for one in self.show(entry)["attempts"]]
        sums = []
        for at in spans:
            together = [one for one in spans if one["started"] <= at["started"] < one["ended"]]
            sums.append((sum(one["host_bytes"] for one in together),
                         sum(one["peak_host_bytes"] or 0 for one in together)))
        return max(one[0] for one in sums), max(one[1] for one in sums)
