"""Files, names and machines that mean harm: nothing wrong is written, nothing steers a terminal, nothing hangs.

Usage: hostile_test.py PLIMSOLL (from the repository's root). Standard library alone.
"""
import json
import math
import os
import resource
import shutil
import struct
import subprocess
import unittest

import command_run
from command_run import ROOT, not_sanitized, run
from refusals import DAMAGED, ROWS, SHIM, STOPPED, USAGE, BadInputTest, write_recipe

DOES_NOT_FIT = 3
ESCAPE = "\x1b]0;owned\x07\x1b[2J"
OVERRIDE = "\u202egnp.exe"
SHOWN = "\\u001b]0;owned\\u0007\\u001b[2J"
ADAPTER = ROOT / "tests/golden/llama_lora/adapter"
BASE = ROOT / "tests/golden/llama_lora/model"


def tensors_of(path):
    """Header, bytes, and where the data begin in them."""
    data = bytearray(path.read_bytes())
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + size]), data, 8 + size


def ended_before_main(done):
    """Whether the loader (127, which no command of ours answers) or libgomp's own beginning gave up."""
    return done.returncode == 127 or "libgomp: Out of memory" in done.stderr


def limited(**limits):
    """A preexec_fn; limits by the names of resource.RLIMIT_*."""
    def apply():
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value))
    return apply


def controls(text, allowed="\n\t"):
    return sorted({c for c in text if (ord(c) < 32 and c not in allowed) or 0x7F <= ord(c) < 0xA0
                   or 0x202A <= ord(c) <= 0x202E or 0x2066 <= ord(c) <= 0x2069})


class HostileTest(BadInputTest):
    def clean(self, done):
        """Neither stream holds what steers a terminal."""
        for text in (done.stdout, done.stderr):
            self.assertEqual(controls(text), [], text[:2000])
        return done

    def printed(self, code, *words, **options):
        done = self.clean(run(*words, **options))
        self.assertEqual(done.returncode, code, f"{words}\n{done.stdout}{done.stderr}")
        self.assertNotIn("bug in plimsoll", done.stderr)
        return done.stdout + done.stderr


