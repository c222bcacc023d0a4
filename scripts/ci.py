#!/usr/bin/env python3
"""The stages that a change must pass before it lands; .ci/run runs this script.

    ci.py            run them
    ci.py --list     print what would run, and why
    ci.py --next [COMMIT]        raise the number of the landing in .ci/landing; COMMIT is the last one that landed (commit that
                                 before you land)
    ci.py --record cold|warm     run them and write their seconds to bench/results/ci.json, which keeps what it knows of other stages
    ci.py --stages isas,parity   only these of them
    ci.py --slices, --other-thirds    what `make test` runs and leaves out where nothing else is asked for

Every landing builds the program and runs `make test`. The parts below are cut into three shards: instruction sets below the machine's
own, suites under sanitizers, comparisons with PyTorch, CUDA's compiler, the demo, tests whose programs take long to compile (TURNS). A landing
runs the shard that its number picks, and every part whose files it touched. Samples (load lines, faults), long suites (SUITES) and grids (families
by methods, kernels by shapes, refusals by budgets, pages with commands) are cut within (tests/shard.py): "run/0" is a third of parity's run that has
each family and each method, and a landing runs one such slice of each, and the commands of each page that it touched. It runs one whole where it
touched what that is about (SAMPLES, SUITES, GRIDS), and of parity's run each case of the families whose files it touched, unless it touched more than
WIDE grids. So any three landings in a row run everything once, but for what has a turn in nine (below).

The stages AGAIN run tests of `make test` a second time (lesser instruction sets, sanitizers). The landing's number picks their parts and, of
grids in them, the slice of its third: landing 7 the parts 1 and the slices 2. All slices in all of these parts take nine landings in a row. Folders
under sanitizers have a turn in nine landings (SANITIZED: landing 7 the third list of the second shard), and their grids one in twenty-seven. The checked
card's cases and every_variant's models have one in nine as well.

What a landing does not prove by itself:
- of parts that it touched nothing of: two thirds.
- of grids, where it changed what all of their cells share (src/ops/*.h, src/passes, src/graph ...): two thirds of the cells, such as LoRA on
  a family that this landing's slice trains in full; of long suites likewise two thirds of the tests.
- of all of these and of the stages CUT_IF_WIDE, where it touched more than WIDE grids (a large change, which ends with `make everything`): two thirds
  as well. Each kernel by itself runs on every set of the machine in `make test`.
- of the checked card's cases, of every_variant, and of grids on lesser instruction sets: eight ninths.
- under sanitizers: the folders that are neither in its list nor touched, eight ninths of them; in a wide landing those that it touched too. They are linked
  as they are without (which ccache has): what they allocate is watched, what they read and write is not.
What no landing proves and `make everything` does: the commands around the engine on the least instruction set, and tests of one folder while
sanitizers watch all others.

.ci/landing holds the number, and the commit that landed before. What was touched is what changed since then, or where no commit
is named since the number was changed before. So a landing that did not raise it (its last change is more than FRESH commits old)
runs everything, and so does a clone without history. Kernels of GPUs touch what compiles and runs them (kernels, and grids of the emulated
card), not what runs on CPUs alone.
CI_SHARD=2 repeats one shard, CI_SHARD=all (`make everything`) runs all.
"""
import argparse
import fnmatch
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LANDING = ".ci/landing"
RESULTS = "bench/results/ci.json"
SHARDS = 3
FRESH = 3  # commits behind the one that raised the number: what a last look mends
SLOWEST = 20
WIDE = 7  # grids: who touched more of them changed what all share
AGAIN = ("isas", "sanitize")  # stages that run tests of `make test` a second time
CUT_IF_WIDE = ("isas", "sanitize", "demo", "turns")  # stages of which a wide landing runs its shard alone

