"""What people meet in their first hour: names of the hub, first recipes, questions, longer runs, reports.

Usage: first_contact_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import fcntl
import json
import shlex
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
import unittest
from pathlib import Path

import small_models
from command_run import CommandTest, finished_run, output, PLIMSOLL, ROOT, run
from shard import SuiteLoader

FACTS = "demo/data/facts/train.parquet"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def on_terminal(columns, *words, stream="stderr", term="xterm", **options):
    """What a terminal of so many columns and 24 rows shows of standard error, or of output, and the exit code."""
    parent, child = pty.openpty()
    fcntl.ioctl(parent, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    streams = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, stream: child}
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    running = subprocess.Popen([str(PLIMSOLL), *map(str, words)], **streams,
                               env={**environment, "TERM": term}, **options)
    os.close(child)
    shown = b""
    while select.select([parent], [], [], 120)[0]:
        try:
            data = os.read(parent, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        shown += data
    os.close(parent)
    return shown.decode(), running.wait(timeout=60)


class Build(unittest.TestCase):
    def test_the_demo_builds_the_program_and_no_tests(self):
        steps = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True).stdout
        builds = [line for line in steps.splitlines() if "cmake --build" in line]
        self.assertEqual(len(builds), 1, steps)
        self.assertIn("--target plimsoll", builds[0])
        tests = subprocess.run(["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True).stdout
        self.assertTrue(any("cmake --build" in line and "--target" not in line for line in tests.splitlines()), tests)


class FirstMinute(CommandTest):
    needs_run = False

    def test_the_name_alone_shows_this_machine_and_where_to_begin(self):
        hub = self.folder / "hub"
        snapshot = hub / "models--Acme--Tiny/snapshots/abc123"
        snapshot.mkdir(parents=True)
        (snapshot.parent.parent / "refs").mkdir()
        (snapshot.parent.parent / "refs/main").write_text("abc123")
        shutil.copy(ROOT / "demo/model/config.json", snapshot)
        (self.folder / "runs/first").mkdir(parents=True)
        (self.folder / "runs/first/metrics.jsonl").write_text("")
        parent, child = pty.openpty()
        running = subprocess.Popen([str(PLIMSOLL)], stdin=child, stdout=child, stderr=subprocess.PIPE, cwd=self.folder,
                                   env={**os.environ, "HF_HUB_CACHE": str(hub), "COLUMNS": "100", "TERM": "dumb"})
        os.close(child)
        shown = b""
        try:
            while data := os.read(parent, 65536):
                shown += data
        except OSError:  # the other end is closed
            pass
        os.close(parent)
        _, errors = running.communicate(timeout=60)
        text = " ".join(shown.decode().split())
        self.assertEqual((running.returncode, errors), (0, b""))
        for words in ("this machine", "free", "models here Acme/Tiny", "runs here runs/first", "plimsoll fit qwen2.5-1.5b", "plimsoll demo",
                      "plimsoll init Acme/Tiny rows.jsonl", "plimsoll doctor train.log", "plimsoll --help"):
            self.assertIn(words, text)
        self.assertIn("a command is missing", output(code=2))

    def test_the_demo_plans_refuses_trains_and_answers(self):
        done = run("demo", "--steps", 4, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("does not fit", done.stderr)
        for words in ("$ plimsoll plan plimsoll-demo/recipe.yaml", "$ plimsoll train", "$ plimsoll generate plimsoll-demo/run", "exact match", "plimsoll chat plimsoll-demo/run"):
            self.assertIn(words, done.stdout)
        folder = self.folder / "plimsoll-demo"
        for name in ("model/config.json", "model/tokenizer.json"):
            self.assertEqual((folder / name).read_bytes(), (ROOT / "demo" / name).read_bytes())
        self.assertEqual((folder / "facts/train.parquet").read_bytes(), (ROOT / FACTS).read_bytes())
        self.assertEqual(len((folder / "run/metrics.jsonl").read_text().splitlines()), 4)
        self.assertIn("is there already", output("demo", code=2, cwd=self.folder))
        self.assertIn("cannot", output("demo", "--folder", "/proc/nothing/demo", code=2).replace("No such file", "cannot"))

    def test_the_manual_in_one_text_names_every_command_and_exit_code(self):
        text = output("help", "--llms")
        self.assertLessEqual(len(text.splitlines()), 200)
        for command in output("help", "--commands").split():
            self.assertIn(f"`plimsoll {command}", text)
        for code in (0, 1, 2, 3, 4, 5, 130):
            self.assertIn(f"\n- {code}: ", text)
        self.assertEqual(text, (ROOT / "docs/llms.txt").read_text())

    def test_the_commands_of_the_skill_run_from_the_first_to_the_last(self):
        text = output("help", "--skill")
        self.assertEqual(text, (ROOT / "docs/skill/SKILL.md").read_text())
        self.assertLessEqual(len(text.splitlines()), 120)
        self.assertTrue(text.startswith("---\nname: plimsoll\ndescription: "))
        commands = [line for line in text.split("```sh\n")[1].split("```")[0].splitlines() if line]
        self.assertGreater(len(commands), 8)
        finished_run(self.folder)
        (self.folder / "models").mkdir()
        (self.folder / "run").rename(self.folder / "models/qwen")
        for name in ("recipe.yaml", "run.json", "metrics.jsonl"):  # a model's folder, as it was fetched
            (self.folder / "models/qwen" / name).unlink()
        (self.folder / "rows.jsonl").write_text("".join(json.dumps({"prompt": f"What is {i}?", "response": "A number."}) + "\n" for i in range(40)))
        (self.folder / "train.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
        for line in commands:
            words = shlex.split(line, comments=True)
            self.assertEqual(words[0], "plimsoll")
            printed = output(*words[1:], cwd=self.folder)
            if "--json" in words:
                json.loads(printed)

    def test_completion_offers_the_values_of_options(self):
        for shell in ("bash", "zsh", "fish"):
            script = output("completion", shell)
            for words in ("full lora qlora", "fp32 bf16 bf16-master bf16-pure fp16", "adamw adamw8bit lion sgd adafactor", "length micro_batch", "RTX-4090",
                          "method.type=qlora"):
                self.assertIn(words, script, shell)
            self.assertNotIn("data.special_tokens=>", script, shell)  # a piece of the example with <|im_end|>

    def test_the_names_that_are_known_are_listed(self):
        listed = json.loads(output("fit", "--list", "--json"))["models"]
        rows = [json.loads(line) for line in (ROOT / "src/models/model-shapes.jsonl").read_text().splitlines()]
        self.assertEqual([model["name"] for model in listed], [name for row in rows for name in (row["name"], *row["same_shape"])])
        self.assertTrue(all(model["trained"] == (model["why_not"] is None) for model in listed))
        lines = output("fit", "--list").splitlines()
        self.assertEqual(len(lines), len(listed))
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertIn("--list", output("fit", code=2))


class HubNames(CommandTest):
    def setUp(self):
        super().setUp()
        hub = self.folder / "hub"
        self.snapshot = hub / "models--Acme--Tiny" / "snapshots" / "abc123"
        self.snapshot.mkdir(parents=True)
        (hub / "models--Acme--Tiny" / "refs").mkdir()
        (hub / "models--Acme--Tiny" / "refs" / "main").write_text("abc123")
        for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            if (self.run_folder / name).exists():
                shutil.copy(self.run_folder / name, self.snapshot)
        os.environ["HF_HUB_CACHE"] = str(hub)
        self.addCleanup(os.environ.pop, "HF_HUB_CACHE")

    def test_a_name_stays_a_name_from_init_to_the_merged_model(self):
        recipe = self.folder / "recipe.yaml"
        output("init", "Acme/Tiny", FACTS, "--out", recipe)
        text = recipe.read_text()
        self.assertIn("\nmodel: Acme/Tiny\n", text)
        self.assertTrue(text.startswith("# Acme/Tiny: "), text)
        self.assertIn("output: runs/Tiny-facts-lora\n", text)
        self.assertNotIn("abc123", text)
        adapter = self.folder / "runs/Tiny-facts-lora"
        output("train", recipe, "--quiet", "--set", "schedule.max_steps=2", "--set", "data.eval=null")
        config = json.loads((adapter / "adapter_config.json").read_text())
        self.assertEqual((config["base_model_name_or_path"], config["revision"]), ("Acme/Tiny", "abc123"))
        self.assertIn("base_model: Acme/Tiny\n", (adapter / "README.md").read_text())
        self.assertIn("Acme/Tiny", output("report", adapter))
        output("generate", adapter, "--prompt", "What", "--max-new-tokens", 2)
        output("eval", adapter, "--data", FACTS, "--limit", 2)
        output("merge", adapter, "--out", self.folder / "merged")
        card = (self.folder / "merged/README.md").read_text()
        for part in ("base_model: Acme/Tiny\n", "# Acme/Tiny, fine-tuned", f"`{adapter.name}`, folded into Acme/Tiny",
                     "| method | lora, rank "):
            self.assertIn(part, card)
        output("generate", self.folder / "merged", "--prompt", "What", "--max-new-tokens", 2)

    def test_the_version_that_was_trained_on_is_kept(self):
        adapter = self.folder / "adapter"
        output("train", self.recipe(), "--quiet", "--set", "schedule.max_steps=1", "--set", f"output={adapter}")
        answer = output("generate", adapter, "--prompt", "What", "--max-new-tokens", 4)
        newer = self.snapshot.parent / "def456"
        newer.mkdir()
        shutil.copy(self.snapshot / "config.json", newer)  # a version that nothing can be loaded from
        (self.snapshot.parent.parent / "refs" / "main").write_text("def456")
        self.assertEqual(output("generate", adapter, "--prompt", "What", "--max-new-tokens", 4), answer)

    def recipe(self):
        recipe = self.folder / "recipe.yaml"
        output("init", "Acme/Tiny", FACTS, "--out", recipe, "--force")
        return recipe

    def test_every_command_takes_a_name(self):
        output("plan", "Acme/Tiny", "--length", 64)
        self.assertIn("Acme/Tiny", output("inspect", "Acme/Tiny"))
        output("generate", "Acme/Tiny", "--prompt", "What", "--max-new-tokens", 2)
        output("eval", "Acme/Tiny", "--data", FACTS, "--limit", 2, "--max-length", 48)
        output("convert", "Acme/Tiny", "--dtype", "bf16", "--out", self.folder / "bf16")
        for words in (("inspect", "Acme/Other"), ("generate", "Acme/Other", "--prompt", "a"),
                      ("convert", "Acme/Other", "--dtype", "bf16", "--out", self.folder / "x"),
                      ("init", "Acme/Other", FACTS, "--out", self.folder / "x.yaml")):
            self.assertIn("plimsoll fetch Acme/Other", output(*words, code=2))


class FirstRecipes(CommandTest):
    needs_run = False

    def table(self, name="tickets.csv"):
        path = self.folder / name
        path.write_text("ticket,label\n" + "".join(f"Printer {i} is on fire,hardware\n" for i in range(30)))
        return path

    def test_what_is_no_model_is_named_with_what_helps(self):
        recipe, rows = self.folder / "recipe.yaml", self.table()
        adapter = self.folder / "adapter"
        adapter.mkdir()
        (adapter / "adapter_config.json").write_text("{}")
        for model, data, said in ((adapter, rows, f"{adapter}: holds an adapter, and no model of its own. To train on from it, make it a "
                                                  f"model:\n  plimsoll merge {adapter} --out {adapter}-merged"),
                                  (rows, "demo/model", f"{rows}: is a file; a model is a folder with a config.json"),
                                  (self.folder / "no", rows, "/no: there is no such folder; a model is a folder with a config.json"),
                                  ("qwen2.5-7b", rows, "plimsoll fetch Qwen/Qwen2.5-7B (to plan, --config-only is enough)"),
                                  ("demo/model", "acme/rows", "plimsoll fetch acme/rows --dataset")):
            self.assertIn(said, output("init", model, data, "--out", recipe, code=2))

    def test_columns_of_any_name_can_be_named(self):
        for names in (["Frage ", " Antwort"], ["pytanie", "odpowiedź"], ["a: b", "c#d"]):
            table = self.folder / "rows.csv"
            table.write_text(",".join(names) + "\n" + "one,two\n" * 20)
            refused = output("init", "demo/model", table, "--out", self.folder / "x.yaml", code=2)
            said = re.search(r"--set '(data\.columns=.*)'", refused)[1]
            recipe = self.folder / f"{len(names[0])}.yaml"
            output("init", "demo/model", table, "--out", recipe, "--method", "full", "--set", said)
            self.assertIn("one⟦two", output("preview", recipe))

    def test_any_two_columns_can_be_named_and_the_refusal_says_how(self):
        recipe = self.folder / "recipe.yaml"
        refused = output("init", "demo/model", self.table(), "--out", recipe, code=2)
        self.assertIn("--set 'data.columns={prompt: ticket, response: label}'", refused)
        output("init", "demo/model", self.table(), "--out", recipe, "--method", "full", "--set",
               "data.columns={prompt: ticket, response: label}")
        text = recipe.read_text()
        self.assertIn("  columns: {prompt: ticket, response: label}\n", text)
        output("train", recipe, "--quiet", "--set", "schedule.max_steps=1")
        answers = output("generate", self.folder / "runs/model-tickets-full", "--data", self.table(), "--limit", 2,
                         "--max-new-tokens", 1)
        self.assertIn("of 2)", answers)

    def test_the_next_commands_can_be_pasted_whatever_paths_are_called(self):
        recipe = self.folder / "it's mine.yaml"
        word = "'" + str(recipe).replace("'", r"'\''") + "'"
        text = output("init", "demo/model", FACTS, "--out", recipe, "--method", "full")
        self.assertIn(f"wrote   {recipe}\nnext    plimsoll plan {word}\n        plimsoll train {word}\n", text)
        # Adapters need weights to begin with, and demo/model has none.
        text = output("init", "demo/model", FACTS, "--out", self.folder / "lora.yaml")
        self.assertTrue(text.endswith("lora.yaml\n        train needs model.safetensors in the model's folder\n"), text)
        folder = self.folder / "my run"
        done = run("train", recipe, "--set", "schedule.max_steps=1", "--set", "init=random", "--set",
                   f"output={folder}")
        said = done.stdout + done.stderr
        question, report = re.search(r"        next       plimsoll (.+) · plimsoll (.+)\n", said).groups()
        self.assertEqual(question, f"generate '{folder}' --prompt \"...\"")
        for words in (question, report):
            output(*shlex.split(words))
        self.assertIn("note    the only step has learning rate 0, as warm-up begins there: nothing is trained.", said)
        for settings in (["schedule.max_steps=2"], ["schedule.max_steps=1", "schedule.warmup=0", "data.eval=null"]):
            other = run("train", recipe, "--overwrite", "--set", "init=random", "--set", f"output={folder}",
                        *(word for setting in settings for word in ("--set", setting)))
            self.assertNotIn("nothing is trained", other.stdout + other.stderr)
        self.assertIn(f"name some with --data; it trained on {ROOT / FACTS}", output("eval", folder, code=2))

    def test_what_is_set_stands_in_the_recipe(self):
        recipe = self.folder / "recipe.yaml"
        output("init", "demo/model", FACTS, "--out", recipe, "--set", "optimizer.lr=1e-3", "--set",
               "schedule.max_steps=7", "--set", "schedule.warmup=2", "--set", "save.every=3", "--set",
               "data.packing=true", "--set", "precision=fp32", "--set", "batch.effective=4")
        read = json.loads(output("recipe", recipe, "--json"))["recipe"]
        self.assertEqual(read["optimizer"]["lr"], 1e-3)
        self.assertEqual((read["schedule"]["max_steps"], read["schedule"]["warmup"]), (7, 2))
        self.assertEqual((read["save"]["every"], read["data"]["packing"], read["batch"]["effective"]), (3, True, 4))
        self.assertEqual(read["precision"], "fp32")
        self.assertIn("unknown key", output(
            "init", "demo/model", FACTS, "--out", recipe, "--force", "--set", "optimizer.rate=1", code=2))

    def test_outputs_of_two_data_sets_differ_and_none_meets_a_run(self):
        names = set()
        for number, data in enumerate((FACTS, "demo/data/reverse/train.parquet", self.table())):
            recipe = self.folder / f"{number}.yaml"
            sets = ("--set", "data.columns={prompt: ticket, response: label}") if number == 2 else ()
            output("init", "demo/model", data, "--out", recipe, *sets)
            names.add(re.search("^output: (.*)$", recipe.read_text(), re.M)[1])
        self.assertEqual(names, {"runs/model-facts-lora", "runs/model-reverse-lora", "runs/model-tickets-lora"})
        (self.folder / "runs/model-facts-lora").mkdir(parents=True)
        output("init", "demo/model", FACTS, "--out", self.folder / "again.yaml")
        self.assertIn("output: runs/model-facts-lora-2\n", (self.folder / "again.yaml").read_text())


    def test_a_config_alone_is_planned_as_its_folder_is(self):
        folder = self.folder / "downloads"
        folder.mkdir()
        (folder / "config.json").write_bytes((ROOT / "examples/qwen2.5-0.5b-lora/config.json").read_bytes())
        words = ("--method", "lora", "--length", "512", "--memory", "4GiB", "--no-probe", "--json")
        of_folder = output("plan", folder, *words)
        self.assertEqual(of_folder, output("plan", folder / "config.json", *words))
        self.assertEqual(json.loads(of_folder)["process"], json.loads(output("plan", "config.json", *words, cwd=folder))["process"])
        (folder / "config.json").write_text('{"model_type": "qwen2", "hidden_size": ')
        self.assertIn("config.json", run("plan", folder / "config.json", *words).stderr)
        # A recipe may be called so too.
        (folder / "config.json").write_text(json.dumps({"model": str(ROOT / "examples/qwen2.5-0.5b-lora"), "data": {"max_length": 64}}))
        self.assertIn("max_length: 64", output("recipe", folder / "config.json"))


class Questions(CommandTest):
    def test_the_end_of_the_last_line_is_no_part_of_a_prompt(self):
        ids = lambda *words, **options: json.loads(
            output("generate", self.run_folder, "--json", "--max-new-tokens", 1, *words, **options))["prompt_ids"]
        plain = ids("--prompt", "What is it?")
        file = self.folder / "prompt.txt"
        for text in ("What is it?", "What is it?\n", "What is it?\r\n"):
            file.write_bytes(text.encode())
            self.assertEqual(ids("--prompt-file", file), plain)
            self.assertEqual(ids("--prompt-file", "-", input=text), plain)
        file.write_text("What is it?\n\n")
        self.assertNotEqual(ids("--prompt-file", file), plain)

    def test_an_adapter_answers_and_is_evaluated_in_the_type_it_was_trained_in(self):
        adapter = self.folder / "adapter"
        recipe = self.folder / "recipe.json"
        recipe.write_text(json.dumps({
            "model": str(self.run_folder), "data": {"train": str(ROOT / FACTS), "max_length": 48}, "method": {"r": 4},
            "precision": "bf16", "schedule": {"max_steps": 1}, "output": str(adapter)}))
        output("train", recipe, "--quiet")
        self.assertEqual(json.loads((self.run_folder / "config.json").read_text()).get(
            "dtype", json.loads((self.run_folder / "config.json").read_text()).get("torch_dtype")), "float32")
        for words in (("generate", adapter, "--prompt", "What", "--max-new-tokens", 1),
                      ("eval", adapter, "--data", FACTS, "--limit", 2)):
            self.assertIn(" · bf16", run(*words).stderr)

    def test_eval_reads_a_file_of_another_format(self):
        rows = write_rows(self.folder / "rows.jsonl", [{"question": "What is it?", "answer": "A cat."}] * 4)
        done = run("eval", self.run_folder, "--data", rows, "--set", "data.format=prompt-response")
        self.assertEqual(done.returncode, 0, done.stderr)
        recipe = self.folder / "messages.json"
        chat = write_rows(self.folder / "chat.jsonl", [{"messages": [
            {"role": "user", "content": "What is it?"}, {"role": "assistant", "content": "A cat."}]}] * 20)
        recipe.write_text(json.dumps({
            "model": str(self.run_folder), "method": {"type": "full"}, "schedule": {"max_steps": 1},
            "data": {"train": str(chat), "format": "messages", "template": "chatml", "max_length": 200},
            "output": str(self.folder / "chat")}))
        output("train", recipe, "--quiet")
        done = run("eval", self.folder / "chat", "--data", rows)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("read as prompt-response", done.stderr)
        self.assertNotIn("read as", run("eval", self.folder / "chat", "--data", chat).stderr)

    def test_words_too_short_for_bleu_get_a_dash(self):
        rows = write_rows(self.folder / "rows.jsonl", [{"prompt": "What is it?", "response": "cat"}] * 2)
        words = ("eval", self.run_folder, "--data", rows, "--generate", "--max-new-tokens", 2, "--max-length", 48)
        self.assertRegex(output(*words), r"BLEU +- +no answer has four words; ")
        self.assertIsNone(json.loads(output(*words, "--json"))["answers"]["bleu"])

    def test_more_positions_than_the_model_has_are_refused(self):
        positions = json.loads((self.run_folder / "config.json").read_text())["max_position_embeddings"]
        self.assertIn(f"knows {positions:,} positions", output(
            "eval", self.run_folder, "--data", FACTS, "--max-length", positions + 1, code=2))

    def test_a_head_beside_tied_embeddings_is_not_dropped(self):
        model = self.folder / "model"
        shutil.copytree(self.run_folder, model, ignore=shutil.ignore_patterns("checkpoint-*", "recipe.yaml"))
        data = (model / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        config = json.loads((model / "config.json").read_text())
        embedding = header["model.embed_tokens.weight"]
        begin, end = embedding["data_offsets"]
        body = data[8 + size:]
        for change, code in ((b"", 0), (b"\x01", 2)):
            head = change + body[begin:end][len(change):]
            wider = {**header, "lm_head.weight": {**embedding, "data_offsets": [len(body), len(body) + len(head)]}}
            text = json.dumps(wider).encode()
            (model / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body + head)
            self.assertTrue(config["tie_word_embeddings"])
            done = run("generate", model, "--prompt", "What", "--max-new-tokens", 1)
            self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn('"tie_word_embeddings": false', done.stderr)


class LongerRuns(CommandTest):
    needs_run = False

    def recipe(self, steps, **schedule):
        path = self.folder / "recipe.json"
        path.write_text(json.dumps({
            "model": str(ROOT / "demo/model"), "init": "random", "method": {"type": "full"}, "precision": "fp32",
            "data": {"train": str(ROOT / FACTS), "max_length": 48}, "batch": {"effective": 4},
            "schedule": {"max_steps": steps, "warmup": 1, **schedule}, "output": str(self.folder / "run")}))
        return path

    def test_a_finished_run_goes_on_for_more_steps_and_says_what_that_does(self):
        output("train", self.recipe(6), "--quiet")
        done = run("train", self.recipe(12), "--resume")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("extended from 6 to 12 steps: the schedule's end moves", done.stderr)
        self.assertRegex(done.stderr, r"learning rate goes from 0 to 0\.0001\d")
        steps = [json.loads(line)["step"] for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()]
        self.assertEqual(steps, list(range(1, 13)))
        self.assertIn("finished   12 of 12 steps", output("report", self.folder / "run"))
        self.assertIn("another experiment", output("train", self.recipe(9), "--resume", code=2))
        refused = output("train", self.recipe(12), "--resume", "--set", "batch.effective=8", code=2)
        command = re.search(r"with a new schedule and optimizer state: (.+)", refused)[1]
        self.assertIn("run/checkpoint-12", command)
        output("train", self.recipe(12), "--set", "batch.effective=8", "--quiet", *shlex.split(command))
        self.assertIn("finished   12 of 12 steps", output("report", self.folder / "run-2"))

    def test_more_epochs_are_more_steps(self):
        def train(epochs, *words):
            recipe = json.loads(self.recipe(None, epochs=epochs).read_text())
            recipe["data"]["train"] = [{"path": recipe["data"]["train"], "rows": ":12"}]
            (self.folder / "recipe.json").write_text(json.dumps(recipe))
            return run("train", self.folder / "recipe.json", *words)

        self.assertEqual(train(1).returncode, 0)
        done = train(3, "--resume")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("extended from 3 to 9 steps: the schedule's end moves", done.stderr)
        self.assertIn("finished   9 of 9 steps", output("report", self.folder / "run"))

    def test_a_constant_schedule_extended_is_the_longer_run_to_the_bit(self):
        weights = lambda: (self.folder / "run/model.safetensors").read_bytes()
        output("train", self.recipe(6, name="constant"), "--quiet")
        output("train", self.recipe(10, name="constant"), "--quiet", "--resume")
        extended = weights()
        output("train", self.recipe(10, name="constant"), "--quiet", "--overwrite")
        self.assertEqual(weights(), extended)


class Reports(CommandTest):
    def test_the_report_names_the_run_and_the_process_s_own_peak(self):
        measured = json.loads((self.run_folder / "run.json").read_text())["measured"]["process_peak_rss_bytes"]
        mebibytes = measured / 2**20
        words = f"{mebibytes:.1f} MiB" if mebibytes < 100 else f"{mebibytes:.0f} MiB"
        text = output("report", self.run_folder)
        self.assertIn(f"process {words} (planned ", text)
        self.assertRegex(text, r"model +model \(random weights\) · full, fp32\n")
        self.assertRegex(text, r"data +facts/train.parquet\n")
        page = self.folder / "run.html"
        output("report", self.run_folder, "--html", page)
        for part in ("model (random weights)", "full, fp32", "facts/train.parquet", f"measured {words}"):
            self.assertIn(part, page.read_text())

    def test_a_converted_model_keeps_its_card_and_says_what_changed(self):
        output("convert", self.run_folder, "--dtype", "bf16", "--shard-size", "512KiB", "--out", self.folder / "bf16")
        card, files = (self.folder / "bf16/README.md").read_text(), len(list((self.folder / "bf16").glob("*.safetensors")))
        self.assertTrue(card.startswith((self.run_folder / "README.md").read_text()))
        self.assertTrue(card.endswith(f"\nWritten anew with Plimsoll: the weights as bf16, in {files} files.\n"))
        model = self.folder / "linked"
        shutil.copytree(self.run_folder, model, ignore=shutil.ignore_patterns("checkpoint-*"))
        (model / "README.md").unlink()
        secret = self.folder / "secret"
        secret.write_text("mine alone")
        (model / "README.md").symlink_to(secret)
        output("convert", model, "--dtype", "bf16", "--out", self.folder / "other")
        card = (self.folder / "other/README.md").read_text()
        self.assertNotIn("mine alone", card)
        self.assertIn("# linked\n", card)

    def test_a_model_card_stands_beside_the_weights_and_never_in_place_of_another(self):
        card = (self.run_folder / "README.md").read_text()
        self.assertTrue(card.startswith("---\nlibrary_name: transformers\n"))
        for part in ("tags:\n- plimsoll\n", "| method | full |", "facts/train.parquet", "| steps | 40, 8 sequences"):
            self.assertIn(part, card)
        own = self.folder / "run"
        own.mkdir()
        (own / "README.md").write_text("mine\n")
        output("train", self.run_folder / "recipe.yaml", "--quiet", "--set", f"output={own}", "--set",
               "schedule.max_steps=1")
        self.assertEqual((own / "README.md").read_text(), "mine\n")


class Terminals(CommandTest):
    needs_run = False

    def train(self, columns, steps, term="xterm"):
        recipe = self.folder / "recipe.json"
        recipe.write_text(json.dumps({
            "model": str(ROOT / "demo/model"), "init": "random", "method": {"type": "full"}, "precision": "fp32",
            "data": {"train": str(ROOT / FACTS), "max_length": 48}, "batch": {"effective": 4},
            "schedule": {"max_steps": steps}, "output": str(self.folder / "run")}))
        shown, code = on_terminal(columns, "train", recipe, term=term)
        self.assertEqual(code, 0, shown)
        return shown

    def test_lines_of_a_terminal_without_cursor_movement_fit_it(self):
        lines = self.train(60, 3, term="dumb").replace("\r\n", "\n").split("\n")
        self.assertTrue(any(line.startswith("train   3/3  loss ") for line in lines), lines)
        self.assertEqual([line for line in lines if line.startswith("train ") and len(line) > 60], [])

    def test_the_history_of_the_loss_stays_and_the_first_eta_is_no_zero(self):
        shown = self.train(110, 20)
        # What stands when all is done: lines that were not taken back by the one after them.
        stay = [ESCAPE.sub("", line.split("\r")[-1]) for line in re.sub(r"\r\n", "\n", shown).split("\n")]
        kept = [re.search(r"(\d+)/20  loss ", line)[1] for line in stay if re.search(r"\d+/20  loss ", line)]
        self.assertEqual(kept, [str(step) for step in range(2, 21, 2)], shown)

    def test_the_first_line_knows_about_how_long_it_takes(self):
        recipe = self.folder / "recipe.json"
        recipe.write_text(json.dumps({
            "model": str(ROOT / "demo/model"), "init": "random", "method": {"type": "full"}, "precision": "fp32",
            "data": {"train": str(ROOT / FACTS), "max_length": 48}, "batch": {"effective": 4},
            "schedule": {"max_steps": 1_000_000}, "output": str(self.folder / "run")}))
        with subprocess.Popen([str(PLIMSOLL), "train", str(recipe)], stderr=subprocess.PIPE, text=True) as running:
            line = next(line for line in running.stderr if line.startswith("train "))
            running.terminate()
            running.stderr.read()
        self.assertRegex(line, r"^train   1/1000000 .* eta ")
        self.assertNotIn("eta 0:00 ", line)

    def test_a_long_search_shows_on_a_terminal_alone_how_far_it_is(self):
        """Nothing is shown for two seconds. The search stands still for longer, so that it is long on any machine."""
        model = self.folder / "deep"
        model.mkdir()
        (model / "config.json").write_text(json.dumps({
            "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2000,
            "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 32000, "max_position_embeddings": 2048}))
        words = [str(PLIMSOLL), "plan", str(model), "--method", "full", "--memory", "40GiB", "--disk", "1TiB", "--no-probe"]

        def stand_still(process):
            time.sleep(0.3)
            process.send_signal(signal.SIGSTOP)
            time.sleep(2.1)
            process.send_signal(signal.SIGCONT)

        parent, child = pty.openpty()
        running = subprocess.Popen(words, stderr=child, stdout=subprocess.DEVNULL)
        os.close(child)
        stand_still(running)
        shown = b""
        while not re.search(rb"planning: \d+ of \d+ ways to cut it", shown):
            self.assertTrue(select.select([parent], [], [], 300)[0])
            try:
                shown += os.read(parent, 65536)
            except OSError:
                self.fail(f"it ended without a word: {shown}")
        running.kill()
        running.wait()
        os.close(parent)
        with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as quiet:
            stand_still(quiet)
            self.assertEqual(quiet.communicate()[1], b"")

    def test_what_init_says_next_fits_the_terminal(self):
        shown, code = on_terminal(60, "init", ROOT / "demo/model", ROOT / "demo/data/facts/train.parquet", "--out", "r.yaml",
                                  stream="stdout", cwd=self.folder)
        self.assertEqual(code, 0)
        self.assertIn("train needs model.safetensors", shown)
        self.assertEqual([line for line in shown.replace("\r", "").splitlines() if len(line) > 60], [])

    def test_refusals_break_between_words(self):
        shown, code = on_terminal(60, "plan", "demo/recipes/full.yaml", "--memory", "1MiB")
        self.assertEqual(code, 3)
        whole = run("plan", "demo/recipes/full.yaml", "--memory", "1MiB").stderr
        self.assertTrue(any(len(line) > 60 for line in whole.splitlines()), whole)
        lines = shown.replace("\r\n", "\n").splitlines()
        for line in lines:
            self.assertTrue(len(line) <= 60 or "plimsoll " in line, line)
        self.assertEqual(" ".join(shown.split()), " ".join(whole.split()))


def too_wide(text, columns):
    """Lines that a screen would break: commands to paste stay whole, and so does a word (a path) wider than its column."""
    def may_be(line):
        column = len(re.match(r" *(?:\S+(?: \S+)* {2,})*", line).group())
        return line.lstrip().startswith(("plimsoll ", "hf ")) or any(len(word) > columns - max(column, 14) for word in line.split())
    return [line for line in text.splitlines() if len(line) > columns and not may_be(line)]


class Screens(CommandTest):
    """Screens of 60 columns and more, and of 24 lines."""

    def commands(self):
        recipe = "demo/recipes/full.yaml"
        card = ("--gpu", "RTX 3060", "--no-probe")
        run = self.run_folder
        return [("plan", recipe, "--no-probe"), ("plan", "examples/qwen2.5-0.5b-lora", *card), ("plan", recipe, "--timeline", "--no-probe"),
                ("plan", recipe, "--explain", "--no-probe"), ("plan", recipe, "--sweep", "memory=200MiB..1GiB", "--no-probe"),
                ("plan", recipe, "--compare", "method=full,lora", "optimizer=adamw,lion", "--no-probe"),
                ("plan", recipe, "--compare", "micro_batch=1,2", "--no-probe"), ("plan", recipe, "--max", "length", "--no-probe"),
                ("preview", recipe), ("recipe", "--explain"), ("report", run), ("report", run, run), ("inspect", run), ("inspect", "demo/model"),
                ("queue", "list"), ("top", "--once"), ("devices",), ("doctor", "tests/doctor/logs/torch-2.2-co-tenants.log"),
                ("doctor", "tests/doctor/snapshots/fragmented.pickle"), ("plan", "--help"), ("queue", "add", "--help"), ("--help",)]

    def test_every_report_fits_60_and_80_columns(self):
        for columns in (60, 80):
            environment = {**os.environ, "COLUMNS": str(columns), "PLIMSOLL_QUEUE_DIR": str(self.folder / "queue")}
            for words in self.commands():
                with self.subTest(columns=columns, words=words):
                    self.assertEqual(too_wide(output(*words, env=environment), columns), [])

    def test_notes_and_lines_of_the_queue_fit_a_terminal_too(self):
        data = write_rows(self.folder / "pairs.jsonl", [{"question": f"Where is {i}?", "answer": "Here."} for i in range(40)])
        recipe = self.folder / "r.yaml"
        output("init", ROOT / "demo/model", data, "--out", recipe, "--method", "full")
        environment = {"PLIMSOLL_QUEUE_DIR": str(self.folder / "queue"), "PLIMSOLL_CACHE_DIR": str(self.folder / "cache")}
        probes = os.environ.pop("PLIMSOLL_NO_PROBE", None)  # the first plan's note says why it measures nothing
        if probes is not None:
            self.addCleanup(os.environ.__setitem__, "PLIMSOLL_NO_PROBE", probes)
        for columns in (60, 80):
            for stream, words in (("stderr", ("plan", recipe, "--memory", "90MiB")),
                                  ("stderr", ("plan", "Qwen/Qwen2.5-7B", "--gpu", "RTX 3060", "--no-probe")),
                                  ("stdout", ("queue", "add", "--memory", "60MiB", "--", "true"))):
                with self.subTest(columns=columns, words=words):
                    os.environ.update(environment)
                    self.addCleanup(lambda: [os.environ.pop(key, None) for key in environment])
                    shown, code = on_terminal(columns, *words, stream=stream)
                    self.assertEqual(code, 0, shown)
                    self.assertIn("added" if stream == "stdout" else "note    ", shown)
                    lines = shown.replace("\x1b[K", "").replace("\r", "\n")  # a search that takes long shows how far it is, each time over the last
                    self.assertEqual(too_wide(lines, columns), [])

    def test_without_a_terminal_it_is_80(self):
        environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
        text = output("plan", "--help", env=environment)
        self.assertEqual(too_wide(text, 80), [])
        self.assertTrue(any(len(line) > 72 for line in text.splitlines()), text)

    def test_a_plan_fits_24_lines_and_says_how_to_see_the_rest(self):
        words = ("plan", "demo/recipes/full.yaml", "--no-probe")
        for columns in (60, 80, 120):
            shown, code = on_terminal(columns, *words, stream="stdout")
            lines = shown.splitlines()
            self.assertEqual(code, 0)
            self.assertLessEqual(len(lines), 22, shown)  # with the command above and the prompt below
            self.assertEqual(too_wide(shown, columns), [])
            self.assertTrue(lines[0].startswith("fits"))
            self.assertRegex(shown, r"(?m)^  total +\d")
            self.assertIn("--full", lines[-1])
            self.assertNotIn("also fits", shown)
            whole, code = on_terminal(columns, *words, "--full", stream="stdout")
            self.assertIn("also fits", whole)
        self.assertIn("also fits", output(*words))

    def test_the_others_of_a_short_table_make_its_total(self):
        """Where not every component has a line of its own."""
        shown, _ = on_terminal(60, "plan", "examples/qwen2.5-0.5b-lora", "--method", "full", "--gpu", "RTX 3060", "--no-probe", stream="stdout")
        self.assertLessEqual(len(shown.splitlines()), 23, shown)
        sizes = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
        rows = re.findall(r"(?m)^  (\S.*?)  +([0-9.]+) ([KMG]iB|B)\b", shown.split("device ", 2)[-1])
        names = [name for name, _, _ in rows]
        values = [float(number) * sizes[unit] for _, number, unit in rows]
        total = names.index("total")
        self.assertAlmostEqual(sum(values[:total]), values[total], delta=0.02 * values[total])

    def test_help_on_a_terminal_has_bold_headings_and_no_codes_as_text(self):
        shown, code = on_terminal(80, "plan", "--help", stream="stdout")
        self.assertEqual(code, 0)
        self.assertIn("\x1b[1mNAME", shown)
        self.assertNotIn("\\u001b", shown)

    def test_errors_name_a_line_that_is_not_broken_up(self):
        text = output("init", ROOT / "demo/model", write_rows(self.folder / "aq.jsonl", [{"a": "x", "q": "y"}]), "--out",
                      self.folder / "aq.yaml", code=2)
        self.assertNotIn("\\n", text)

    def test_the_program_alone_says_what_to_do(self):
        done = run()
        self.assertEqual(done.returncode, 2)
        for command in ("init", "preview", "plan", "train"):
            self.assertIn(f"  plimsoll {command} ", done.stderr)


class Comparisons(CommandTest):
    def test_runs_are_compared_and_a_run_is_data(self):
        first = json.loads(output("report", self.run_folder, "--json"))
        self.assertEqual((first["state"], first["step"], first["end_reason"]), ("finished", 40, None))
        self.assertEqual(first["settings"]["optimizer.lr"], "0.003")
        other = self.folder / "other"
        output("train", self.run_folder / "recipe.yaml", "--quiet", "--lr", "1e-7", "--output", other)
        text = output("report", other, self.run_folder)
        self.assertRegex(text, r"(?m)^ +1  run ")
        self.assertRegex(text, r"(?m)^ +2  other ")
        self.assertRegex(text, r"optimizer.lr  0.003 +1e-0?7")
        both = json.loads(output("report", other, self.run_folder, "--json"))
        self.assertEqual(both["differs"], ["optimizer.lr"])
        self.assertEqual(both["runs"][0]["folder"], str(self.run_folder))
        output("report", other, self.run_folder, "--html", self.folder / "x.html")
        self.assertIn("2 runs, the best first", (self.folder / "x.html").read_text())

    def test_a_run_without_patience_says_so(self):
        early = self.folder / "early"
        output("train", self.run_folder / "recipe.yaml", "--quiet", "--output", early, "--lr", "0", "--set", "eval.every=2", "--set",
               "stop.patience=2")
        text = output("report", early)
        self.assertRegex(text, r"^ended early   \d+ of 40 steps")
        self.assertIn("2 evaluations without a lower loss (stop.patience)", text)
        self.assertIn("2 evaluations", json.loads(output("report", early, "--json"))["end_reason"])


class Previews(CommandTest):
    needs_run = False
    CHATML = "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{% endfor %}"

    def recipe(self, rows, **data):
        path = write_rows(self.folder / "rows.jsonl", rows)
        recipe = {"model": str(ROOT / "demo/model"), "init": "random", "method": {"type": "full"},
                  "data": {"train": str(path), "max_length": 64, **data}, "output": str(self.folder / "run")}
        (self.folder / "recipe.json").write_text(json.dumps(recipe))
        return self.folder / "recipe.json"

    def test_what_is_learnt_stands_between_marks_and_is_what_the_run_learns(self):
        recipe = self.recipe([{"prompt": "one and two", "response": "three"}, {"prompt": "four", "response": "five"}])
        text = output("preview", recipe)
        self.assertIn("⟦three", text)
        self.assertNotIn("\x1b", text)
        shown = json.loads(output("preview", recipe, "--json"))["rows"]
        dumped = [json.loads(line) for line in output("plan", recipe, "--dump", "rows").splitlines()]
        for row, ids in zip(shown, dumped, strict=True):
            sequence = row["sequences"][0]
            self.assertEqual(row["where"], ids["where"])
            self.assertEqual((sequence["tokens"], sequence["learnt_tokens"]),
                             (len(ids["ids"]), sum(label != -100 for label in ids["labels"])))
        self.assertEqual("".join(part["text"] for part in shown[0]["sequences"][0]["parts"] if part["learnt"])[:5], "three")
        coloured, _ = on_terminal(80, "preview", recipe, stream="stdout")
        self.assertIn("\x1b[1;32m⟦three", coloured)

    def test_what_is_cut_is_shown(self):
        recipe = self.recipe([{"prompt": "one", "response": "two three four five six seven eight nine ten"}], max_length=8)
        row = json.loads(output("preview", recipe, "--json"))["rows"][0]["sequences"][0]
        self.assertEqual(row["tokens"], 8)
        self.assertGreater(row["cut_tokens"], 0)
        self.assertIn("ten", row["cut_text"])
        self.assertIn(f"{row['cut_tokens']} cut", output("preview", recipe))
        dropped = json.loads(output("preview", recipe, "--json", "--set", "data.truncation=drop"))["rows"][0]
        self.assertIn("left out", dropped["problem"])

    def test_what_is_cut_on_the_left_is_the_beginning_also_where_words_repeat(self):
        text = "one two one two one two one two three"
        recipe = self.recipe([{"text": text}], max_length=5)
        def shown(*words):
            row = json.loads(output("preview", recipe, "--json", "--set", "data.truncation=left", *words))["rows"][0]["sequences"][0]
            return row, "".join(part["text"] for part in row["parts"])
        row, kept = shown("--set", "task=pretrain")
        self.assertGreater(row["cut_tokens"], 0)
        self.assertTrue((row["cut_text"] + kept).startswith(text), (row["cut_text"], kept))

    def test_foreign_text_steers_no_terminal_and_no_page(self):
        recipe = self.recipe([{"prompt": "\x1b[2J\u202eabc", "response": "<script>alert(1)</script>"}], max_length=512)
        page = self.folder / "rows.html"
        text = output("preview", recipe, "--html", page)
        self.assertNotIn("\x1b", text)
        self.assertNotIn("\u202e", text)
        self.assertNotIn("<script>alert", page.read_text())
        self.assertIn("&lt;script>alert(1)", page.read_text())
        self.assertIn("<mark>", page.read_text())

    def test_a_row_that_cannot_be_read_says_why_and_the_others_are_shown(self):
        recipe = self.recipe([{"prompt": "a", "response": "b"}, {"prompt": 7, "response": "b"}, {"prompt": "c", "response": "d"}])
        rows = json.loads(output("preview", recipe, "--json"))["rows"]
        self.assertEqual([row["problem"] is None for row in rows], [True, False, True])

    def test_pairs_and_labels_are_shown_as_their_tasks_read_them(self):
        recipe = self.recipe([{"prompt": "a ", "chosen": "good", "rejected": "bad"}])
        row = json.loads(output("preview", recipe, "--json", "--set", "task=dpo"))["rows"][0]
        self.assertEqual([one["name"] for one in row["sequences"]], ["chosen", "rejected"])
        recipe = self.recipe([{"text": "a", "label": 1}, {"text": "b", "label": 0}])
        rows = json.loads(output("preview", recipe, "--json", "--set", "task=classify", "--set", "classify.labels=[no, yes]"))["rows"]
        self.assertEqual([row["target"] for row in rows], ["1 (yes)", "0 (no)"])

    def test_no_more_of_a_file_is_read_than_the_rows_need(self):
        """The rest of the file is no JSON: who read it would say so. A sparse file of 5 GB takes no room."""
        for name, before, behind in (("rows.jsonl", "", ""), ("rows.json", "[", ",")):
            recipe = self.recipe([])
            path = self.folder / name
            row = json.dumps({"prompt": "one", "response": "two"})
            path.write_text(before + "".join(row + behind + "\n" for _ in range(200_000)))
            os.truncate(path, 5 << 30)
            shown = json.loads(output("preview", recipe, "--json", "--set", f"data.train={path}"))
            self.assertEqual(len(shown["rows"]), 3)
            self.assertIsNone(shown["rows"][2]["problem"])
            path.unlink()


class CachedNames(CommandTest):
    needs_run = False

    def cache(self, *names):
        """A cache of the hub that holds the demo's model under these names."""
        home = self.folder / "cache"
        for name in names:
            folder = home / "hub" / ("models--" + name.replace("/", "--"))
            (folder / "snapshots").mkdir(parents=True)
            (folder / "refs").mkdir()
            (folder / "refs/main").write_text("abc")
            (folder / "snapshots/abc").symlink_to(ROOT / "demo/model")
        return {**{key: value for key, value in os.environ.items() if key != "HF_HUB_CACHE"}, "HF_HOME": str(home)}

    def test_a_name_without_its_owner_is_found(self):
        environment = self.cache("Org/Demo-1B")
        whole = output("plan", "Org/Demo-1B", "--no-probe", "--memory", "2GiB", env=environment)
        for name in ("Demo-1B", "demo-1b"):
            self.assertEqual(output("plan", name, "--no-probe", "--memory", "2GiB", env=environment), whole)
        self.assertIn("model", output("inspect", "Demo-1B", env=environment))

    def test_several_of_one_name_are_all_named(self):
        environment = self.cache("Org/Demo-1B", "Other/Demo-1B")
        text = output("plan", "Demo-1B", "--no-probe", env=environment, code=2)
        self.assertIn("Org/Demo-1B, Other/Demo-1B", text)

    def test_an_absent_one_is_answered_with_a_small_download(self):
        environment = self.cache()
        for name, whole in (("Qwen/Qwen9-7B", "Qwen/Qwen9-7B"), ("Qwen9-1.5B", "Qwen/Qwen9-1.5B")):
            text = output("plan", name, "--gpu", "RTX 3060", env=environment, code=2)
            self.assertIn(f"\n  plimsoll fetch {whole} --config-only\n", text)
            self.assertTrue(text.rstrip().endswith(f"\n  plimsoll fetch {whole}"), text)
            self.assertNotIn("--set", text)
        self.assertIn("no such folder in runs", output("generate", "runs/nothing", "--prompt", "x", env=environment, code=2, cwd=self.runs()))

    def test_a_name_of_a_family_that_is_not_trained_is_refused_and_no_download_is_advised(self):
        environment = self.cache()
        recipe = self.folder / "r.yaml"
        for name in ("gpt2", "openai-community/gpt2", "facebook/opt-1.3b", "EleutherAI/pythia-160m", "Mamba-130m"):
            recipe.write_text(f"model: {name}\ndata: {{train: x.jsonl}}\noutput: o\n")
            for command in (("fit", name), ("plan", name), ("plan", recipe), ("inspect", name) if "/" in name else ("fit", name)):
                text = output(*command, env=environment, code=2)
                self.assertIn("is not supported", text)
                self.assertNotIn("plimsoll fetch", text)
        for name in ("missing.gguf", "m/model.safetensors"):
            self.assertNotIn("fetch", output("plan", name, env=environment, code=2))

    def test_what_is_wrong_with_an_argument_of_init_is_said_of_that(self):
        rows = write_rows(self.folder / "x.jsonl", [{"prompt": "a", "response": "b"}])
        text = output("init", "Qwen/Qwen9-7B", rows, env=self.cache(), code=2)
        self.assertTrue(text.startswith("error: model: there is no 'Qwen/Qwen9-7B'"), text)
        broken = self.folder / "x\ny.jsonl"
        rows.rename(broken)
        text = output("init", ROOT / "demo/model", broken, code=2)
        self.assertTrue(text.startswith("error: data.train: expected a path"), text)
        empty = write_rows(self.folder / "empty.jsonl", [{"prompt": "", "response": ""}] * 3)
        text = output("init", ROOT / "demo/model", empty, code=2)
        self.assertIn("no row has a token to learn. All labels are -100, or targets are empty.", text)
        talk = write_rows(self.folder / "talk.jsonl", [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}])
        text = output("init", ROOT / "demo/model", talk, "--out", self.folder / "r.yaml", code=2)
        self.assertIn("--set data.template=chatml", text)
        output("init", ROOT / "demo/model", talk, "--out", self.folder / "r.yaml", "--set", "data.template=chatml")
        (self.folder / "many/deep").mkdir(parents=True)
        talk.rename(self.folder / "many/deep/x.jsonl")
        text = output("init", ROOT / "demo/model", self.folder / "many", code=2)
        self.assertIn(f"no data file of its own, and {self.folder}/many/deep has some: name that", text)
        self.assertIn("no such folder", output("report", self.folder / "nothing", code=2))

    def test_a_run_s_folder_in_the_place_of_its_recipe_is_named_with_the_command_that_continues_it(self):
        recipe = small_models.tiny_recipe(self.folder, small_models.LLAMA, "run")
        output("train", recipe, "--no-probe", "--set", "schedule.max_steps=1")
        told = output("train", self.folder / "run", "--resume", "--no-probe", code=2)
        command = f"plimsoll train {self.folder}/run/recipe.yaml --resume"
        self.assertIn(f"is the folder of a run, whose recipe is in it: {command} continues it", told)
        output(*command.split()[1:], "--no-probe")

    def test_rows_and_weights_in_the_place_of_a_recipe_are_named(self):
        rows = [{"prompt": "a", "response": "b"}] * 2
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (self.folder / "many").mkdir()
        texts = {"x.jsonl": lines, "x.csv": "prompt,response\na,b\n", "x.tsv": "prompt\tresponse\na\tb\n", "x.json": json.dumps(rows), "lines.json": lines,
                 "x.parquet": "PAR1", "x.jsonl.gz": "\x1f", "many/x.jsonl": lines}
        for name, text in texts.items():
            (self.folder / name).write_text(text)
        for name in (*texts, "many"):
            for command in (("plan",), ("train",), ("preview",), ("recipe",), ("queue", "add"), *([] if name == "many" else [("fit",)])):
                told = output(*command, name, cwd=self.folder, env={**os.environ, "PLIMSOLL_QUEUE_DIR": str(self.folder / "q")}, code=2)
                self.assertIn(f"{name}: holds rows, not a recipe; plimsoll init MODEL {name} writes a recipe", told)
        # What it names works.
        output("init", ROOT / "demo/model", "x.jsonl", "--out", "r.yaml", cwd=self.folder)
        output("plan", "r.yaml", "--no-probe", cwd=self.folder)
        (self.folder / "m.gguf").write_text("GGUF")
        self.assertIn("m.gguf: is a file of weights; a recipe names the model's folder", output("plan", "m.gguf", cwd=self.folder, code=2))
        (self.folder / "r.json").write_text(json.dumps({"model": str(ROOT / "demo/model"), "data": {"max_length": 64}}))
        output("plan", "r.json", "--no-probe", cwd=self.folder)

    def runs(self):
        (self.folder / "runs").mkdir(exist_ok=True)
        return self.folder


