"""What the tests of whole commands share: the program, and a finished run to ask things of.

The program is the first argument of the test's script, else build/plimsoll.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLIMSOLL = ROOT / "build" / "plimsoll"
if len(sys.argv) > 1 and Path(sys.argv[1]).is_file():
    PLIMSOLL = Path(sys.argv.pop(1)).resolve()
os.environ["OMP_WAIT_POLICY"] = "passive"  # other tests run beside this one
os.environ.setdefault("COLUMNS", "100")  # of reports: what a test looks for is not broken up
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # device: auto is the CPU, also where a card is
_cache = tempfile.TemporaryDirectory(prefix="plimsoll-cache-")
os.environ["PLIMSOLL_CACHE_DIR"] = _cache.name  # a plan depends on measured rates: not on those of another test, nor of this machine's owner
SKIPPED = 77
SANITIZED = "PLIMSOLL_SANITIZED" in os.environ  # a build under the address and undefined-behaviour sanitizers


def not_sanitized(reason):
    """For tests that need what sanitizers take away: their memory, their time."""
    return unittest.skipIf(SANITIZED, f"under sanitizers: {reason}")


def main(testLoader: unittest.TestLoader = unittest.defaultTestLoader) -> None:
    """As unittest.main(); lists what this machine cannot run. Where that is all, ctest's exit code for a skipped test (SKIP_RETURN_CODE)."""
    result = unittest.main(exit=False, testLoader=testLoader).result
    for test, reason in result.skipped:
        print(f"SKIPPED {test.id()}: {reason}", flush=True)
    if not result.wasSuccessful() or result.testsRun == 0:
        sys.exit(1)
    sys.exit(SKIPPED if len(result.skipped) == result.testsRun else 0)


def built_library(target):
    """What the build makes of `target`, the script's next argument. Without it a test would wait for what never comes."""
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_file():
        named = f"{sys.argv[1]} is not there" if len(sys.argv) > 1 else f"lib{target}.so is not named"
        sys.exit(f"error: {Path(sys.argv[0]).name}: {named}: ninja -C build {target} makes it (build/tests/lib{target}.so)")
    return Path(sys.argv.pop(1)).resolve()


def run(*words, **options):
    return subprocess.run([str(PLIMSOLL), *map(str, words)], capture_output=True, text=True, timeout=600, **options)


def output(*words, code=0, **options):
    """Standard output, or of a command that must fail its standard error."""
    done = run(*words, **options)
    assert done.returncode == code, f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def finished_run(folder):
    """A run of a few steps, with evaluation data of its own."""
    recipe = {"model": str(ROOT / "demo/model"), "init": "random", "method": {"type": "full"}, "precision": "fp32",
              "data": {"train": str(ROOT / "demo/data/facts/train.parquet"), "max_length": 48, "eval": "2%"},
              "batch": {"effective": 8}, "optimizer": {"lr": 3e-3}, "schedule": {"max_steps": 40, "warmup": 1},
              "output": str(Path(folder) / "run")}
    path = Path(folder) / "recipe.json"
    path.write_text(json.dumps(recipe))
    output("train", path, "--quiet")
    return Path(folder) / "run"


def as_if_written_by_the_run(folder, name):
    """Lets a test put another file in the place of one that a run wrote: the list of those says no more what is in it."""
    manifest = folder / ".plimsoll/manifest.jsonl"
    entries = [json.loads(line) for line in manifest.read_text().splitlines()]
    kept = [entry for entry in entries if entry["name"] != name or "marks" not in entry]
    assert len(kept) < len(entries), name
    manifest.write_text("".join(json.dumps(entry) + "\n" for entry in kept))


def losses_of(folder):
    return [json.loads(line)["loss"] for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


def assert_curves_agree(test, curves, delta=1e-4):
    first, *others = curves
    for curve in others:
        for ours, whole in zip(curve, first, strict=True):
            test.assertAlmostEqual(ours, whole, delta=delta)


def assert_splits_agree(test, make, splits=({"micro": 1}, {"micro": 3}, {"micro": 8}), delta=1e-4):
    """However an effective batch is cut, the losses are the same. `make(name, batch=...)` is a recipe and its output."""
    curves = []
    for number, batch in enumerate(splits):
        recipe, folder = make(f"split_{number}", batch={"effective": 8, **batch})
        output("train", recipe, "--quiet")
        curves.append(losses_of(folder))
    assert_curves_agree(test, curves, delta)


def assert_same_bits_in_little_memory(test, make):
    """Recomputation, and states and gradients on disk, change no bit of the weights."""
    weights = []
    for name, memory in (("free", {}), ("tight", {"recompute": "block", "offload": ["states", "gradients"], "disk": "1GiB"})):
        recipe, folder = make(name, batch={"effective": 8, "micro": 2}, memory=memory)
        output("train", recipe, "--quiet")
        weights.append((Path(folder) / "model.safetensors").read_bytes())
    test.assertEqual(*weights)


class CommandTest(unittest.TestCase):
    """Each test has a folder, each class a run that nobody changes."""

    @classmethod
    def setUpClass(cls):
        runs = tempfile.TemporaryDirectory()
        cls.addClassCleanup(runs.cleanup)
        if cls.needs_run:
            cls.run_folder = finished_run(runs.name)

    needs_run = True

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
