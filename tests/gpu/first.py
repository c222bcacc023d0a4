"""The first minutes with a card: what no card has run comes first. `make gpu-first` (docs/explanation/cuda.md).

    first.py --plimsoll PROGRAM --tool PLIMSOLL_CARD_CHECK [--device cuda|emulated] [--seconds 540] [--sections a,c] [--out FILE]

Sections are a table (SECTIONS) of items, which are cases of gpu-check and of gpu-bench. Each item is a process of its own, which ends
with its limit; what it found is written when it ends, and a second call goes on behind the last item that ended: of the same card and
the same programs. Stops by itself after --seconds. Exit codes: 0, 1 where something was wrong, 2 without a card. Standard library only.
"""
import argparse
import collections
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent.parent / "bench")]
import check  # noqa: E402
import gpu  # noqa: E402
from check import NEVER_RUN, ROOT, SANITIZERS, Check  # noqa: E402
from gpu_cases import CASES, tiny_case, write_case  # noqa: E402

PROFILED = 5  # steps, as `train --profile` records them behind the first two
NEVER = ",".join(NEVER_RUN)
NEVER_TRAINED = ("GLA, bf16", "T5, bf16", "llama, full, fp16", "GLA", "T5")  # in this order
DELTA = "delta_rule,delta_gate,sigmoid_gate,short_conv"
DELTA_TRAINED = ("Qwen3.5, bf16", "Qwen3.5")
RIVALS = HERE.parent.parent.parent / "rivals"  # packages of Python that gpu-carry brought
ENOUGH = 5  # seconds that an item needs to begin
OUT_OF_TIME = "its time ran out"


# ---- what an item does, in its own process


def calls(site):
    site.check.calls()


def ops(site, cases="", without=""):
    """Each twice, and beside the emulated card's bits."""
    site.check.options.cases, site.check.options.without = site.options.cases or cases, without
    site.check.ops()


def sanitizer(site, kind, words):
    found = check.sanitizer_here()
    if not found or not site.check.on_card:
        site.check.report.add(f"sanitizer/{kind}", "needs a card" if found else "compute-sanitizer is not here", skipped=True)
        return
    site.check.sanitize(found, kind, f"sanitizer/{kind}", words, site.check.report.left() - 2)


def training(site, name):
    for one, *more in site.check.trainings():
        if one == name:
            site.check.one_run(name, *more)


def part(site, name):
    getattr(site.check, name)()


def row(site, case):
    """Tokens/s, within the bytes that the plan states, and what the trained model answers."""
    figures = site.bench.measure(case)
    fault = figures.get("failed") or (figures.get("answers") or {}).get("failed") or ""
    if not fault and figures.get("planned_arena_bytes") != figures.get("arena_bytes"):
        fault = f"planned {figures['planned_arena_bytes']} bytes, asked for {figures['arena_bytes']}"
    site.check.report.add(f"row/{case.name}", fault or figures.get("left_out", ""), figures, skipped="left_out" in figures and not fault)


def rival(site, case):
    """What transformers does with the same rows of the same shape."""
    with tempfile.TemporaryDirectory() as folder:
        write_case(tiny_case(case) if site.options.tiny else case, Path(folder), gpu.STEPS, site.options.tiny)
        figures = site.bench.ask_rival(case, Path(folder)) if site.check.on_card else {"left_out": "needs a card"}
    figures["case"] = case.name
    site.check.report.add(f"rival/{case.name}", figures.get("left_out", ""), figures, skipped="left_out" in figures)


def profile(site, case):
    """Where the steps' time went, by op, beside what the card could do at the plan's rates."""
    small = tiny_case(case) if site.options.tiny else case
    with tempfile.TemporaryDirectory() as folder:
        recipe = write_case(small, Path(folder), PROFILED + 2, site.options.tiny)
        asked = (recipe, "--device", site.options.device)
        done = site.check.run([site.options.plimsoll, "train", *asked, "--quiet", "--profile"])
        if done.returncode != 0:
            left_out = done.returncode == 3
            site.check.report.add(f"profile/{case.name}", f"exit {done.returncode}: {done.stderr.strip()[-400:]}", skipped=left_out)
            return
        planned = site.check.run([site.options.plimsoll, "plan", *asked, "--json"])
        events = json.loads((Path(folder) / "run/trace.json").read_text())["traceEvents"]
    figures = {"case": case.name, **by_op(events, PROFILED), "launches": launches(planned, small)}
    shares = sum(op["share"] for op in figures["ops"].values())
    site.check.report.add(f"profile/{case.name}", "" if 0.3 < shares <= 1.001 else f"the ops are {shares:.2f} of the step", figures)


