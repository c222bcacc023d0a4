"""Where the rates of predicted times come from: `plimsoll calibrate`, else a probe, else assumed ones.

Usage: rates_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import train_test
from train_test import recipe, run


def before_all_others():
    """A process that waits for no other one, so that this machine is not busy for it; where that is not allowed it is as others are."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        pass


class RatesTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def test_calibrated_rates_are_used_and_damaged_ones_are_reported(self):
        environment = {**os.environ, "PLIMSOLL_CACHE_DIR": str(self.folder / "cache")}
        path = recipe(self.folder, threads=1)
        predicted = lambda: json.loads(run("plan", path, "--json", env=environment).stdout)["predicted"]
        self.assertFalse(predicted()["calibrated"])
        done = run("calibrate", "--quick", "--threads", "1", "--even-if-busy", env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(predicted()["calibrated"])
        (table,) = (self.folder / "cache").iterdir()
        table.write_bytes(table.read_bytes()[:1000])
        self.assertFalse(predicted()["calibrated"])
        self.assertIn("calibrate", run("plan", path, env=environment).stdout)

    def test_a_plan_that_uses_a_disk_says_whether_its_speed_is_guessed(self):
        environment = {**os.environ, "PLIMSOLL_CACHE_DIR": str(self.folder / "cache")}
        path = recipe(self.folder, threads=1)
        on_disk = ("--set", "memory.offload=[states]", "--disk", "1GiB", "--no-probe")
        said = lambda *words: run("plan", path, *words, env=environment).stdout
        is_measured = lambda *words: json.loads(said(*words, "--json"))["predicted"]["disk_measured"]
        line = "disk speed guessed (reads 1.5 GB/s, writes 1.0): plimsoll calibrate"
        card = ("--gpu", "RTX 3060")
        host_bytes = json.loads(said(*on_disk, *card, "--json"))["host"]["planned_peak_bytes"]
        card += ("--host-memory", f"{host_bytes - (4 << 20)}B")  # 7 MiB of states have no room there
        for where in ((), card):
            self.assertIn(line, said(*on_disk, *where))
            self.assertFalse(is_measured(*on_disk, *where))
            self.assertNotIn("disk speed", said(*where))
        done = run("calibrate", "--quick", "--threads", "1", "--even-if-busy", "--export", str(self.folder / "here.json"), env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("disk speed", said(*on_disk))
        self.assertTrue(is_measured(*on_disk))
        # Of the machine of a card that is elsewhere nothing is known, but by its own file.
        self.assertIn(line, said(*on_disk, *card))
        self.assertNotIn("disk speed", said(*on_disk, *card, "--machine", str(self.folder / "here.json")))

    def test_an_unknown_machine_is_probed_once_in_a_process_of_its_own_and_no_byte_of_a_variant_depends_on_it(self):
        cache = self.folder / "cache"
        environment = {name: value for name, value in os.environ.items() if name != "PLIMSOLL_NO_PROBE"}
        environment["PLIMSOLL_CACHE_DIR"] = str(cache)
        # Rates may choose between variants; this recipe leaves none to choose.
        path = recipe(self.folder, memory={"recompute": "none", "offload": "none", "loss_chunk": 48})
        plan = lambda *words, **options: run("plan", path, "--json", *words, env=environment, **options)
        self.assertEqual(plan("--no-probe").stderr, "")
        self.assertEqual(run("plan", path, "--json", env={**environment, "PLIMSOLL_NO_PROBE": "1"}).stderr, "")
        self.assertFalse(cache.exists())
        first = json.loads(plan("--no-probe").stdout)
        for _ in range(20):  # a busy machine is not measured; it will not be busy all the time
            done = plan(preexec_fn=before_all_others)
            if cache.exists():
                break
            time.sleep(1)
        else:
            self.skipTest("this machine is too busy to be measured")
        (table,) = cache.iterdir()
        self.assertTrue(table.name.endswith("-probe.json"))
        probed = json.loads(done.stdout)
        self.assertNotEqual(first["predicted"]["seconds_per_step"], probed["predicted"]["seconds_per_step"])
        for bytes_of in ("variant", "device", "host"):
            self.assertEqual(first[bytes_of], probed[bytes_of])
        before = table.stat()
        plan()
        self.assertEqual(before, table.stat())

    def test_within_a_budget_that_is_less_than_the_probe_takes_nothing_is_measured(self):
        environment = {name: value for name, value in os.environ.items() if name != "PLIMSOLL_NO_PROBE"}
        environment["PLIMSOLL_CACHE_DIR"] = str(self.folder / "cache")
        path = recipe(self.folder)
        for command in ("plan", "train"):
            done = run(command, path, "--set", "schedule.max_steps=1", "--memory", "191MiB", env=environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("measuring them takes 192 MiB, more than the budget of 191 MiB", done.stderr)
            self.assertFalse((self.folder / "cache").exists())

    @unittest.skipIf("PLIMSOLL_SANITIZED" in os.environ, "under sanitizers it takes more memory")
    def test_the_probe_takes_no_more_than_is_said(self):
        code = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], capture_output=True);"
                "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        words = [str(train_test.PLIMSOLL), "calibrate", "--probe", "--threads", "1"]
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True,
                              env={**os.environ, "PLIMSOLL_CACHE_DIR": str(self.folder / "cache")})
        self.assertGreater(int(done.stdout), 128 << 10)
        self.assertLess(int(done.stdout), 192 << 10)

    def test_what_is_planned_for_another_machine_is_not_probed_here(self):
        cache = self.folder / "cache"
        environment = {name: value for name, value in os.environ.items() if name != "PLIMSOLL_NO_PROBE"}
        environment["PLIMSOLL_CACHE_DIR"] = str(cache)
        machine = self.folder / "machine.json"
        rates = {"matmul_f32": 1e11, "matmul_bf16": 1e11, "bandwidth": 1e10, "op_overhead": 0, "host_copy": 8e9, "disk_read": 1e9,
                 "disk_write": 1e9, "page_touch": 2e9, "matmuls": [], "ops": []}
        machine.write_text(json.dumps({"format": 1, "rates": rates, "machine": {
            "cpu": "a server", "isa": "avx2", "threads": 1, "kernels": "own-avx2-f32 own-avx2-bf16 2"}}))
        path = recipe(self.folder, threads=1)
        elsewhere = [("--machine", machine), ("--threads", 512), ("--device", "card", "--host-memory", "1GiB"), ("--gpu", "H100")]
        isa = json.loads(run("plan", path, "--json", "--no-probe", env=environment).stdout)["variant"]["isa"]
        if isa != "avx2":
            elsewhere.append(("--max-isa", "avx2"))
        path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "threads"}))
        for words in elsewhere:
            budget = () if "--gpu" in words else ("--memory", "1GiB")
            done = run("plan", path, *budget, *words, env=environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("rates of this machine", done.stderr)
            self.assertFalse(cache.exists(), words)

    def test_what_a_busy_machine_measures_is_said_and_not_stored(self):
        """Another program on the only CPU that it may use takes half of its time."""
        cpu = {min(os.sched_getaffinity(0))}
        if not Path("/proc/self/schedstat").exists():
            self.skipTest("this kernel does not count who waits")
        spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=lambda: os.sched_setaffinity(0, cpu))
        self.addCleanup(spinning.wait)
        self.addCleanup(spinning.kill)
        cache = self.folder / "cache"
        environment = {**os.environ, "PLIMSOLL_CACHE_DIR": str(cache)}
        done = run("calibrate", "--probe", "--threads", "1", env=environment, preexec_fn=lambda: os.sched_setaffinity(0, cpu))
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("nothing was stored", done.stderr)
        self.assertEqual([path for path in cache.rglob("*.json")], [])
        # Minutes of measuring look first.
        done = run("calibrate", "--threads", "1", env=environment, preexec_fn=lambda: os.sched_setaffinity(0, cpu))
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("nothing was measured", done.stderr)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train_test.PLIMSOLL = Path(sys.argv.pop(1)).resolve()
    os.environ.pop("PLIMSOLL_SET", None)
    unittest.main()
