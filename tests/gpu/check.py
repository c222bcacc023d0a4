"""Everything that a card has to do right, asked of it in one go: `make gpu-check` (docs/explanation/cuda.md).

    check.py --plimsoll PROGRAM --tool PLIMSOLL_GPU_CHECK [--device cuda|emulated] [--out FILE] [--seconds 520]

What cannot be asked here (no compute-sanitizer, no time left) is skipped and says so. Exit codes: 0, 1 where something
was wrong, 2 without a card. Standard library only.
"""
import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from small_models import DELTA, GLA, LLAMA, LOSSLESS, ROOT, STEPS, T5, golden_recipe, steps, tiny_recipe  # noqa: E402

LIMIT = 1e-4  # relative, of each loss in fp32
BF16_LIMIT = 0.02  # sums in another order round otherwise
GRAPHS = ("--set", "memory.graphs=on")
# Ends a run behind its warm-up: until there the rates, and so the losses, are those of the whole schedule.
FIRST_STEPS = ("--set", f"schedule.max_steps={STEPS}")
ASKED = ("llama, LoRA", "llama, full", "GLA", "T5")  # in fp32
# Ops whose kernels no card has run yet, by what their cases' names have: asked first, and first under the sanitizer.
NEVER_RUN = ("gla", "delta_rule", "delta_gate", "sigmoid_gate", "attention", "short_conv", "rider", "shared_rows", "adapted_head")
SANITIZERS = ("memcheck", "racecheck", "synccheck")
PARTS = ("calls", "ops", "large", "memory", "runs", "ranks", "refusals", "sanitizer")
STAGES = ("none", "states", "gradients", "weights")  # of memory.shard
SHARES_CARDS = 23000  # NCCL 2.30: two ranks may have one card
MIB = 2**20


class OutOfTime(Exception):
    pass


class Report:
    """What was asked, with what came of it."""

    def __init__(self, seconds):
        self.lines, self.began, self.seconds = [], time.monotonic(), seconds

    def left(self):
        left = self.seconds - (time.monotonic() - self.began)
        if left < 1:
            raise OutOfTime
        return left

    def add(self, name, detail="", figures=None, skipped=False):
        outcome = "skipped" if skipped else "failed" if detail else "ok"
        self.lines.append({"name": name, "outcome": outcome, "detail": detail, "figures": figures or {}})
        if outcome == "failed":
            print(f"FAILED {name}: {detail}", flush=True)

    def count(self, outcome):
        return sum(line["outcome"] == outcome for line in self.lines)

    def table(self):
        """A row for each line; ops are one row, with a row for each that failed."""
        ops = [line for line in self.lines if line["name"].startswith("op/")]
        rows = [line for line in self.lines if not line["name"].startswith("op/") or line["outcome"] != "ok"]
        if ops:
            same = sum(line["figures"].get("bits") == "of the emulated card" and line["outcome"] == "ok" for line in ops)
            right = sum(line["outcome"] == "ok" for line in ops)
            rows.append({"name": "op/*", "outcome": "ok" if right == len(ops) else "failed",
                         "detail": f"{right} of {len(ops)} cases as the reference has them, {same} with the bits of the emulated card"})
        width = max(len(row["name"]) for row in rows)
        return "\n".join(f"{row['outcome']:8}{row['name']:{width}}  {row['detail']}".rstrip() for row in rows)