def by_op(events, steps):
    """Of a trace: seconds a step, and by op its calls, seconds, share, rates and how much of its bound it reached."""
    whole = sum(event["dur"] for event in events if event.get("name", "").startswith("recorded step")) * 1e-6 / steps
    sums = collections.defaultdict(lambda: collections.Counter())
    for event in events:
        if "args" in event and "bound_us" in event["args"]:
            told = {"calls": 1, "seconds": event["dur"] * 1e-6, "flops": event["args"]["flops"], "bytes": event["args"]["bytes"],
                    "bound": event["args"]["bound_us"] * 1e-6}
            sums[event["name"]].update(told)
    ops_ = {}
    for name, of in sorted(sums.items(), key=lambda one: -one[1]["seconds"]):
        seconds = max(of["seconds"], 1e-12)
        ops_[name] = {"calls": of["calls"] / steps, "seconds": of["seconds"] / steps, "share": of["seconds"] / steps / max(whole, 1e-12),
                      "flops_per_second": of["flops"] / seconds, "bytes_per_second": of["bytes"] / seconds, "of_bound": of["bound"] / seconds}
    return {"seconds_per_step": whole, "ops": ops_}


def launches(planned, case):
    """Of a step, as the plan counts them; None where it does not say."""
    programs = json.loads(planned.stdout)["device"].get("graphs") if planned.returncode == 0 else None
    if not programs:
        return None
    return sum(program["nodes"] * (case.accumulation if program["program"] == "micro-step" else 1) for program in programs)


# ---- the table. A later issue adds a line here, or a case with the section's letter in bench/gpu_cases.py.


@dataclass(frozen=True)
class Item:
    name: str
    seconds: float  # its limit
    run: object
    arguments: tuple = ()


def of_cases(letter, seconds, does):
    return tuple(Item(case.name, seconds, does, (case,)) for case in CASES if letter in case.sections)


@dataclass(frozen=True)
class Section:
    letter: str
    title: str
    seconds: float
    items: tuple


SECTIONS = (
    Section("a", "calls and ops that no card ran", 150, (
        Item("calls", 40, calls), Item("ops that never ran", 60, ops, (NEVER,)), Item("large cases", 30, part, ("large",)),
        *(Item(f"{kind}, ops that never ran", 30, sanitizer, (kind, ("--cases", NEVER))) for kind in SANITIZERS),
        *(Item(f"{kind}, other ops", 30, sanitizer, (kind, ("--without", NEVER))) for kind in SANITIZERS))),
    Section("b", "tiny trainings", 60, tuple(Item(name, 30, training, (name,)) for name in NEVER_TRAINED)),
    Section("c", "T5, GLA, fp16, answers: tokens/s", 120, of_cases("c", 60, row)),
    Section("d", "profiles by op", 100, of_cases("d", 40, profile)),
    Section("e", "rows without a figure", 240, of_cases("e", 80, row)),
    Section("f", "transformers beside them", 180, of_cases("f", 60, rival)),
    Section("g", "what is left of gpu-check", 300, (
        Item("other ops", 120, ops, ("", NEVER)), Item("memory", 60, part, ("memory",)),
        *(Item(name, 40, training, (name,)) for name in ("llama, LoRA", "llama, full", "llama, QLoRA", "llama, full, bf16", "reward")),
        Item("refusals", 60, part, ("refusals",)))),
    Section("h", "Qwen3.5: the gated delta rule", 300, (
        Item("ops of the gated delta rule", 60, ops, (DELTA,)), *(Item(name, 30, training, (name,)) for name in DELTA_TRAINED), *of_cases("h", 60, row),
        *(Item(f"profile of {case.name}", 40, profile, (case,)) for case in CASES if "h" in case.sections))),
    Section("i", "ranks: two processes on one card", 120, (Item("ranks", 120, part, ("ranks",)),)),
)


def sections_of(options):
    """The table; for tests a part of it."""
    parts = options.items.split(";")
    return tuple(Section(one.letter, one.title, one.seconds * options.slow, tuple(item for item in one.items if any(part_ in item.name for part_ in parts)))
                 for one in SECTIONS)