class WrongResults(HostileTest):
    def adapter(self, value=None, **config):
        folder = self.folder / "adapter"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(ADAPTER, folder)
        file = folder / "adapter_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "base_model_name_or_path": str(BASE), **config}))
        if value is not None:
            header, data, start = tensors_of(folder / "adapter_model.safetensors")
            for name in ("lora_A", "lora_B"):
                tensor = next(header[key] for key in header if name in key)
                at = start + tensor["data_offsets"][0]
                data[at:at + 4] = struct.pack("<f", value)
            (folder / "adapter_model.safetensors").write_bytes(data)
        return folder

    def test_adapters_that_are_not_finite_or_overflow_are_not_merged(self):
        out = self.folder / "merged"
        for value in (math.nan, math.inf, 3e38):
            self.refused(DAMAGED, "NaN or infinite", "merge", self.adapter(value), "--out", out)
            self.assertFalse(out.exists())
        for alpha in (1e308, 1e12, -1e12):
            adapter = self.adapter(lora_alpha=alpha)
            self.refused(DAMAGED, "'lora_alpha'", "merge", adapter, "--out", out)
            self.refused(DAMAGED, "'lora_alpha'", "generate", adapter, "--ids", "1,2")
            self.assertFalse(out.exists())
        for value in (math.nan, math.inf):
            self.refused(DAMAGED, "NaN or infinite", "generate", self.adapter(value), "--ids", "1,2")
        done = run("merge", self.adapter(), "--out", out)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_values_that_overflow_are_not_converted(self):
        model = self.model()
        header, data, start = tensors_of(model / "model.safetensors")
        at = start + next(header[key] for key in header if key != "__metadata__")["data_offsets"][0]
        for value, dtype in ((1e5, "f16"), (3.4e38, "bf16")):
            data[at:at + 4] = struct.pack("<f", value)
            (model / "model.safetensors").write_bytes(data)
            self.refused(USAGE, f"beyond {dtype}'s range", "convert", model, "--dtype", dtype, "--out",
                         self.folder / "out")
            self.assertFalse((self.folder / "out").exists())

    def test_a_failed_write_to_standard_output_is_no_success(self):
        recipe = write_recipe(self.folder, self.run_folder, self.output)
        merged = self.folder / "merged"
        commands = (("--version",), ("--help",), ("help", "plan"), ("completion", "bash"), ("recipe", "--explain"),
                    ("recipe", recipe), ("recipe", recipe, "--json"), ("plan", recipe), ("plan", recipe, "--json"),
                    ("plan", recipe, "--timeline"), ("plan", recipe, "--compare", "micro_batch=1,2"), ("inspect", ROWS),
                    ("inspect", self.run_folder, "--json"), ("report", self.run_folder),
                    ("generate", self.run_folder, "--prompt", "What", "--max-new-tokens", "2"),
                    ("generate", self.run_folder, "--ids", "5,17", "--max-new-tokens", "2"),
                    ("eval", self.run_folder, "--data", ROWS, "--limit", "2"),
                    ("merge", self.adapter(), "--out", merged),
                    ("init", self.run_folder, ROWS, "--out", self.folder / "first.yaml"))
        for words in commands:
            with open("/dev/full", "w") as full:
                done = subprocess.run([str(command_run.PLIMSOLL), *map(str, words)], stdout=full,
                                      stderr=subprocess.PIPE, text=True, timeout=300)
            self.assertEqual(done.returncode, STOPPED, f"{words}\n{done.stderr}")
            self.assertIn("No space left on device", done.stderr, words)
        with open("/dev/full", "w") as full:
            done = subprocess.run([str(command_run.PLIMSOLL), "chat", str(self.run_folder), "--max-new-tokens", "2"],
                                  input="What\n", stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
        self.assertEqual(done.returncode, STOPPED, done.stderr)

    def test_no_input_is_called_a_bug(self):
        self.refused(USAGE, "base_model_name_or_path", "merge", self.adapter(base_model_name_or_path=None), "--out",
                     self.folder / "out")
        self.refused(DAMAGED, "base_model_name_or_path is a number", "merge",
                     self.adapter(base_model_name_or_path=7), "--out", self.folder / "out")
        for task in (True, 5):
            self.refused(DAMAGED, "must be string", "merge", self.adapter(task_type=task), "--out", self.folder / "out")
        for layer in (0.5, 1e300, -1):
            self.refused(DAMAGED, "layers_to_transform", "merge", self.adapter(layers_to_transform=[layer]), "--out", self.folder / "out")
        self.printed(0, "merge", self.adapter(task_type=None), "--out", self.folder / "out of a null")
        odd = os.fsencode(self.folder) + b"/out\xff"
        done = subprocess.run([str(command_run.PLIMSOLL), "convert", str(self.run_folder), "--dtype", "bf16", "--json",
                               "--out", odd], capture_output=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(json.loads(done.stdout)["out"].endswith("out\ufffd"))
        self.assertTrue(os.path.exists(odd))
        shutil.rmtree(odd)
        folder = self.folder / "run.json"
        shutil.copytree(self.run_folder, folder)
        (folder / "run.json").write_text('{"measured": [], "steps": 2}')
        self.printed(0, "inspect", folder)
        self.printed(0, "report", folder)

    def test_folders_in_place_of_files(self):
        for name in ("tokenizer_config.json", "generation_config.json", "special_tokens_map.json"):
            model = self.model()
            (model / name).unlink(missing_ok=True)
            (model / name).mkdir()
            self.refused(USAGE, name, "generate", model, "--prompt", "x")


class Names(HostileTest):
    """What others wrote is shown, never obeyed."""

    def test_names_of_tensors_and_metadata(self):
        data = struct.pack("<4f", 1, 2, 3, 4)
        header = {"__metadata__": {"a" + ESCAPE: OVERRIDE, "format": "pt\nkind  model"},
                  f"w{ESCAPE}\nx": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}
        text = json.dumps(header).encode()
        path = self.folder / "x.safetensors"
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)
        shown = self.printed(0, "inspect", path, "--tensors")
        self.assertIn("w" + SHOWN + "\\nx", shown)
        self.assertIn("pt\\nkind  model", shown)
        told = json.loads(self.printed(0, "inspect", path, "--tensors", "--json"))
        self.assertEqual(told["tensors"][0]["name"], f"w{ESCAPE}\nx")
        self.assertEqual(told["metadata"]["a" + ESCAPE], OVERRIDE)

    def test_names_in_models_adapters_and_tokenizers(self):
        model = self.model()
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, "model_type": "llama" + ESCAPE + OVERRIDE}))
        self.assertIn(SHOWN, self.printed(0, "inspect", model))
        self.printed(USAGE, "plan", model)
        (model / "config.json").write_text(json.dumps(config))
        tokenizer = json.loads((model / "tokenizer.json").read_text())
        (model / "tokenizer.json").write_text(json.dumps(
            {**tokenizer, "model": {**tokenizer["model"], "merges": ["a" + ESCAPE]}}))
        self.assertIn(SHOWN, self.printed(DAMAGED, "generate", model, "--prompt", "x"))
        (model / "tokenizer.json").write_text(json.dumps({**tokenizer, "normalizer": {"type": "N" + ESCAPE}}))
        self.assertIn(SHOWN, self.printed(USAGE, "generate", model, "--prompt", "x"))
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
        (model / "chat_template.jinja").write_text("{{ raise_exception('no " + ESCAPE + OVERRIDE + "') }}")
        self.assertIn(SHOWN, self.printed(USAGE, "generate", model, "--prompt", "x"))
        adapter = self.folder / "adapter"
        shutil.copytree(ADAPTER, adapter)
        file = adapter / "adapter_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "base_model_name_or_path": "/x" + ESCAPE,
                                    "target_modules": ["q_proj" + OVERRIDE]}))
        self.assertIn(SHOWN, self.printed(0, "inspect", adapter))
        self.assertIn(SHOWN, self.printed(USAGE, "merge", adapter, "--out", self.folder / "out"))

    def test_names_of_files_and_columns(self):
        path = self.folder / f"rows{OVERRIDE}.jsonl"
        path.write_text(json.dumps({"prompt": "a", "response": "b", "c" + ESCAPE: 1}) + "\nno JSON\n")
        self.assertIn("c" + SHOWN, self.printed(0, "inspect", path))
        recipe = write_recipe(self.folder, self.run_folder, self.output, data={"train": str(path)},
                              schedule={"max_steps": None})
        self.assertIn("rows\\u202egnp", self.printed(DAMAGED, "train", recipe, "--quiet"))
        recipe = write_recipe(self.folder, self.run_folder, self.output, schedule={"max_steps": None},
                              data={"train": str(path), "on_error": "skip"})
        self.assertIn("rows\\u202egnp", self.printed(0, "train", recipe))
        self.printed(USAGE, "plan", self.folder / ("absent" + ESCAPE))
        self.printed(USAGE, "plan" + ESCAPE)
        self.printed(USAGE, "plan", recipe, "--set", "a" + ESCAPE + "=1")

    def test_line_breaks_in_names_make_no_lines(self):
        place = self.folder / "a\nerror: b"
        place.mkdir()
        (place / "rows.jsonl").write_text("no JSON\n")
        shown = f"{self.folder}/a\\nerror: b"
        for words in (("inspect", place / "absent"), ("plan", place / "absent.yaml"), ("inspect", place / "rows.jsonl"),
                      ("generate", place, "--prompt", "x"), ("report", place)):
            text = self.clean(run(*words)).stderr
            self.assertIn(shown, text, words)
            self.assertEqual([line for line in text.splitlines()[1:] if not line.startswith("  ")], [], text)
        recipe = self.folder / "recipe.json"
        recipe.write_text(json.dumps({"model": "x", "a\nerror: b": 1, "c": 2}))
        text = self.printed(USAGE, "plan", recipe)
        self.assertIn("unknown key 'a error: b'", text)  # on one line
        self.assertEqual(len([line for line in text.splitlines() if line.startswith("error: ")]), 1, text)

    def test_events_of_a_run(self):
        folder = self.copy_of_run().parent / "run"
        with open(folder / "events.jsonl", "a") as file:
            file.write(json.dumps({"time": 1e300, "step": 1e300, "event": "x" + ESCAPE + "\nfake"}) + "\n")
            file.write(json.dumps({"time": 0, "step": 3, "event": "stop", "reason": OVERRIDE}) + "\n")
        shown = self.printed(0, "report", folder, "--html", self.folder / "page.html")
        self.assertIn(SHOWN + "\\nfake", shown)
        self.assertEqual(controls((self.folder / "page.html").read_text()), [])
        self.assertIn(SHOWN, (self.folder / "page.html").read_text())

    def test_what_a_model_says(self):
        model = self.model()
        tokenizer = json.loads((model / "tokenizer.json").read_text())
        vocab = tokenizer["model"]["vocab"]
        told = json.loads(self.printed(0, "generate", model, "--prompt", "What", "--json", "--max-new-tokens", "4"))
        pieces = {number: piece for piece, number in vocab.items()}
        escape = chr(0x100 + 27)  # of the byte-level alphabet
        spoken = told["response_ids"][-1]
        vocab[escape], vocab[pieces[spoken]] = spoken, vocab[escape]
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
        words = ("generate", model, "--prompt", "What", "--max-new-tokens", "4")
        told = json.loads(self.printed(0, *words, "--json"))
        self.assertIn("\x1b", told["response"])
        self.assertIn("\\u001b", self.printed(0, *words))
        self.assertIn("\\u001b", self.printed(0, "chat", model, "--max-new-tokens", "4", input="What\n"))

    def test_a_first_recipe_holds_its_own_keys_alone(self):
        rows = self.folder / "rows.jsonl"
        evil = "x\nsave: {every: 1}\noutput: /tmp/elsewhere\n#" + OVERRIDE
        rows.write_text((json.dumps({"prompt": "a", "response": "b", evil: "c"}) + "\n") * 20)
        model = self.folder / f"m{OVERRIDE} #: {{effective: 3}}"
        shutil.copytree(self.model(), model)
        recipe = self.folder / "first.yaml"
        self.printed(0, "init", model, rows, "--out", recipe)
        text = recipe.read_text()
        self.assertEqual(controls(text), [])
        for line in text.splitlines():
            self.assertFalse(line.startswith(("save", "output: /tmp")), text)
        told = json.loads(self.printed(0, "recipe", recipe, "--json"))["recipe"]
        self.assertEqual((told["model"], told["save"]["every"]), (str(model), 0))

    def test_keys_of_other_tools_stay_comments(self):
        recipe = self.folder / "theirs.json"
        recipe.write_text(json.dumps({"model_name_or_path": str(self.run_folder), "stage": "sft", "dataset_dir": "x",
                                      "do_train": True, "plot_loss": "a\nsave: 1" + ESCAPE}))
        self.clean(run("recipe", recipe))