class Check:
    def __init__(self, options, folder):
        self.options, self.folder, self.report = options, Path(folder), Report(options.seconds)
        self.on_card = options.device == "cuda"
        self.runs = 0

    def run(self, words, limit=None, **variables):
        limit = min(limit or 600, self.report.left())  # which says where no time is left
        environment = {**os.environ, "PLIMSOLL_NO_PROBE": "1", **variables}
        try:
            return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=limit, env=environment)
        except subprocess.TimeoutExpired as late:
            self.report.left()
            said = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
            return subprocess.CompletedProcess(words, 124, said, f"took more than {limit:.0f} s")

    def tool(self, part, *words, before=(), limit=None, **variables):
        wrong = ["--wrong", self.options.wrong] if self.options.wrong else []
        return self.run([*before, self.options.tool, part, "--device", self.options.device, *wrong, *words], limit, **variables)

    def take(self, done, part, may_skip=False):
        """The outcomes that the tool told; what it says at the end where it ended otherwise."""
        told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        for line in told:
            skipped = (line["figures"] or {}).get("skipped", "") if may_skip else ""
            self.report.add(line["name"], line["detail"] or skipped, line["figures"], skipped=bool(skipped))
        if done.returncode not in (0, 1) or (done.returncode == 1 and not any(line["detail"] for line in told)):
            self.report.add(f"{part}/the program", f"exit {done.returncode}: {done.stderr.strip()[-400:]}")
        return told

    def calls(self):
        self.take(self.tool("calls", limit=60), "calls")

    def ops(self):
        """All cases, and those of products without the library that computed them."""
        self.op_cases("op", self.chosen(self.options.cases))
        if (self.facts.get("products") or "").startswith("cuBLASLt"):
            self.op_cases("op/own products", self.chosen(self.options.cases or "linear"), PLIMSOLL_CUBLASLT="none")

    def chosen(self, cases):
        """The tool's words for these op cases, less those that --without names."""
        return [*(["--cases", cases] if cases else []), *(["--without", self.options.without] if self.options.without else [])]

    def op_cases(self, name, chosen, **variables):
        """A kernel that faults takes its process with it: the next one begins behind it."""
        begin = 0
        while True:
            done = self.tool("ops", *chosen, "--from", begin, **variables)
            told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            for line in told:
                self.report.add(line["name"].replace("op", name, 1), line["detail"], line["figures"])
            last = told[-1]["figures"]["at"] if told else begin - 1
            if done.returncode in (0, 1) and not (told and told[-1]["figures"].get("fatal")):
                if not told and begin == 0:
                    self.report.add(f"{name}/*", f"no case was asked: {done.stderr.strip()[-400:]}")
                return
            if done.returncode == 2:  # nothing that another case would change
                self.report.add(f"{name}/*", f"exit 2: {done.stderr.strip()[-400:]}")
                return
            if not (told and told[-1]["figures"].get("fatal")):
                last += 1
                self.report.add(f"{name}/number {last}", f"exit {done.returncode}: {done.stderr.strip()[-400:]}")
            begin = last + 1

    def large(self):
        """Tensor cores beside the plain kernels, at the shapes of a bench."""
        small = [] if self.on_card else ["--small", "yes"]
        self.take(self.tool("large", *small, limit=60 if self.on_card else None), "large")

    def memory(self):
        """The arena, and what is gone of the card beside it as the plan by its name states that."""
        size = [] if self.on_card else ["--bytes", 64 * MIB]
        for line in self.take(self.tool("memory", *self.chosen(self.options.cases), *size), "memory"):
            if self.on_card:
                self.compare_outside(line["figures"])

    def compare_outside(self, measured):
        planned = self.facts["planned"]
        if planned is None:
            self.report.add("memory/as planned", self.facts["problem"])
            return
        parts = {part["name"]: part for part in planned["outside"]}
        driver = planned["memory_bytes"] - measured["total_bytes"]
        process = measured["at_start_bytes"] + measured["grown_by_kernels_bytes"]
        own = [parts[name] for name in parts if name != "driver"]
        others = self.others()
        for name, got, states in (("driver", driver, [parts["driver"]]), ("process", process, own)):
            want, uncertain = sum(part["bytes"] for part in states), sum(part["uncertain"] for part in states)
            figures = {"measured_bytes": got, "planned_bytes": want, "uncertain_bytes": uncertain}
            detail = f"{got / MIB:.0f} MiB, planned {want / MIB:.0f} +- {uncertain / MIB:.0f}"
            above = got > want + uncertain
            if name == "process" and others:
                self.report.add(f"memory/outside: {name}", f"{detail}; {others} compute here too", figures, skipped=True)
            else:
                self.report.add(f"memory/outside: {name}", detail if above else "", figures)

    def others(self):
        """Who else is on the card, in words, as the driver tells; empty: nobody, or it does not tell."""
        done = self.run([self.options.plimsoll, "devices", "--json"])
        cards = json.loads(done.stdout).get("gpus", []) if done.returncode == 0 else []
        mine = [card for card in cards if card["uuid"] == self.facts["uuid"]]
        known = mine[0]["processes"] if mine else None
        return f"{len(known)} processes" if known else ""

    def train(self, path, device, *words, **variables):
        """(steps, run.json) of a run; what it said where it failed."""
        output = Path(json.loads(path.read_text())["output"])
        shutil.rmtree(output, ignore_errors=True)
        done = self.run([self.options.plimsoll, "train", path, "--quiet", "--device", device, *words], **variables)
        if done.returncode != 0:
            raise RuntimeError(f"exit {done.returncode}: {done.stderr.strip()[-400:]}")
        return steps(output), json.loads((output / "run.json").read_text())

    def place(self):
        self.runs += 1
        place = self.folder / str(self.runs)
        place.mkdir()
        return place

    def one_run(self, name, path, limit, expected=None, lossless=()):
        """The card's losses beside the CPU's (and PyTorch's), a second time, and by means that must not change a bit.

        A step on the emulated card takes a third of a second: what is done again there are the first steps.
        """
        again_words = () if self.on_card else FIRST_STEPS
        try:
            here, ran = self.train(path, self.options.device)
            there, _ = self.train(path, "cpu")
            detail = loss_fault(here, [step["loss"] for step in there], limit, "the CPU's") or scale_fault(here, there) or arena_fault(ran)
            if not detail and expected:
                detail = loss_fault(here, expected, limit, "PyTorch's")
            for words in ([], GRAPHS, *lossless):
                again, ran = self.train(path, self.options.device, *words, *again_words)
                expected_again = here if self.on_card else here[:STEPS]
                if not detail and [step["loss"] for step in again] != [step["loss"] for step in expected_again]:
                    detail = "other bits " + (f"with {' '.join(words)}" if words else "a second time")
                detail = detail or arena_fault(ran)
            figures = {"losses": [step["loss"] for step in here], "cpu": [step["loss"] for step in there], "seconds": ran["seconds"]}
            self.report.add(f"run/{name}", detail, figures)
            if not detail and name in ASKED:
                self.report.add(f"answers/{name}", self.answers(path))
        except RuntimeError as error:
            self.report.add(f"run/{name}", str(error))

    def answers(self, path):
        """The run's tokens and its loss, on the card and on the CPU."""
        recipe = json.loads(path.read_text())
        asked = []
        for device in (self.options.device, "cpu"):
            ask = ("--json", "--device", device)
            generated = self.told("generate", recipe["output"], "--ids", "5,17,30,9", "--max-new-tokens", 8, *ask)
            asked.append((generated["response_ids"], self.told("eval", recipe["output"], "--data", recipe["data"]["train"], "--limit", 4, *ask)["loss"]))
        (here, loss), (there, expected) = asked
        if here != there:
            return f"tokens {here}, the CPU's are {there}"
        return "" if abs(loss - expected) <= LIMIT * expected else f"a loss of {loss}, the CPU's is {expected}"

    def told(self, *words):
        done = self.run([self.options.plimsoll, *words])
        if done.returncode != 0:
            return {"response_ids": f"exit {done.returncode}: {done.stderr.strip()[-400:]}", "loss": math.nan}
        return json.loads(done.stdout)

    def trainings(self):
        """(name, recipe, limit, PyTorch's losses or None, means that lose nothing)."""
        golden = ROOT / "tests/golden"
        target = {"data": {"max_length": {"source": 24, "target": 16}}}

        def losses(name):
            return json.loads((golden / name / "expected.json").read_text())["train"]["losses"]

        lora = {"method": {"type": "lora"}, "adapter": str(golden / "llama_lora/adapter")}
        # The planner may choose other chunks of the loss with other means, and bits are promised within them.
        full = {"method": {"type": "full"}, "memory": {"loss_chunk": 32}}
        yield "llama, LoRA", golden_recipe(golden / "llama_lora", self.place(), "run", **lora), LIMIT, losses("llama_lora"), LOSSLESS[2:]
        yield "llama, full", golden_recipe(golden / "llama_full", self.place(), "run", **full), LIMIT, losses("llama_full"), LOSSLESS
        yield "llama, QLoRA", tiny_recipe(self.place(), LLAMA, "run", method={"type": "qlora", "r": 4}), LIMIT, None, ()
        yield "llama, full, bf16", tiny_recipe(self.place(), LLAMA, "run", precision="bf16"), BF16_LIMIT, None, LOSSLESS[2:]
        # Weights so large that the gradients of the first step overflow.
        large = {**LLAMA, "initializer_range": 0.5}
        yield "llama, full, fp16", tiny_recipe(self.place(), large, "run", precision="fp16"), BF16_LIMIT, None, LOSSLESS[3:]
        yield "reward", tiny_recipe(self.place(), LLAMA, "run", task="reward"), LIMIT, None, ()
        yield "GLA", tiny_recipe(self.place(), GLA, "run"), LIMIT, None, LOSSLESS[3:]
        yield "T5", tiny_recipe(self.place(), T5, "run", task="seq2seq", **target), LIMIT, None, LOSSLESS[3:]
        yield "GLA, bf16", tiny_recipe(self.place(), GLA, "run", precision="bf16"), BF16_LIMIT, None, LOSSLESS[3:]
        yield "Qwen3.5", tiny_recipe(self.place(), DELTA, "run"), LIMIT, None, LOSSLESS[3:]
        yield "Qwen3.5, bf16", tiny_recipe(self.place(), DELTA, "run", precision="bf16"), BF16_LIMIT, None, LOSSLESS[3:]
        dropping = {**T5, "feed_forward_proj": "gated-gelu", "dropout_rate": 0.1}
        yield ("T5, bf16", tiny_recipe(self.place(), dropping, "run", task="seq2seq", precision="bf16", **target), BF16_LIMIT, None, LOSSLESS[3:])

    def run_all(self):
        for name, path, limit, expected, lossless in self.trainings():
            if not self.options.runs or self.options.runs in name:
                self.one_run(name, path, limit, expected, lossless)

    def ranks(self):
        """Sums over ranks on the card, NCCL with one rank; two processes of one run on this one card: every stage, with one set of bits."""
        told = self.take(self.tool("ranks", limit=120), "ranks", may_skip=True)
        self.two_ranks(next((line["figures"] or {} for line in told if "NCCL" in line["name"]), {}))

    def two_ranks(self, nccl):
        """Through the host, and by an NCCL that can give two ranks one card."""
        ways = {"": {}}
        if nccl.get("version", 0) >= SHARES_CARDS or (nccl.get("version") and not self.on_card):
            ways[" by NCCL"] = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "4"}
        else:
            found = f"the one found is {version_words(nccl['version'])}" if "version" in nccl else "none was found"
            self.report.add("ranks/two on one card by NCCL", f"needs NCCL 2.30 or later, and {found}", skipped=True)
        config = {**LLAMA, "hidden_size": 64, "intermediate_size": 72, "tie_word_embeddings": False}
        path = tiny_recipe(self.place(), config, "run", batch={"effective": 8, "micro": 4})
        both = {"PLIMSOLL_RANK_CARDS": f"{self.facts['uuid']},{self.facts['uuid']}"} if self.on_card else {}
        first = None
        for way, stage in ((way, stage) for way in ways for stage in STAGES):
            name = f"ranks/two on one card{way}, memory.shard: {stage}"
            by_nccl = ("--set", "memory.exchange=nccl") if way else ()
            try:
                alone, _ = self.train(path, self.options.device) if first is None else (alone, None)
                here, ran = self.train(path, self.options.device, "--devices", 2, "--set", f"memory.shard={stage}", "--set", "memory.loss_chunk=64", *by_nccl, **both, **ways[way])
            except RuntimeError as error:
                self.report.add(name, str(error), skipped="several processes need MPI" in str(error))
                continue
            bits = [(step["loss"], step["grad_norm"]) for step in here]
            detail = loss_fault(here, [step["loss"] for step in alone], LIMIT, "those of one process") or rank_fault(ran)
            if not detail and bits != (first := first or bits):
                detail = "other bits than with another stage"
            self.report.add(name, detail, {"losses": [step["loss"] for step in here], "seconds": ran["seconds"], "exchange_bytes": ran["ranks"][0]["exchange_bytes"]})
        if first is not None:
            self.one_copy_on_the_host(both)

    def one_copy_on_the_host(self, both):
        """Frozen weights that both fetch from memory that they share and lock each, with the bits of copies."""
        path = tiny_recipe(self.place(), {**LLAMA, "hidden_size": 192, "intermediate_size": 256}, "run", method={"type": "lora", "r": 4}, batch={"effective": 8, "micro": 4},
                           memory={"offload": ["weights"], "loss_chunk": 64})
        name, found = "ranks/two on one card, memory.node_copy on the host", []
        try:
            for node_copy in ("false", "true"):
                here, ran = self.train(path, self.options.device, "--devices", 2, "--set", f"memory.node_copy={node_copy}", **both)
                found.append(([(step["loss"], step["grad_norm"]) for step in here], rank_fault(ran), {rank["shared_bytes"] for rank in ran["ranks"]}))
        except RuntimeError as error:
            self.report.add(name, str(error))
            return
        (apart, fault, none), (once, other, shared) = found
        detail = fault or other or ("" if none == {0} and min(shared) > 0 else f"shared bytes are {none} and {shared}") or ("" if apart == once else "other bits than with copies")
        self.report.add(name, detail, {"losses": [loss for loss, _ in once], "shared_bytes": max(shared)})

    def refusals(self):
        self.two_at_once()
        if not self.on_card:
            for name in ("a UUID that is not there", "too little of the card's memory"):
                self.report.add(f"refused/{name}", "needs a card", skipped=True)
            return
        path = tiny_recipe(self.place(), LLAMA, "run")
        done = self.run([self.options.plimsoll, "train", path, "--device", "cuda"], CUDA_VISIBLE_DEVICES="GPU-00000000-0000-0000-0000-000000000000")
        self.report.add("refused/a UUID that is not there", expect(done, 2, "the driver lists no GPU"))
        self.report.add("refused/too little of the card's memory", self.full_card(path))

    def full_card(self, path):
        """Another process has nearly all of the card: exit 3 and what is free, before anything is written."""
        keep = self.facts["memory_bytes"] * 97 // 100 - 1200 * MIB
        holder = subprocess.Popen([str(self.options.tool), "hold", "--bytes", str(keep)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            said = holder.stdout.readline()
            if not said:
                return f"no {keep} bytes could be held"
            free = json.loads(said)["figures"]["free_bytes"]
            done = self.run([self.options.plimsoll, "train", path, "--device", "cuda", "--no-reuse", "--set", "batch.effective=65536",
                             "--set", "batch.micro=65536"])
            fault = expect(done, 3, "does not fit")
            return fault and f"{fault} (free: {free / MIB:.0f} MiB)"
        finally:
            holder.stdin.close()
            holder.wait(30)

    def two_at_once(self):
        paths = [tiny_recipe(self.place(), LLAMA, "run") for _ in range(2)]
        try:
            alone, _ = self.train(paths[0], self.options.device)
            both = [subprocess.Popen([str(self.options.plimsoll), "train", str(path), "--quiet", "--overwrite", "--device", self.options.device],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for path in paths]
            ends = [(one.communicate(timeout=self.report.left())[1], one.returncode) for one in both]
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            self.report.add("run/two processes at once", str(error))
            return
        detail = "; ".join(f"exit {code}: {said.strip()[-200:]}" for said, code in ends if code != 0)
        for path in paths:
            if not detail and [step["loss"] for step in steps(path.parent / "run")] != [step["loss"] for step in alone]:
                detail = "other bits beside another process"
        self.report.add("run/two processes at once", detail)

    def sanitizer(self):
        found = sanitizer_here()
        if not found or not self.on_card:
            self.report.add("sanitizer", "needs a card" if found else "compute-sanitizer is not here", skipped=True)
            return
        never = ",".join(NEVER_RUN)
        for which, words in (("ops that never ran", ("--cases", self.options.cases or never)), ("other ops", ("--without", never))):
            for kind in SANITIZERS:
                if which == "ops that never ran" or not self.options.cases:
                    self.sanitize(found, kind, f"sanitizer/{kind}, {which}", words)

    def sanitize(self, found, kind, name, words, limit=100):
        """One of the sanitizer's tools over op cases, by the kernels here alone."""
        before = [found, "--tool", kind, "--error-exitcode", "9", "--print-limit", "5"]
        done = self.tool("ops", *words, before=before, limit=limit, PLIMSOLL_CUBLASLT="none")
        told = sum(line.startswith("{") for line in done.stdout.splitlines())
        said = done.stdout + done.stderr
        errors = re.search(r"SUMMARY: (\d+) (?:error|hazard)", said)  # racecheck's are hazards
        cut = done.returncode == 124 and not re.search(r"^========= (?:Invalid|Error|Barrier|Race|Warning: Race|Misaligned|Program hit)", said, re.M)
        if cut:
            self.report.add(name, f"{told} cases, then stopped after {limit:.0f} s", {"cases": told}, skipped=True)
            return
        right = done.returncode in (0, 1) and errors and errors[1] == "0"
        self.report.add(name, "" if right else said.strip()[-600:], {"cases": told})

    def ask(self):
        """False without a card."""
        done = subprocess.run([str(self.options.tool), "facts", "--device", self.options.device], capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            print(done.stderr.strip() or f"{self.options.tool}: exit {done.returncode}", file=sys.stderr)
            return False
        self.facts = json.loads(done.stdout)
        asks = {"calls": self.calls, "ops": self.ops, "large": self.large, "memory": self.memory, "runs": self.run_all, "ranks": self.ranks, "refusals": self.refusals, "sanitizer": self.sanitizer}
        for part in self.options.parts.split(","):
            try:
                print(f"{part} ...", flush=True)
                asks[part]()
            except OutOfTime:
                self.report.add(part, f"no time left of {self.options.seconds} s", skipped=True)
        return True

    def write(self):
        name = re.sub("[^a-z0-9]+", "-", self.facts["name"].lower()).strip("-")
        path = Path(self.options.out) if self.options.out else ROOT / f"bench/results/{name}-{date.today()}-check.json"
        path.write_text(json.dumps({"card": self.facts, "seconds": round(time.monotonic() - self.report.began, 1), "lines": self.report.lines}, indent=1) + "\n")
        return path


def sanitizer_here():
    return shutil.which("compute-sanitizer") or next(map(str, Path("/usr/local").glob("cuda*/bin/compute-sanitizer")), None)


def loss_fault(here, expected, limit, whose):
    if len(here) != len(expected):
        return f"{len(here)} steps, {whose} are {len(expected)}"
    for step, want in zip(here, expected):
        if not abs(step["loss"] - want) <= limit * abs(want):
            return f"step {step['step']}: the loss is {step['loss']:.7g}, {whose} is {want:.7g}"
    return ""


def scale_fault(here, there):
    """Of a run in fp16: gradients overflow, and the scale of the loss is halved where the CPU halves it."""
    scales, expected = ([step.get("loss_scale") for step in steps] for steps in (here, there))
    if scales != expected:
        return f"scales of the loss {scales}, the CPU's are {expected}"
    return "no gradients overflowed" if scales[0] is not None and len(set(scales)) == 1 else ""


def arena_fault(ran):
    """Planned bytes are those that the driver was asked for."""
    for arena in ("device_arena_bytes", "host_arena_bytes"):
        if ran["planned"][arena] != ran["measured"][arena]:
            return f"{arena}: planned {ran['planned'][arena]}, asked for {ran['measured'][arena]}"
    return ""


def version_words(version):
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def rank_fault(ran):
    """Each process asked for the bytes that were planned."""
    planned = ran["planned"]["device_arena_bytes"]
    asked = [rank["device_arena_bytes"] for rank in ran["ranks"]]
    return "" if asked == [planned] * 2 else f"planned {planned} bytes at each of two, asked for {asked}"


def expect(done, code, words):
    said = done.stdout + done.stderr
    if done.returncode == code and words in said:
        return ""
    return f"exit {done.returncode} (should be {code}, with '{words}'): {said.strip()[-300:]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plimsoll", required=True, type=Path)
    parser.add_argument("--tool", required=True, type=Path)
    parser.add_argument("--device", choices=("cuda", "emulated"), default="cuda")
    parser.add_argument("--out", help="the figures; by default bench/results/CARD-DATE-check.json")
    parser.add_argument("--seconds", type=float, default=520, help="what has no time left then is skipped")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--cases", default="", help="ops whose names have one of these")
    parser.add_argument("--without", default="", help="and have none of these")
    parser.add_argument("--runs", default="", help="trainings whose names have this")
    parser.add_argument("--wrong", default="", help="what the emulated card does wrong, to see it noticed")
    options = parser.parse_args()
    for program in (options.plimsoll, options.tool):
        if not program.exists():
            sys.exit(f"{program}: is not there; make gpu-check builds it")
    with tempfile.TemporaryDirectory() as folder:
        check = Check(options, folder)
        if not check.ask():
            return 2
        path = check.write()
    print(check.report.table())
    print(f"{check.report.count('ok')} ok, {check.report.count('failed')} failed, {check.report.count('skipped')} skipped; {path}")
    return 1 if check.report.count("failed") else 0


if __name__ == "__main__":
    sys.exit(main())
