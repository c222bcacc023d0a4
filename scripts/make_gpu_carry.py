#!/usr/bin/env python3
"""A folder to carry to a machine with a card: `make gpu-carry`.

    scripts/make_gpu_carry.py BUILD_FOLDER OUT_FOLDER [--folder-only] [--rivals]

The program and plimsoll_card_check with every shared library that a plain system lacks (bundle.py), and the scripts, models and
expectations that gpu-first, check and bench read. --rivals: also the packages of Python that transformers' runs want and a machine with
PyTorch may lack, where pip has them; larger ones are done without, and named. There, in the folder: make gpu-first GPU_TOOLS=bin.
The archive is 60 MiB at most. Needs nothing but Python and a driver.
"""
import pathlib
import shutil
import subprocess
import sys
import tarfile

from bundle import BASE, install, loaded, run

ROOT = pathlib.Path(__file__).resolve().parent.parent
CARRIED = ("Makefile", "tests/gpu", "tests/small_models.py", "tests/golden/llama_full", "tests/golden/llama_lora",
           "tests/golden/tokenizers/bert_cased.json", "demo/model", "bench/gpu.py", "bench/gpu_cases.py", "bench/gpu_rival.py", "bench/hf_cases.py",
           "bench/results/predicted-h100.json", "examples/cases/5-mistral-7b/config.json", "examples/cases/1-gla-glue/config.json")
MOST = 60 * 2**20  # bytes of the archive
# Small, and of Python but for psutil, which accelerate imports; bitsandbytes and triton have hundreds of MB.
RIVALS = ("peft==0.21.0", "accelerate", "psutil", "flash-linear-attention==0.6.0", "fla-core==0.6.0", "einops")
DONE_WITHOUT = ("bitsandbytes (QLoRA there)",)


def carry(folder):
    for name in CARRIED:
        to = folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to, ignore=shutil.ignore_patterns("__pycache__", "*.cc", "*.h", "CMakeLists.txt"))
        else:
            shutil.copy(ROOT / name, to)


def carry_rivals(folder):
    """The packages in folder/rivals; a line that says which there are."""
    missing = []
    for package in RIVALS:
        words = ("install", "--quiet", "--no-deps", "--no-compile", "--only-binary", ":all:", "--target", folder / "rivals", package)
        done = subprocess.run([sys.executable, "-m", "pip", *map(str, words)], capture_output=True, text=True)
        if done.returncode != 0:
            missing.append(package)
    shutil.rmtree(folder / "rivals/bin", ignore_errors=True)
    carried = ", ".join(package for package in RIVALS if package not in missing)
    return f"rivals  {carried or 'none'}; without {', '.join((*missing, *DONE_WITHOUT))}"


def try_there(folder):
    """As it will run there: by itself, from its own folder."""
    run("bin/plimsoll_card_check", "calls", "--device", "emulated", cwd=folder, env={})
    tried = folder / "tried.json"
    tools = ("--plimsoll", "bin/plimsoll", "--tool", "bin/plimsoll_card_check", "--device", "emulated", "--cases", "swiglu", "--out", tried)
    run(sys.executable, "tests/gpu/check.py", *tools, "--parts", "ops,runs", "--runs", "LoRA", cwd=folder, env={"PATH": "/usr/bin:/bin"})
    tried.unlink()
    said = run("make", "gpu-first", "GPU_TOOLS=bin", "GPU_DEVICE=emulated", "GPU_SECTIONS=f", cwd=folder, env={"PATH": "/usr/bin:/bin"})
    if "transformers beside them" not in said:
        sys.exit(f"make gpu-first, in {folder}: {said}")
    for written in (folder / "bench/results").glob("*-first.json"):
        written.unlink()


def pack(folder, most=MOST):
    """The archive beside the folder; ends where it is larger than what is carried."""
    archive = folder.with_name(folder.name + ".tar.gz")
    with tarfile.open(archive, "w:gz", compresslevel=9) as tar:
        tar.add(folder, folder.name)
    if archive.stat().st_size > most:
        sys.exit(f"{archive}: {archive.stat().st_size} bytes, more than the {most} that are carried")
    return archive


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    build, folder = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    install(build, folder)
    tool = folder / "bin/plimsoll_card_check"
    shutil.copy(build / "tests/gpu/plimsoll_card_check", tool)
    for name, path in loaded(tool).items():
        if name not in BASE and not (folder / "lib/plimsoll" / name).exists():
            shutil.copy(path.resolve(), folder / "lib/plimsoll" / name)
    for program in (tool, folder / "bin/plimsoll"):
        run("strip", program)
    for library in (folder / "lib/plimsoll").iterdir():
        run("strip", "--strip-unneeded", library)
    shutil.rmtree(folder / "share")
    carry(folder)
    if "--rivals" in sys.argv:
        print(carry_rivals(folder))
    try_there(folder)
    for cache in folder.rglob("__pycache__"):
        shutil.rmtree(cache)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"folder  {folder} ({size / 2**20:.0f} MiB)")
    if "--folder-only" in sys.argv:
        return
    archive = pack(folder)
    print(f"archive {archive} ({archive.stat().st_size / 2**20:.1f} MiB)")


if __name__ == "__main__":
    main()
