"""Tests of scripts/: the checks find what they are for, and set-up says what to install."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run_check(script, files):
    """Runs a check on a small tree and returns (exit status, messages)."""
    with tempfile.TemporaryDirectory() as folder:
        write(pathlib.Path(folder), files)
        done = subprocess.run([sys.executable, ROOT / "scripts" / script, folder], capture_output=True, text=True)
    return done.returncode, done.stderr


class Output(unittest.TestCase):
    def test_what_prints_beside_the_one_place_is_named_with_its_line(self):
        for line in ('std::printf("%s", name);', "std::cout << name;", "std::fputs(name.c_str(), stdout);",
                     'std::fprintf(stderr, "x");', "std::fwrite(a.data(), 1, a.size(), stdout);"):
            status, text = run_check("check_output.py", {"src/cli/a.cc": "\n" + line})
            self.assertEqual(status, 1, line)
            self.assertIn("src/cli/a.cc:2:", text)
        for line in ("print(name);", "std::snprintf(a, 3, name);", 'std::fprintf(file, "x");', "std::fflush(stdout);"):
            self.assertEqual(run_check("check_output.py", {"src/cli/a.cc": line}), (0, ""), line)


    def test_only_the_last_layers_print(self):
        include = '#include "base/print.h"\n'
        status, text = run_check("check_output.py", {"src/train/a.cc": include, "src/cli/b.cc": include})
        self.assertEqual(status, 1)
        self.assertIn("src/train/a.cc:1: includes base/print.h", text)
        self.assertNotIn("src/cli/b.cc", text)
        self.assertEqual(run_check("check_output.py", {"src/train/a.cc": '#include "base/printable.h"\n'}), (0, ""))


class Tracking(unittest.TestCase):
    def test_curves_parameters_and_totals_are_the_run_folder_s(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            write(folder, {
                "metrics.jsonl": '{"step": 1, "loss": 2.5, "grad_norm": null, "lr": 1e-3, "tokens": 60, "seconds": 0.5, '
                                 '"data_wait": 0.0, "rss": 1024, "time": 17.5}\n',
                "eval.jsonl": '{"step": 1, "loss": 2.25, "target_tokens": 9, "seconds": 1.0}\n',
                "recipe.yaml": "model: m\ndata:\n  train: [a.jsonl]\n  eval: null\nmethod:\n  type: lora\nseed: 42\n",
                "run.json": '{"finished": true, "planned": {"disk_bytes": 7}, "measured": {}, "final_loss": 2.5, "eval_loss": null}'})
            code = ("import json, pathlib, track_run as t; f = pathlib.Path('.'); "
                    "print(json.dumps([t.curves(f), t.parameters(f), t.summary(f)]))")
            done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True,
                                  env={**os.environ, "PYTHONPATH": str(ROOT / "scripts")})
            refused = subprocess.run([sys.executable, ROOT / "scripts/track_run.py", "mlflow", ROOT / "docs"],
                                     capture_output=True, text=True)
        curves, parameters, (totals, finished) = json.loads(done.stdout)
        self.assertEqual(curves[0], [1, 17.5, {"train/loss": 2.5, "train/learning_rate": 1e-3, "memory/process_bytes": 1024,
                                               "train/data_wait_seconds": 0.0, "train/tokens_per_second": 120.0}])
        self.assertEqual(curves[1], [1, None, {"eval/loss": 2.25}])
        self.assertEqual(parameters, {"model": "m", "data.train": "[a.jsonl]", "data.eval": "null", "method.type": "lora",
                                      "seed": "42"})
        self.assertEqual((totals, finished), ({"planned.disk_bytes": 7, "final_loss": 2.5}, True))
        self.assertEqual(refused.returncode, 1)
        self.assertIn("is no run folder", refused.stderr)


class Layers(unittest.TestCase):
    ORDER = {"CMakeLists.txt": "set(PLIMSOLL_FOLDERS base cpu device fleet graph\n  ops plan runtime)\n"}

    def check(self, files):
        folders = {str(pathlib.PurePath(name).parent.relative_to("src")) for name in files if name.endswith((".h", ".cc", ".cu"))}
        readme = {"src/README.md": "".join(f"| `{folder}/` | something |\n" for folder in folders)}
        return run_check("check_layers.py", {**self.ORDER, **readme, **files})

    def test_a_folder_within_one_sees_those_before_it(self):
        files = {"src/plan/program/a.h": "", "src/plan/search/b.h": ""}
        self.assertEqual(self.check({**files, "src/plan/search/c.cc": '#include "plan/program/a.h"\n'}), (0, ""))
        self.assertEqual(self.check({**files, "src/plan/program/c_test.cc": '#include "plan/search/b.h"\n'}), (0, ""))
        status, text = self.check({**files, "src/plan/program/c.cc": '#include "plan/search/b.h"\n'})
        self.assertEqual(status, 1)
        self.assertIn("src/plan/program/c.cc:1:", text)
        self.assertIn("plan/search comes after plan/program", text)
        self.assertIn("is no part of plan", self.check({"src/plan/new/a.cc": ""})[1])

    def test_the_fleet_sees_what_it_needs_and_nothing_else(self):
        files = {"src/cpu/a.h": "", "src/device/b.h": ""}
        self.assertEqual(self.check({**files, "src/fleet/top/c.cc": '#include "device/b.h"\n'}), (0, ""))
        self.assertIn("fleet sees only base, device", self.check({**files, "src/fleet/top/c.cc": '#include "cpu/a.h"\n'})[1])
        self.assertIn("not plimsoll_cpu", self.check({"src/fleet/CMakeLists.txt": "plimsoll_library(fleet DEPS plimsoll_cpu)\n"})[1])

    def test_of_what_plans_kernels_alone_see_a_backend(self):
        files = {"src/cpu/a.h": "", "src/ops/rule.h": ""}
        self.assertEqual(self.check({**files, "src/ops/norm/x_cpu.cc": '#include "cpu/a.h"\n'}), (0, ""))
        for name in ("src/ops/norm/x.cc", "src/plan/search/x.cc"):
            self.assertIn("names no backend", self.check({**files, name: '#include "cpu/a.h"\n'})[1])
        self.assertEqual(self.check({**files, "src/runtime/x.cc": '#include "cpu/a.h"\n'}), (0, ""))

    def test_families_of_ops_see_no_other_but_those_named(self):
        files = {"src/ops/attention/a.h": "", "src/ops/norm/b.h": ""}
        self.assertEqual(self.check({**files, "src/ops/scan/c.h": '#include "ops/attention/a.h"\n'}), (0, ""))
        self.assertIn("ops/scan does not see ops/norm", self.check({**files, "src/ops/scan/c.h": '#include "ops/norm/b.h"\n'})[1])

    def test_a_recipe_is_known_where_it_is_resolved_and_nowhere_below(self):
        files = {"CMakeLists.txt": "set(PLIMSOLL_FOLDERS base recipe prepare infer)\n", "src/recipe/recipe.h": "struct Recipe {};\n"}
        self.assertEqual(self.check({**files, "src/prepare/a.cc": '#include "recipe/recipe.h"\n'}), (0, ""))
        self.assertEqual(self.check({**files, "src/infer/a.cc": "// as in Recipe\n"}), (0, ""))
        for text in ('#include "recipe/recipe.h"\n', "struct Recipe;\n", "void f(const Recipe& recipe);\n"):
            status, message = self.check({**files, "src/infer/a.cc": text})
            self.assertEqual(status, 1)
            self.assertIn("src/infer/a.cc:1: only", message)

    def test_settings_are_a_member_and_no_base(self):
        self.assertEqual(self.check({"src/base/a.h": "struct A { CpuSettings cpu; };\n"}), (0, ""))
        for text in ("struct A : CpuSettings {};\n", "class A final\n    : public B, public CpuSettings {};\n"):
            self.assertIn("src/base/a.h:1: inherits CpuSettings", self.check({"src/base/a.h": text})[1])

    def test_each_folder_has_its_line_in_the_readme(self):
        self.assertIn("has no line of base/", self.check({"src/base/a.h": "", "src/README.md": "| `cpu/` | x |\n", "src/cpu/a.h": ""})[1])
        self.assertIn("names cpu/", self.check({"src/base/a.h": "", "src/README.md": "| `base/` | x |\n| `cpu/` | x |\n"})[1])

    def test_an_earlier_folder_may_be_included(self):
        self.assertEqual(self.check({"src/base/a.h": "", "src/graph/b.cc": '#include "base/a.h"\n'}), (0, ""))

    def test_a_later_folder_is_named_with_its_line(self):
        status, text = self.check({"src/graph/b.h": "", "src/base/a.h": '\n#include "graph/b.h"\n'})
        self.assertEqual(status, 1)
        self.assertIn("src/base/a.h:2:", text)
        self.assertIn("graph comes after base", text)

    def test_a_later_target_in_cmake_is_named(self):
        status, text = self.check({"src/base/CMakeLists.txt": "plimsoll_library(base DEPS plimsoll_graph)\n"})
        self.assertEqual(status, 1)
        self.assertIn("src/base/CMakeLists.txt:1:", text)

    def test_an_unlisted_folder_and_a_missing_file_are_errors(self):
        self.assertEqual(self.check({"src/other/a.cc": ""})[0], 1)
        self.assertEqual(self.check({"src/base/a.cc": '#include "a.h"\n'})[0], 1)


class PlantedFaults(unittest.TestCase):
    def test_a_compiler_that_does_not_end_is_stopped_with_all_it_started_and_named(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(sys, "path", [str(ROOT / "tests"), *sys.path]):
            import gpu_mutants
            mark = pathlib.Path(folder) / "pid"
            with self.assertRaises(SystemExit) as stopped:
                gpu_mutants.compiled(["sh", "-c", f"sleep 600 & echo $! > {mark}; wait"], folder, 1)
            for words in ("ran for more than 1 s and was stopped", "PLIMSOLL_COMPILE_SECONDS", "sleep 600"):
                self.assertIn(words, str(stopped.exception))
            stat = pathlib.Path("/proc", mark.read_text().strip(), "stat")
            for _ in range(100):  # a process that was killed ends soon
                try:
                    ended = ") Z " in stat.read_text()
                except OSError:
                    ended = True
                if ended:
                    break
                time.sleep(0.1)
            self.assertTrue(ended)
            gpu_mutants.compiled(["true"], folder, 60)
            with self.assertRaises(subprocess.CalledProcessError):
                gpu_mutants.compiled(["false"], folder, 60)

    def test_every_step_that_compiles_has_the_limit(self):
        for path in (ROOT / "tests").glob("*_mutants.py"):
            for line in path.read_text().splitlines():
                if "subprocess.run(" in line and '"ninja"' not in line:
                    self.assertIn("timeout=", line, f"{path.name}: {line}")


class InstructionSets(unittest.TestCase):
    def setUp(self):
        sys.path.insert(0, str(ROOT / "scripts"))
        self.addCleanup(sys.path.remove, str(ROOT / "scripts"))
        import test_instruction_sets
        self.module = test_instruction_sets

    def test_every_lesser_set_is_a_round_of_its_own_and_what_is_absent_is_named(self):
        titles = [title for title, *_ in self.module.rounds("amx", 8)]
        self.assertEqual(titles, ["avx2", "avx512", "avx512-bf16", "1 thread", "2 threads", "4 threads"])
        for title, environment, cpus, names in self.module.rounds("amx", 8):
            self.assertEqual(environment, {"PLIMSOLL_MAX_ISA": title} if cpus is None else {})
            self.assertIn("golden", names)
            self.assertLessEqual(set(names), set(self.module.PROGRAMS))
            self.assertNotIn("chat", names)
        for title, _, _, names in self.module.rounds("amx", 8, all_programs=True):
            self.assertEqual("chat" in names, title == "avx2", title)
        self.assertEqual([title for title, *_ in self.module.rounds("avx2", 1)], [])
        self.assertIn("avx512, avx512-bf16, amx, 4 threads", self.module.summary("avx2", 2, [])[2])

    def test_three_shards_run_every_round_once(self):
        every = self.module.rounds("amx", 8)
        shards = [self.module.in_shards(every, [f"{i}/3"]) for i in range(3)]
        self.assertEqual(sorted(one[0] for shard in shards for one in shard), sorted(one[0] for one in every))
        self.assertEqual(self.module.in_shards(every, []), every)

    def test_every_named_test_exists(self):
        texts = "".join(path.read_text() for path in (ROOT / "tests/CMakeLists.txt", *(ROOT / "src").glob("*/CMakeLists.txt")))
        for name in self.module.PROGRAMS:
            stem = name.removesuffix("_test")
            self.assertTrue(f"NAME {name} " in texts or f"plimsoll_library({stem}" in texts or f"({name} " in texts, name)


class Ci(unittest.TestCase):
    def setUp(self):
        sys.path.insert(0, str(ROOT / "scripts"))
        self.addCleanup(sys.path.remove, str(ROOT / "scripts"))
        import ci
        self.ci = ci

    def parts(self, choice):
        return {(part.stage, part.name) for part in self.ci.PARTS if choice.has(part)}

    def test_three_landings_in_a_row_run_every_part_and_nine_each_folder_under_sanitizers(self):
        everything = self.parts(self.ci.choose("all", 0, None))
        self.assertEqual(everything, {(part.stage, part.name) for part in self.ci.PARTS if part.shard is not None})
        self.assertEqual({part.grid for part in self.ci.PARTS if part.shard is None}, {"run"}, "a part of what the slices are of")
        for first in (0, 1, 2, 7):
            landings = [self.parts(self.ci.choose("", number, (0, ["docs/howto/fit-into-memory.md"]))) for number in range(first, first + 9)]
            self.assertEqual(set().union(*landings), everything)
            in_turn = {(part.stage, part.name) for part in self.ci.PARTS if part.again is not None}
            for start in range(7):
                self.assertEqual(set().union(*landings[start:start + 3]) - in_turn, everything - in_turn)
            for landing in landings:
                self.assertLess(landing, everything)

    def test_what_a_landing_touched_runs_whatever_its_number(self):
        for number in range(3):
            def runs(*files):
                return self.parts(self.ci.choose("", number, (0, files)))
            self.assertIn(("sanitize", "recipe"), runs("src/recipe/options.cc"))
            self.assertIn(("sanitize", "programs"), runs("src/files/file.cc"))
            self.assertIn(("parity", "bleu"), runs("src/infer/bleu.cc"))
            for shard in range(3):
                self.assertIn(("parity", f"dpo/{shard}"), runs("tests/parity/dpo.py"))
                self.assertIn(("parity", f"gla/{shard}"), runs("src/models/gla.cc"))
                self.assertIn(("samples", f"load_line/{shard}"), runs("src/layout/period.cc"))
                self.assertIn(("samples", f"emulated/{shard}"), runs("src/runtime/emulated_device.cc"))
                self.assertIn(("samples", f"ops_gpu_emulated_test/{shard}"), runs("src/ops/attention/gpu_attention.h"))
            self.assertIn(("parity", "run/qwen"), runs("src/models/qwen3.cc"))
            self.assertNotIn(("parity", "run/gemma"), runs("src/models/qwen3.cc"))
            for file in ("swiglu_simd.cc", "swiglu_cpu.cc", "swiglu_kernels.h"):
                self.assertIn(("isas", "1/3"), runs(f"src/ops/{file}"))
            self.assertNotIn("isas", {stage for stage, _ in runs("src/ops/pointwise/swiglu.cc") - runs()}, "a rule is the same code on all")
            self.assertIn(("kernels", "120"), runs("src/ops/optimizer/adamw_gpu.cu"))
            self.assertIn(("kernels", "75"), runs("src/ops/optimizer/adamw_kernels.h"))
            self.assertIn(("sanitize", "ops"), runs("src/ops/attention/attention_cpu.cc"))

    def test_kernels_of_gpus_run_nothing_that_cpus_alone_run(self):
        def runs(*files):
            return self.parts(self.ci.choose("", 0, (0, files)))
        self.assertEqual({part for part in runs("src/ops/attention/attention_gpu.cu") - runs() if part[0] in ("isas", "parity")}, set())
        self.assertNotIn(("sanitize", "ops"), self.parts(self.ci.choose("", 1, (0, ["src/ops/attention/gpu_attention.h"]))))
        self.assertIn(("isas", "1/3"), runs("src/ops/attention/attention_gpu.cu", "src/ops/pointwise/swiglu_simd.cc"))

    def test_each_landing_runs_one_slice_of_each_grid_and_all_that_a_wide_one_touched_is_a_slice(self):
        grids = {part.grid for part in self.ci.PARTS if part.grid}
        wide = ["src/layout/period.cc", "src/data/encode/a.cc", "src/files/a.cc", "src/advise/a.cc", "src/gpu/a.h", "src/tasks/a.cc", "src/autodiff/a.cc",
                "src/models/gla.cc", "src/models/qwen3.cc", "src/cpu/threads.h"]
        for number in range(3):
            for files in ([], wide):
                choice = self.ci.choose("", number, (0, files))
                self.assertEqual(choice.wide, files == wide)
                ran = [part for part in self.ci.PARTS if part.grid and choice.has(part)]
                self.assertEqual({part.grid for part in ran}, grids)
                self.assertEqual({part.shard for part in ran}, {number})
                self.assertEqual([part.name for part in self.ci.PARTS if part.stage == "isas" and choice.has(part)], [f"{number}/3"])
            self.assertIn(("parity", "ops"), self.parts(choice), "what is no grid runs")
        folders = []  # a wide landing has sanitizers in those whose turn it is alone
        for number in range(9):
            choice = self.ci.choose("", number, (0, wide))
            here = [part.name for part in self.ci.PARTS if part.stage == "sanitize" and choice.has(part) and part.again is not None]
            self.assertEqual(here, list(self.ci.SANITIZED[number % 3][number // 3]))
            self.assertEqual({part.name for part in self.ci.PARTS if part.stage == "sanitize" and choice.has(part)} - set(here),
                             {"fuzz", "programs"} if number % 3 == 1 else set())
            folders += here
        self.assertEqual(sorted(folders), sorted(part.name for part in self.ci.PARTS if part.stage == "sanitize" and part.again is not None))
        few = self.parts(self.ci.choose("", 0, (0, ["src/cli/main.cc"])))
        self.assertEqual({name for stage, name in few if stage == "sanitize"}, {*self.ci.SANITIZED[0][0], "cli"})

    def test_commands_of_a_page_that_was_touched_run_whatever_the_slice(self):
        page = "docs/howto/fit-into-memory.md"
        named = self.ci.named_slices(self.ci.choose("", 1, (0, [page, "src/tasks/task.h"])))
        self.assertEqual([name for name in named if name.startswith("commands_in_docs_work")], ["commands_in_docs_work/1", f"commands_in_docs_work/{page}"])
        self.assertIn('in_slice("every_variant_models"', (ROOT / "src/train/every_variant_test.cc").read_text())

    def test_a_test_runs_the_slices_that_are_named_and_whole_where_none_is(self):
        sys.path.insert(0, str(ROOT / "tests"))
        self.addCleanup(sys.path.remove, str(ROOT / "tests"))
        from shard import is_mine
        for words, mine in (("", range(9)), ("dpo/0", range(9)), ("run/1 dpo/0", (1, 4, 7)), ("run/0 run/2", (0, 2, 3, 5, 6, 8)), ("run/0 run/1 run/2", range(9)),
                            ("run/1 run/gemma", (0, 1, 4, 7))):
            with mock.patch.dict("os.environ", PLIMSOLL_SHARDS=words):
                self.assertEqual([i for i in range(9) if is_mine("run", i, "gemma" if i == 0 else "")], list(mine), words)

    def test_a_slice_that_is_none_ends_the_test(self):
        sys.path.insert(0, str(ROOT / "tests"))
        self.addCleanup(sys.path.remove, str(ROOT / "tests"))
        from shard import is_mine
        for part in ("3", "7", "0,1", "-1", "", "01"):
            for family in (None, "gemma"):
                with mock.patch.dict("os.environ", PLIMSOLL_SHARDS=f"grid/0 grid/{part}"), self.assertRaisesRegex(SystemExit, f"grid/{part} is no slice"):
                    is_mine("grid", 0, family)
        with mock.patch.dict("os.environ", PLIMSOLL_SHARDS="grid/docs/x.md"):
            self.assertEqual([is_mine("grid", 0, page) for page in ("docs/x.md", "docs/y.md")], [True, False])
            self.assertRaises(SystemExit, is_mine, "grid", 0)

    def test_suites_that_run_again_have_each_slice_in_each_part_after_nine_or_twenty_seven_landings(self):
        def slices(number, stage, wanted=""):
            return [name for name in self.ci.named_slices(self.ci.choose(wanted, number, (0, [])), stage) if name.startswith("every_variant/")]
        for first in (0, 4):
            ran = [(number % 3, name) for number in range(first, first + 9) for name in slices(number, "isas")]
            self.assertEqual(sorted(ran), [(part, f"every_variant/{shard}") for part in range(3) for shard in range(3)])
            ran = [(number % 9, name) for number in range(first, first + 27) for name in slices(number, "sanitize")]
            self.assertEqual(sorted(ran), [(part, f"every_variant/{shard}") for part in range(9) for shard in range(3)])
        for stage in ("isas", "sanitize"):
            self.assertEqual(slices(1, stage, "all"), [f"every_variant/{shard}" for shard in range(3)])
        models = [(number % 3, name) for number in range(9) for name in self.ci.named_slices(self.ci.choose("", number, (0, []))) if name.startswith("every_variant_models")]
        self.assertEqual(sorted(models), [(part, f"every_variant_models/{shard}") for part in range(3) for shard in range(3)])
        for wanted, files in (("all", []), ("", ["src/layout/period.cc"])):
            self.assertNotIn("every_variant_models/0", self.ci.named_slices(self.ci.choose(wanted, 0, (0, files))))
        self.assertEqual([slices(number, "test") for number in range(3)], [[f"every_variant/{shard}"] for shard in range(3)])
        with tempfile.TemporaryDirectory() as name, mock.patch("builtins.print"):
            folder = pathlib.Path(name)
            told = "import os, pathlib, sys; pathlib.Path(sys.argv[1]).write_text(os.environ['PLIMSOLL_SHARDS'])"
            commands = [(stage, [[sys.executable, "-c", told, folder / stage]]) for stage in ("sanitize", "parity")]
            with mock.patch.object(self.ci, "stages", lambda choice: commands):
                self.ci.run(self.ci.choose("", 20, (0, [])))
            self.assertIn("every_variant/2", (folder / "sanitize").read_text().split())
            self.assertIn("run/2", (folder / "parity").read_text().split())

    def test_cells_of_each_slice_of_parity_are_of_each_family_and_each_method(self):
        """As tests/parity/run.py counts them: cases by methods, of which a case has three or two."""
        for shard in range(3):
            self.assertEqual([sum((case + method) % 3 == shard for method in range(3)) for case in range(10)], [1] * 10)

    def test_tests_of_cards_are_cut_and_what_takes_long_to_compile_is_built_where_it_runs(self):
        def left_out(number, *files, wanted=""):
            return self.ci.left_out(self.ci.choose(wanted, number, (0, files)))
        page, card, checked = "docs/howto/fit-into-memory.md", "ops_gpu_emulated_test", "ops_gpu_checked_test"
        targets, tests = left_out(1, page)
        self.assertEqual(targets, ["plimsoll_with_toys", "toys_op_test", checked])
        self.assertEqual(tests, ["toys", "toys_op", f"{checked}_[012]", f"{card}_0", f"{card}_2"])
        words = dict(self.ci.stages(self.ci.choose("", 1, (0, [page]))))
        self.assertEqual(words["build"][0][2], "CMAKE_FLAGS=-DPLIMSOLL_CUDA=OFF -DPLIMSOLL_LEFT_OUT=" + ",".join(targets))
        self.assertEqual(words["test"], [["make", "test", words["build"][0][2], f"TEST_FLAGS=-E '^({'|'.join(tests)})$$'"]])
        self.assertEqual(left_out(0, "src/gpu/stream.h"), ([], []))
        self.assertEqual(left_out(0, wanted="all"), ([], []))
        self.assertEqual(dict(self.ci.stages(self.ci.choose("all", 0, None)))["test"][0][3], "WHOLE=1")
        thirds = subprocess.run([sys.executable, ROOT / "scripts/ci.py", "--other-thirds"], capture_output=True, text=True, check=True).stdout.strip()
        number = self.ci.landing_of((ROOT / self.ci.LANDING).read_text())[0]
        named = [f"{test}_{third}" for test in (card, checked) for third in range(3)]
        self.assertEqual([name for name in named if not re.match(thirds, name)], [f"{test}_{number % 3}" for test in (card, checked)])
        self.assertIsNone(re.match(thirds, "train_test"))
        thirds = set()
        for number in range(9):
            targets, tests = left_out(number, page)
            self.assertEqual(checked in targets, f"{checked}_[012]" in tests)
            self.assertEqual("plimsoll_with_toys" in targets, "toys_op" in tests)
            if checked not in targets:
                thirds |= {third for third in range(3) if f"{checked}_{third}" not in tests}
        self.assertEqual(thirds, {0, 1, 2}, "what is cut twice has run whole after nine landings")

    def test_parts_that_are_cut_if_wide_are_stages(self):
        self.assertLessEqual(set(self.ci.CUT_IF_WIDE), {part.stage for part in self.ci.PARTS})

    def test_a_long_suite_runs_the_slices_that_are_named(self):
        sys.path.insert(0, str(ROOT / "tests"))
        self.addCleanup(sys.path.remove, str(ROOT / "tests"))
        from shard import SuiteLoader
        names = unittest.TestLoader().getTestCaseNames(Ci)
        slices = []
        for shard in range(3):
            with mock.patch.dict("os.environ", PLIMSOLL_SHARDS=f"ci_test/{shard} dpo/1"):
                slices.append(SuiteLoader("ci_test").getTestCaseNames(Ci))
                self.assertEqual(SuiteLoader("other_test").getTestCaseNames(Ci), names)
        self.assertEqual(sorted(sum(slices, [])), sorted(names))
        self.assertTrue(all(slices))
        with mock.patch.dict("os.environ", PLIMSOLL_SHARDS="ci_test/0"):
            added = set(SuiteLoader("ci_test", ("CUT_" + "IF_WIDE",)).getTestCaseNames(Ci)) - set(slices[0])
            self.assertEqual(added, set(slices[1] + slices[2]) & {"test_parts_that_are_cut_if_wide_are_stages"}, "a test that is cut within runs always")

    def test_kernels_are_compiled_for_one_capability_at_a_landing_and_for_all_before_a_release(self):
        def capabilities(wanted, number, *files):
            return self.ci.chosen(self.ci.choose(wanted, number, (0, files)), "kernels")
        kernel = "src/ops/optimizer/adamw_gpu.cu"
        self.assertEqual([capabilities("", number, kernel) for number in range(3)], [["75"], ["75"], ["120"]])
        self.assertEqual([capabilities("", number) for number in range(3)], [[], ["75"], ["120"]])
        self.assertEqual(capabilities("all", 0), ["75", "120"])

    def test_the_budgets_of_all_stages_are_half_an_hour_from_nothing_and_a_quarter_with_a_warm_ccache(self):
        names = [name for name, _ in self.ci.stages(self.ci.choose("all", 0, None))]
        self.assertEqual(list(self.ci.BUDGETS), names)
        for kind, most in enumerate((30 * 60, 15 * 60)):
            self.assertLessEqual(sum(max(self.ci.BUDGETS[name][kind] for name, _ in group) for group in self.ci.groups((name, None) for name in names)), most)

    def test_every_folder_is_touched_by_its_files(self):
        folders = {path.name for path in (ROOT / "src").iterdir() if path.is_dir()}
        for folder in folders:
            found = self.parts(self.ci.choose("0", 0, (0, [f"src/{folder}/a.cc"])))
            self.assertIn(("sanitize", folder), found)

    def test_a_landing_that_did_not_raise_the_number_runs_everything(self):
        everything = self.parts(self.ci.choose("all", 0, None))
        self.assertEqual(self.parts(self.ci.choose("", 1, (self.ci.FRESH + 1, []))), everything)
        self.assertEqual(self.parts(self.ci.choose("", 1, None)), everything)
        self.assertLess(self.parts(self.ci.choose("", 1, (self.ci.FRESH, []))), everything)

    def test_a_shard_that_is_none_and_a_number_that_is_none_are_refused(self):
        for wanted in ("3", "-1", "x"):
            with self.assertRaises(SystemExit):
                self.ci.choose(wanted, 0, None)
        with self.assertRaises(SystemExit):
            self.ci.landing_of("seven\n")
        self.assertEqual(self.ci.landing_of("7\n"), (7, None))
        self.assertEqual(self.ci.landing_of("8 0123abc\n"), (8, "0123abc"))

    def test_every_part_is_one_that_its_command_knows(self):
        makefile = (ROOT / "Makefile").read_text()
        known = makefile.split("PARITY ?= ")[1].split("\n")[0].split()
        self.assertEqual({part.grid or part.name for part in self.ci.PARTS if part.stage == "parity"}, set(known))
        for grid in {part.grid for part in self.ci.PARTS if part.stage == "parity" and part.grid}:
            texts = "".join(path.read_text() for path in (*(ROOT / "tests/parity").glob("*.py"), ROOT / "scripts/parity_tokenizer.py"))
            self.assertRegex(texts, rf'is_mine\("{grid}"|run_all\(.*, "{grid}"\)')
        driver = (ROOT / "tests/parity/__main__.py").read_text()
        for name in known:
            self.assertTrue(f'"{name}": (' in driver or (ROOT / f"tests/parity/{name}.py").exists(), name)
        lists = "".join(path.read_text() for path in (ROOT / "tests/CMakeLists.txt", ROOT / "src/ops/CMakeLists.txt"))
        scripts = "".join(path.read_text() for folder in ("", "loadline", "faults", "parity") for path in (ROOT / "tests" / folder).glob("*.py"))
        in_units = {"every_variant": "src/train/every_variant_test.cc", "every_budget": "src/plan/search/search_oracle_test.cc",
                    "offload_layout": "src/plan/program/offload_layout_test.cc", "emulated_ranks": "src/train/emulated_ranks_test.cc"}
        for grid, file in in_units.items():
            self.assertIn(f'in_slice("{grid}"', (ROOT / file).read_text())
        for grid in {part.grid for part in self.ci.PARTS if part.stage == "samples"} - set(in_units):
            self.assertRegex(lists, rf"(NAME |_test\(){grid} ")
            if grid != self.ci.CARD_TEST:
                self.assertIn(f'is_mine("{grid}"', scripts)
        for suite, _ in self.ci.SUITES:
            self.assertIn(f'main(testLoader=SuiteLoader("{suite}"', (ROOT / f"tests/{suite}.py").read_text())
        cmake = "".join(path.read_text() for path in (ROOT / "tests/toys/CMakeLists.txt", ROOT / "src/ops/CMakeLists.txt"))
        for targets, tests in self.ci.TURNS.values():
            for target in targets:
                self.assertRegex(cmake, rf"(add_executable|plimsoll_gpu_test)\({target} ")
            for test in tests:
                self.assertRegex(cmake, rf"(NAME |plimsoll_gpu_test\(){test.removesuffix('_[012]')} ")
        for family in self.ci.FAMILIES:
            self.assertTrue(list((ROOT / "src/models").glob(f"{family}*")), family)
            self.assertRegex((ROOT / "tests/parity/cases.py").read_text(), rf'Case\("{family}')
        for name in known:
            self.assertRegex(makefile, rf"(?m)^(parity-\w+ )*parity-{name}\b.*:")

    def test_what_stages_took_is_recorded_beside_what_is_known_of_others(self):
        commands = {"check": [["true"]], "isas": [[sys.executable, "-c", "sum(range(10**7))"]], "demo": [["true"]]}
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(self.ci, "stages", lambda choice: commands.items()), mock.patch("builtins.print"):
            choice, path = self.ci.choose("1", 0, None), pathlib.Path(folder) / "ci.json"
            for only, more in ((["check", "isas"], {"train": 9.5}), (["demo"], {})):
                taken, _, failed = self.ci.run(choice, only)
                self.assertEqual((list(taken), failed), (only, None))
                self.ci.record(path, "warm", choice, taken, more)
            commands["demo"] = [["false"]]
            self.assertEqual(self.ci.run(choice)[2], "demo")
            known = json.loads(path.read_text())
            self.assertEqual(set(known["warm"]["stages"]), {"check", "isas", "demo"})
            self.assertEqual(known["warm"]["stages"]["isas"]["parts"], ["1/3"])
            self.assertEqual(known["warm"]["slowest_tests"], {"train": 9.5}, "what is not measured again stays")
            self.assertEqual(set(known["warm"]["stages"]["demo"]), {"seconds", "cpu_seconds", "load", "cpus", "commit", "parts"})
            self.assertGreater(self.ci.run(choice, ["isas"])[0]["isas"].cpu_seconds, 0.01)

    def test_stages_that_run_beside_others_have_seconds_of_their_own_and_end_the_run_where_they_fail(self):
        def waits_for(own, other):  # ends well where the other runs at the same time
            return f"import pathlib,time\npathlib.Path({own!r}).touch()\nfor _ in range(6000):\n if pathlib.Path({other!r}).exists(): break\n time.sleep(.01)\nelse: 1/0"
        with tempfile.TemporaryDirectory() as folder, mock.patch("builtins.print"):
            files = [f"{folder}/{number}" for number in range(2)]
            commands = [(name, [[sys.executable, "-c", waits_for(*pair)]]) for name, pair in (("parity", files), ("demo", files[::-1]))]
            with mock.patch.object(self.ci, "stages", lambda choice: [*commands, ("kernels", [["true"]])]):
                taken, _, failed = self.ci.run(self.ci.choose("1", 0, None))
            self.assertEqual((list(taken), failed), (["parity", "demo", "kernels"], None))
            commands[1] = ("demo", [[sys.executable, "-c", "print(sum(range(10**6)))"], ["false"], ["true"]])
            with mock.patch.object(self.ci, "stages", lambda choice: [("parity", [["true"]]), commands[1], ("kernels", [["true"]])]):
                taken, _, failed = self.ci.run(self.ci.choose("1", 0, None))
            self.assertEqual((list(taken), failed), (["parity", "demo"], "demo"))
            self.assertLess(taken["parity"].cpu_seconds, taken["demo"].cpu_seconds)
        for stage, other in self.ci.BESIDE.items():
            everything = [name for name, _ in self.ci.stages(self.ci.choose("all", 0, None))]
            self.assertEqual(everything[everything.index(stage) - 1], other)

    def test_history_is_counted_from_the_number_s_last_change(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)

            def commit(files):
                write(root, files)
                for words in (["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
                    subprocess.run(["git", *words], cwd=root, check=True)
            subprocess.run(["git", "init", "-q"], cwd=root, check=True)
            self.addCleanup(setattr, self.ci, "ROOT", self.ci.ROOT)
            self.ci.ROOT = root
            commit({".ci/landing": "0\n", "a": ""})
            self.assertIsNone(self.ci.history())
            commit({"b": ""})
            commit({".ci/landing": "1\n"})
            commit({"c": ""})
            since, files = self.ci.history()
            self.assertEqual((since, sorted(files)), (1, [".ci/landing", "b", "c"]))
            landed = subprocess.run(["git", "rev-parse", "HEAD~1"], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
            self.assertEqual(self.ci.history(landed), (1, ["c"]))
            self.assertIsNone(self.ci.history("0" * 40), "what landed is no commit of this history")


class OperandNames(unittest.TestCase):
    def test_a_number_in_the_place_of_an_operand_s_name_is_found(self):
        for line in ("auto x = b.input<T>(0);", "auto& x = input_tensor(g, op, 1);", "if (op.has_output(2)) return;", "launch(b.sent<int32_t>(3, fact));",
                     "const TensorId x = op.inputs[0];", "ctx.add_gradient(x, out[0]);", "auto live = live_rows(b, 4);", "auto s = coded_state(b, 1, 3, map);",
                     "x.outputs[1] = kNoTensor;", "auto y = emit(graph, std::move(op), name)[0];", "for (const size_t i : {1, 2}) use(i);",
                     ".reuse = {{0, 4}},", "Values& g = s.gradient(1);"):
            for name in ("src/ops/norm/a_cpu.cc", "src/ops/norm/a_gpu.cu", "src/ops/norm/a.h", "tests/harness/a.cc"):
                status, text = run_check("check_operands.py", {name: "\n" + line + "\n"})
                self.assertEqual(status, 1, line)
                self.assertIn(f"{name}:2: an operand by its number", text)
        for name in ("src/passes/a.cc", "src/plan/a_test.cc", "tests/gpu/a.cc"):
            self.assertEqual(run_check("check_operands.py", {name: "const TensorId x = op.inputs[0];"})[0], 1)

    def test_names_and_numbers_that_were_found_out_stand(self):
        for line in ("auto x = b.input<T>(at::x);", "const TensorId x = op.inputs[i];", "const TensorId x = op.inputs.front();  // not inputs[0]",
                     "ctx.add_gradient(x, out[operand::rms_norm_grad::d_x]);", "const int64_t rows = x.shape[0];", "auto a = emulate(order, 0);"):
            self.assertEqual(run_check("check_operands.py", {"src/ops/norm/a_cpu.cc": line}), (0, ""), line)


class Fields(unittest.TestCase):
    """Members of types are counted whatever they look like."""
    KINDS = ["int a = 0, b = f(1, 2);", "std::map<int, std::pair<int, int>> c;", "std::function<void(int, int)> d = {};", "int (*e)(int, int) = nullptr;",
             "float f[3] = {1, 2, 3};", "Options g{.a = 1, .b = 2};", "std::vector<std::string> h = {};", "const char* text = \"a; b, {\";",
             "struct { int in = 0, out = 0; } i;", "bool j : 1;"]
    OTHERS = ["static int count;", "using Row = int;", "friend bool operator==(const A&, const A&) = default;", "A(int a, int b) : a_(a), b_{b} {}",
              "[[nodiscard]] int get(int x = 0) const { int y = x, z = 1; return y + z; }", "enum class Kind { a, b };", "// int hidden = 0;",
              "void run(const std::function<void(int)>& f);", "template <class T> void visit(T t);", "struct Part { int p = 0, q = 0; };"]

    def status(self, members):
        return run_check("check_fields.py", {"src/a/a.h": "namespace n {\n\nstruct A {\n public:\n  " + "\n  ".join(members) + "\n};\n\n}\n"})

    def test_a_type_with_more_than_twenty_members_is_named_with_its_line(self):
        nine = [f"int m{i} = 0;" for i in range(9)]
        self.assertEqual(self.status(self.KINDS + self.OTHERS + nine), (0, ""))  # eleven and nine
        status, text = self.status(self.KINDS + self.OTHERS + nine + ["int more = 0;"])
        self.assertEqual(status, 1)
        self.assertIn("src/a/a.h:3: A has 21 data members, above 20", text)
        many = "; ".join(f"int m{i}" for i in range(21))
        for head in ("class A : public B", "template <class T>\nstruct A", "struct A"):
            self.assertIn("A has 21 data members", run_check("check_fields.py", {"src/a.cc": f"namespace {{\n{head} {{ {many}; }};\n}}\n"})[1], head)
        inner = f"void f() {{\n  struct A {{ {many}; }};\n}}\n"
        self.assertIn("src/a.cc:2: A has 21", run_check("check_fields.py", {"src/a.cc": inner})[1])

    def test_a_reason_without_need_is_an_error(self):
        status, text = run_check("check_fields.py", {"src/models/spec.h": "struct ModelSpec {\n  int a = 0;\n};\n"})
        self.assertEqual(status, 1)
        self.assertIn("ModelSpec of src/models/spec.h needs no reason", text)


class Names(unittest.TestCase):
    def test_one_name_has_one_definition(self):
        header = "namespace plimsoll {\nstruct Fact {\n  int a;\n};\n}  // namespace plimsoll\n"
        self.assertEqual(run_check("check_names.py", {"src/a/x.h": header, "src/b/y.h": "struct Fact;\n"}), (0, ""))
        status, text = run_check("check_names.py", {"src/a/x.h": header, "src/b/y.h": header})
        self.assertEqual(status, 1)
        self.assertIn("plimsoll::Fact is defined in src/a/x.h and in src/b/y.h", text)
        other = header.replace("namespace plimsoll {", "namespace plimsoll::b {")
        for second, expected in (("src/b/y.h", 1), ("src/a/y.h", 0), ("src/b/test_y.h", 0)):
            status, text = run_check("check_names.py", {"src/a/x.h": header, second: other})
            self.assertEqual(status, expected, text)
            self.assertEqual("Fact is defined in src/a/x.h and in src/b/y.h: give each a name of its own" in text, bool(expected))

    def test_a_name_that_is_listed_as_one_of_two_folders_is_one(self):
        sys.path.insert(0, str(ROOT / "scripts"))
        import check_names
        self.assertEqual(list(check_names.problems(ROOT, check_names.HOMONYMS)), [])
        self.assertIn("Fact is no longer of two folders", "".join(check_names.problems(ROOT, {**check_names.HOMONYMS, "Fact": ""})))


class Claims(unittest.TestCase):
    def test_a_sentence_that_denies_that_cards_train_is_found_in_pages_and_messages(self):
        for place, text in (("README.md", "# P\n\nIt is a program for\nthe CPU; it needs no Python.\n"),
                            ("docs/a/b.md", "x\n\n`train` refuses a card: there is no backend for one yet.\n"),
                            ("src/a/b.cc", 'x\n\nthrow E("memory.gpu is a card "\n        "to plan for: say cpu");\n'),
                            ("src/a/b.h", "x\n\n// Trainings compute on\n// CPUs.\n")):
            status, told = run_check("check_claims.py", {place: text})
            self.assertEqual(status, 1, text)
            self.assertIn(f"{place}:3: ", told)
        true = "`train` computes on a card that is here, or on the CPU. A run computes on CPUs or cards.\n"
        self.assertEqual(run_check("check_claims.py", {"README.md": true, "docs/x.md": true}), (0, ""))


class Messages(unittest.TestCase):
    SOURCE = 'void f(const std::string& n) {\n  // "no message"\n  throw E("the file " + n +\n          " is " "damaged");\n  g("key");\n  t.add_row({"size", "s/step"});\n}\n'

    def test_strings_that_are_joined_are_one_message_and_a_changed_one_is_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            write(root, {"src/a/b.cc": self.SOURCE, "src/a/b_test.cc": 'g("not a message of ours");\n'})
            check = [sys.executable, ROOT / "scripts/messages.py"]
            subprocess.run([*check, "--write", root], check=True)
            golden = (root / "tests/golden/messages.txt").read_text()
            self.assertEqual(golden.splitlines()[1:], ["", "src/a/b.cc", "  the file {} is damaged", "  size", "  s/step"])
            self.assertEqual(subprocess.run([*check, root]).returncode, 0)
            write(root, {"src/a/b.cc": self.SOURCE.replace("damaged", "broken")})
            changed = subprocess.run([*check, root], capture_output=True, text=True)
            self.assertEqual(changed.returncode, 1)
            self.assertIn("+  the file {} is broken", changed.stdout)


class Skipped(unittest.TestCase):
    def test_a_test_that_this_machine_cannot_run_is_skipped_with_a_reason_and_none_at_all_fails(self):
        for wanted, code, said in (("the_page_writes", 77, "the_page_writes_bytes_and_times_as_the_program_does: no node runs the page's script"), ("no_such", 1, "Ran 0 tests")):
            done = subprocess.run([sys.executable, ROOT / "tests/top_test.py", sys.executable, "-k", wanted], env={**os.environ, "PATH": "/nowhere"},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(done.returncode, code, done.stdout)
            self.assertIn(said, done.stdout)
            self.assertEqual("SKIPPED" in done.stdout, code == 77)


class Words(unittest.TestCase):
    def test_all_pages_are_read(self):
        rows = {"scripts/house_words.txt": "beside | with | 0 | 0 | 0\n"}
        for page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "src/README.md", "docs/a/b.md"):
            self.assertIn("docs say 'beside' 1 times", run_check("check_words.py", {**rows, page: "One beside another.\n"})[1], page)

    def test_more_of_a_house_word_is_refused_and_the_numbers_only_sink(self):
        rows = "# head\nbeside | with | {} | 1 | 1\n"
        files = {"src/a/b.cc": '// It stands beside it.\nthrow E("it goes beside it");\n', "docs/a.md": "One beside another.\n"}
        for allowed in (1, 2):
            self.assertEqual(run_check("check_words.py", {**files, "scripts/house_words.txt": rows.format(allowed)}), (0, ""))
        status, text = run_check("check_words.py", {**files, "scripts/house_words.txt": rows.format(0)})
        self.assertEqual(status, 1)
        self.assertIn("messages say 'beside' 1 times, 0 are left", text)
        for allowed, left in ((2, 1), (1, 1), (0, 0)):
            with tempfile.TemporaryDirectory() as folder:
                write(pathlib.Path(folder), {**files, "scripts/house_words.txt": rows.format(allowed)})
                subprocess.run([sys.executable, ROOT / "scripts/check_words.py", "--write", folder], check=True)
                self.assertEqual((pathlib.Path(folder) / "scripts/house_words.txt").read_text(), rows.format(left))

    def test_a_row_with_a_caret_counts_the_comments_that_begin_so(self):
        rows = "^(?:Of|What)\\s | a main clause | 0 | 0 | {}\n"
        files = {"src/a/b.cc": "// Of a row.\n// What is left.\nint a;  // What it is\n  // What else.\nint b;\n// Tokens.\n// Of rows.\n"}
        self.assertEqual(run_check("check_words.py", {**files, "scripts/house_words.txt": rows.format(2)}), (0, ""))
        self.assertIn("2 times, 1 are left", run_check("check_words.py", {**files, "scripts/house_words.txt": rows.format(1)})[1])

    def test_comments_of_kernels_and_tests_count_as_well(self):
        own = (ROOT / "scripts/house_words.txt").read_text().splitlines()
        bare = next(line for line in own if line.startswith("^")).split(" | ")[0]
        rows = {"scripts/house_words.txt": f"{bare} | a main clause | 0 | 0 | 0\n"}
        for name in ("src/ops/a/b.h", "src/ops/a/b_gpu.cu", "src/ops/a/b_simd.cc", "src/a/b_test.cc", "tests/harness/a.h", "src/a/b.def"):
            for word in ("Of", "What", "Where", "Who", "How", "Whether", "Whose", "Which", "Why"):
                source = f"// Rows.\nint a;\n\n// {word} it is.\nint b;\n"
                status, text = run_check("check_words.py", {**rows, name: source})
                self.assertEqual(status, 1, source)
                self.assertIn("1 times, 0 are left", text)
            self.assertEqual(run_check("check_words.py", {**rows, name: "// Rows.\nint a;\n\n// The place of b.\nint b;\n"}), (0, ""))

    def test_the_first_comment_of_a_header_is_no_fragment(self):
        rows = {"scripts/house_words.txt": "# head\n"}
        for first in ("Of a row, its tokens.", "What rows are.", "Where rows lie.", "Whether rows are read.", "How rows are read.", "Who reads rows."):
            status, text = run_check("check_words.py", {**rows, "src/a/b.h": f"// {first}\n#pragma once\n"})
            self.assertEqual(status, 1, first)
            self.assertIn(f"src/a/b.h: its first comment begins with '{first.split()[0]}'", text)
        for source in ("// The tokens of a row.\n#pragma once\n// Of a row.\nint a;\n", "#pragma once\nint a;\n", "// Offsets.\n"):
            self.assertEqual(run_check("check_words.py", {**rows, "src/a/b.h": source}), (0, ""), source)


class Chains(unittest.TestCase):
    def test_a_text_of_three_pieces_is_found(self):
        long = ('throw E(path + ": has " + std::to_string(rows.size()) + " rows");', 'x = "a" + b + c;', 'return y ? "" : "; " + word(1) + \'.\';',
                'f(1, {"(" + a[0] + ")"});', 'x += "<" + escaped("a" + b) + ">";', 'throw E("no " + *name + " here");')
        short = ('throw E("no " + name);', 'x = a + b + c;', 'f("a" + b, "c" + d);', 'x = n + 1 + m;', 'x = formatted("{}: {}", a + b, "c" + d);',
                 '// "a" + b + "c"')
        for folder in ("fleet/a", "cli", "jinja"):
            for line in long:
                status, text = run_check("check_chains.py", {f"src/{folder}/b.cc": "\n" + line + "\n"})
                self.assertEqual(status, 1, line)
                self.assertIn(f"src/{folder}/b.cc:2: a text of ", text)
            self.assertEqual(run_check("check_chains.py", {f"src/{folder}/b.cc": "\n".join(short)}), (0, ""))
        self.assertEqual(run_check("check_chains.py", {"src/hub/b_test.cc": long[0]}), (0, ""))

    def test_the_pattern_of_formatted_is_one_message(self):
        sys.path.insert(0, str(ROOT / "scripts"))
        import messages
        self.assertEqual(messages.messages_of('throw E(formatted("{}: has {{}} and {:>3} "\n "rows", path, n, " of them"));'),
                         ["{}: has {} and {} rows", " of them"])
        self.assertEqual(messages.messages_of('f(formatted("{} rows are{}", n, n > 1 ? formatted(" in {} files", m) : ""), "a row of " + b);'),
                         ["{} rows are{}", " in {} files", "a row of {}"])


class Pages(unittest.TestCase):
    def problems(self, page="", old="", new=""):
        """What the check finds in the repository's pages with one text replaced."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in ("docs", "src", "bench", "examples", "demo", "CONTRIBUTING.md", "CHANGELOG.md", "README.md", "scripts", "tests", "cmake"):
                if name == "docs" or name == "README.md":
                    copy = shutil.copytree if name == "docs" else shutil.copy
                    copy(ROOT / name, root / name)
                else:
                    (root / name).symlink_to(ROOT / name)
            changed = [file for file in root.glob(page) if old in file.read_text()] if page else []
            self.assertEqual(bool(changed), bool(page))
            for file in changed:
                file.write_text(file.read_text().replace(old, new))
            return subprocess.run([sys.executable, ROOT / "scripts/check_pages.py", root], capture_output=True, text=True).stderr

    def test_broken_links_pages_without_a_link_lost_words_and_other_figures_are_found(self):
        self.assertEqual(self.problems(), "")
        for page, old, new, told in (
                ("docs/README.md", "(howto/gla.md)", "(howto/gl.md)", "docs/README.md: links to howto/gl.md, which is not there"),
                ("README.md", "cuda.md#a-real-card", "cuda.md#none", "docs/explanation/cuda.md has no such heading"),
                ("docs/decisions/README.md", "(16-cpus.md)", "(15-micro-steps.md)", "docs/decisions/16-cpus.md: no page"),
                ("docs/howto/train.md", "ixed precision", "ixed types", "docs/howto/train.md: does not say 'mixed precision'"),
                ("docs/glossary.md", "| KV cache |", "| cache |", "docs/glossary.md: has no row for 'KV cache'"),
                ("README.md", "for 119 GPUs", "for 70 GPUs", "says 70 GPUs"),
                ("README.md", "| 5.5 GiB |\n", "| 5.5 GiB |\n| Invented-70B | H200 | 9 | 1 | 1 GiB | 2 GiB |\n", "no measurement is known"),
                ("README.md", "| tokens/s |", "| tokens/h |", "the head of the table"),
                ("docs/howto/other-tools.md", "recipe/translate/defaults.cc", "recipe/dialects/defaults.cc", "which is not there"),
                ("docs/howto/gla.md", "\n## How it is computed", "\n## How", "docs/gla.md#how-it-is-computed went to docs/howto/gla.md#how-it-is-computed"),
                ("docs/howto/gla.md", "\n## How it is computed", "\n" + 13 * "many words " + "\n\n## How it is computed", "142 characters of prose"),
                ("README.md", "Lion, ", "", "does not name lion"),
                ("README.md", "\n## A recipe\n", 10 * "\n" + "\n## A recipe\n", " lines, above 85"),
                ("README.md", "Apache License", "[One](docs/README.md) [more](docs/README.md). Apache License", " links, above 12"),
                ("README.md", "\nfits   device", "\n...\nfits   device", "5 lines of terminal, above 4"),
                ("README.md", "```sh test\n", "```sh\n", "no block of terminal that a test runs"),
                ("README.md", "![Planned memory of a", "![](docs/a.svg) [Planned memory of a", "no picture of docs/pictures"),
                ("README.md", "make install PREFIX", "make instal PREFIX", "the line that installs"),
                ("README.md", "70,395", "70,396", "README.md: 'Qwen3-0.6B, LoRA, 2048 tokens' shows")):
            self.assertIn(told, self.problems(page, old, new))


    def test_pages_that_help_and_messages_name_exist(self):
        sys.path.insert(0, str(ROOT / "scripts"))
        import check_pages
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            write(root, {"docs/howto/a.md": "", "src/cli/pages.cc": '"docs/howto/a.md, docs/b.md"', "src/cli/c.h": "// docs/howto/a.md"})
            self.assertEqual(list(check_pages.missing_pages(root)), ["src/cli/pages.cc: names docs/b.md, which is not there"])


