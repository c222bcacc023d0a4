"""The loader on a large Parquet file sorted by class: rows in groups of 100 and in one group, shuffled fully and in windows.

Usage: loader.py LOADER_BENCH FOLDER [--gigabytes 5] [--out FILE.json]; pyarrow where setup put it. The file is made in FOLDER once
and dropped from the page cache before each run; FOLDER is where scratch files go.
"""
import argparse
import json
import os
import platform
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".deps/py"))
CLASSES = 5


def write(path, rows, group, bytes_per_row):
    """Rows sorted by class, in row groups of `group` rows: an Arrow file part by part, then mapped, so that it takes little memory."""
    import pyarrow as pa
    import pyarrow.parquet
    words = [word for word in (ROOT / "README.md").read_text().split() if word.isalpha()]
    draw = random.Random(7)
    body = " ".join(draw.choice(words) for _ in range(1 << 16))
    part = 100_000
    schema = pa.schema([("text", pa.string())])
    mapped = path.with_suffix(".arrow")
    with pa.OSFile(str(mapped), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for first in range(0, rows, part):
            writer.write_table(table(pa, body, draw, first, min(part, rows - first), rows, bytes_per_row))
    with pa.memory_map(str(mapped)) as file:
        pa.parquet.write_table(pa.ipc.open_file(file).read_all(), path, row_group_size=group, use_dictionary=False)
    mapped.unlink()


def table(pa, body, draw, first, count, rows, size):
    texts = []
    for row in range(first, first + count):
        start = draw.randrange(len(body) - size)
        texts.append(f"class {row * CLASSES // rows} row {row} {body[start:start + size - 30]}")
    return pa.table({"text": pa.array(texts, pa.string())})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bench", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=5)
    parser.add_argument("--bytes-per-row", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = int(given.gigabytes * 1e9) // given.bytes_per_row
    results = {"machine": platform.processor() or platform.machine(), "cpus": os.cpu_count(), "gigabytes": given.gigabytes,
               "rows": rows, "runs": []}
    for group in (100, rows):
        path = given.folder / f"sorted-{group}.parquet"
        if not path.exists():
            write(path, rows, group, given.bytes_per_row)
        for order in ("full", "window"):
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            done = subprocess.run([given.bench, path, "text", ROOT / "demo/model", given.folder, order, str(given.steps)],
                                  capture_output=True, text=True, check=True)
            run = {"row_group": group, "file_bytes": path.stat().st_size, **json.loads(done.stdout)}
            print(json.dumps(run), flush=True)
            results["runs"].append(run)
    if given.out:
        given.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