class Bounds(HostileTest):
    def test_what_never_ends_is_not_read_to_its_end(self):
        for words, says in ((("generate", self.run_folder, "--prompt-file", "-"), "64.0 MiB"),
                            (("chat", self.run_folder), "16 MiB")):
            with open("/dev/zero") as endless:
                self.refused(USAGE, says, *words, stdin=endless, preexec_fn=limited(CPU=120))
        os.mkfifo(self.folder / "fifo")
        for stated in ("/dev/zero", self.folder / "fifo"):
            done = run("plan", self.run_folder, "--length", "32", env={**os.environ, "PLIMSOLL_MEMINFO": str(stated)},
                       preexec_fn=limited(CPU=60))
            self.assertEqual(done.returncode, DOES_NOT_FIT, done.stderr)

    def test_logs_with_absurd_numbers_have_pages(self):
        folder = self.copy_of_run().parent / "run"
        for number in (9.2e18, 1e300, -1e300, 1e18, 2**63, 2**64 - 1):
            step = {"step": 5, "loss": number, "grad_norm": 1, "lr": 1, "tokens": 1, "seconds": 1, "rss": number}
            with open(folder / "metrics.jsonl", "a") as file:
                file.write(json.dumps(step) + "\n")
            self.printed(0, "report", folder, "--html", self.folder / "page.html", preexec_fn=limited(CPU=60))
            self.assertLess((self.folder / "page.html").stat().st_size, 1 << 20)

    def test_a_file_of_very_many_tensors(self):
        entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
        header = json.dumps({f"t{i}": entry for i in range(100_000)}).encode()
        path = self.folder / "x.safetensors"
        path.write_bytes(struct.pack("<Q", len(header)) + header)
        self.assertIn("100,000", self.printed(0, "inspect", path, preexec_fn=limited(CPU=60)))

    def test_a_huge_tokenizer_is_refused_before_it_is_read(self):
        model = self.model()
        os.truncate(model / "tokenizer.json", 6 << 30)
        for words in (("inspect", model), ("generate", model, "--prompt", "x")):
            done = run(*words, preexec_fn=limited(CPU=60))
            self.assertIn("6.00 GiB", done.stdout + done.stderr)
            self.assertNotIn("bug in plimsoll", done.stderr)

    def test_a_row_that_the_expression_gives_up_on_is_named_and_can_be_skipped(self):
        model = self.model_whose_expression_gives_up()
        rows = self.folder / "rows.jsonl"
        good = json.dumps({"prompt": "b", "response": "d"}) + "\n"
        rows.write_text(good * 8 + json.dumps({"prompt": "a" * 200, "response": "b"}) + "\n" + good * 8)
        changes = {"data": {"train": str(rows), "max_length": 48}, "schedule": {"max_steps": None, "epochs": 1}}
        recipe = write_recipe(self.folder, model, self.output, **changes)
        self.refused(DAMAGED, "rows.jsonl:9: ", "train", recipe, "--quiet")
        shutil.rmtree(self.output, ignore_errors=True)
        changes["data"]["on_error"] = "skip"
        recipe = write_recipe(self.folder, model, self.output, **changes)
        self.assertIn("rows.jsonl:9: ", self.printed(0, "train", recipe))


