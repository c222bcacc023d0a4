"""The data of ICU with what Plimsoll uses of it: normal forms, case, where words and sentences end. 31 MB become 4."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

KEPT = re.compile(r"^((nfkc|nfkc_cf|uts46)\.nrm|(cnvalias|ulayout|uemoji)\.icu|(root|res_index|pool)\.res"
                  r"|brkitr/(root\.res|res_index\.res|pool\.res|[a-z_]+\.brk|[a-z]+dict\.dict))$")
TOOLS = ("icupkg", "genccode", "gcc", "readelf")


def run(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"},
                          **options).stdout


def raw_data(library, version):
    """The bytes of the symbol icudtNN_dat."""
    symbol = next(line.split() for line in run("readelf", "-sW", library).splitlines() if f"icudt{version}_dat" in line)
    address, size = int(symbol[1], 16), int(symbol[2], 0)
    for line in run("readelf", "-SW", library).splitlines():
        found = re.match(r"\s*\[\s*\d+\]\s+\S+\s+\S+\s+([0-9a-f]+)\s+([0-9a-f]+)\s+([0-9a-f]+)", line)
        if found and 0 < int(found[1], 16) <= address < int(found[1], 16) + int(found[3], 16):
            begin = int(found[2], 16) + address - int(found[1], 16)
            return library.read_bytes()[begin:begin + size]
    raise ValueError(f"{library}: no section holds its data")


def cut(library):
    """Replaces libicudata.so.NN by a small one."""
    library = pathlib.Path(library)
    missing = [tool for tool in TOOLS if shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin") is None]
    if missing:
        sys.exit(f"error: {', '.join(missing)}: missing; scripts/setup.sh --wheel installs them")
    version = library.name.rsplit(".", 1)[1]
    data = f"icudt{version}l.dat"  # names inside follow that of the file
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        (folder / "whole").mkdir()
        (folder / "whole" / data).write_bytes(raw_data(library, version))
        names = run("icupkg", "-l", folder / "whole" / data).splitlines()
        kept = [name for name in names if KEPT.match(name)]
        if not kept:
            sys.exit(f"error: {library}: holds nothing of what is kept")
        (folder / "removed.txt").write_text("".join(name + "\n" for name in names if not KEPT.match(name)))
        run("icupkg", "-r", folder / "removed.txt", folder / "whole" / data, folder / data)
        run("genccode", "-a", "gcc", "-e", f"icudt{version}", data, cwd=folder)
        run("gcc", "-shared", "-o", folder / library.name, f"-Wl,-soname,{library.name}", folder / f"icudt{version}l_dat.S")
        shutil.copy(folder / library.name, library)
