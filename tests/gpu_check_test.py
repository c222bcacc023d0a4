"""The check of a card (docs/explanation/cuda.md), of the emulated one: it finds nothing wrong there, and whatever is done wrong on purpose.

Usage: gpu_check_test.py PLIMSOLL PLIMSOLL_GPU_CHECK (from the repository's root). Standard library only.
"""
import json
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
import unittest.mock
from pathlib import Path

from shard import SuiteLoader

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/gpu"), str(ROOT / "bench")]
import check  # noqa: E402
import first  # noqa: E402
from gpu_cases import CASES  # noqa: E402

PLIMSOLL, TOOL = None, None


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name) / "check.json"

    def check(self, *words, device="emulated"):
        return subprocess.run([sys.executable, ROOT / "tests/gpu/check.py", "--plimsoll", PLIMSOLL, "--tool", TOOL, "--device", device,
                               "--out", self.out, "--seconds", "3000", *words], capture_output=True, text=True, timeout=3000)

    def failed(self):
        return [line["name"] for line in json.loads(self.out.read_text())["lines"] if line["outcome"] == "failed"]

    def test_nothing_is_wrong_with_the_emulated_card_and_what_needs_a_real_one_is_skipped(self):
        done = self.check("--cases", "swiglu,dropout,linear", "--without", "attention,rider", "--runs", "LoRA")
        self.assertEqual((done.returncode, self.failed()), (0, []), done.stdout + done.stderr)
        told = json.loads(self.out.read_text())
        names = [line["name"] for line in told["lines"]]
        for name in ("card/queues wait for each other's events", "memory/beside the arena", "run/llama, LoRA", "answers/llama, LoRA", "run/two processes at once"):
            self.assertIn(name, names)
        ops = [line for line in told["lines"] if line["name"].startswith("op/")]
        large = {line["name"]: line["figures"]["off"] for line in told["lines"] if line["name"].startswith("large/")}
        self.assertEqual(set(large), {f"large/{name}" for name in ("attention", "attention of packed documents", "attention with a bias and dropout", "gla")})
        self.assertTrue(all(0 < off <= 1 for off in large.values()), large)
        self.assertEqual({line["figures"]["bits"] for line in ops}, {"of the emulated card", "its own"})
        self.assertTrue(all(0 <= line["figures"]["off"] <= 1 for line in ops))
        self.assertEqual([line["name"] for line in told["lines"] if line["outcome"] == "skipped"],
                         ["ranks/NCCL with one rank", "ranks/two on one card by NCCL", "refused/a UUID that is not there", "refused/too little of the card's memory", "sanitizer"])
        self.assertRegex(done.stdout, r"op/\* +\d+ of \d+ cases as the reference has them")

    def test_whatever_a_card_does_wrong_is_noticed(self):
        for wrong, part, name in (("waits", "calls", "card/queues wait for each other's events"),
                                  ("host-waits", "calls", "card/the host waits for events"),
                                  ("copies", "calls", "card/copies of every size by every queue"),
                                  ("fills", "calls", "card/fills stay within their bytes"),
                                  ("memory", "memory", "memory/beside the arena"),
                                  ("op:gla", "large", "large/gla"),
                                  ("op:swiglu", "ops", "op/swiglu/bf16")):
            with self.subTest(wrong):
                done = self.check("--parts", part, "--cases", "swiglu", "--wrong", wrong)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertIn(name, self.failed())
                self.assertIn(f"FAILED {name}", done.stdout)

    def test_losses_that_differ_and_bytes_that_were_not_planned_are_noticed(self):
        steps = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]
        self.assertEqual(check.loss_fault(steps, [2.0, 1.00005], 1e-4, "the CPU's"), "")
        self.assertIn("step 2: the loss is 1, the CPU's is 1.001", check.loss_fault(steps, [2.0, 1.001], 1e-4, "the CPU's"))
        self.assertIn("step 1", check.loss_fault([{"step": 1, "loss": float("nan")}], [2.0], 1e-4, "the CPU's"))
        self.assertIn("2 steps", check.loss_fault(steps, [2.0], 1e-4, "PyTorch's"))
        arenas = {"device_arena_bytes": 512, "host_arena_bytes": 0}
        self.assertEqual(check.arena_fault({"planned": arenas, "measured": arenas}), "")
        self.assertIn("planned 512, asked for 1024", check.arena_fault({"planned": arenas, "measured": {**arenas, "device_arena_bytes": 1024}}))

    def test_the_sanitizers_tools_see_every_op_those_that_never_ran_first(self):
        asked = []

        class Watched(check.Check):
            def tool(self, part, *words, before=(), **more):
                asked.append((before[before.index("--tool") + 1], part, *words))
                return subprocess.CompletedProcess(words, 0, "========= ERROR SUMMARY: 0 errors", "")

        options = types.SimpleNamespace(seconds=60, device="cuda", cases="")
        with unittest.mock.patch.object(check, "sanitizer_here", lambda: "compute-sanitizer"):
            Watched(options, self.out.parent).sanitizer()
        never = ",".join(check.NEVER_RUN)
        self.assertEqual(asked, [(kind, "ops", *words) for words in (("--cases", never), ("--without", never)) for kind in ("memcheck", "racecheck", "synccheck")])
        # No name of an op that never ran is one that there is not, and the tool leaves out none of the others: the two lists are all cases.
        for name in check.NEVER_RUN:
            done = subprocess.run([TOOL, "names", "--cases", name], capture_output=True, text=True)
            self.assertTrue(done.stdout.split(), name)
        listed = [subprocess.run([TOOL, "names", *words], capture_output=True, text=True).stdout.split() for words in ((), ("--cases", never), ("--without", never))]
        self.assertEqual(sorted(listed[0]), sorted(listed[1] + listed[2]))
        for kernel in ("adafactor", "dora", "nf4", "gla_cached", "short_conv"):
            self.assertTrue(any(kernel in name for name in listed[0]), kernel)

    def test_a_name_that_no_case_has_is_refused(self):
        for option in ("--cases", "--without"):
            done = self.check("--parts", "ops", option, "swiglu,linear_nt")
            self.assertEqual((done.returncode, len(self.failed())), (1, 1), done.stdout + done.stderr)
            self.assertIn("linear_nt: no op case has this in its name", done.stdout)

    def test_what_has_no_time_left_is_skipped_and_says_so(self):
        done = self.check("--seconds", "0.5", "--parts", "runs")
        lines = json.loads(self.out.read_text())["lines"]
        self.assertEqual([(line["name"], line["outcome"]) for line in lines][-1:], [("runs", "skipped")], done.stdout)

    def test_the_bench_measures_rates_and_trains_every_kind_of_model_within_its_plan(self):
        done = subprocess.run([sys.executable, ROOT / "bench/gpu.py", "--plimsoll", PLIMSOLL, "--tool", TOOL, "--device", "emulated", "--tiny",
                               "--out", self.out], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        told = json.loads(self.out.read_text())
        self.assertEqual([run["case"] for run in told["runs"] if "tokens_per_second" not in run], [])
        self.assertEqual(len(told["runs"]), 8)
        for run in told["runs"]:
            self.assertEqual(run["planned_arena_bytes"], run["arena_bytes"])
            self.assertGreater(run["tokens_per_second"], 0)
            self.assertEqual(run["card"]["grown_bytes"], 0)
        asked = [run["answers"] for run in told["runs"] if "answers" in run]
        self.assertEqual([sorted(answers) for answers in asked], 2 * [["call_by_call", "with_graphs"]])
        self.assertRegex(done.stdout, r"answers, one token after another +\d[\d,]* tokens/s call by call, \d[\d,]* with graphs")
        for name in ("memory, of additions", "copy, host to card", "smallest op", "launch, of the host", "smallest op, in a graph", "product bf16 forward 64 x 64 x 64",
                     "attention_grad f32, heads of 128, 32 tokens"):
            self.assertGreater(told["rates"][name]["rate"], 0)

    @unittest.skipIf(Path("/dev/nvidiactl").exists(), "a driver may be here")
    def test_without_a_card_that_is_said_with_exit_code_2_and_nothing_is_written(self):
        done = self.check(device="cuda")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertRegex(done.stderr, "device: cuda: (this program was built without CUDA|no NVIDIA driver was found)")
        self.assertFalse(self.out.exists())


# Of every section some items, one of each kind.
FEW = "calls;gated delta rule;never ran;large;other ops;fp16;gla;qlora;states;qwen2.5-0.5b;memory;refusals"


class GpuFirstTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name) / "first.json"

    def words(self, *words):
        return [sys.executable, str(ROOT / "tests/gpu/first.py"), "--plimsoll", str(PLIMSOLL), "--tool", str(TOOL), "--device", "emulated", "--cases",
                "swiglu", "--slow", "20", "--out", str(self.out), *words]

    def first(self, *words):
        return subprocess.run(self.words(*words), capture_output=True, text=True, timeout=900)

    def items(self):
        """{section/item: what is told of it} of those that have ended."""
        if not self.out.exists():
            return {}
        sections = json.loads(self.out.read_text())["sections"]
        return {f"{letter}/{name}": item for letter, section in sections.items() for name, item in section["items"].items()}

    def lines(self, outcome):
        return [f"{name.split('/')[0]}/{line['name']}" for name, item in self.items().items() for line in item["lines"] if line["outcome"] == outcome]

    def others(self):
        """Processes that name our file or work on one's behalf."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if str(self.out) in path.read_text():
                    found.append(int(path.parent.name))
            except OSError:
                pass
        return found

    def killed_behind(self, count):
        """Runs until so many items have ended, and is killed in the next one."""
        running = subprocess.Popen(self.words("--items", FEW), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while running.poll() is None and len(self.items()) < count:
            time.sleep(0.1)
        running.send_signal(signal.SIGKILL)
        running.wait()
        while self.others():  # an item ends when nobody waits for it
            time.sleep(0.1)

    def test_an_interrupted_run_goes_on_behind_the_last_item_that_ended(self):
        done = self.first("--items", FEW, "--seconds", "6")
        self.assertIn("the same command goes on", done.stdout, done.stderr)
        kept = self.items()
        for count in (len(kept) + 1, len(kept) + 5, len(kept) + 9):
            self.killed_behind(count)
            self.assertGreaterEqual(len(self.items()), count)
            self.assertEqual({name: self.items()[name] for name in kept}, kept, "what had ended was asked again")
            kept = self.items()
        done = self.first("--items", FEW)
        self.assertEqual((done.returncode, self.lines("failed")), (0, []), done.stdout + done.stderr)
        self.assertEqual({name: self.items()[name] for name in kept}, kept)
        self.assertEqual({name.split("/")[0] for name in self.items()}, set("abcdefgh"))
        self.assertNotIn("goes on", done.stdout)
        self.assertLessEqual(max(len(line) for line in done.stdout.splitlines() if not line.startswith("/")), 80)
        results = json.loads(self.out.read_text())
        self.assertEqual(len(results["calls"]), 5)
        self.assertIn("plimsoll", results["versions"])
        rows = [line["figures"] for name, item in self.items().items() if name[0] in "ce" for line in item["lines"]]
        self.assertTrue(rows and all(row["planned_arena_bytes"] == row["arena_bytes"] and row["tokens_per_second"] > 0 for row in rows))
        for line in (line for name, item in self.items().items() if name[0] == "d" for line in item["lines"]):
            self.assertAlmostEqual(sum(op["share"] for op in line["figures"]["ops"].values()), 1, delta=0.3)
            self.assertGreater(line["figures"]["ops"]["linear"]["flops_per_second"], 0)
        self.figures_go_into_the_docs()

    def figures_go_into_the_docs(self):
        docs = self.out.with_name("cuda.md")
        docs.write_text((ROOT / "docs/explanation/cuda.md").read_text())
        words = [sys.executable, ROOT / "scripts/gpu_figures.py", self.out, "--card", "H100 SXM", "--docs", docs]
        done = subprocess.run(words, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        written = docs.read_text().partition("<!-- by scripts/gpu_figures.py -->")[2].partition("<!-- end -->")[0]
        self.assertRegex(written, r"\| gla-1\.3b sft lora, bf16, 16 x 1 x 1 \| \d")
        self.assertRegex(written, r"\| qwen2\.5-0\.5b sft full, bf16, 1024 x 8 x 2 \| linear \| \d")
        for guess in ("products of 16 bits", "gated linear attention", "memory, by AdamW"):
            self.assertRegex(done.stdout, rf"\| {guess} \| src/device/catalogue\.cc:\d+ \| [\d,.]+ ")
        before = docs.read_text()
        subprocess.run(words, check=True, capture_output=True)
        self.assertEqual(docs.read_text(), before)

    def test_a_fault_of_one_section_is_reported_and_does_not_end_the_others(self):
        asked = ("--sections", "a,g", "--items", "never ran;memory")
        for wrong, more, failed, says in (("op:swiglu@a", (), "a/op/swiglu/bf16", "should be"),
                                          ("trap@a", (), "a/op/swiglu/f32", "the GPU failed"),
                                          ("killed@a", (), "a/ops that never ran", "exit -11"),
                                          ("stuck@a", ("--most", "1"), "a/ops that never ran", "ended after its limit of 1 s")):
            with self.subTest(wrong):
                self.setUp()
                done = self.first(*asked, "--wrong", wrong, *more)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertIn(failed, self.lines("failed"))
                self.assertRegex(done.stdout, f"FAILED {failed}: .*({says})")
                self.assertEqual([name for name in self.lines("failed") if name.startswith("g/")], [])
                self.assertIn("g/memory/beside the arena", self.lines("ok"))

    def test_another_program_begins_a_file_of_its_own(self):
        of = {"uuid": None, "name": "emulated", "build": "0", "tiny": True, "cases": "swiglu", "items": ""}
        self.out.write_text(json.dumps({"of": of, "sections": {"a": {"items": {"calls": {"seconds": 1, "lines": []}}}}}))
        self.first("--sections", "f", "--items", "gla")
        self.assertEqual(set(self.items()), {"f/gla-1.3b sft lora, bf16, 1024 x 4 x 1"})

    def test_every_row_has_a_prediction_and_every_section_its_items(self):
        predicted = first.predictions()
        self.assertEqual([case.name for case in CASES if case.sections and case.name not in predicted], [],
                         "scripts/predict_gpu.py --plimsoll build/plimsoll --out bench/results/predicted-h100.json")
        self.assertTrue(all(section.items and section.seconds <= 540 for section in first.SECTIONS))
        names = [item.name for section in first.SECTIONS for item in section.items if section.letter == "b"]
        self.assertEqual(names, list(first.NEVER_TRAINED))

    def test_a_section_that_is_not_there_and_a_card_that_is_not_there_are_said(self):
        done = self.first("--sections", "c,z")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no section z; there are a, b, c", done.stderr)
        if Path("/dev/nvidiactl").exists():
            self.skipTest("a driver may be here")
        done = self.first("--device", "cuda")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertRegex(done.stderr, "device: cuda: (this program was built without CUDA|no NVIDIA driver was found)")


if __name__ == "__main__":
    PLIMSOLL, TOOL = (Path(sys.argv.pop(1)).resolve() for _ in range(2))
    unittest.main(testLoader=SuiteLoader("gpu_check_test"))