# Stages that run beside the one before them: downloads leave the CPUs to the compiler, and the demo keeps one CPU busy, which PyTorch's do not all the time.
# What they print comes behind the other's.
BESIDE = {"downloads": "build", "demo": "parity"}
# What a machine of two idle cores may take for a stage, in seconds: from nothing, and with a warm ccache. Printed, not judged.
# All together, those at the same time once: half an hour, and a quarter.
BUDGETS = {"setup": (60, 5), "check": (20, 20), "build": (420, 60), "downloads": (120, 5), "test": (500, 320), "isas": (60, 60),
           "sanitize": (200, 100), "parity": (120, 90), "demo": (240, 240), "kernels": (150, 40)}


CARD_TEST = "ops_gpu_emulated_test"  # a grid that CMake cuts (IN_THIRDS)
# What no CPU runs.
GPU_ALONE = ("*.cu", "src/ops/gpu_*", "src/ops/*/gpu_*", "src/ops/*_gpu*", "src/runtime/cuda_*")


OF_CARDS = ("tests/harness/*", "*.cu", "src/gpu/*", "src/ops/gpu_*", "src/ops/*/gpu_*", "src/ops/*_gpu*")


def matches(file, patterns):
    return any(fnmatch.fnmatch(file, pattern) for pattern in patterns)


@dataclass(frozen=True)
class Part:
    stage: str
    name: str  # what the stage's command calls it
    shard: int  # None: runs only where it is touched
    touched_by: tuple  # patterns of paths
    but_not_by: tuple = ()
    again: int | None = None  # which third of the shard it is of: its turn comes once in nine landings

    @property
    def grid(self):
        """What it is a slice of, or None."""
        name, cut, _ = self.name.partition("/")
        return name if cut and self.stage in ("samples", "suites", "parity") else None

    def touched(self, files):
        return any(matches(file, self.touched_by) and not matches(file, self.but_not_by) for file in files)


def under(*folders):
    return tuple(f"src/{folder}/*" for folder in folders)


def slices(stage, name, touched_by, but_not_by=()):
    return tuple(Part(stage, f"{name}/{shard}", shard, touched_by, but_not_by) for shard in range(SHARDS))


# What instruction sets can tell apart: what is compiled once for each of them, what binds it, and headers that it may include. Their rounds run
# tests of whole programs (scripts/test_instruction_sets.py); rules of ops (src/ops/pointwise/swiglu.cc) are the same code on all.
KERNELS = ("src/cpu/*", "*_simd.cc", "*_cpu.cc", "src/ops/*.h", "src/calibrate/*", "cmake/plimsoll.cmake", "cmake/ops.cmake")
# Three lists for each shard: the folders that have sanitizers in them and whose unit tests run (`tests`: those of tests/harness). A folder's tests and its
# fuzz target are touched by its files. The second shard is what reads files of others: hence the corpora and the program under bad input with each of its lists.
SANITIZED = ((("base", "files", "tensor", "ranks", "device", "cpu", "gpu", "graph"), ("ops", "runtime", "tests"),
              ("models", "tasks", "autodiff", "passes", "layout", "plan")),
             (("formats", "unicode", "tokenizer", "jinja", "chat"), ("recipe", "hub", "data"), ("fleet",)),
             (("calibrate", "weights", "runs", "prepare"), ("train", "infer", "tools"), ("report", "advise", "cli")))
# Tests whose programs take long to compile: they are built and run where it is their turn. By part: what CMake builds, and what ctest runs.
CHECKED_TEST = "ops_gpu_checked_test"
TURNS = {"toys": (("plimsoll_with_toys", "toys_op_test"), ("toys", "toys_op")),
         CHECKED_TEST: ((CHECKED_TEST,), (f"{CHECKED_TEST}_[012]",))}
