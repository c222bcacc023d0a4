"""Where the rates of predicted times come from: `plimsoll calibrate`, else a probe, else assumed ones.

Usage: rates_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import json
import os
import shutil
import sys
import tempfile
import time
import unittest
from pathlib import Path

import train_test
from train_test import recipe, run


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

    def test_an_unknown_machine_is_probed_once_in_a_process_of_its_own_and_no_byte_of_a_variant_depends_on_it(self):
        cache = self.folder / "cache"
        environment = {name: value for name, value in os.environ.items() if name != "PLIMSOLL_NO_PROBE"}
        environment["PLIMSOLL_CACHE_DIR"] = str(cache)
        # Rates may choose between variants; this recipe leaves none to choose.
        path = recipe(self.folder, memory={"recompute": "none", "offload": "none", "loss_chunk": 48})
        plan = lambda *words: run("plan", path, "--json", *words, env=environment)
        self.assertEqual(plan("--no-probe").stderr, "")
        self.assertEqual(run("plan", path, "--json", env={**environment, "PLIMSOLL_NO_PROBE": "1"}).stderr, "")
        self.assertFalse(cache.exists())
        first = json.loads(plan("--no-probe").stdout)
        for _ in range(60):  # a busy machine is not measured; it will not be busy all the time
            done = plan()
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


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train_test.PLIMSOLL = Path(sys.argv.pop(1)).resolve()
    os.environ.pop("PLIMSOLL_SET", None)
    unittest.main()
