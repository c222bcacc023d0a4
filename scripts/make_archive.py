#!/usr/bin/env python3
"""An archive of Plimsoll that runs wherever it is unpacked: `make archive`.

    scripts/make_archive.py BUILD_FOLDER OUT_FOLDER [--folder-only]

Installs the build into OUT_FOLDER/plimsoll-<version>-linux-x86_64 and puts beside it every shared library that the
program and its libraries need, but for those that every Debian and Ubuntu system has, with the licences of their
packages (bundle.py). Then checks what it made: nothing is loaded from elsewhere, no newer symbols of the base libraries
are needed than Ubuntu 22.04 and Debian 12 have, and a copy in another place trains.
"""
import pathlib
import sys
import tarfile

from bundle import check, install, run


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    build, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    version = run(build / "plimsoll", "--version").strip()
    folder = out / f"plimsoll-{version}-linux-x86_64"
    install(build, folder)
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
