#!/usr/bin/env python3
"""An archive of Plimsoll that runs wherever it is unpacked: `make archive`.

    scripts/make_archive.py BUILD_FOLDER OUT_FOLDER [--folder-only]

Installs the build into OUT_FOLDER/plimsoll-<version>-linux-x86_64 and puts beside it every shared library that the
program and its libraries need, but for those that every Debian and Ubuntu system has (BASE), with the licences of
their packages. Then checks what it made: nothing is loaded from elsewhere, no newer symbols of the base libraries are
needed than Ubuntu 22.04 and Debian 12 have, and a copy in another place trains.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

BASE = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2",
        "libstdc++.so.6", "libgcc_s.so.1"}
RECIPE = pathlib.Path(__file__).resolve().parent.parent / "demo" / "recipes" / "full.yaml"
NEWEST = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13)}  # of Ubuntu 22.04, older than Debian 12's


def run(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, **options).stdout


def loaded(program):
    """{name: path} of the shared libraries that the loader finds for the program."""
    found = {}
    for line in run("ldd", program).splitlines():
        if "not found" in line:
            sys.exit(f"error: {program}: {line.strip()}")
        match = re.match(r"\s*(\S+) => (/.+) \(0x", line)
        if match:
            found[match[1]] = pathlib.Path(match[2])
    return found


def copyright_of(library):
    """The copyright file of the Debian package that holds the library; None for other files."""
    for path in (library, library.resolve(), pathlib.Path("/usr") / str(library).lstrip("/")):
        found = subprocess.run(["dpkg", "-S", str(path)], capture_output=True, text=True)
        if found.returncode == 0:
            package = found.stdout.split(":")[0]
            return package, pathlib.Path("/usr/share/doc") / package / "copyright"
    return None


def add_libraries(folder):
    libraries = folder / "lib" / "plimsoll"
    licences = folder / "share" / "doc" / "plimsoll" / "licences"
    licences.mkdir(parents=True, exist_ok=True)
    for name, path in sorted(loaded(folder / "bin" / "plimsoll").items()):
        if name in BASE or path.resolve().parent == libraries.resolve():
            continue
        shutil.copy(path.resolve(), libraries / name)
        known = copyright_of(path)
        if known and known[1].exists():
            shutil.copy(known[1], licences / f"{known[0]}.txt")


def add_arrow_licences(folder, arrow):
    for name in ("LICENSE.txt", "NOTICE.txt"):
        for found in arrow.parent.glob(f"pyarrow-*.dist-info/**/{name}"):
            shutil.copy(found, folder / "share" / "doc" / "plimsoll" / "licences" / f"arrow-{name}")


def try_elsewhere(folder):
    """A copy in another place, with a space in its name and an empty environment, plans and trains."""
    with tempfile.TemporaryDirectory() as place:
        copy = pathlib.Path(place) / "any where"
        shutil.copytree(folder, copy, symlinks=True)
        program = copy / "bin" / "plimsoll"
        for name, path in loaded(program).items():
            if name not in BASE and copy.resolve() not in path.resolve().parents:
                sys.exit(f"error: {name} is loaded from {path}, not from where the archive was moved to")
        for words in (["plan"], ["train", "--quiet", "--set", "schedule.max_steps=2"]):
            run(program, words[0], RECIPE, *words[1:], "--set", f"output={place}/run",
                env={"PLIMSOLL_CACHE_DIR": f"{place}/cache"})


def check(folder):
    """Lines that say what of the system the archive uses."""
    program = folder / "bin" / "plimsoll"
    for name, path in loaded(program).items():
        if name not in BASE and folder.resolve() not in path.resolve().parents:
            sys.exit(f"error: {name} is loaded from {path}, outside of the archive")
    newest = {}
    for binary in [program, *(folder / "lib" / "plimsoll").iterdir()]:
        for kind, version in re.findall(r"\b(GLIBC|GLIBCXX|CXXABI)_([0-9.]+)", run("objdump", "-T", binary)):
            number = tuple(int(part) for part in version.split("."))
            if number > NEWEST[kind]:
                sys.exit(f"error: {binary.name} needs {kind}_{version}, newer than {NEWEST[kind]}")
            newest[kind] = max(newest.get(kind, (0,)), number)
    try_elsewhere(folder)
    yield "needs   " + ", ".join(f"{kind} {'.'.join(map(str, number))}" for kind, number in sorted(newest.items()))
    yield "inside  " + ", ".join(sorted(path.name for path in (folder / "lib" / "plimsoll").iterdir()))
    yield "system  " + ", ".join(sorted(BASE))


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    build, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    version = run(build / "plimsoll", "--version").strip()
    folder = out / f"plimsoll-{version}-linux-x86_64"
    shutil.rmtree(folder, ignore_errors=True)
    run("cmake", "--install", build, "--prefix", folder)
    arrow = loaded(build / "plimsoll")
    add_libraries(folder)
    add_arrow_licences(folder, next(path for name, path in arrow.items() if name.startswith("libarrow")).parent)
    for line in check(folder):
        print(line)
    if "--folder-only" in sys.argv:
        print(f"folder  {folder}")
        return
    archive = folder.with_name(folder.name + ".tar.gz")
    with tarfile.open(f"{archive}.tmp", "w:gz", compresslevel=6) as tar:
        tar.add(folder, folder.name)
    pathlib.Path(f"{archive}.tmp").rename(archive)
    print(f"archive {archive} ({archive.stat().st_size / 2**20:.0f} MiB)")


if __name__ == "__main__":
    main()