class Site(unittest.TestCase):
    def test_other_hosts_lost_pages_words_and_alternative_texts_are_found(self):
        sys.path.insert(0, str(ROOT / "scripts"))
        import check_site
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            write(root, {"docs/README.md": "", "docs/howto/a.md": "", "site/index.html": '<a href="https://x.org/"></a><script src="https://x.org/a.js"></script>'
                         '<article><p>A **bold** word</p><code>**</code><img src="a.png"><img alt="A plan" src="b.png"></article>',
                         "site/a.css": "@import '//y.org/b.css'; a { background: url(data:image/png) }",
                         "site/search/search_index.json": json.dumps({"docs": [{"title": "Batch", "text": "size"}, {"title": "", "text": "peak memory"}]})})
            site = root / "site"
            self.assertEqual(list(check_site.foreign(site)), ["a.css: loads //y.org/b.css", "index.html: loads https://x.org/a.js"])
            self.assertEqual(list(check_site.missing(site, root / "docs")), ["docs/howto/a.md: the site has no howto/a.html"])
            self.assertEqual(len(check_site.unfound(site)), len(check_site.TERMS) - 2)
            self.assertEqual(list(check_site.badly_shown(site)),
                             ['index.html: a picture has no alternative text: <img src="a.png">', "index.html: shows 'A **bold** word'"])