SAMPLES = (  # tests of `make test` that are cut into slices, and what makes all of it run
    ("load_line", ("tests/loadline/*", *under("layout", "runtime"))),
    ("hostile_rows", ("tests/loadline/*", "src/data/encode/*", "src/data/rows/*")),
    ("data", ("tests/data_test.py", *under("data/files", "data/rows"))),  # its files of 500 MB
    ("budget", ("tests/budget_test.py", "src/plan/report/*", "src/advise/*")),  # its small runs
    ("commands_in_docs_work", ("tests/docs_test.py", *under("cli", "report"))),  # of every third page, and of those that were touched
    ("faults", ("tests/faults/*", *under("files", "formats"))),
    ("every_variant", ("src/train/*_test.cc", "src/train/test_bench*", *under("passes", "layout", "runtime"))),  # of train_test, and of it with lesser sets
    ("every_budget", under("plan/search", "layout")),  # of plan_test
    ("offload_layout", under("plan/program", "layout")),  # of plan_test: real shapes
    ("ways", ("tests/ways_test.py", *under("plan/search", "plan/report", "advise"))),
    ("several_devices", ("tests/several_devices_test.py", "tests/divided_*_test.py", "tests/node_copy_test.py", "src/train/gradient_sums*", "src/passes/reduce_gradients*", "src/passes/gather_weights*", *under("ranks"))),  # its pairs of runs with equal bits
    ("devices_cases", ("tests/devices_cases_test.py", "src/train/gradient_sums*", *under("ranks"))),  # families, tasks and methods on several
    ("emulated", ("tests/emulated_test.py", "tests/small_models.py", *under("gpu", "runtime"))),
    ("emulated_ranks", ("src/train/emulated_ranks_test.cc", "src/train/rank_bench.h", "src/train/gradient_sums*", *under("ranks", "runtime"))),  # of train_emulated_test: its orders
    (CARD_TEST, OF_CARDS),
)
# Suites of `make test` that take long, of whose tests a landing runs a third (SuiteLoader in tests/shard.py), and beside themselves what makes all of
# them run. They are no grids: their tests do not repeat each other. How many of them a landing touched makes it no wide one.
SUITES = (
    ("train_test", under("train", "runs")),
    ("dpo_test", ("src/tasks/dpo*", "src/ops/loss/preference*", "src/data/encode/preference*", "src/train/reference_log_probs*")),
    ("scores_test", ("src/tasks/*", "src/infer/score*", "src/runs/*rows*", "src/ops/loss/sequence_loss*")),
    ("shared_prefixes_test", ("src/data/batch/*", "src/ops/attention/*")),
    ("devices_test", ("tests/fake_nvml.cc", "src/fleet/devices/*", *under("device"))),
    ("gpu_check_test", ("tests/gpu/*",)),
    ("emulated_test", ("tests/small_models.py", *under("gpu", "runtime"))),
    ("budget_test", ("src/plan/report/*", "src/advise/*")),
    ("data_test", under("data")),
    ("several_devices_test", ("src/train/gradient_sums*", "src/passes/reduce_gradients*", *under("ranks"))),
    ("divided_gradients_test", ("src/train/gradient_sums*", "src/passes/reduce_gradients*", *under("ranks"))),
    ("nccl_test", ("tests/fake_nccl.cc", "src/gpu/nccl*", "src/runtime/nccl_exchange*", "src/prepare/devices/rank_exchange*", *under("ranks"))),
    ("cards_as_ranks_test", ("src/train/gradient_sums*", "src/runtime/device_bytes*", *under("ranks"))),
    ("queue_test", ("tests/queue_case.py", "src/fleet/queue/*", "src/cli/queue/*")),
    ("queue_trainings_test", ("tests/queue_case.py", "src/fleet/queue/*", "src/cli/queue/*")),
    ("queue_devices_test", ("tests/queue_case.py", "src/fleet/queue/*", "src/cli/queue/*", *under("ranks"))),
    ("slurm_test", ("src/fleet/slurm/*", "scripts/slurm.sh")),
    ("keep_frozen_test", ("src/passes/keep_frozen*", "src/passes/adapter_rules*", "src/passes/name_pattern*")),
    ("fp16_test", ("src/runs/loss_scale*", "src/ops/optimizer/*", "src/train/*")),
    ("plan_answers_test", ("src/plan/report/*", "src/plan/search/*", "src/cli/plan/*")),
    ("export_test", ("src/tools/*", "src/formats/*")),
    ("run_folder_test", under("runs", "files")),
    ("changes_test", under("runs", "files")),
    ("fit_test", ("src/cli/plan/fit*", "src/models/shapes*", *under("hub"))),
    ("first_contact_test", ("src/cli/*.cc", "src/advise/*")),
    ("doctor_test", ("src/fleet/doctor/*", "tests/doctor/*")),
    ("node_copy_test", ("src/runtime/arena*", "src/weights/rank_reader*", "src/weights/persistent_state*", *under("ranks"))),
    ("divided_weights_test", ("src/train/gradient_sums*", "src/passes/gather_weights*", *under("ranks"))),
    ("seq2seq_test", ("src/models/t5*", "src/infer/*")),
    ("adapters_test", ("src/passes/*adapter*", "src/passes/lora*", "src/weights/*adapter*")),
    ("lengths_test", ("src/data/batch/*",)),
)
# As FAMILY_CASES of tests/parity/run.py are called, and files of src/models.
FAMILIES = ("llama", "mistral", "qwen", "smollm", "gemma", "olmo", "granite", "ministral", "phi")
GRIDS = (  # scripts of tests/parity that are cut into slices, and beside tests/parity/NAME* what makes all of it run
    ("run", ("tests/parity/cases.py", "tests/parity/oracle.py", "tests/parity/compare.py", "src/autodiff/*")),
    ("adapters", ("src/passes/*adapter*", "src/passes/lora*", "src/ops/linear/dora*", "src/weights/adapter*", "src/weights/low_rank*", "src/weights/weights*",
                     "src/tools/merge*")),
    ("folders", ("src/weights/quantised*", "src/passes/quantise*", "src/weights/adapter_config*", "src/formats/model_folder*")),
    ("scores", ("src/tasks/*", "src/ops/loss/sequence_loss*", "src/ops/loss/word_scores*", "src/data/*/label*", "src/infer/score*", "src/runs/evaluated_rows*")),
    ("dpo", ("src/tasks/*", "src/ops/loss/preference*", "src/ops/loss/linear_log_prob*", "src/data/encode/preference*", "src/data/encode/answers*", "src/train/reference_log_probs*")),
    ("gla", ("src/models/gla*", "src/ops/scan/*")),
    ("gguf", ("src/formats/gguf*", "src/tools/*gguf*", "src/tools/export*", "src/weights/gguf*")),  # families with all types, in turn
    ("tokenizers", ("scripts/parity_tokenizer.py", *under("unicode", "tokenizer"))),  # every third text
    ("seq2seq", ("src/models/t5*", "src/ops/attention/attention_bias*", "src/infer/beam_search*")),
)
PARITY = (  # the other scripts: name, shard, and beside tests/parity/NAME* what touches it
    ("package", 1, ("python/*", "src/recipe/translate/*")),
    ("freeze", 2, ("src/passes/adapter_rules*", "src/passes/name_pattern*", "src/passes/keep_frozen*")),
    ("fp16", 2, ("src/runs/loss_scale*", "src/ops/optimizer/grad_norm*", "src/ops/optimizer/optimizer*", "src/passes/offload_update*")),
    ("events", 1, ("src/files/event_file*", "src/runs/metrics*")),
    ("ops", 0, ("src/ops/*", "src/cpu/*")),
    ("optimizers", 1, ("src/ops/optimizer/*", "src/ops/optimizer*", "src/passes/optimizers*")),
    ("templates", 2, ("src/jinja/*", "src/chat/*", "src/data/encode/conversation*")),
    ("vocabularies", 0, under("unicode", "tokenizer")),
    ("bleu", 2, ("src/infer/bleu*",)),
)
PARTS = (
    *(part for name, touched_by in SAMPLES for part in slices("samples", name, touched_by)),
    *(part for name, touched_by in SUITES for part in slices("suites", name, (f"tests/{name}.py", "tests/command_run.py", *touched_by))),
    *(Part("isas", f"{shard}/{SHARDS}", shard, KERNELS, (*GPU_ALONE, "src/ops/*_test.cc")) for shard in range(SHARDS)),
    *(Part("sanitize", folder, shard, ("tests/harness/*",) if folder == "tests" else under(folder), GPU_ALONE if folder == "ops" else (), third)
      for shard, lists in enumerate(SANITIZED) for third, folders in enumerate(lists) for folder in folders),
    Part("sanitize", "fuzz", 1, ("tests/fuzz/*", *under("files", "formats", "unicode", "tokenizer", "recipe", "jinja", "chat", "data", "fleet", "report"))),
    Part("sanitize", "programs", 1, ("tests/bad_input_test.py", "tests/faults/*", "src/files/*", "src/formats/*")),
    Part("turns", "toys", 0, ("tests/toys/*", "tests/toys_test.py", "src/*.def", "src/passes/pipeline*", "src/recipe/options.cc", "src/prepare/setup.cc")),
    Part("turns", CHECKED_TEST, 2, OF_CARDS),
    *(part for name, touched_by in GRIDS for part in slices("parity", name, (f"tests/parity/{name}*", *touched_by), (*GPU_ALONE, "src/*_test.cc"))),
    *(Part("parity", f"run/{family}", None, (f"src/models/{family}*",)) for family in FAMILIES),
    *(Part("parity", name, shard, (f"tests/parity/{name}*", *touched_by), (*GPU_ALONE, "src/*_test.cc")) for name, shard, touched_by in PARITY),
    # By compute capability: the oldest for all that kernels include, the newest where kernels themselves changed. A landing
    # compiles for one of them (chosen).
    Part("kernels", "75", 1, ("*.cu", "src/gpu/*", "src/ops/*.h", "src/ops/*.def", "src/ops/*CMakeLists.txt", "src/base/*.h", "src/device/*.h",
                              "src/graph/*.h", "src/tensor/*.h", "src/runtime/cuda*", "cmake/*")),
    Part("kernels", "120", 2, ("*.cu", "src/gpu/*", "src/ops/gpu_*", "src/ops/*/gpu_*", "cmake/gpu.cmake", "cmake/ops.cmake")),
    Part("demo", "demo", 2, ("demo/*", "README.md")),
)