def fault_of(options):
    """(what is done wrong on purpose, the letter of the section where; "": everywhere)"""
    kind, _, where = options.wrong.partition("@")
    return kind, where


# ---- an item's process


class Told(check.Report):
    """Writes each line when it is said: what a killed item had found stays."""

    def __init__(self, seconds, path):
        super().__init__(seconds)
        self.path = path

    def add(self, *words, **more):
        super().add(*words, **more)
        with open(self.path, "a") as out:
            out.write(json.dumps(self.lines[-1]) + "\n")


def die_with_parent():
    """The parent holds the other end of our input: where it is gone, so are we and what we started."""
    def wait():
        sys.stdin.read()
        os.killpg(os.getpgrp(), signal.SIGKILL)
    threading.Thread(target=wait, daemon=True).start()


def run_item(options):
    die_with_parent()
    letter, number = options.item.split("/")
    item = next(section for section in sections_of(options) if section.letter == letter).items[int(number)]
    kind, where = fault_of(options)
    wrong = kind if where in ("", letter) else ""
    if wrong == "stuck":
        time.sleep(1e6)
    if wrong == "killed":
        os.kill(os.getpid(), signal.SIGSEGV)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        more = SimpleNamespace(**{**vars(options), "wrong": wrong, "without": "", "runs": "", "seconds": options.item_seconds, "rival": False})
        asked = Check(more, folder)
        asked.report, asked.facts = Told(options.item_seconds, options.lines), json.loads(os.environ["GPU_FACTS"])
        try:
            item.run(SimpleNamespace(options=options, check=asked, bench=gpu.Bench(more)), *item.arguments)
        except check.OutOfTime:
            asked.report.add(item.name, OUT_OF_TIME)
    return 0


# ---- the whole


def asked(words, seconds=20):
    """What a program says; "" where it is not there or fails."""
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=seconds)
        return done.stdout.strip() if done.returncode == 0 else ""
    except (OSError, subprocess.TimeoutExpired):
        return ""


def versions(options):
    told = {"plimsoll": asked([options.plimsoll, "--version"]), "python": platform.python_version()}
    paths = [str(RIVALS), *sys.path]
    for found in importlib.metadata.distributions(path=paths):
        if (found.metadata["Name"] or "").lower() in ("torch", "transformers", "peft", "flash-linear-attention", "triton"):
            told.setdefault(found.metadata["Name"].lower(), found.version)
    return told


def state_of_card(options):
    """Clocks, and who else is there: at the beginning of each section."""
    if options.device != "cuda":
        return {}
    fields = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.draw,power.limit,temperature.gpu,memory.used,utilization.gpu"
    card = asked(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"])
    return {"fields": fields, "card": card, "others": asked(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]).splitlines()}


def build_of(options):
    digest = hashlib.sha256()
    for program in (options.plimsoll, options.tool):
        digest.update(program.read_bytes())
    return digest.hexdigest()[:16]