class Size(unittest.TestCase):
    BODY = "  f();\n" * 59

    def test_a_long_function_needs_a_reason_and_a_long_file_none(self):
        short = "void g() {\n" + "  f();\n" * 58 + "}\n"
        self.assertEqual(run_check("check_size.py", {"src/base/a.cc": short * 20}), (0, ""))
        # In a class, and with its head on several lines.
        for head, name in (("void g() {\n", "g"), ("int A::g(int a,\n         int b) const {\n", "A::g"),
                           ("A::A(int a)\n    : a_(a) {\n", "A::A")):
            long = {"src/base/a.cc": "int x;\n" + head + self.BODY + "}\n"}
            status, text = run_check("check_size.py", long)
            self.assertEqual(status, 1, head)
            self.assertIn(f"src/base/a.cc {name}: {60 + head.count(chr(10))} lines", text)
            reason = {"scripts/size_reasons.txt": f"src/base/a.cc {name}: one table\n"}
            self.assertEqual(run_check("check_size.py", {**long, **reason}), (0, ""))
        for other in ("const Table kRows = {\n" + "  {f()},\n" * 99 + "};\n", "class A {\n" + "  int f();\n" * 99 + "};\n",
                      "namespace a {\n" + "int f();\n" * 99 + "}\n"):
            self.assertEqual(run_check("check_size.py", {"src/base/a.cc": other}), (0, ""))
        long = {"scripts/a.py": "def g():\n" + "    f()\n" * 60}
        self.assertIn("scripts/a.py g: 61 lines", run_check("check_size.py", long)[1])

    def test_a_folder_has_so_many_files_and_lines_of_its_own(self):
        within = {f"src/base/a/{i}_test.cc": "\n" for i in range(60)}
        self.assertEqual(run_check("check_size.py", {**within, "src/base/b.cc": "\n"}), (0, ""))
        status, text = run_check("check_size.py", {**within, "src/base/a/b.cc": "\n"})
        self.assertEqual(status, 1)
        self.assertIn("src/base/a: 61 files, above 60", text)
        long = {"src/cli/a/b.cc": "\n" * 6000}
        self.assertEqual(run_check("check_size.py", {**long, "src/cli/a/b_test.cc": "\n"}), (0, ""))
        self.assertIn("src/cli/a: 6,001 lines", run_check("check_size.py", {**long, "src/cli/a/c.cc": "\n"})[1])

    def test_a_reason_without_need_is_an_error(self):
        self.assertEqual(run_check("check_size.py", {"scripts/size_reasons.txt": "src/base/a.cc f: gone\n"})[0], 1)

    def test_every_folder_has_a_budget_that_tests_do_not_count_in(self):
        tensor = 300  # the budget of a folder that hardly changes
        part = "\n" * tensor
        self.assertEqual(run_check("check_size.py", {"src/tensor/a.cc": part, "src/tensor/a_test.cc": part, "src/tensor/test_a.h": part}),
                         (0, ""))
        status, text = run_check("check_size.py", {"src/tensor/a.cc": part, "src/tensor/b.h": "\n"})
        self.assertEqual(status, 1)
        self.assertIn("src/tensor: 301 lines", text)
        self.assertIn("src/new: has no line budget", run_check("check_size.py", {"src/new/a.cc": "\n"})[1])


