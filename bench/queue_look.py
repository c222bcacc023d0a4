#!/usr/bin/env python3
"""What a worker takes for its looks at a queue of 200 runs, and `queue add`: processor seconds and peak, builds by turns.

    python3 bench/queue_look.py --plimsoll build/plimsoll [--beside OTHER] [--runs 200] [--rounds 3] [--out FILE.json]

Two of the runs go on, the others wait. An idle look finds nothing changed, and there are five a second. A look at a change reads all runs
again and packs them: another program has added one. Seconds are of the processor (a busy machine changes little), the least of the rounds;
peaks are VmHWM, the highest. Standard library only.
"""
import argparse
import json
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHANGES, IDLE_SECONDS, LOOKS_A_SECOND = 20, 5, 5


def cpu_seconds(pid):
    """Of a process alone: what the scheduler gave it."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


class Queue:
    def __init__(self, plimsoll, folder):
        self.plimsoll, self.folder = plimsoll, folder
        self.environment = {**os.environ, "PLIMSOLL_QUEUE_DIR": f"{folder}/queue", "PLIMSOLL_MACHINE_DIR": f"{folder}/machine",
                            "PLIMSOLL_NVML": "libno-such-library.so.1", "CUDA_VISIBLE_DEVICES": ""}

    def add(self):
        """Seconds of the processor and peak bytes of a command."""
        process = subprocess.Popen([self.plimsoll, "queue", "add", "--memory", "20MiB", "--", "sleep", "1000"], env=self.environment, cwd=self.folder,
                                   stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return used.ru_utime + used.ru_stime, used.ru_maxrss << 10

    def measure(self, runs):
        added = [self.add() for _ in range(runs)]
        worker = subprocess.Popen([self.plimsoll, "queue", "run", "--memory", "40MiB", "--threads", "2", "--grace", "1"], env=self.environment,
                                  cwd=self.folder, stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 120
            while len(list(Path(self.folder, "queue/runs").glob("*/1/lock"))) < 2:
                assert worker.poll() is None and time.monotonic() < deadline, "the worker starts nothing"
                time.sleep(0.1)
            time.sleep(3)
            before = cpu_seconds(worker.pid)
            time.sleep(IDLE_SECONDS)
            idle = (cpu_seconds(worker.pid) - before) / IDLE_SECONDS
            before = cpu_seconds(worker.pid)
            for _ in range(CHANGES):
                self.add()
                time.sleep(0.5)  # each is seen by itself
            changes = (cpu_seconds(worker.pid) - before) / CHANGES - 0.5 * idle
            peak = int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{worker.pid}/status").read_text())[1]) << 10
        finally:
            for words in (["pause"], ["cancel", "1", "2"], ["wait", "1", "2"]):
                subprocess.run([self.plimsoll, "queue", *words], env=self.environment, cwd=self.folder, capture_output=True, timeout=120)
            worker.kill()
            worker.wait()
        return {"idle_look_s": idle / LOOKS_A_SECOND, "look_at_a_change_s": changes, "worker_peak_bytes": peak,
                "add_s": sum(seconds for seconds, _ in added) / runs, "add_peak_bytes": max(peak for _, peak in added)}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--plimsoll", type=Path, default=ROOT / "build/plimsoll")
    arguments.add_argument("--beside", type=Path)
    arguments.add_argument("--runs", type=int, default=200)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--out", type=Path)
    options = arguments.parse_args()
    builds = {"this": options.plimsoll.resolve(), **({"beside": options.beside.resolve()} if options.beside else {})}
    found = {name: [] for name in builds}
    for round_number in range(options.rounds):
        for name in (list(builds), list(builds)[::-1])[round_number % 2]:
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(Queue(str(builds[name]), folder).measure(options.runs))
            print(name, json.dumps(found[name][-1]), flush=True)
    result = {"runs": options.runs, "rounds": options.rounds, "changes": CHANGES}
    for name, rounds in found.items():
        result[name] = {key: (max if key.endswith("bytes") else min)(one[key] for one in rounds) for key in rounds[0]}
    text = json.dumps(result, indent=1)
    if options.out:
        options.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