class First:
    def __init__(self, options, facts):
        self.options, self.facts, self.began, self.sections = options, facts, time.monotonic(), sections_of(options)
        self.path, self.results = self.open_results()

    def left(self):
        return self.options.seconds - (time.monotonic() - self.began)

    def open_results(self):
        """The unfinished file of this card and these programs, or a new one."""
        name = re.sub("[^a-z0-9]+", "-", self.facts["name"].lower()).strip("-")
        folder = ROOT / "bench/results"
        same = {"uuid": self.facts["uuid"], "name": self.facts["name"], "build": build_of(self.options), "tiny": self.options.tiny,
                "cases": self.options.cases, "items": self.options.items}
        known = [Path(self.options.out)] if self.options.out else sorted(folder.glob(f"{name}-*-first*.json"), key=lambda path: -path.stat().st_mtime)
        for path in known:
            results = read_results(path)
            if results is not None and results["of"] == same and (self.options.out or not is_whole(results, self.sections)):
                return path, results
        path = Path(self.options.out) if self.options.out else free_name(folder / f"{name}-{date.today()}-first.json")
        return path, {"of": same, "card": self.facts, "date": str(date.today()), "versions": versions(self.options), "calls": [], "sections": {}}

    def write(self):
        part_ = self.path.with_name(self.path.name + ".part")
        part_.write_text(json.dumps(self.results, indent=1) + "\n")
        os.replace(part_, self.path)

    def run(self):
        wanted = [section for section in self.sections if section.letter in self.options.sections.split(",")]
        call = {"began": datetime.now().isoformat(timespec="seconds"), "seconds": 0.0, "card": []}
        self.results["calls"].append(call)
        for section in wanted:
            state = self.results["sections"].setdefault(section.letter, {"title": section.title, "items": {}})
            missing = [number for number, item in enumerate(section.items) if item.name not in state["items"]]
            if missing and self.left() > ENOUGH:
                call["card"].append({"section": section.letter, **state_of_card(self.options)})
                self.run_section(section, state, missing)
            call["seconds"] = round(time.monotonic() - self.began, 1)
            self.write()
        return all(item.name in self.results["sections"][section.letter]["items"] for section in wanted for item in section.items)

    def run_section(self, section, state, missing):
        print(f"{section.letter}  {section.title} ...", flush=True)
        ends = time.monotonic() + min(section.seconds, self.left())
        for number in missing:
            item, left = section.items[number], ends - time.monotonic()
            if self.left() < ENOUGH:
                return
            if left < min(ENOUGH, section.seconds):
                lines, took = [line_of(item.name, "skipped", f"no time left of the section's {section.seconds:.0f} s")], 0.0
            else:
                lines, took = self.run_process(section, number, min(self.limit_of(section, item), left))
            if lines is None:
                return
            state["items"][item.name] = {"seconds": round(took, 1), "lines": lines}
            self.write()
            for line in lines:
                if line["outcome"] == "failed":
                    print(f"FAILED {section.letter}/{line['name']}: {line['detail'][:600]}", flush=True)

    def limit_of(self, section, item):
        if self.options.most and fault_of(self.options)[1] == section.letter:
            return self.options.most
        return item.seconds * self.options.slow

    def run_process(self, section, number, limit):
        """(lines, seconds); lines are None where the time of all ended, so that the item comes again."""
        item, began = section.items[number], time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            lines, log = Path(folder) / "lines.jsonl", Path(folder) / "log"
            words = [sys.executable, HERE, *sys.argv[1:], "--item", f"{section.letter}/{number}", "--item-seconds", limit, "--lines", lines, "--folder", folder]
            environment = {**os.environ, "GPU_FACTS": json.dumps(self.facts), "TMPDIR": folder,
                           "PYTHONPATH": os.pathsep.join([str(RIVALS), *filter(None, [os.environ.get("PYTHONPATH")])])}
            with log.open("w") as out:
                child = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, env=environment,
                                         start_new_session=True)
                code = wait_or_kill(child, limit)
            took, told = time.monotonic() - began, read_lines(lines)
            # Its time may have been what was left of this call.
            if (code is None or any(line["detail"] == OUT_OF_TIME for line in told)) and self.left() < ENOUGH:
                return None, took
            if code is None:
                told.append(line_of(item.name, "failed", f"was ended after its limit of {limit:.0f} s"))
            elif code != 0 or not told:
                told.append(line_of(item.name, "failed", f"exit {code}: {log.read_text()[-400:].strip()}"))
        return told, took


def wait_or_kill(child, limit):
    """The exit code; None where it had to be killed, with all that it started."""
    try:
        return child.wait(timeout=max(limit, 0.1) + 2)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
        child.stdin.close()


def line_of(name, outcome, detail):
    return {"name": name, "outcome": outcome, "detail": detail, "figures": {}}


def read_lines(path):
    """Whole ones: the last may be cut."""
    lines = []
    for text in path.read_text().splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            pass
    return lines


def read_results(path):
    try:
        results = json.loads(path.read_text())
        return results if "of" in results and "sections" in results else None
    except (OSError, json.JSONDecodeError):
        return None


def free_name(path):
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.stem}-{number}.json")
    return free


def is_whole(results, sections):
    return all(item.name in results["sections"].get(section.letter, {"items": {}})["items"] for section in sections for item in section.items)


def lines_of(results, letter):
    return [line for item in results["sections"].get(letter, {"items": {}})["items"].values() for line in item["lines"]]


def predictions():
    """{case: tokens/s} as they were committed before a card was seen."""
    path = ROOT / "bench/results/predicted-h100.json"
    return {one["case"]: one for one in json.loads(path.read_text())["rows"]} if path.exists() else {}


