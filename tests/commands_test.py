"""Commands around training, whole: help, completion, generate, eval, convert, merge, inspect.

Usage: commands_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import contextlib
import json
import math
import os
import pty
import resource
import shutil
import struct
import subprocess
import unittest

from command_run import CommandTest, output, PLIMSOLL, ROOT, run

MIB = 1 << 20
SHELLS = ("bash", "zsh", "fish")


class Help(CommandTest):
    needs_run = False

    def test_every_command_explains_itself_within_100_columns(self):
        commands = output("help", "--commands").split()
        self.assertIn("train", commands)
        self.assertNotIn("debug-dump", commands)
        for command in commands:
            text = output(command, "--help")
            self.assertEqual(text, output("help", command))
            for title in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT CODES", "SEE ALSO"):
                self.assertIn(f"\n{title}\n", "\n" + text, f"{command}: src/cli/pages.cc has no page of it?")
            self.assertTrue(all(len(line) <= 100 for line in text.splitlines() if "  plimsoll " not in line), text)
            page = output("help", command, "--man")
            self.assertTrue(page.startswith(f".TH PLIMSOLL\\-{command.upper()}") or page.startswith(".TH PLIMSOLL-"))
            for document in text[text.index("SEE ALSO"):].replace(",", " ").split()[2:]:
                self.assertTrue((ROOT / document).is_file(), f"{command}: {document}")

    def test_what_cannot_be_read_is_answered_with_what_was_meant(self):
        recipe = "demo/recipes/full.yaml"
        for words, expected in (
                (["tarin", recipe], "there is no command 'tarin' (did you mean 'train'?)"),
                (["--verison"], "there is no option '--verison' (did you mean '--version'?)"),
                ([], "a command is missing"),
                (["plan"], "plan: RECIPE is missing: "),
                (["plan", recipe, "--memry", "1GiB"], "plan: there is no option '--memry' (did you mean '--memory'?)"),
                (["plan", recipe, "--memry=1GiB"], "plan: there is no option '--memry' (did you mean '--memory'?)"),
                (["train", recipe, "--per-device-train-batch-size", "4"],
                 "there is no option '--per-device-train-batch-size'; a key of the recipe is set by --set per_device_train_batch_size=VALUE"),
                (["devices", "--rank"], "devices: there is no option '--rank'\n"),
                (["plan", recipe, "a\nb"], "plan: 'a\\nb' is one argument too many\n"),
                (["train", recipe, "more.yaml"], "train: 'more.yaml' is one argument too many"),
                (["train", recipe, "--resume", "--overwrite"], "--overwrite"),
                (["merge", "runs/x"], "merge: --out is missing: "),
                (["convert", "runs/x", "--dtype", "f8", "--out", "runs/y"], "convert: --dtype: f8 not in {f32,bf16,f16,q8_0,q5_k_m,q4_k_m,q4_0}"),
                (["generate", "demo/model", "--prompt", "a", "--temperature", "-1"],
                 "generate: --temperature: expected a number from 0 on, found '-1'"),
                (["generate", "demo/model", "--prompt", "a", "--seed", "-1"],
                 "generate: --seed: expected a number from 0 on, found '-1'")):
            done = run(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn("error: ", done.stderr)
            self.assertIn(expected, done.stderr)
            self.assertIn("--help", done.stderr)

    def test_the_program_lists_its_commands(self):
        text = output("--help")
        for command in output("help", "--commands").split():
            self.assertRegex(text, rf"\n  {command} +\S")
        self.assertIn("did you mean 'train'", output("help", "trian", code=2))


class Completion(CommandTest):
    needs_run = False

    def complete(self, line):
        script = f'{output("completion", "bash")}\nCOMP_LINE={line!r}; COMP_POINT=${{#COMP_LINE}}; _plimsoll\n' \
                 'printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=self.folder, timeout=600)
        # compopt complains outside of a completion; what it was told stands nevertheless
        errors = [e for e in done.stderr.splitlines() if "compopt" not in e]
        self.assertEqual(errors, [], line)
        return done.stdout.split()

    def test_bash_completes_commands_options_values_keys_and_files(self):
        self.assertIn("train", self.complete("plimsoll tr"))
        self.assertEqual(self.complete("plimsoll generate x --precision b"), ["bf16"])
        self.assertIn("--max-new-tokens", self.complete("plimsoll generate x --max"))
        self.assertEqual(self.complete("plimsoll train x --set optimizer.weight"), ["optimizer.weight_decay="])
        self.assertEqual(self.complete("plimsoll completion f"), ["fish"])
        self.assertEqual(self.complete("plimsoll train x --set method.type=q"), ["qlora"])  # readline replaces what stands behind the =
        self.assertEqual(self.complete("plimsoll plan x --gpu RTX-4060-L"), ["RTX-4060-Laptop-8GB"])
        self.assertEqual(self.complete("plimsoll plan x --device cu"), ["cuda"])
        self.assertEqual(self.complete("plimsoll plan x --max l"), ["length"])
        (self.folder / "recipe-a.yaml").touch()
        self.assertEqual(self.complete("plimsoll plan recipe-"), ["recipe-a.yaml"])
        self.assertEqual(self.complete("plimsoll generate x --seed 1"), [])

    def typed(self, *lines):
        """The words that the program gets where a line is typed in a bash of its own; a tab completes."""
        script = self.folder / "completion"
        script.write_text(output("completion", "bash"))
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {"PATH": os.environ["PATH"], "PS1": "ready>", "TERM": "dumb", "INPUTRC": "/dev/null"})
        begin = f"source {script}; plimsoll() {{ printf '<%s>\\n' \"$*\"; }}; plimsoll-ml() {{ plimsoll \"$@\"; }}\n"
        waiting, text, seen = [begin, *(line + "\n" for line in lines), "exit\n"], b"", 0
        with contextlib.suppress(OSError):  # the terminal's end
            while piece := os.read(terminal, 4096):
                text += piece
                if waiting and text.count(b"ready>") > seen:  # it reads keys
                    seen = text.count(b"ready>")
                    os.write(terminal, waiting.pop(0).encode())
        os.waitpid(pid, 0)
        os.close(terminal)
        return [line[1:-1].rstrip() for line in text.decode(errors="replace").splitlines() if line.startswith("<") and line.endswith(">")]

    @unittest.skipUnless(shutil.which("bash"), "no bash here")
    def test_a_tab_in_a_real_bash_completes_values(self):
        lines = {"plimsoll train x --method q\t": "train x --method qlora", "plimsoll train x --precision bf16-m\t": "train x --precision bf16-master",
                 "plimsoll train x --optimizer adamw8\t": "train x --optimizer adamw8bit", "plimsoll plan x --max m\t": "plan x --max micro_batch",
                 "plimsoll plan x --gpu RTX-4060-L\t": "plan x --gpu RTX-4060-Laptop-8GB", "plimsoll train x --set method.type=q\t": "train x --set method.type=qlora",
                 "plimsoll train x --set optimizer.weight\t0.1": "train x --set optimizer.weight_decay=0.1", "plimsoll-ml pla\tx": "plan x"}
        self.assertEqual(self.typed(*lines), list(lines.values()))

    def test_the_scripts_are_read_by_their_shells(self):
        for shell in SHELLS:
            script = self.folder / shell
            script.write_text(output("completion", shell))
            self.assertIn("plimsoll", script.read_text())
            if shutil.which(shell):
                subprocess.run([shell, "-n", script], check=True, timeout=600)
        output("completion", "tcsh", code=2)


class Generate(CommandTest):
    QUESTION = ("--prompt", "What is the capital of Peru?", "--max-new-tokens", "24")

    def answer(self, *words):
        return json.loads(output("generate", self.run_folder, *self.QUESTION, "--json", *words))

    def test_a_seed_decides_the_text(self):
        texts = [self.answer("--temperature", "1.5", "--seed", seed)["response"] for seed in (7, 7, 8)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_a_stop_ends_the_answer_wherever_it_lies(self):
        whole = self.answer("--temperature", "1.2", "--seed", "3")
        text = whole["response"]
        self.assertGreater(len(text), 12)
        for begin, end in ((3, 4), (4, 9), (len(text) - 3, len(text))):
            stop = text[begin:end]
            cut = self.answer("--temperature", "1.2", "--seed", "3", "--stop", "never there", "--stop", stop)
            self.assertEqual(cut["response"], text[:text.index(stop)])
            self.assertEqual(cut["ended_by"], "stop")
        output("generate", self.run_folder, *self.QUESTION, "--stop", "", code=2)

    def test_the_stream_is_whole_characters_and_the_same_text(self):
        words = (*self.QUESTION[:2], "--temperature", "50", "--max-new-tokens", "60")
        process = subprocess.Popen([PLIMSOLL, "generate", self.run_folder, *words], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
        pieces = []
        while piece := os.read(process.stdout.fileno(), 65536):
            pieces.append(piece.decode("utf-8"))  # strict: a split character is an error
        process.stdout.close()
        self.assertEqual(process.wait(60), 0)
        response = json.loads(output("generate", self.run_folder, *words, "--json"))["response"]
        # Characters that would steer a terminal are shown, and stand in the JSON as they are.
        shown = "".join(c if c in "\n\t" or ord(c) >= 0x20 and not 0x7f <= ord(c) < 0xa0 else f"\\u{ord(c):04x}" for c in response)
        self.assertEqual("".join(pieces), shown + "\n")
        self.assertGreater(len(pieces), 5)

    def test_prompts_come_from_files_and_standard_input_and_answers_go_to_files(self):
        question = self.folder / "question.txt"
        question.write_text(self.QUESTION[1])
        answers = self.folder / "answers.jsonl"
        direct = output("generate", self.run_folder, *self.QUESTION)
        words = ("generate", self.run_folder, *self.QUESTION[2:], "--prompt-file")
        self.assertEqual(output(*words, question, "--out", answers), direct)
        self.assertEqual(output(*words, "-", input=self.QUESTION[1]), direct)
        line = json.loads(answers.read_text())
        self.assertEqual(line["response"] + "\n", direct)
        output("generate", self.run_folder, *self.QUESTION, "--prompt-file", question, code=2)


class Eval(CommandTest):
    def evaluate(self, *words):
        return json.loads(output("eval", self.run_folder, "--json", *words))

    def test_a_runs_own_rows_give_the_loss_that_the_run_logged(self):
        logged = json.loads((self.run_folder / "eval.jsonl").read_text().splitlines()[-1])
        result = self.evaluate()
        self.assertEqual(result["target_tokens"], logged["target_tokens"])
        self.assertAlmostEqual(result["loss"], logged["loss"], delta=2e-6)
        self.assertAlmostEqual(result["perplexity"], math.exp(result["loss"]), delta=1e-9 * result["perplexity"])

    def test_every_batch_size_gives_the_same_mean_over_tokens(self):
        whole = self.evaluate("--batch", "16")
        for batch in (1, 3, 64):
            other = self.evaluate("--batch", batch)
            self.assertEqual(other["target_tokens"], whole["target_tokens"])
            self.assertAlmostEqual(other["loss"], whole["loss"], delta=2e-6, msg=f"batch {batch}")

    def test_answers_are_counted_as_the_file_of_answers_says(self):
        answers = self.folder / "answers.jsonl"
        rows = ROOT / "demo/data/facts/heldout.parquet"
        words = ("--data", rows, "--limit", "12", "--generate", "--max-new-tokens", "24", "--out", answers)
        result = self.evaluate(*words)["answers"]
        lines = [json.loads(line) for line in answers.read_text().splitlines()]
        self.assertEqual(len(lines), 12)
        self.assertEqual(result["expected"], 12)
        self.assertEqual(result["exact"], sum(l["response"].strip() == l["expected"].strip() for l in lines))
        alone = output("generate", self.run_folder, "--data", rows, "--limit", "12", "--max-new-tokens", "24", "--json")
        self.assertEqual(json.loads(alone)["exact"], result["exact"])
        # The expected answers as a model would give them: the best BLEU there is.
        text = output("eval", self.run_folder, *words)
        self.assertRegex(text, r"(?m)^BLEU +(\d+\.\d\d|-)  ")  # a dash where no answer has four words

    def test_what_cannot_be_evaluated_is_refused(self):
        self.assertIn("--data", output("eval", ROOT / "demo/model", code=2))
        ids = self.folder / "ids.jsonl"
        ids.write_text('{"input_ids": [5, 6, 7, 8]}\n')
        self.assertIn("no prompt and answer", output("eval", self.run_folder, "--data", ids, "--set", "data.format=input-ids",
                                            "--generate", code=2))
        self.assertGreater(self.evaluate("--data", ids, "--set", "data.format=input-ids")["loss"], 0)
        mixed = self.folder / "mixed.jsonl"
        mixed.write_text('{"prompt": "Which", "response": "Lima"}\n{broken\n{"prompt": "What", "response": "Oslo"}\n')
        refused = output("eval", self.run_folder, "--data", mixed, code=4)
        self.assertIn("mixed.jsonl:2", refused)
        self.assertIn("--set data.on_error=skip", refused)
        kept = self.evaluate("--data", mixed, "--set", "data.on_error=skip")
        self.assertEqual((kept["rows"], kept["damaged_rows"]), (2, 1))
        self.assertIn("short by", output("eval", self.run_folder, "--batch", "65536", "--max-length", "256", code=3))


def write_shard(path, tensors):
    """A safetensors file of zeros that takes no disk; tensors: {name: (dtype, shape)}."""
    size = {"F32": 4, "BF16": 2}
    header, offset = {}, 0
    for name, (dtype, shape) in tensors.items():
        end = offset + size[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)


def large_model(folder):
    """192 MiB of bf16 in three shards, with an adapter over two of its weights."""
    model, adapter = folder / "large", folder / "adapter"
    model.mkdir()
    adapter.mkdir()
    (model / "config.json").write_text(json.dumps({"model_type": "llama", "torch_dtype": "bfloat16"}))
    files = {}
    for i in range(3):
        name = f"model-0000{i + 1}-of-00003.safetensors"
        tensors = {f"model.layers.{i}.self_attn.q_proj.weight": ("BF16", [8192, 4096])}
        write_shard(model / name, tensors)
        files.update(dict.fromkeys(tensors, name))
    (model / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    (adapter / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"],
         "base_model_name_or_path": str(model)}))
    prefix = "base_model.model.model.layers"
    write_shard(adapter / "adapter_model.safetensors",
                {f"{prefix}.{i}.self_attn.q_proj.lora_{part}.weight": ("F32", shape) for i in (0, 2)
                 for part, shape in (("A", [4, 4096]), ("B", [8192, 4]))})
    return model, adapter


def peak_rss(*words):
    """Bytes; the command must succeed."""
    pid = os.posix_spawn(PLIMSOLL, [str(PLIMSOLL), *map(str, words)], os.environ,
                         file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
    _, status, usage = os.wait4(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, words
    return usage.ru_maxrss * 1024


class Models(CommandTest):
    def test_merge_and_convert_pass_large_models_through_little_memory(self):
        model, adapter = large_model(self.folder)
        self.assertLess(peak_rss("merge", adapter, "--out", self.folder / "merged"), 80 * MIB)
        self.assertEqual(sorted(p.name for p in (self.folder / "merged").glob("*.safetensors")),
                         sorted(p.name for p in model.glob("*.safetensors")))
        self.assertLess(peak_rss("convert", model, "--dtype", "f16", "--out", self.folder / "f16"), 64 * MIB)

    def test_converting_there_and_back_gives_the_same_bytes(self):
        wide, back, f16 = self.folder / "wide", self.folder / "back", self.folder / "f16"
        narrow = self.folder / "narrow"
        output("convert", self.run_folder, "--dtype", "bf16", "--out", narrow)
        output("convert", narrow, "--dtype", "f32", "--shard-size", "512KiB", "--out", wide)
        output("convert", wide, "--dtype", "bf16", "--shard-size", "1GiB", "--out", back)
        self.assertEqual((narrow / "model.safetensors").read_bytes(), (back / "model.safetensors").read_bytes())
        self.assertGreater(len(list(wide.glob("model-*-of-*.safetensors"))), 3)
        self.assertFalse((back / "model.safetensors.index.json").exists())
        self.assertEqual(json.loads((narrow / "config.json").read_text())["dtype"], "bfloat16")
        self.assertFalse((narrow / "run.json").exists())
        output("generate", wide, "--prompt", "What", "--max-new-tokens", "2")
        result = json.loads(output("convert", self.run_folder, "--dtype", "f16", "--out", f16, "--json"))
        self.assertEqual(result["bytes"] * 2, result["bytes_before"])

    def test_a_folder_appears_whole_or_not_at_all(self):
        out = self.folder / "out"
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        done = run("convert", self.run_folder, "--dtype", "bf16", "--out", out, preexec_fn=limit)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])
        out.mkdir()
        self.assertIn("exists already", output("convert", self.run_folder, "--dtype", "bf16", "--out", out, code=2))
        output("convert", self.run_folder, "--out", self.folder / "same", code=2)
        output("convert", self.run_folder, "--shard-size", "many", "--out", self.folder / "same", code=2)


class Inspect(CommandTest):
    def kind(self, path, *words):
        text = output("inspect", path, *words)
        told = json.loads(output("inspect", path, "--json", *words))
        self.assertTrue(text.startswith(f"{told['kind']}  {path}\n"), text)
        return told

    def test_everything_is_recognised(self):
        told = self.kind(self.run_folder)
        self.assertEqual((told["kind"], told["state"], told["steps"], told["holds"]), ("run", "finished", 40, "model"))
        checkpoint = self.kind(self.run_folder / "checkpoint-40")
        self.assertEqual((checkpoint["kind"], checkpoint["step"]["step"]), ("checkpoint", 40))
        self.assertEqual(self.kind(self.run_folder / "model.safetensors", "--tensors")["tensors"][0]["dtype"], "f32")
        model = self.kind(ROOT / "demo/model")
        self.assertEqual((model["kind"], model["layers"], model["weights"]), ("model", 4, None))
        self.assertEqual(self.kind(ROOT / "demo/model/tokenizer.json")["model"], "BPE")
        rows = self.kind(ROOT / "demo/data/facts/train.parquet")
        self.assertEqual((rows["kind"], rows["rows"]), ("data", 1936))
        self.assertEqual([c["column"] for c in rows["columns"]], ["prompt", "response"])
        self.assertEqual(self.kind(ROOT / "tests/golden/llama_lora/train.jsonl")["kind"], "data")
        rows = self.folder / "rows.json"
        rows.write_text('[{"prompt": "a", "response": "b"}]')
        self.assertEqual((self.kind(rows)["kind"], self.kind(rows)["rows"]), ("data", 1))
        for name in ("gemma.json", "sp_bpe.model"):
            self.assertEqual(self.kind(ROOT / "tests/golden/tokenizers" / name)["kind"], "tokenizer")
        adapter = self.kind(ROOT / "tests/golden/llama_lora/adapter")
        self.assertEqual(adapter["kind"], "adapter")
        self.assertTrue(any(target.endswith("q_proj") for target in adapter["targets"]))

    def test_rows_that_tasks_bring_along_are_known(self):
        for name, text, known in (
                ("labels.csv", "text,label\ngood,1\nbad,0\n", "sentence-label (text, label)"),
                ("pairs.jsonl", '{"question": "a", "sentence": "b", "label": 0}\n', "sentence-label (question, sentence, label)"),
                ("answers.jsonl", '{"chosen": "a", "rejected": "b"}\n', "preference (chosen, rejected)"),
                ("text.jsonl", '{"text": "a"}\n', "text (text)"),
                ("other.jsonl", '{"a": "a", "label": 1}\n', None)):
            rows = self.folder / name
            rows.write_text(text)
            self.assertEqual(self.kind(rows)["rows_are"], known)
        self.assertIn("sentence-label (text, label), of task: classify", output("inspect", self.folder / "labels.csv"))
        self.assertIn("none that auto knows", output("inspect", self.folder / "other.jsonl"))

    def test_parameters_are_counted(self):
        told = self.kind(self.run_folder, "--tensors")
        tensors = told["tensors"]
        self.assertEqual(told["parameters"], sum(math.prod(t["shape"]) for t in tensors))
        self.assertEqual(told["bytes"], sum(t["bytes"] for t in tensors))

    def test_what_is_nothing_is_refused(self):
        output("inspect", self.folder, code=2)
        output("inspect", self.folder / "absent", code=2)
        (self.folder / "x.safetensors").write_bytes(b"\xff" * 64)
        output("inspect", self.folder / "x.safetensors", code=4)
        (self.folder / "a.bin").touch()
        output("inspect", self.folder / "a.bin", code=2)
        self.assertIn("recipe", output("inspect", ROOT / "demo/recipes/full.yaml", code=2))


if __name__ == "__main__":
    unittest.main()
