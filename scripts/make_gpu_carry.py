#!/usr/bin/env python3
"""A folder to carry to a machine with a card: `make gpu-carry`.

    scripts/make_gpu_carry.py BUILD_FOLDER OUT_FOLDER [--folder-only]

The program and plimsoll_card_check with every shared library that a plain system lacks (bundle.py), and the scripts, models and
expectations that check and bench read. There, in the folder: make gpu-check gpu-bench GPU_TOOLS=bin. Needs nothing but Python and a driver.
"""
import pathlib
import shutil
import sys
import tarfile

from bundle import BASE, install, loaded, run

ROOT = pathlib.Path(__file__).resolve().parent.parent
CARRIED = ("Makefile", "tests/gpu", "tests/small_models.py", "tests/golden/llama_full", "tests/golden/llama_lora",
           "tests/golden/tokenizers/bert_cased.json", "demo/model", "bench/gpu.py", "bench/gpu_cases.py", "bench/gpu_rival.py", "bench/hf_cases.py",
           "examples/cases/5-mistral-7b/config.json", "examples/cases/1-gla-glue/config.json")


def carry(folder):
    for name in CARRIED:
        to = folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to, ignore=shutil.ignore_patterns("__pycache__", "*.cc", "*.h", "CMakeLists.txt"))
        else:
            shutil.copy(ROOT / name, to)
    (folder / "bench/results").mkdir(exist_ok=True)


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
    shutil.rmtree(folder / "share")
    carry(folder)
    # As it will run there: by itself, from its own folder.
    run("bin/plimsoll_card_check", "calls", "--device", "emulated", cwd=folder, env={})
    run(sys.executable, "tests/gpu/check.py", "--plimsoll", "bin/plimsoll", "--tool", "bin/plimsoll_card_check", "--device", "emulated", "--parts",
        "ops,runs", "--cases", "swiglu", "--runs", "LoRA", "--out", folder / "tried.json", cwd=folder, env={"PATH": "/usr/bin:/bin"})
    (folder / "tried.json").unlink()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"folder  {folder} ({size / 2**20:.0f} MiB)")
    if "--folder-only" in sys.argv:
        return
    archive = folder.with_name(folder.name + ".tar.gz")
    with tarfile.open(archive, "w:gz", compresslevel=6) as tar:
        tar.add(folder, folder.name)
    print(f"archive {archive} ({archive.stat().st_size / 2**20:.0f} MiB)")


if __name__ == "__main__":
    main()