class Setup(unittest.TestCase):
    def run_setup(self, installed, arguments=()):
        """setup.sh as an ordinary user on a machine whose dpkg knows only `installed`; apt-get must not be called."""
        with tempfile.TemporaryDirectory() as folder:
            tools = pathlib.Path(folder)
            lines = "".join(f"echo 'installed {name}'\n" for name in installed)
            write(tools, {"dpkg-query": f"#!/bin/sh\n{lines}", "id": "#!/bin/sh\necho 1000\n",
                          "apt-get": "#!/bin/sh\necho called >&2\nexit 9\n"})
            for tool in tools.iterdir():
                tool.chmod(0o755)
            environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
            return subprocess.run([ROOT / "scripts/setup.sh", *arguments], capture_output=True, text=True,
                                  env=environment)

    def test_without_root_the_exact_command_is_named(self):
        done = self.run_setup(["g++", "cmake", "make"])
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"sudo apt-get install -y --no-install-recommends ninja-build .*libyaml-cpp-dev")
        self.assertNotIn("g++", done.stderr)
        self.assertNotIn("called", done.stderr)

    def test_an_unknown_argument_is_refused(self):
        self.assertEqual(self.run_setup([], ["--everything"]).returncode, 2)


class Carry(unittest.TestCase):
    """scripts/make_gpu_carry.py packs what it made, and no more than is carried."""

    def test_an_archive_that_is_larger_than_what_is_carried_is_refused(self):
        sys.path.insert(0, str(ROOT / "scripts"))
        from make_gpu_carry import MOST, pack
        self.assertEqual(MOST, 60 * 2**20)
        with tempfile.TemporaryDirectory() as folder:
            carried = pathlib.Path(folder) / "gpu-carry"
            carried.mkdir()
            (carried / "program").write_bytes(os.urandom(5000))
            self.assertEqual(pack(carried).name, "gpu-carry.tar.gz")
            with self.assertRaisesRegex(SystemExit, "gpu-carry.tar.gz: 5[0-9]{3} bytes, more than the 5000 that are carried"):
                pack(carried, 5000)


