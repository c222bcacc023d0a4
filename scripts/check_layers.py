#!/usr/bin/env python3
"""Each folder of src/ sees only itself and the folders before it, and so does each folder within one.

The order of the folders is that of PLIMSOLL_FOLDERS in the root CMakeLists.txt, the order within a folder that of WITHIN.
Some folders see less than what is before them (SEES, BACKENDS). Checked are the #include lines of the sources and the
dependencies of the libraries in CMake files; who names a Recipe (KNOW_RECIPES); that nothing inherits CpuSettings. Lists (*.def) hold no code and may be read from anywhere. Tests see what the
whole of their folder sees. src/README.md has a line for each folder.
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)
DEPENDENCY = re.compile(r"\bplimsoll_(\w+)")
CODE = {".h", ".cc", ".cu", ".def", ".inc"}
HARNESS = "harness/"

# Folders that are cut: the order of their parts; "." stands for the files that are in none of them.
WITHIN = {
    "fleet": "devices doctor doctor/messages queue/processes queue/packing queue/store queue top batch slurm".split(),
    "ops": ". norm pointwise attention scan delta linear loss optimizer".split(),
    "plan": "program search report".split(),
    "tokenizer": "files models steps .".split(),
    "recipe": "document . shell translate dialects load".split(),
    "data": "files rows encode batch".split(),
    "prepare": ". devices run".split(),
    "cli": ". plan machine model queue top".split(),
}
# Folders that see these and themselves alone.
SEES = {
    "files": {"base"},
    "formats": {"base", "files", "tensor"},
    "fleet": {"base", "files", "device"},
    "unicode": {"base"},
    "tokenizer": {"base", "unicode"},
    "jinja": {"base", "unicode"},
    "chat": {"base", "files", "unicode", "jinja"},
}
# A family of ops sees what is of none, and of the families before it these.
FAMILIES = {"attention": {"pointwise"}, "scan": {"attention"}, "delta": {"attention", "norm", "scan"}, "linear": {"pointwise"}, "loss": {"pointwise", "linear"},
            "optimizer": {"pointwise"}}
# Who may name a Recipe. All others take what they need of what prepare/ made of it (prepare/resolved.h).
KNOW_RECIPES = set("recipe hub runs prepare tools advise cli".split())
RECIPE = re.compile(r'\bRecipe\b|#\s*include\s*"recipe/recipe\.h"')
# A struct that has settings holds them; one that inherited them was cut to them where it was copied as one.
HEIR = re.compile(r"\b(?:struct|class)\s+\w+\s*(?:final\s*)?:[^{;]*\bCpuSettings\b")
COMMENT = re.compile(r"//[^\n]*")
# What plans names no backend; of ops only kernels do, which have these names.
BACKENDS = {"cpu", "gpu"}
PLANS = set("graph ops models tasks autodiff passes layout plan".split())
KERNEL = re.compile(r"(_cpu\.(cc|h)|_simd\.(cc|h)|_kernels(_test)?\.(cc|h)|_test\.cc|^simd_\w+\.h|^cpu_\w+\.(cc|h)"
                    r"|_gpu\.(cc|cu)|^gpu_\w+\.(cc|h))$")


def folder_order(root):
    """The folders in the order that the root CMakeLists.txt adds them."""
    text = (root / "CMakeLists.txt").read_text()
    found = re.search(r"set\(PLIMSOLL_FOLDERS\s+([^)]*)\)", text)
    if not found:
        raise SystemExit("error: CMakeLists.txt: no set(PLIMSOLL_FOLDERS ...) to take the order of layers from")
    return found.group(1).split()


def part_of(name):
    """(folder, part) of a file of src/: its part is the longest of WITHIN that it is in, "." or None where there is none."""
    folder, _, rest = name.partition("/")
    below = rest.rpartition("/")[0]
    if folder not in WITHIN:
        return folder, "." if not below else None
    if not below:
        return folder, "." if "." in WITHIN[folder] else None
    return folder, below if below in WITHIN[folder] else None


def is_test(name):
    return name.endswith("_test.cc") or pathlib.PurePath(name).name.startswith("test_")


def may_see(name, seen, order):
    """Why a file may not include another, or nothing."""
    (folder, part), (target, below) = part_of(name), part_of(seen)
    if target != folder:
        if order.index(target) > order.index(folder):
            return f"{target} comes after {folder} in the root CMakeLists.txt"
        if target not in SEES.get(folder, {target}):
            return f"{folder} sees only {', '.join(sorted(SEES[folder]))}"
        if target in BACKENDS and folder in PLANS and not (folder == "ops" and KERNEL.search(pathlib.PurePath(name).name)):
            return f"what plans names no backend: {folder} does not see {target}"
        return ""
    if folder not in WITHIN or part == below or is_test(name):
        return ""
    parts = WITHIN[folder]
    if parts.index(below) > parts.index(part):
        return f"{folder}/{below} comes after {folder}/{part} in scripts/check_layers.py".replace("/.", "")
    if folder == "ops" and below != "." and below not in FAMILIES.get(part, set()):
        return f"ops/{part} does not see ops/{below}: FAMILIES in scripts/check_layers.py"
    return ""


def include_problems(root, path, name, order):
    """Problems of one source file, as `line: text`."""
    text = path.read_text()
    for match in INCLUDE.finditer(text):
        kind, seen = match.groups()
        line = text.count("\n", 0, match.start(1)) + 1
        if kind == "<" or (seen.startswith(HARNESS) and path.name.endswith("_test.cc")):
            continue
        if not (root / "src" / seen).is_file():
            yield f'{line}: "{seen}": no such file under src/; headers of libraries are included with <>'
        elif seen.partition("/")[0] not in order:
            yield f'{line}: "{seen}": is in no folder of PLIMSOLL_FOLDERS'
        elif not seen.endswith(".def") and (why := may_see(name, seen, order)):
            yield f'{line}: "{seen}": {why}'


def structure_problems(path, name):
    """Lines that name a Recipe where none is known, and heirs of CpuSettings."""
    code = COMMENT.sub("", path.read_text())
    line_of = lambda match: code.count("\n", 0, match.start()) + 1
    if name.partition("/")[0] not in KNOW_RECIPES and (found := RECIPE.search(code)):
        yield f"{line_of(found)}: only {', '.join(sorted(KNOW_RECIPES))} know a Recipe: take what is needed of prepare/resolved.h"
    for found in HEIR.finditer(code):
        yield f"{line_of(found)}: inherits CpuSettings; have a member of it"


def statements(text):
    """(line, words) of each call that says what a library needs: tests, tools and benches may need what they like."""
    for match in re.finditer(r"^\s*(plimsoll_library|target_link_libraries)\(([^)]*)\)", text, re.M):
        words = match[2].split()
        if words and not re.search(r"_(test|cases|tool|bench)$", words[0]):
            yield text.count("\n", 0, match.start(2)) + 1, match[2]


def dependency_problems(path, folder, order):
    """Problems of one CMake file: a target of a later folder, or of one that this does not see."""
    text = re.sub(r"#[^\n]*", "", path.read_text())
    for first, words in statements(text):
        for number, line in enumerate(words.splitlines(), first):
            for target in DEPENDENCY.findall(line):
                if target not in order or target == folder:
                    continue
                if order.index(target) > order.index(folder):
                    yield f"{number}: plimsoll_{target} comes after {folder} in the root CMakeLists.txt"
                elif target not in SEES.get(folder, {target}):
                    yield f"{number}: {folder} sees only {', '.join(sorted(SEES[folder]))}, not plimsoll_{target}"


def readme_problems(root, folders):
    """src/README.md has a line that begins with each folder's name, and no other."""
    path = root / "src/README.md"
    named = re.findall(r"^\| `([\w/]+)/` \|", path.read_text() if path.is_file() else "", re.M)
    for folder in sorted(folders - set(named)):
        yield f"src/README.md:1: has no line of {folder}/"
    for folder in named:
        if folder not in folders:
            yield f"src/README.md:1: names {folder}/, which has no files"


def problems(root):
    order, folders = folder_order(root), set()
    for path in sorted((root / "src").rglob("*")):
        name = str(path.relative_to(root / "src"))
        folder, part = part_of(name)
        found = ()
        if not path.is_file() or "/" not in name:
            continue
        if folder not in order:
            found = [f"1: src/{folder} is not in PLIMSOLL_FOLDERS of the root CMakeLists.txt"]
        elif path.suffix in CODE and part is None:
            found = [f"1: src/{pathlib.PurePath(name).parent} is no part of {folder} in WITHIN of scripts/check_layers.py"]
        elif path.suffix in {".h", ".cc", ".cu"}:
            found = [*include_problems(root, path, name, order), *structure_problems(path, name)]
        elif path.name == "CMakeLists.txt":
            found = dependency_problems(path, folder, order)
        if path.suffix in CODE:
            folders.add(str(pathlib.PurePath(name).parent))
        for problem in found:
            yield f"{path.relative_to(root)}:{problem}"
    yield from readme_problems(root, folders)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = list(problems(root))
    for problem in found:
        print(f"error: {problem}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
