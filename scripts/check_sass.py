#!/usr/bin/env python3
"""What nvcc made of the kernels for GPUs, held to committed lines: no spills, wide loads, tensor cores where they belong.

    scripts/check_sass.py OBJECT_FOLDER [--cuobjdump PROGRAM] [--rules tests/golden/sass.txt] [--list | --table NAMES]

cuobjdump is looked for beside nvcc and on the path (pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm has it, too); without it
exit code 77. A line of the rules is a kernel's name, the architectures from which on it holds, and what each instance of it must have: an
instruction that occurs, `-NAME` for one that must not, `bf16:NAME` for instances of bf16 alone, or `stack<=BYTES` where a kernel spills. A kernel without a line must not spill
or use local memory at all. --list prints what there is; --table delta_,short_conv prints the resources of the kernels whose names begin so, as a table.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NO_TOOL = 77
# An instruction of a line: what stands for it in the code.
INSTRUCTIONS = {"HMMA": r"HMMA\.", "TF32": r"HMMA\.\S*TF32", "LDSM": r"LDSM\.", "LDGSTS": r"LDGSTS\.", "LDG.128": r"LDG\.\S*128", "STG.128": r"STG\.\S*128",
                "LDS.128": r"LDS\S*\.128", "local": r"(STL|LDL)\b"}
RULE = re.compile(r"(\w+)\s+sm_(\d+)\s+(.+)")


def find_tool(named):
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    for place in (named, pathlib.Path(nvcc).resolve().parent / "cuobjdump", shutil.which("cuobjdump")):
        if place and pathlib.Path(place).exists():
            return str(place)
    return None


def kernel_name(mangled):
    """matmul_mma of _ZN8plimsoll7on_cuda...10matmul_mmaILb0E...: the last name before its template's values."""
    names, at = [], 3 if mangled.startswith("_ZN") else 2
    while found := re.match(r"\d+", mangled[at:]):
        begin = at + len(found[0])
        names.append(mangled[begin:begin + int(found[0])])
        at = begin + int(found[0])
        if names[-1].startswith("_GLOBAL__N"):
            continue
    return names[-1] if names else mangled


def sections(tool, flag, path):
    """(architecture, kernel, lines) of each kernel in an object."""
    text = subprocess.run([tool, flag, str(path)], capture_output=True, text=True, check=True).stdout
    arch, name, lines = 0, None, []
    for line in text.splitlines():
        if found := re.match(r"arch = sm_(\d+)", line):
            if name:
                yield arch, name, lines
            arch, name = int(found[1]), None
        elif found := re.match(r"\s*Function :?\s*(\w+)", line):
            if name:
                yield arch, name, lines
            name, lines = found[1], []
        elif name:
            lines.append(line)
    if name:
        yield arch, name, lines


def facts_of(tool, path):
    """{(architecture, mangled name): {"stack": bytes, instruction: count}}."""
    facts = {}
    for arch, name, lines in sections(tool, "-res-usage", path):
        told = dict(re.findall(r"(REG|STACK|SHARED):(\d+)", " ".join(lines)))
        facts[arch, name] = {"stack": int(told.get("STACK", 0)), "registers": int(told.get("REG", 0)), "shared": int(told.get("SHARED", 0))}
    for arch, name, lines in sections(tool, "-sass", path):
        code = "\n".join(line.split("*/", 1)[1] if "*/" in line else "" for line in lines)
        facts.setdefault((arch, name), {"stack": 0}).update({word: len(re.findall(pattern, code)) for word, pattern in INSTRUCTIONS.items()})
    return facts


def read_rules(path):
    """[(kernel, least architecture, conditions)]."""
    rules = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = RULE.fullmatch(line.strip())
        words = found[3].split() if found else []
        unknown = [word for word in words if word.removeprefix("bf16:").lstrip("-") not in INSTRUCTIONS and not re.fullmatch(r"stack<=\d+", word)]
        if not found or unknown:
            raise SystemExit(f"{path}:{number}: {line.strip()}: " + (f"{unknown[0]} is no condition" if found else "is no rule"))
        rules.append((found[1], int(found[2]), words))
    return rules


def faults(arch, name, facts, rules):
    """What a kernel's code has that it must not, or has not."""
    mine = [[word.removeprefix("bf16:") for word in words if "4bf16" in name or not word.startswith("bf16:")]
            for kernel, least, words in rules if kernel == kernel_name(name) and arch >= least]
    allowed = max([int(word[7:]) for words in mine for word in words if word.startswith("stack<=")], default=0)
    found = [f"{facts['stack']} bytes of stack, {allowed} are allowed"] if facts["stack"] > allowed else []
    if not allowed and facts.get("local"):
        found.append(f"{facts['local']} accesses to local memory")
    for word in {word for words in mine for word in words if not word.startswith("stack")}:
        count = facts.get(word.lstrip("-"), 0)
        if (count > 0) == word.startswith("-"):
            found.append(f"{count} x {word.lstrip('-')}" if count else f"no {word}")
    return found


def type_of(name):
    """The element type of an instance, and the numbers among its template's values."""
    own = name.rpartition(kernel_name(name))[2]
    if not own.startswith("I"):
        return ""
    kind = next((kind for kind, mark in (("bf16", "4bf16"), ("f16", "3f16"), ("f32", "If")) if mark in own), "")
    return " ".join([kind, *re.findall(r"Li(\d+)E", own)]).strip()


def table(rows):
    """Rows of kernel, instance and architecture, with what a thread and a block of each take."""
    lines = ["| kernel | instance | sm | registers | stack | shared | HMMA |", "|---|---|---:|---:|---:|---:|---:|"]
    lines += [f"| `{kernel}` | {kind} | {arch} | {facts.get('registers', 0)} | {facts['stack']} | {facts.get('shared', 0)} | {facts.get('HMMA', 0)} |"
              for kernel, kind, arch, facts in sorted(rows, key=lambda row: row[:3])]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--cuobjdump")
    parser.add_argument("--rules", type=pathlib.Path, default=ROOT / "tests/golden/sass.txt")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--table", metavar="NAMES")
    options = parser.parse_args()
    tool = find_tool(options.cuobjdump)
    if tool is None:
        print("cuobjdump is neither beside nvcc nor on the path: nothing was looked at")
        return NO_TOOL
    rules = read_rules(options.rules) if options.rules.exists() else []
    wrong, kernels, seen, rows = 0, 0, set(), []
    for path in sorted(options.folder.glob("*.o")):
        for (arch, name), facts in facts_of(tool, path).items():
            kernels += 1
            seen.add(kernel_name(name))
            if options.table:
                if kernel_name(name).startswith(tuple(options.table.split(","))):
                    rows.append((kernel_name(name), type_of(name), arch, facts))
                continue
            if options.list:
                print(f"{path.stem:28} sm_{arch:<4} {kernel_name(name):32} " + " ".join(f"{key}:{value}" for key, value in facts.items() if value))
                continue
            for fault in faults(arch, name, facts, rules):
                wrong += 1
                print(f"{path.stem}: {kernel_name(name)} for sm_{arch}: {fault} ({name})")
    if options.table:
        print(table(rows))
        return 0
    for kernel in sorted({kernel for kernel, _, _ in rules} - seen):
        wrong += 1
        print(f"{options.rules}: {kernel} is no kernel of these objects")
    if not kernels:
        sys.exit(f"{options.folder}: no kernels")
    print(f"{kernels} kernels, {wrong} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