def table(results, sections):
    """80 columns: sections, then rows with what was predicted, then where profiles have the time."""
    text = []
    for section in sections:
        lines, state = lines_of(results, section.letter), results["sections"].get(section.letter)
        if state is None:
            continue
        count = collections.Counter(line["outcome"] for line in lines)
        took = sum(item["seconds"] for item in state["items"].values())
        done = f"{len(state['items'])}/{len(section.items)}"
        text.append(f"{section.letter}  {section.title:<32}{done:>7}{count['ok']:>5} ok{count['failed']:>3} wrong{count['skipped']:>3} left out{took:>6.0f} s")
    rivals = {line["figures"]["case"]: line["figures"] for line in lines_of(results, "f") if line["outcome"] == "ok"}
    known = predictions()
    rows = [line["figures"] for letter in "ce" for line in lines_of(results, letter) if "tokens_per_second" in line["figures"]]
    if rows:
        text.append(f"{'':<46}{'tokens/s':>10}{'plan':>7}{'h100':>7}{'there':>10}")
    for figures in rows:
        took, there = figures["seconds_per_step"], rivals.get(figures["case"], {}).get("tokens_per_second")
        before = known.get(figures["case"], {}).get("seconds_per_step")
        scored = f"{before / took:.2f}" if before else ""
        beside = f"{there:,.0f}" if there else ""
        name = figures["case"].replace(" sft", "").replace(" on the host", "")
        text.append(f"{name[:46]:<46}{figures['tokens_per_second']:>10,.0f}{figures['predicted_seconds_per_step'] / took:>7.2f}"
                    f"{scored:>7}{beside:>10}".rstrip())
    for line in lines_of(results, "d"):
        if "ops" in line["figures"]:
            most = [f"{name} {of['share']:.0%}" for name, of in line["figures"]["ops"].items()][:5]
            text += textwrap.wrap(line["figures"]["case"].replace(" sft", "") + ": " + ", ".join(most), 80, subsequent_indent="  ")
    return "\n".join(text)


def options_of():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plimsoll", required=True, type=Path)
    parser.add_argument("--tool", required=True, type=Path)
    parser.add_argument("--device", choices=("cuda", "emulated"), default="cuda")
    parser.add_argument("--seconds", type=float, default=540, help="of this call; the next one goes on")
    parser.add_argument("--sections", default=",".join(section.letter for section in SECTIONS))
    parser.add_argument("--out", help="the figures; by default bench/results/CARD-DATE-first.json")
    parser.add_argument("--tiny", action="store_true", help="sizes for an emulated card; the figures say nothing")
    parser.add_argument("--cases", default="", help="for tests: ops whose names have one of these, instead of a section's own")
    parser.add_argument("--items", default="", help="for tests: those whose names have one of these, between semicolons")
    parser.add_argument("--slow", type=float, default=1, help="for tests: limits are so many times longer")
    parser.add_argument("--most", type=float, help="for tests: seconds that an item may take in the section with a fault")
    parser.add_argument("--wrong", default="", help="for tests: a fault of the emulated card, stuck or killed, everywhere or with @c in section c")
    parser.add_argument("--item", help=argparse.SUPPRESS)
    for hidden in ("--item-seconds", "--lines", "--folder"):
        parser.add_argument(hidden, type=float if hidden == "--item-seconds" else str, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.tiny = options.tiny or options.device == "emulated"
    options.plimsoll, options.tool = options.plimsoll.resolve(), options.tool.resolve()
    for program in (options.plimsoll, options.tool):
        if not program.exists():
            sys.exit(f"{program}: is not there; make gpu-first builds it, and a folder of make gpu-carry has it in bin (GPU_TOOLS=bin)")
    if unknown := set(options.sections.split(",")) - {section.letter for section in SECTIONS}:
        sys.exit(f"--sections: there is no section {', '.join(sorted(unknown))}; there are {', '.join(section.letter for section in SECTIONS)}")
    return options


def main():
    options = options_of()
    if options.item:
        return run_item(options)
    done = subprocess.run([str(options.tool), "facts", "--device", options.device], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        print(done.stderr.strip() or f"{options.tool}: exit {done.returncode}", file=sys.stderr)
        return 2
    first = First(options, json.loads(done.stdout))
    whole = first.run()
    print(table(first.results, first.sections))
    print(f"{first.path}" + ("" if whole else "\nthe time ended: the same command goes on"))
    return 1 if any(line["outcome"] == "failed" for letter in first.results["sections"] for line in lines_of(first.results, letter)) else 0


if __name__ == "__main__":
    sys.exit(main())
