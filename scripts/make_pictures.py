#!/usr/bin/env python3
"""Makes the pictures of docs/pictures from real runs: the memory of a plan over time, a batch of the queue, and top: `make pictures`.

    make_pictures.py PLIMSOLL

Pages that the program writes are photographed by a browser without a window (chromium); what top prints becomes an SVG. Seconds and
losses are those of this machine, so pictures are made anew when a page looks different, not at each change.
"""
import html
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs/pictures"
MOST = 150_000  # bytes of all pictures
LINE, COLUMN = 18, 7.9  # of a terminal in an SVG, in pixels


def photograph(browser, page, name, width, height):
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
                        f"--window-size={width},{height}", f"--screenshot={PICTURES / name}", f"file://{page}"],
                       check=True, capture_output=True, timeout=300)


def terminal(command, text, name):
    """What a command printed, as an SVG."""
    lines = [f"$ {command}", *text.rstrip("\n").split("\n")]
    width, height = round(max(map(len, lines)) * COLUMN + 40), len(lines) * LINE + 32
    rows = "".join(f'<text x="20" y="{28 + LINE * row}" xml:space="preserve">{html.escape(line)}</text>' for row, line in enumerate(lines))
    (PICTURES / name).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f'<rect width="100%" height="100%" rx="8" fill="#1d2329"/><g fill="#e6eaee" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" '
        f'font-size="13">{rows}</g></svg>\n')


def told(frame):
    """Whether a frame of top has a run that is done and one that takes steps."""
    return " done " in frame and re.search(r" running .* MiB  +\d\d/120 ", frame)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_pictures.py PLIMSOLL")
    browser = shutil.which(os.environ.get("CHROMIUM", "chromium")) or shutil.which("google-chrome")
    if not browser:
        sys.exit("error: no chromium: install the Debian package chromium, or name the program: CHROMIUM=/path/to/chrome make pictures")
    plimsoll = str(pathlib.Path(sys.argv[1]).resolve())
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        for folder in ("demo", "examples"):
            (place / folder).symlink_to(ROOT / folder)
        environment = {**os.environ, "PLIMSOLL_QUEUE_DIR": f"{place}/queue", "PLIMSOLL_MACHINE_DIR": f"{place}/machine", "PLIMSOLL_NO_PROBE": "1",
                       "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "100"}

        def run(*words):
            return subprocess.run([plimsoll, *words], cwd=place, env=environment, check=True, capture_output=True, text=True).stdout

        run("plan", "examples/qwen2.5-0.5b-lora/recipe.yaml", "--memory", "8GiB", "--set", "memory.offload=none", "--html", "plan.html")
        photograph(browser, place / "plan.html", "plan.webp", 1000, 640)
        run("queue", "add", "demo/recipes/full.yaml", "--sweep", "optimizer.lr=1e-3,2e-3,4e-3", "--sweep", "seed=1,2", "--set", "schedule.max_steps=120",
            "--set", "data.eval=2%", "--set", "output=runs/lr", "--threads", "1", "--group", "lr")
        worker = subprocess.Popen([plimsoll, "queue", "run", "--memory", "260MiB", "--threads", "2", "--until-done"], cwd=place, env=environment,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            shown = ""
            while worker.poll() is None and not told(shown):
                shown = run("top", "--once")
            if not told(shown):
                sys.exit("error: no frame of top had a run that is done and one in its steps; run this again")
            terminal("plimsoll top --once", shown.split("\n\n    pid")[0], "top.svg")  # without programs of others
            if worker.wait() != 0:
                sys.exit(f"error: the worker of the queue ended with {worker.returncode}")
        finally:
            worker.kill()
            worker.wait()
        run("report", "--queue", "--html", "batch.html")
        photograph(browser, place / "batch.html", "queue.webp", 1000, 700)
    sizes = {path.name: path.stat().st_size for path in sorted(PICTURES.iterdir())}
    print(", ".join(f"{name} {size:,} bytes" for name, size in sizes.items()))
    if sum(sizes.values()) > MOST:
        sys.exit(f"error: the pictures take {sum(sizes.values()):,} bytes together, above {MOST:,}")


if __name__ == "__main__":
    main()
