#!/usr/bin/env python3
"""Each folder of src/ sees only itself and the folders before it, in the order of the root CMakeLists.txt.

Checks the #include lines of the sources and the DEPS of the CMake files. Lists (*.def) hold no code and may be read
from anywhere.
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)
DEPENDENCY = re.compile(r"\bplimsoll_(\w+)")
KERNEL = re.compile(r"(_cpu\.cc|_simd\.(cc|h)|_kernels(_test)?\.(cc|h)|_test\.cc|^simd_\w+\.h|^cpu_\w+\.(cc|h))$")
GPU_KERNEL = re.compile(r"(_gpu\.cu|^gpu_\w+\.(cc|h))$")
HARNESS = "harness/"


def layer_of(folder, name):
    """The folder whose includes a file may have: kernels lie beside their rules, and are built in folders of their own."""
    if folder != "ops":
        return folder
    return "ops_gpu" if GPU_KERNEL.search(name) else "ops_cpu" if KERNEL.search(name) else folder


def folder_order(root):
    """The folders in the order that the root CMakeLists.txt adds them."""
    text = (root / "CMakeLists.txt").read_text()
    found = re.search(r"set\(PLIMSOLL_FOLDERS\s+([^)]*)\)", text)
    if not found:
        raise SystemExit("error: CMakeLists.txt: no set(PLIMSOLL_FOLDERS ...) to take the order of layers from")
    return found.group(1).split()


def include_problems(root, path, folder, order):
    """Problems of one source file, as `line: text`."""
    text = path.read_text()
    for match in INCLUDE.finditer(text):
        kind, name = match.groups()
        line = text.count("\n", 0, match.start(1)) + 1
        target = name.split("/")[0]
        if kind == "<" or (name.startswith(HARNESS) and path.name.endswith("_test.cc")):
            continue
        if not (root / "src" / name).is_file():
            yield f'{line}: "{name}": no such file under src/; headers of libraries are included with <>'
        elif not name.endswith(".def") and order.index(target) > order.index(folder):
            yield f'{line}: "{name}": {target} comes after {folder} in the root CMakeLists.txt'


def dependency_problems(path, folder, order):
    """Problems of one CMake file: a target of a later folder."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for target in DEPENDENCY.findall(line.split("#")[0]):
            if target in order and order.index(target) > order.index(folder):
                yield f"{number}: plimsoll_{target} comes after {folder} in the root CMakeLists.txt"


def problems(root):
    order = folder_order(root)
    for path in sorted((root / "src").rglob("*")):
        folder = path.relative_to(root / "src").parts[0]
        found = ()
        if not path.is_file():
            continue
        if folder not in order:
            found = [f"1: src/{folder} is not in PLIMSOLL_FOLDERS of the root CMakeLists.txt"]
        elif path.suffix in {".h", ".cc", ".cu"}:
            found = include_problems(root, path, layer_of(folder, path.name), order)
        elif path.name == "CMakeLists.txt":
            found = dependency_problems(path, folder, order)
        for problem in found:
            yield f"{path.relative_to(root)}:{problem}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = list(problems(root))
    for problem in found:
        print(f"error: {problem}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
