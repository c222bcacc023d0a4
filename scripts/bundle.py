"""What an archive and a wheel share: the installed program with every shared library beside it that a plain system lacks."""
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

from older_symbols import ask_for_older

BASE = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2",
        "libstdc++.so.6", "libgcc_s.so.1"}
RECIPE = pathlib.Path(__file__).resolve().parent.parent / "demo" / "recipes" / "full.yaml"
FATBIN = bytes.fromhex("50ed55ba")  # what the images of a unit of kernels begin with
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)}  # of RHEL 9, older than Debian 12's and Ubuntu 22.04's


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
    """(name, copyright file) of the Debian package that holds the library; None for other files."""
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


def add_linked_licences(folder):
    """Of what is linked whole."""
    for package, name in (("libevent-dev", "libevent"), ("nettle-dev", "nettle"), ("libfmt-dev", "libfmt")):
        found = pathlib.Path("/usr/share/doc") / package / "copyright"
        if found.exists():
            shutil.copy(found, folder / "share" / "doc" / "plimsoll" / "licences" / f"{name}.txt")


def add_arrow_licences(folder, arrow):
    for name in ("LICENSE.txt", "NOTICE.txt"):
        for found in arrow.parent.glob(f"pyarrow-*.dist-info/**/{name}"):
            shutil.copy(found, folder / "share" / "doc" / "plimsoll" / "licences" / f"arrow-{name}")


def install(build, folder):
    """The build's installation in `folder`, with its libraries and their licences."""
    shutil.rmtree(folder, ignore_errors=True)
    run("cmake", "--install", build, "--prefix", folder)
    arrow = next(path for name, path in loaded(build / "plimsoll").items() if name.startswith("libarrow"))
    add_libraries(folder)
    add_arrow_licences(folder, arrow.parent)
    add_linked_licences(folder)
    for binary in binaries(folder):
        ask_for_older(binary)


def binaries(folder):
    return [folder / "bin" / "plimsoll", *sorted((folder / "lib" / "plimsoll").iterdir())]


def try_elsewhere(folder):
    """A copy in another place, with a space in its name and an empty environment, plans and trains."""
    with tempfile.TemporaryDirectory() as place:
        copy = pathlib.Path(place) / "any where"
        shutil.copytree(folder, copy, symlinks=True)
        program = copy / "bin" / "plimsoll"
        for name, path in loaded(program).items():
            if name not in BASE and copy.resolve() not in path.resolve().parents:
                sys.exit(f"error: {name} is loaded from {path}, not from where the folder was moved to")
        for words in (["plan"], ["train", "--quiet", "--set", "schedule.max_steps=2"]):
            run(program, words[0], RECIPE, *words[1:], "--set", f"output={place}/run",
                env={"PLIMSOLL_CACHE_DIR": f"{place}/cache"})


def versions_of(binary):
    """(kind, number) of each version that a file needs of the system's libraries."""
    needed = run("objdump", "-p", binary).partition("Version References:")[2]
    for kind, version in re.findall(r"\b(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)", needed):
        yield kind, tuple(int(part) for part in version.split("."))


def architectures(program):
    """{compute capability: "code", or "a form that drivers compile"} of the kernels in a program; empty: it has none."""
    with tempfile.TemporaryDirectory() as place:
        held = pathlib.Path(place) / "kernels"
        run("objcopy", "-O", "binary", "--only-section=.nv_fatbin", program, held)
        content = held.read_bytes() if held.exists() else b""
    found, at = {}, content.find(FATBIN)
    while at >= 0:
        head, size = struct.unpack_from("<HQ", content, at + 6)
        image = at + head
        while image < at + head + size:
            kind, head_of_image, size_of_image = struct.unpack_from("<H2xIQ", content, image)
            number = struct.unpack_from("<I", content, image + 28)[0]
            found.setdefault(number, set()).add("code" if kind == 2 else "a form that drivers compile")
            image += head_of_image + size_of_image
        at = content.find(FATBIN, at + head + size)
    return found


def check(folder):
    """Lines that say what of the system the folder uses."""
    program = folder / "bin" / "plimsoll"
    for name, path in loaded(program).items():
        if name not in BASE and folder.resolve() not in path.resolve().parents:
            sys.exit(f"error: {name} is loaded from {path}, outside of {folder}")
    newest = {}
    for binary in binaries(folder):
        for kind, number in versions_of(binary):
            if number > NEWEST[kind]:
                sys.exit(f"error: {binary.name} needs {kind}_{'.'.join(map(str, number))}, newer than {NEWEST[kind]}")
            newest[kind] = max(newest.get(kind, (0,)), number)
    try_elsewhere(folder)
    yield "needs   " + ", ".join(f"{kind} {'.'.join(map(str, number))}" for kind, number in sorted(newest.items()))
    for number, kinds in sorted(architectures(program).items()):
        yield f"GPUs    {number / 10}: {', '.join(sorted(kinds))}"
    yield "inside  " + ", ".join(sorted(path.name for path in (folder / "lib" / "plimsoll").iterdir()))
    yield "system  " + ", ".join(sorted(BASE))
