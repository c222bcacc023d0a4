"""What evaluation, generation and scoring are planned to take, to the byte, is what tests/golden/answer-plans.json holds.

No command prints these bytes, but a refusal says how much is missing: less than a KiB is said to the byte, so a few refusals that come
closer tell the need of any version of the program. PLIMSOLL_GOLDEN=write writes the file anew where a change is meant.

Usage: answer_plans_test.py PLIMSOLL FAKE_NVML            (from the repository's root; standard library only)
       answer_plans_test.py PLIMSOLL FAKE_NVML --beside OTHER   shows where two programs differ, also in what they answer and in what
                                                                `debug-dump` computes of a batch, byte for byte
"""
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from command_run import PLIMSOLL, ROOT, CommandTest, built_library, output
from small_models import BERT, GLA, LLAMA, T5, golden_recipe, tiny_recipe

LIBRARY = built_library("fake_nvml")
GOLDEN = ROOT / "tests/golden/answer-plans.json"
GOLDEN_LORA = ROOT / "tests/golden/llama_lora"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MACHINE = ("--threads", "1", "--max-isa", "avx2")
UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
CARD_BYTES = 12 * GIB
PROMPT = ("--ids", "5,17,30,1", "--max-new-tokens", "6")
EVAL = ("--data", "{rows}", "--limit", "4", "--max-length", "40")
PAIR = ("--prompt", "Say something.", "--response", "Yes.", "--response", "No, thank you.")
IDS = ("--data", str(GOLDEN_LORA / "train.jsonl"), "--set", "data.format=input-ids", "--limit", "4")
TEXTS = {"data": {"max_length": {"source": 24, "target": 16}}}
# name of a run: its model and what its recipe says; None: the model of tests/golden/llama_lora.
RUNS = {"llama": (LLAMA, {}), "gla": (GLA, {}), "t5": (T5, {"task": "seq2seq", **TEXTS}),
        "bert": (BERT, {"task": "classify", "classify": {"labels": ["fact", "order", "question"]}}), "reward": (LLAMA, {"task": "reward"}),
        "dpo": (LLAMA, {"task": "dpo"}),
        "lora": (None, {"method": {"type": "lora", "r": 4}}), "qlora": (None, {"method": {"type": "qlora", "r": 4}})}
# name of a case: the run and the command.
CASES = {
    **{f"eval {run}, 3 at a time": (run, "eval", *EVAL, "--batch", "3") for run in ("llama", "gla", "t5", "bert", "reward")},
    "eval bert, 1 at a time": ("bert", "eval", *EVAL, "--batch", "1"),
    "eval llama, bf16": ("llama", "eval", *EVAL, "--batch", "4", "--precision", "bf16"),
    "eval dpo": ("dpo", "eval", "--data", "{rows}", "--limit", "4", "--set", "dpo.loss=orpo", "--batch", "2"),
    **{f"eval {run}": (run, "eval", *IDS, "--batch", "2") for run in ("lora", "qlora")},
    **{f"generate {run}": (run, "generate", *PROMPT) for run in ("llama", "gla", "t5", "lora", "qlora")},
    "generate llama, context": ("llama", "generate", *PROMPT, "--context", "64"),
    "generate llama, bf16": ("llama", "generate", *PROMPT, "--precision", "bf16"),
    **{f"generate {run}, beams": (run, "generate", *PROMPT, "--num-beams", "3") for run in ("llama", "t5")},
    "score reward": ("reward", "score", *PAIR, "--batch", "2"),
    "classify bert": ("bert", "classify", "--text", "Bring me the river now!", "--batch", "1"),
}
# Those that are asked on a card too.
ON_CARDS = ("eval llama, 3 at a time", "eval t5, 3 at a time", "eval bert, 3 at a time", "generate llama", "generate t5, beams", "generate qlora", "score reward")


def number_of(text):
    value, unit = text.split()
    return float(value) * UNITS[unit]


class Machine:
    """What is free in the machine that a command sees, and its cards."""

    def __init__(self, folder):
        self.meminfo, self.cards = folder / "meminfo", folder / "cards"
        self.nothing_left = {"host": 0, "device": 0}  # the most that may be free with nothing for an arena: the driver has it

    def environment(self, host, device):
        self.meminfo.write_text(f"MemAvailable: {host // KIB} kB\n")
        self.cards.write_text(f"emulated 0\ncard GPU-aaaaaaaa-1111-2222-3333-444444444444 {CARD_BYTES} {CARD_BYTES - device}\nname NVIDIA GeForce RTX 3060\n")
        return {**{k: v for k, v in os.environ.items() if k != "CUDA_DEVICE_ORDER"}, "PLIMSOLL_NO_PROBE": "1", "PLIMSOLL_MEMINFO": str(self.meminfo),
                "PLIMSOLL_NVML": str(LIBRARY), "FAKE_NVML": str(self.cards), "PLIMSOLL_EMULATED_CARDS": "1", "CUDA_VISIBLE_DEVICES": "0"}


def run(program, words, environment):
    return subprocess.run([str(program), *words], capture_output=True, text=True, timeout=300, env=environment)


