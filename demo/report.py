#!/usr/bin/env python3
"""Reads what the demo's runs wrote: counts right answers, and sets planned beside measured memory.

    report.py answers FILE LEAST        exit 1 when less than LEAST percent of the answers are right
    report.py judged FILE LEAST         exit 1 when less than LEAST percent of the pairs of an evaluation are told apart
    report.py measure FILE COMMAND...   runs a command; what the kernel counted for it goes to FILE
    report.py promise FREE TIGHT BUDGET two run folders with their FOLDER.peak: exit 1 when the tight one broke its word
    report.py memory RUN.JSON...
"""
import json
import os
import pathlib
import sys
import time

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


def judged(path, least):
    share = 100 * json.loads(pathlib.Path(path).read_text())["metrics"]["accuracy"]
    if share < least:
        sys.exit(f"error: {path}: {share:.1f} % of the pairs are told apart, the demo asks for {least:g} %")


def measure(path, command):
    """wait4 tells the peak of the process as the kernel counted it, whatever the process says of itself."""
    start = time.monotonic()
    pid = os.posix_spawn(command[0], command, os.environ)
    _, status, usage = os.wait4(pid, 0)
    pathlib.Path(path).write_text(json.dumps({"peak": usage.ru_maxrss * 1024, "seconds": time.monotonic() - start}))
    sys.exit(os.waitstatus_to_exitcode(status))


def losses(folder):
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def promise(free, tight, budget):
    def mib(count):
        return f"{count / 2**20:,.0f} MiB" if count else "-"

    rows = [("", "unlimited", "tight")]
    runs = [json.loads((folder / "run.json").read_text()) for folder in (free, tight)]
    counted = [json.loads(pathlib.Path(f"{folder}.peak").read_text()) for folder in (free, tight)]
    rows.append(("budget of the process", "-", mib(budget)))
    rows.append(("planned peak", *(mib(run["planned"]["process_peak_rss_bytes"]) for run in runs)))
    rows.append(("the kernel counted", *(mib(count["peak"]) for count in counted)))
    rows.append(("on disk meanwhile", *(mib(run["planned"]["disk_bytes"]) for run in runs)))
    rows.append(("micro-batch", *(f"{run['variant']['micro_batch']} x {run['variant']['accumulation']}" for run in runs)))
    rows.append(("loss of the last step", *(f"{losses(folder)[-1]:.6f}" for folder in (free, tight))))
    rows.append(("time", *(f"{count['seconds']:.0f} s" for count in counted)))
    for name, *cells in rows:
        print(f"  {name:24}" + "".join(f"{cell:>12}" for cell in cells))
    apart = max(abs(a - b) for a, b in zip(losses(free), losses(tight), strict=True))
    print(f"  {counted[1]['peak'] / counted[0]['peak']:.0%} of the memory; the losses of all {len(losses(tight))} steps "
          + ("are the same to the last bit" if apart == 0 else f"differ by at most {apart:.1e}"))
    if counted[1]["peak"] > budget:
        sys.exit("error: the tight run took more than its budget")
    if apart > 1e-4:
        sys.exit("error: the two runs learnt different things")


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
        case ["judged", path, least]:
            judged(path, float(least))
        case ["measure", path, *command] if command:
            measure(path, command)
        case ["promise", free, tight, mebibytes]:
            promise(pathlib.Path(free), pathlib.Path(tight), int(mebibytes) * 2**20)
        case ["memory", *paths] if paths:
            memory(paths)
        case _:
            sys.exit(__doc__.strip())


if __name__ == "__main__":
    main()
