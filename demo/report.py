#!/usr/bin/env python3
"""Reads what the demo's runs wrote: counts right answers, and sets planned beside measured memory.

    report.py answers FILE LEAST    exit 1 when less than LEAST percent of the answers are right
    report.py memory RUN.JSON...
"""
import json
import pathlib
import sys

SHOWN = 4  # answers printed
ROWS = (("device arena", "device_arena_bytes"), ("process peak", "process_peak_rss_bytes"))


def answers(path, least):
    rows = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
    right = sum(row["response"].strip() == row["expected"].strip() for row in rows)
    for row in rows[:SHOWN]:
        mark = "right" if row["response"].strip() == row["expected"].strip() else f"wrong, expected {row['expected']}"
        print(f"  {row['prompt']}  {row['response'].strip()}  ({mark})")
    share = 100 * right / len(rows)
    print(f"  {right} of {len(rows)} exactly right: {share:.1f} %")
    if share < least:
        sys.exit(f"error: {path}: {share:.1f} % are right, the demo asks for {least:g} %")


def memory(paths):
    print(f"  {'run':10}{'':14}{'planned bytes':>16}{'measured bytes':>16}{'difference':>12}")
    for path in map(pathlib.Path, paths):
        run = json.loads(path.read_text())
        for label, key in ROWS:
            planned, measured = run["planned"][key], run["measured"][key]
            print(f"  {path.parent.name:10}{label:14}{planned:16,}{measured:16,}{measured / planned - 1:+12.1%}")


def main():
    match sys.argv[1:]:
        case ["answers", path, least]:
            answers(path, float(least))
        case ["memory", *paths] if paths:
            memory(paths)
        case _:
            sys.exit(__doc__.strip())


if __name__ == "__main__":
    main()