class SmallThings(CommandTest):
    """What is read at first and puzzles where it is a little wrong."""
    needs_run = False

    def init(self, config, rows, name, *words):
        recipe = self.folder / f"{name}.yaml"
        data = rows if isinstance(rows, Path) else Path(small_models.write_rows(self.folder / f"{name}.jsonl", rows))
        output("init", small_models.model(self.folder / config["model_type"], config), data, "--out", recipe, *words)
        return recipe.read_text()

    def trained(self, config, rows, name, **settings):
        recipe = self.folder / f"{name}.json"
        recipe.write_text(json.dumps({"model": str(small_models.model(self.folder / config["model_type"], config)), "init": "random",
                                      "method": {"type": "full"}, "data": {"train": small_models.write_rows(self.folder / f"{name}.jsonl", rows),
                                                                           "max_length": 32},
                                      "batch": {"effective": 4}, "output": str(self.folder / name), "schedule": {"max_steps": 1}, **settings}))
        told = run("train", recipe, "--no-probe")
        self.assertEqual(told.returncode, 0, told.stderr)
        return self.folder / name, told.stdout + told.stderr

    def test_a_first_recipe_says_what_is_so(self):
        looked = re.search(r"looked at: (\d+)(?:, on average (\d+))?", self.init(small_models.T5, small_models.sources(30), "t5"))
        self.assertGreaterEqual(int(looked[1]), int(looked[2] or 0))
        table = self.folder / "sst2_train.tsv"
        table.write_text("text\tlabel\n" + "".join(f"{row['text']}\t{row['label']}\n" for row in small_models.texts(10)))
        self.assertIn("\noutput: runs/bert-sst2_train-lora\n", self.init(small_models.BERT, table, "bert"))
        self.assertIn("lr: 2e-5", self.init(small_models.LLAMA, small_models.pairs(20), "pairs"))
        self.assertIn("lr: 1e-6", self.init(small_models.LLAMA, small_models.pairs(20), "whole", "--method", "full"))
        moved = self.init(small_models.LLAMA, small_models.pairs(20), "moved", "--set", f"output={self.folder}/runs/x")
        self.assertIn("\noutput: runs/x\n", moved)
        self.assertIn("# about 1 step, whose learning rate is 0 as warm-up begins: take more epochs\n", self.init(small_models.LLAMA, small_models.pairs(9), "short"))

    def test_an_answer_that_is_null_is_a_damaged_row(self):
        rows = [{"instruction": "a b", "input": "", "output": "yes it is"}, {"instruction": "c", "input": "", "output": None}]
        data = small_models.write_rows(self.folder / "null.jsonl", rows)
        recipe = self.folder / "null.json"
        recipe.write_text(json.dumps({"model": str(ROOT / "demo/model"), "init": "random", "method": {"type": "full"}, "data": {"train": data, "max_length": 64}}))
        self.assertIn("null.jsonl:2: 'output' is null", output("plan", recipe, "--no-probe", "--dump", "rows", code=4))

    def test_a_refusal_names_what_was_meant(self):
        run_folder, told = self.trained(small_models.LLAMA, [{"prompt": "a", "response": " river"}] * 8, "written")
        self.assertIn("done    1 step in", told)
        self.assertIn("1 of 1 step ", output("report", run_folder))
        self.assertIn("say --to gguf", output("convert", run_folder, "--out", self.folder / "m.gguf", code=2))
        self.assertIn("a text is given with --prompt", output("generate", run_folder, "What is it?", code=2))
        for card in ("M2 Max", "MI300X", "RX 7900 XTX"):
            self.assertIn("is not a card of NVIDIA", output("plan", run_folder, "--gpu", card, code=2))

    def test_a_classifier_has_no_perplexity_and_scores_that_differ(self):
        rows = small_models.texts(20)
        labels = {"task": "classify", "classify": {"labels": ["question", "order", "fact"]}, "precision": "bf16"}
        run_folder, _ = self.trained(small_models.BERT, rows, "classified", **labels)
        self.assertNotIn("perplexity", output("eval", run_folder, "--data", self.folder / "classified.jsonl", "--json"))
        self.assertIn("plimsoll classify", output("generate", run_folder, "--prompt", "x", code=2))
        asked = ("classify", run_folder, "--data", self.folder / "classified.jsonl", "--json")
        self.assertEqual(output(*asked), output(*asked, "--precision", "fp32"))  # it trained in 16 bits
        self.assertNotEqual(output(*asked), output(*asked, "--precision", "bf16"))


if __name__ == "__main__":
    unittest.main(testLoader=SuiteLoader("first_contact_test"))