def git(*words):
    """The output of a git command, or None where it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def landing_of(text):
    """(number, commit that landed before or None): the two words of the file, the second may be missing."""
    words = re.fullmatch(r"(\d+)(?: ([0-9a-f]{7,40}))?\n?", text)
    if not words:
        raise SystemExit(f"error: {LANDING}: '{text.strip()}' is no number and commit; scripts/ci.py --next writes it")
    return int(words[1]), words[2]


def history(landed=None):
    """(commits since the number was last raised, files changed since `landed`, or since it was raised before that), or None."""
    if git("rev-parse", "--is-shallow-repository") != "false":
        return None
    raised = (git("log", "-2", "--format=%H", "--", LANDING) or "").split()
    if len(raised) < 2 or (landed and git("merge-base", "--is-ancestor", landed, "HEAD") is None):
        return None
    since = int(git("rev-list", "--count", f"{raised[0]}..HEAD"))
    files = git("diff", "--name-only", landed or raised[1]).splitlines() + git("ls-files", "-o", "--exclude-standard").splitlines()
    return since, files


@dataclass(frozen=True)
class Choice:
    shards: frozenset
    again: frozenset  # of parts that have thirds, and shards of grids on lesser instruction sets
    seldom: frozenset  # shards of grids under sanitizers
    files: tuple
    why: str

    def has(self, part):
        turn = part.shard in self.shards and (part.again is None or part.again in self.again)
        return turn or part.touched(self.files) and not ((part.grid or part.stage in CUT_IF_WIDE) and self.wide)

    @functools.cached_property
    def wide(self):
        return len({part.grid for part in PARTS if part.grid and part.stage != "suites" and part.touched(self.files)}) > WIDE


def choose(wanted, number, past):
    """What runs: `wanted` is CI_SHARD, `past` is history()."""
    everything = frozenset(range(SHARDS))
    if wanted == "all":
        return Choice(everything, everything, everything, (), "everything: CI_SHARD=all")
    # Not that of the parts: each part would know one slice for ever.
    again, seldom = (frozenset([number // times % SHARDS]) for times in (SHARDS, SHARDS**2))
    if wanted:
        if not (wanted.isdigit() and int(wanted) < SHARDS):
            raise SystemExit(f"error: CI_SHARD={wanted}: expected 0 to {SHARDS - 1}, or all")
        return Choice(frozenset([int(wanted)]), again, seldom, tuple(past[1]) if past else (), f"shard {wanted}: CI_SHARD")
    if past is None:
        return Choice(everything, everything, everything, (), f"everything: {LANDING} has no history here")
    since, files = past
    if since > FRESH:
        return Choice(everything, everything, everything, (), f"everything: {LANDING} was raised {since} commits ago (scripts/ci.py --next raises it)")
    return Choice(frozenset([number % SHARDS]), again, seldom, tuple(files), f"shard {number % SHARDS} of {SHARDS} (landing {number}), and what {len(files)} changed files touch")


def chosen(choice, stage):
    parts = [part for part in PARTS if part.stage == stage and choice.has(part)]
    if stage == "kernels" and len(choice.shards) < SHARDS:
        # Each capability takes nvcc as long as the first: the shard's own, or else the first that was touched.
        parts = sorted(parts, key=lambda part: part.shard not in choice.shards)[:1]
    return [part.name for part in parts]


def named_slices(choice, stage="test"):
    """What tests that are cut run in a stage (PLIMSOLL_SHARDS): slices of grids, and pages that no wide landing touched."""
    choice = replace(choice, shards=choice.seldom if stage == "sanitize" else choice.again) if stage in AGAIN else choice
    names = [part.name for part in PARTS if part.grid and choice.has(part)]
    if stage == "test" and sum(name.startswith("every_variant/") for name in names) == 1:
        # Of a third of the models: all of them on lesser sets and under sanitizers, whose slices are few already.
        names += [f"every_variant_models/{shard}" for shard in sorted(choice.again)]
    if not choice.wide:
        names += [f"commands_in_docs_work/{file}" for file in choice.files if matches(file, ("docs/*.md", "README.md"))]
    return names


def left_out(choice):
    """(targets that CMake leaves out, tests that ctest leaves out) of `make test`: whose turn it is not, and of those in thirds the other two."""
    turns = chosen(choice, "turns")
    targets = [target for part in TURNS if part not in turns for target in TURNS[part][0]]
    tests = [test for part in TURNS if part not in turns for test in TURNS[part][1]]
    ran = {CARD_TEST: {part.shard for part in PARTS if part.grid == CARD_TEST and choice.has(part)}}
    if CHECKED_TEST in turns:
        # As suites that run again: by its turn it would run one third for ever.
        touched = not choice.wide and any(matches(file, OF_CARDS) for file in choice.files)
        ran[CHECKED_TEST] = range(SHARDS) if touched else choice.again
    return targets, tests + [f"{test}_{shard}" for test, shards in ran.items() for shard in range(SHARDS) if shard not in shards]


def stages(choice):
    """(name, argument lists of its commands) of every stage that has something to do."""
    # CUDA's compiler takes as long as all else: it has a stage of its own, and the other tests need no card.
    yield "setup", [["scripts/setup.sh", "--dev"]]
    yield "check", [["make", "check"]]
    targets, tests = left_out(choice)
    flags = f"CMAKE_FLAGS=-DPLIMSOLL_CUDA=OFF -DPLIMSOLL_LEFT_OUT={','.join(targets)}"
    yield "build", [["make", "build", flags]]
    yield "downloads", [["scripts/setup.sh", "--parity"]]
    yield "test", [["make", "test", flags, f"TEST_FLAGS=-E '^({'|'.join(tests)})$$'" if tests else "WHOLE=1"]]
    parts = {stage: chosen(choice, stage) for stage in ("isas", "sanitize", "kernels", "demo")}
    parts["parity"] = list(dict.fromkeys(name.partition("/")[0] for name in chosen(choice, "parity")))
    if parts["isas"]:
        yield "isas", [["scripts/test_instruction_sets.py", "build", *parts["isas"]]]
    if parts["sanitize"]:
        yield "sanitize", [["make", "sanitize", f"SANITIZE_FOLDERS={' '.join(parts['sanitize'])}"]]
    if parts["parity"]:
        yield "parity", [["make", "parity", f"PARITY={' '.join(parts['parity'])}", flags]]
    if parts["demo"]:
        yield "demo", [["make", "-o", "build", "demo"]]  # which the stage build has made, and parity makes at the same time
    if parts["kernels"]:
        yield "kernels", [["make", "kernels", f"KERNELS_FOR={';'.join(parts['kernels'])}"]]


def slowest_tests(build, count=SLOWEST):
    """{name: seconds} of the slowest tests, by what ctest keeps of the last run."""
    costs = build / "Testing/Temporary/CTestCostData.txt"
    if not costs.exists():
        return {}
    found = [line.split() for line in costs.read_text().split("---")[0].splitlines()]
    rows = sorted(((float(words[2]), words[0]) for words in found if len(words) == 3), reverse=True)
    return {name: round(seconds, 1) for seconds, name in rows[:count]}


@dataclass(frozen=True)
class Taken:
    seconds: float
    cpu_seconds: float  # of all CPUs: what stays the same where others use the machine
    load: float  # how many processes wanted a CPU when the stage ended


def report(taken, slowest, failed):
    print("\n== stages: seconds, those of all CPUs, and what two idle cores may take cold and warm")
    for name, stage in taken.items():
        cold, warm = BUDGETS[name]
        print(f"{name:<10} {stage.seconds:5.0f} s {stage.cpu_seconds:6.0f} s   {cold:4d} {warm:4d}" + ("   over its budget" if stage.seconds > cold else ""))
    at_once = groups((name, None) for name in taken)
    cold, warm = (sum(max(BUDGETS[name][kind] for name, _ in group) for group in at_once) for kind in (0, 1))
    seconds = sum(max(taken[name].seconds for name, _ in group) for group in at_once)
    print(f"{'all':<10} {seconds:5.0f} s {sum(stage.cpu_seconds for stage in taken.values()):6.0f} s   {cold:4d} {warm:4d}")
    if slowest:
        print("slowest tests: " + ", ".join(f"{name} {taken:.0f} s" for name, taken in slowest.items()))
    if failed:
        print(f"FAILED in {failed}")


def record(path, kind, choice, taken, slowest):
    """What these stages took; other stages and the other kind stay as they are."""
    known = json.loads(path.read_text()) if path.exists() else {}
    known["budgets"] = {name: {"cold": cold, "warm": warm} for name, (cold, warm) in BUDGETS.items()}
    entry = known.setdefault(kind, {"stages": {}})
    for name, stage in taken.items():
        entry["stages"][name] = {"seconds": round(stage.seconds), "cpu_seconds": round(stage.cpu_seconds), "load": round(stage.load, 1),
                                 "cpus": len(os.sched_getaffinity(0)), "commit": git("rev-parse", "--short", "HEAD"), "parts": chosen(choice, name)}
    if slowest:
        entry["slowest_tests"] = slowest
    path.write_text(json.dumps(known, indent=1) + "\n")


def run_stage(commands, environment, output=None):
    """(Taken, whether a command failed); what they print goes to `output`, None: to the terminal."""
    start, used, code = time.monotonic(), 0.0, 0
    for words in commands:
        child = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=output, stderr=output and subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)  # of this child and what it waited for, whatever runs beside it
        child.returncode = code = os.waitstatus_to_exitcode(status)
        used += usage.ru_utime + usage.ru_stime
        if code != 0:
            break
    return Taken(time.monotonic() - start, used, os.getloadavg()[0]), code != 0


def groups(named):
    """Stages that run at the same time: each with those behind it that run beside it."""
    found = []
    for name, commands in named:
        if found and BESIDE.get(name) == found[-1][0][0]:
            found[-1].append((name, commands))
        else:
            found.append([(name, commands)])
    return found


def run(choice, only=()):
    """({stage: Taken}, the slowest tests, the stage that failed or None); `only`: the stages that run, none: all."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "100"}
    taken, slowest, failed = {}, {}, None
    for group in groups((name, commands) for name, commands in stages(choice) if not only or name in only):
        print(f"\n== {' and '.join(name for name, _ in group)}", flush=True)
        with ThreadPoolExecutor(len(group)) as pool, ExitStack() as files:
            started = []
            for name, commands in group:
                output = files.enter_context(tempfile.TemporaryFile("w+")) if started else None
                own = {**environment, "PLIMSOLL_SHARDS": " ".join(named_slices(choice, name))}
                started.append((name, output, pool.submit(run_stage, commands, own, output)))
            for name, output, done in started:
                taken[name], bad = done.result()
                failed = failed or (name if bad else None)
                if output:
                    output.seek(0)
                    print(f"\n-- {name}\n{output.read()}", flush=True)
        if "test" in taken and not slowest:  # before other stages run some of them again
            slowest = slowest_tests(ROOT / "build")
        if failed:
            break
    return taken, slowest, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--next", nargs="?", const="", metavar="COMMIT")
    # What `make test` runs by itself.
    parser.add_argument("--slices", action="store_true", help="print the slices of this number")
    parser.add_argument("--other-thirds", action="store_true", help="print what ctest leaves out of tests in thirds")
    parser.add_argument("--record", choices=("cold", "warm"))
    parser.add_argument("--stages", type=lambda text: text.split(","), default=[], metavar="NAME,...")
    options = parser.parse_args()
    if unknown := [name for name in options.stages if name not in BUDGETS]:
        parser.error(f"--stages: {unknown[0]} is no stage; there are {', '.join(BUDGETS)}")
    number, landed = landing_of((ROOT / LANDING).read_text())
    if options.next is not None:
        commit = git("rev-parse", "--verify", f"{options.next}^{{commit}}") if options.next else ""
        if commit is None:
            parser.error(f"--next {options.next}: is no commit")
        (ROOT / LANDING).write_text(f"{number + 1} {commit[:12]}".strip() + "\n")
        return 0
    if options.slices:
        print(" ".join(named_slices(choose("", number, (0, [])))))
        return 0
    if options.other_thirds:
        print(f"^({'|'.join(f'{test}_{third}' for test in (CARD_TEST, CHECKED_TEST) for third in range(SHARDS) if third != number % SHARDS)})$")
        return 0
    choice = choose(os.environ.get("CI_SHARD", ""), number, history(landed))
    print(choice.why)
    for stage in ("turns", "suites", "samples", "isas", "sanitize", "parity", "kernels", "demo"):
        print(f"  {stage:<9} {' '.join(chosen(choice, stage)) or '-'}")
    if options.list:
        return 0
    taken, slowest, failed = run(choice, options.stages)
    report(taken, slowest, failed)
    if options.record and not failed:
        record(ROOT / RESULTS, options.record, choice, taken, slowest)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