class Sass(unittest.TestCase):
    """scripts/check_sass.py, with a cuobjdump that prints what each test gives it."""

    def check(self, stack, code, rules, *words, arch=90, of="Lb1E"):
        usage = f"arch = sm_{arch}\n Function _ZN8plimsoll7on_cuda12_GLOBAL__N_110matmul_mmaI{of}EEvi:\n  REG:90 STACK:{stack} SHARED:0\n"
        dump = f"arch = sm_{arch}\n\tFunction : _ZN8plimsoll7on_cuda12_GLOBAL__N_110matmul_mmaI{of}EEvi\n"
        dump += "".join(f"        /*{at:04x}*/                   {line} ;\n" for at, line in enumerate(code))
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            write(folder, {"objects/a.o": "", "rules.txt": rules, "usage": usage, "dump": dump,
                           "tool": f'#!/bin/sh\n[ "$1" = -sass ] && cat {folder}/dump || cat {folder}/usage\n'})
            (folder / "tool").chmod(0o755)
            done = subprocess.run([sys.executable, ROOT / "scripts/check_sass.py", folder / "objects", "--cuobjdump", folder / "tool",
                                   "--rules", folder / "rules.txt", *words], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_a_table_has_the_resources_of_the_kernels_that_are_named(self):
        code, words = ["HMMA.16816.F32.BF16 R4, R8", "HMMA.16816.F32.BF16 R4, R8"], ("--table", "matmul_,delta_")
        status, text = self.check(8, code, "", *words, of="N3gpu7on_cuda4bf16ELi64E")
        self.assertEqual((status, text.splitlines()[2:]), (0, ["| `matmul_mma` | bf16 64 | 90 | 90 | 8 | 0 | 2 |"]))
        self.assertEqual(self.check(8, code, "", "--table", "delta_")[1].count("\n"), 2)

    def test_spills_and_instructions_that_are_missing_or_must_not_be_are_faults(self):
        rules = "# of one kernel\nmatmul_mma sm_80 HMMA LDSM -LDG.128\n"
        good = ["HMMA.16816.F32.BF16 R4, R8", "@P0 LDSM.16.M88.4 R4, [R8]", "LDG.E R2, [R4]"]
        self.assertEqual(self.check(0, good, rules), (0, "1 kernels, 0 faults\n"))
        for stack, code, said in ((8, good, "8 bytes of stack, 0 are allowed"), (0, good[1:], "no HMMA"), (0, [*good, "LDG.E.128 R2, [R4]"], "1 x LDG.128"),
                                  (0, [*good, "@!P1 STL [R1], R2"], "1 accesses to local memory")):
            status, text = self.check(stack, code, rules)
            self.assertEqual(status, 1, text)
            self.assertIn(f"a: matmul_mma for sm_90: {said}", text)
        self.assertEqual(self.check(0, [], rules, arch=75)[0], 0)  # the line begins later
        self.assertEqual(self.check(16, good, rules + "matmul_mma sm_75 stack<=16\n")[0], 0)

    def test_a_condition_may_be_of_instances_of_bf16_alone(self):
        rules = "matmul_mma sm_80 LDSM bf16:HMMA\n"
        self.assertEqual(self.check(0, ["LDSM.16.M88.4 R4, [R8]"], rules, of="f")[0], 0)
        status, text = self.check(0, ["LDSM.16.M88.4 R4, [R8]"], rules, of="N3gpu7on_cuda4bf16E")
        self.assertEqual(status, 1, text)
        self.assertIn("a: matmul_mma for sm_90: no HMMA", text)

    def test_lines_that_say_nothing_and_kernels_that_are_not_there_are_named(self):
        for rules, said in (("matmul_mma sm_80 HMMMA\n", "rules.txt:1: matmul_mma sm_80 HMMMA: HMMMA is no condition"),
                            ("matmul_mma 80 HMMA\n", "is no rule"), ("matmul sm_80 HMMA\n", "matmul is no kernel of these objects")):
            status, text = self.check(0, ["HMMA.1688.F32 R1"], rules)
            self.assertEqual(status, 1, text)
            self.assertIn(said, text)


if __name__ == "__main__":
    unittest.main()