class Machines(HostileTest):
    def answer(self, **options):
        return run("generate", self.run_folder, "--ids", "5,17", "--max-new-tokens", "2", **options)

    def test_numbers_of_the_command_line(self):
        for words in (("--top-p", "nan"), ("--top-p", "1.5"), ("--temperature", "inf"), ("--temperature", "nan"),
                      ("--ids", "1,,2"), ("--ids", "1,2,"), ("--ids", "1,x"), ("--ids", "1.5")):
            base = () if words[0] == "--ids" else ("--ids", "5")
            self.refused(USAGE, words[0], "generate", self.run_folder, *base, *words)

    def test_standard_streams_that_are_closed(self):
        program = str(command_run.PLIMSOLL)
        done = subprocess.run(["sh", "-c", '"$0" chat "$1" --max-new-tokens 2 <&-', program, str(self.run_folder)],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = subprocess.run(["sh", "-c", '"$0" --version >&-', program], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, STOPPED, done.stderr)
        recipe = write_recipe(self.folder, self.run_folder, self.output, schedule={"max_steps": 3})
        done = subprocess.run(["sh", "-c", '"$0" train "$1" <&- >&- 2>&-', program, str(recipe)], timeout=120)
        self.assertEqual(done.returncode, 0)
        for file in self.output.rglob("*"):
            if file.is_file() and file.suffix not in (".safetensors", ".json", ".yaml", ".md"):
                self.assertNotIn("plan  ", file.read_text(errors="replace"), file)
                self.assertNotIn("step ", file.read_text(errors="replace").replace('"step', ""), file)

    @not_sanitized("they take terabytes of address space, and more data than these limits")
    def test_little_memory_is_said_and_never_a_crash(self):
        for mib in (8, 12, 16, 20, 24, 32, 48):
            for words in (("--version",), ("plan", self.run_folder, "--length", "64")):
                done = run(*words, preexec_fn=limited(DATA=mib << 20, CORE=0))
                self.assertIn(done.returncode, (0, DOES_NOT_FIT), f"{mib} MiB: {words}: {done.stderr}")
                self.assertNotIn("terminate called", done.stderr)

    @not_sanitized("their own stacks are larger")
    def test_a_small_stack_is_said_and_never_a_crash(self):
        for kib in (64, 256, 1000):
            done = run("--version", preexec_fn=limited(STACK=kib << 10, CORE=0))
            self.assertTrue(done.returncode == DOES_NOT_FIT or ended_before_main(done), f"{kib} KiB: {done.returncode} {done.stderr}")
            self.assertIn("ulimit -s", done.stderr)
        self.assertEqual(run("--version", preexec_fn=limited(STACK=1 << 20, CORE=0)).returncode, 0)

    def test_threads_that_the_system_refuses(self):
        done = self.answer(env={**os.environ, "OMP_THREAD_LIMIT": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)
        if len(os.sched_getaffinity(0)) > 1:
            self.refused(USAGE, "threads", "generate", self.run_folder, "--ids", "5", "--threads", "2",
                         env={**os.environ, "OMP_THREAD_LIMIT": "1"})

    @not_sanitized("they take terabytes of address space")
    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one CPU starts no threads")
    def test_an_address_space_without_room_for_stacks(self):
        # Where the libraries fit and what registers itself before main may not.
        for mib in range(100, 140):
            done = run("--version", preexec_fn=limited(AS=mib << 20, STACK=1 << 30, CORE=0))
            self.assertTrue(done.returncode in (0, DOES_NOT_FIT) or ended_before_main(done),
                            f"{mib} MiB: {done.returncode} {done.stderr}")
        # From as little as the libraries alone take, where the loader says so, in small steps.
        for mib in (*range(120, 200, 5), 250, 400, 600):
            done = self.answer(preexec_fn=limited(AS=mib << 20, STACK=1 << 30))
            if ended_before_main(run("--version", preexec_fn=limited(AS=mib << 20, STACK=1 << 30))):
                continue
            self.assertIn(done.returncode, (0, DOES_NOT_FIT, STOPPED), f"{mib} MiB: {done.stderr}")
            self.assertNotIn("bug in plimsoll", done.stderr)
            self.assertNotIn("libgomp", done.stderr)

    @not_sanitized("their search for leaks starts a process")
    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one CPU starts no threads")
    def test_threads_beyond_the_number_that_a_user_may_start(self):
        model = self.model()
        subprocess.run(["chmod", "-R", "a+rX", str(self.folder)], check=True)
        environment = {**os.environ, "LD_PRELOAD": str(SHIM), "FAIL_CALL": "threads"}
        text = self.refused(STOPPED, ["the system starts 1 of 2 threads", "ulimit -u", "--threads"], "generate", model, "--ids",
                            "5,17", "--max-new-tokens", "2", "--threads", "2", env=environment)
        self.assertNotIn("libgomp", text)

    def test_files_that_may_not_grow(self):
        recipe = write_recipe(self.folder, self.run_folder, self.output)
        for limit in (512, 100_000):
            shutil.rmtree(self.output, ignore_errors=True)
            text = self.refused(STOPPED, "File too large", "train", recipe, "--quiet",
                                preexec_fn=limited(FSIZE=limit))
            self.assertNotIn("Input/output error", text)

    def test_devices_and_systems_that_fail_are_not_the_files_fault(self):
        self.assertTrue(SHIM.exists(), "build the target failing_files")
        recipe = write_recipe(self.folder, self.run_folder, self.output)
        broken = {**os.environ, "LD_PRELOAD": str(SHIM)}

        def failing(call, path, error):
            return {**broken, "FAIL_CALL": call, "FAIL_PATH": path, "FAIL_ERRNO": str(error)}
        self.refused(STOPPED, "Input/output error", "train", recipe, "--quiet", env=failing("read", ".parquet", 5))
        self.refused(STOPPED, "Input/output error", "inspect", ROWS, env=failing("read", ".parquet", 5))
        self.refused(STOPPED, "Too many open files", "generate", self.run_folder, "--ids", "5",
                     env=failing("open", "model.safetensors", 24))
        shutil.rmtree(self.output, ignore_errors=True)
        self.refused(STOPPED, "Too many open files", "train", recipe, "--quiet",
                     env=failing("open", "optimizer.safetensors", 24))
        shutil.rmtree(self.output)
        self.refused(STOPPED, "Too many open files", "train", recipe, "--quiet", preexec_fn=limited(NOFILE=4))
        self.assertFalse(self.output.exists())

    def test_a_model_beyond_all_numbers_is_no_model(self):
        config = json.loads((self.run_folder / "config.json").read_text())
        config.update(hidden_size=1 << 20, vocab_size=1 << 24, num_hidden_layers=2000, num_attention_heads=1 << 13,
                      num_key_value_heads=1 << 13, intermediate_size=1 << 20, head_dim=128)
        model = self.folder / "model"
        model.mkdir()
        (model / "config.json").write_text(json.dumps(config))
        self.refused(USAGE, "parameters", "plan", model, "--method", "lora", "--length", "128")


if __name__ == "__main__":
    unittest.main()