def needed(program, words, machine, what):
    """The bytes of the host or of a card that must be free for it, as its refusals tell, and what the last of them says."""
    refused, enough, text, next_free = machine.nothing_left[what], {"host": 8 * GIB, "device": CARD_BYTES}[what], "", machine.nothing_left[what]
    for _ in range(60):
        limits = {"host": 8 * GIB, "device": CARD_BYTES, what: next_free}
        done = run(program, words, machine.environment(**limits))
        assert done.returncode in (0, 3), f"{words}: exit code {done.returncode}\n{done.stderr}"
        if done.returncode == 0:
            enough = next_free
        else:
            refused, text = next_free, re.search(r"does not fit   (.*?), \S+ \S+ may be used", done.stderr, re.S)[1]
            usable, short = re.search(r", (\S+ \S+) may be used.*short by (\S+ \S+)", done.stderr, re.S).groups()
            if usable == "0 B" and refused > 0:
                machine.nothing_left[what] = max(refused, machine.nothing_left[what])
            elif short.endswith(" B"):
                return refused + int(short.split()[0]), text
            else:  # three digits are said: as much as is missing at least
                next_free = refused + max(int(number_of(short) * 0.993) // KIB, 1) * KIB
                continue
        if enough - refused <= KIB:
            return enough, text  # what it was given last, to the byte
        next_free = (refused + enough) // 2 // KIB * KIB
    raise AssertionError(f"{words}: no end of refusals")


class Runs:
    """The runs that are asked, trained by one program for all that are compared."""

    def __init__(self, folder):
        self.rows = {}
        for name, (config, settings) in RUNS.items():
            place = folder / name
            place.mkdir()
            recipe = tiny_recipe(place, config, "run", **settings) if config else golden_recipe(GOLDEN_LORA, place, "run", **settings)
            output("train", recipe, "--quiet", "--set", "schedule.max_steps=1", "--threads", "1", "--max-isa", "avx2")
            self.rows[name] = place / "rows.jsonl"
        self.folder = folder

    def words(self, case, *more):
        name, command, *options = CASES[case]
        return (command, str(self.folder / name / "run"), *(word.format(rows=self.rows[name]) for word in options), *MACHINE, *more)


def plans(program, runs, machine):
    """Case and device to what they need."""
    found = {}
    for case in CASES:
        devices = ("cpu", "emulated", "cuda") if case in ON_CARDS else ("cpu",)
        for device in devices:
            words = runs.words(case, "--device", device)
            host, says = needed(program, words, machine, "host")
            one = {"host": host, "says": says}
            if device == "cuda":
                one["device"], one["device says"] = needed(program, words, machine, "device")
            told = run(program, words, machine.environment(8 * GIB, CARD_BYTES))
            assert told.returncode == 0, told.stderr
            one["plan"] = next((line for line in told.stderr.splitlines() if line.startswith("plan ")), "")
            found[f"{case} on {device}"] = one
    return found


def answers(program, runs, machine):
    """What it says of each case, but for seconds, and the digest of what `debug-dump` writes."""
    found = {}
    for case in CASES:
        done = run(program, runs.words(case, "--json"), machine.environment(8 * GIB, CARD_BYTES))
        assert done.returncode == 0, done.stderr
        found[case] = re.sub(r'"[a-z_]*seconds[a-z_]*": ?[0-9.e-]+|"[a-z_]*per_second": ?[0-9.e-]+', "", done.stdout)
    batches = {"lora": GOLDEN_LORA / "batch.json", "qlora": GOLDEN_LORA / "batch.json"}
    for name in RUNS:
        batch = batches.get(name) or runs.folder / name / "batch.json"
        if name not in batches:
            batch.write_text(json.dumps(batch_of(name)))
        recipe = runs.folder / name / "run.json"
        chunks = () if name in ("bert", "reward") else (("--set", "memory.loss_chunk=8"),)  # of logits over the vocabulary
        for more in ((), ("--set", "batch.micro=1"), *chunks):
            out = runs.folder / "dump.safetensors"
            out.unlink(missing_ok=True)
            done = run(program, ("debug-dump", str(recipe), "--ids", str(batch), "--out", str(out), "--max-new-tokens", "3" if name == "lora" else "0", *MACHINE, *more),
                       machine.environment(8 * GIB, CARD_BYTES))
            assert done.returncode == 0, done.stderr
            found[f"debug-dump {name} {more}"] = hashlib.sha256(out.read_bytes()).hexdigest()
    return found


def batch_of(name):
    ids = [[5, 17, 30, 8, 9], [7, 11, 4]]
    if name == "t5":
        return {"pairs": [{"source": one, "target": one[:2]} for one in ids]}
    if name == "bert":
        return {"samples": [{"sequences": [one], "targets": [i]} for i, one in enumerate(ids)]}
    if name == "reward":
        return {"samples": [{"sequences": ids, "targets": [1, 0]}]}
    if name == "dpo":
        return {"samples": [{"sequences": ids, "labels": ids, "targets": [0.5, 0.25]}]}
    return {"sequences": [{"input_ids": one, "labels": one} for one in ids]}


def show_differences(other):
    """Prints them; whether there are some."""
    with tempfile.TemporaryDirectory() as folder:
        runs, machine = Runs(Path(folder)), Machine(Path(folder))
        old, new = ({**plans(program, runs, machine), **answers(program, runs, machine)} for program in (other, PLIMSOLL))
        print(f"{len(new)} plans and answers compared")
        for name in new:
            if old[name] != new[name]:
                print(f"{name}\n  {other}: {old[name]}\n  {PLIMSOLL}: {new[name]}")
        return old != new


class AnswerPlans(CommandTest):
    needs_run = False

    def test_evaluation_generation_and_scoring_need_the_bytes_on_record(self):
        found = plans(PLIMSOLL, Runs(self.folder), Machine(self.folder))
        if os.environ.get("PLIMSOLL_GOLDEN") == "write":
            GOLDEN.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        expected = json.loads(GOLDEN.read_text())
        self.assertEqual(list(found), list(expected))
        for name in found:
            with self.subTest(name):
                self.assertEqual(found[name], expected[name])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--beside"]:
        sys.exit(show_differences(str(Path(sys.argv[2]).resolve())))
    unittest.main()
