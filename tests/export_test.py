"""plimsoll export: what it writes does as the run does, and appears whole and checked or not at all.

Usage: export_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import time

import small_models
from command_run import PLIMSOLL, ROOT, CommandTest, main, not_sanitized, output, run
from shard import SuiteLoader

FACTS = ROOT / "demo/data/facts/train.parquet"
KINDS = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "q4_k_m": 12, "q5_k_m": 13, "bf16": 30}  # of most matrices
TOLERANCES = {"f32": 1e-4, "f16": 0.005, "bf16": 0.03, "q8_0": 0.03, "q5_k_m": 0.1, "q4_k_m": 0.2, "q4_0": 0.3}


def header(path):
    """{name: (shape, dtype)} of a safetensors file."""
    data = path.read_bytes()
    entries = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
    return {name: (entry["shape"], entry["dtype"]) for name, entry in entries.items() if name != "__metadata__"}


# Fills a template of Go as Ollama does.
GO = """package main
import ("encoding/json"; "os"; "text/template")
type Message struct { Role, Content string }
func main() {
  var in struct { Template string; Messages []Message }
  if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil { panic(err) }
  if err := template.Must(template.New("t").Parse(in.Template)).Execute(os.Stdout, in); err != nil { panic(err) }
}
"""


def rendered_by_go(test, template, messages):
    if shutil.which("go") is None:
        test.skipTest("no go here (Debian's golang-go)")
    program = test.folder / "fill"
    if not program.exists():
        (test.folder / "fill.go").write_text(GO)
        subprocess.run(["go", "build", "-o", program, test.folder / "fill.go"], check=True, env={**os.environ, "HOME": str(test.folder)})
    given = {"Template": template, "Messages": [{"Role": role, "Content": content} for role, content in messages]}
    return subprocess.run([program], input=json.dumps(given), capture_output=True, text=True, check=True).stdout


class Exports(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lora = cls.trained("lora", {"type": "lora", "r": 8, "alpha": 16, "targets": "all-linear"})

    @classmethod
    def trained(cls, name, method, model=None, **keys):
        """A run of an adapter over the class's run, with rows held out."""
        folder = cls.run_folder.parent
        recipe = {"model": str(model or cls.run_folder), "method": method, "precision": "fp32",
                  "data": {"train": str(FACTS), "max_length": 48, "eval": "2%", **keys.pop("data", {})}, "batch": {"effective": 8},
                  "optimizer": {"lr": 3e-3}, "schedule": {"max_steps": 8, "warmup": 1}, "output": str(folder / name), **keys}
        (folder / f"{name}.json").write_text(json.dumps(recipe))
        output("train", folder / f"{name}.json", "--quiet")
        return folder / name

    def export(self, run_folder, to, *words, out=None):
        out = out or self.folder / f"{to}-{len(list(self.folder.iterdir()))}"
        told = json.loads(output("export", run_folder, "--to", to, "--out", out, "--threads", "1", "--json", *words))
        written = json.loads((out / "check.json").read_text())
        self.assertEqual({key: told[key] for key in written}, written)
        self.assertLessEqual(written["mean_difference"], written["tolerance"])
        self.assertGreaterEqual(written["target_tokens"], 4)
        return out, told

    def test_a_merged_folder_is_what_merge_writes_and_says_its_losses(self):
        out, told = self.export(self.lora, "merged")
        self.assertLess(told["mean_difference"], 1e-5)
        self.assertAlmostEqual(told["loss_of_run"], json.loads(output("eval", self.lora, "--json", "--limit", "64"))["loss"], delta=1e-5)
        output("merge", self.lora, "--out", self.folder / "merged")
        self.assertEqual((out / "model.safetensors").read_bytes(), (self.folder / "merged/model.safetensors").read_bytes())
        self.assertTrue({"config.json", "tokenizer.json", "README.md"} <= {path.name for path in out.iterdir()})
        self.assertEqual(sorted(told["files"], key=lambda f: f["name"])[0]["name"], told["files"][0]["name"])

    def test_types_and_whole_models(self):
        out, told = self.export(self.lora, "merged", "--type", "bf16")
        self.assertEqual({dtype for _, dtype in header(out / "model.safetensors").values()}, {"BF16"})
        self.assertEqual(json.loads((out / "config.json").read_text())["dtype"], "bfloat16")
        self.assertGreater(told["mean_difference"], 0)
        out, told = self.export(self.run_folder, "merged")
        self.assertEqual(told["mean_difference"], 0)
        self.assertEqual(output("generate", out, "--prompt", "Q", "--max-new-tokens", "2"),
                         output("generate", self.run_folder, "--prompt", "Q", "--max-new-tokens", "2"))

    def test_a_base_of_several_files_and_odd_entries_of_its_folder(self):
        base = self.folder / "shards"
        output("convert", self.run_folder, "--shard-size", "512KiB", "--out", base)
        self.assertTrue((base / "model.safetensors.index.json").exists())
        (base / "notes.json").mkdir()
        self.export(self.trained("over-shards", {"type": "lora", "r": 4}, model=base), "gguf")

    def test_the_text_is_short_and_names_the_next_command(self):
        out = self.folder / "text"
        done = run("export", self.lora, "--to", "gguf", "--out", out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines if not line.startswith(" ")], ["export", "check", "next"])
        self.assertIn(f"llama-server -m {out}/model.gguf", lines[-1])

    def test_the_default_folder_lies_beside_the_run(self):
        shutil.copytree(self.lora, self.folder / "mine")
        output("export", f"{self.folder / 'mine'}/", "--to", "merged")
        self.assertTrue((self.folder / "mine-merged/check.json").exists())
        self.assertIn("exists already", output("export", self.folder / "mine", "--to", "merged", code=2))

    def test_rows_may_be_given_and_must_be_such_as_the_run_reads(self):
        rows = self.folder / "rows.jsonl"
        rows.write_text("".join(json.dumps({"prompt": f"Which city is {i}?", "response": "Paris"}) + "\n" for i in range(5)))
        _, told = self.export(self.lora, "merged", "--rows", rows)
        self.assertEqual(told["rows"], 5)
        _, told = self.export(self.lora, "merged", "--rows", rows, "--limit", "2")
        self.assertEqual(told["rows"], 2)
        rows.write_text('{"color": "red"}\n')
        self.refused("rows.jsonl", self.lora, "--to", "merged", "--rows", rows)
        adapter = self.folder / "adapter"
        shutil.copytree(self.lora, adapter, ignore=shutil.ignore_patterns("recipe.yaml", "checkpoint-*"))
        self.refused("name some with --data", adapter, "--to", "merged")

    def refused(self, says, *words, code=2):
        before = sorted(path.name for path in self.folder.iterdir())
        self.assertIn(says, output("export", *words, "--out", self.folder / "refused", code=code))
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), before)

    def test_what_cannot_be_exported_so_is_refused_before_anything_is_written(self):
        self.refused("--type q8_0 is for --to gguf", self.lora, "--to", "merged", "--type", "q8_0")
        file = self.folder / "e.gguf"
        self.assertIn(f"write --out {self.folder / 'e'}", output("export", self.lora, "--to", "gguf", "--out", file, code=2))
        self.assertFalse(file.exists())
        self.refused("--into is for adapters", self.run_folder, "--to", "merged", "--into", "base")
        self.refused("--into is for merged weights", self.lora, "--to", "vllm", "--into", "base")
        self.refused("an adapter is exported as it is", self.lora, "--to", "vllm", "--type", "f16")
        self.refused("no such folder", self.folder / "none", "--to", "merged")
        self.refused("--type: q3 not in", self.lora, "--to", "gguf", "--type", "q3")
        self.refused("more than the 0 that rounding explains", self.lora, "--to", "merged", "--type", "bf16", "--tolerance", "0", code=4)

    def test_every_kind_of_gguf_is_checked(self):
        for kind, number in KINDS.items():
            with self.subTest(kind=kind):
                out, told = self.export(self.wide(), "gguf", "--type", kind, "--limit", "12")
                data = (out / "model.gguf").read_bytes()
                at = data.index(b"blk.0.ffn_up.weight") + len("blk.0.ffn_up.weight") + 4 + 16
                self.assertEqual(struct.unpack_from("<I", data, at)[0], number)
                self.assertEqual({"model.gguf", "check.json", "README.md"}, {path.name for path in out.iterdir()})
                self.assertEqual(told["tolerance"], TOLERANCES[kind])
                if kind != "f32":  # whose difference may be none
                    shutil.rmtree(out)
                    self.refused("that rounding explains (--tolerance)", self.wide(), "--to", "gguf", "--type", kind, "--limit", "12",
                                 "--tolerance", f"{told['mean_difference'] / 2:.3g}", code=4)

    def test_the_usual_tolerances_are_those_of_the_page(self):
        page = " ".join((ROOT / "docs/howto/export.md").read_text().split())
        self.assertIn("0.0001 in f32, 0.005 in f16, 0.03 in bf16 and q8_0, 0.1 in q5_k_m, 0.2 in q4_k_m, 0.3 in q4_0", page)

    @classmethod
    def wide(cls):
        """A run whose rows of weights are whole blocks of 256."""
        folder = cls.run_folder.parent / "wide"
        if not folder.exists():
            base = cls.run_folder.parent / "wide-base"
            shutil.copytree(ROOT / "demo/model", base)
            config = json.loads((base / "config.json").read_text())
            config.update(hidden_size=256, intermediate_size=512, num_hidden_layers=2, head_dim=64, num_attention_heads=4)
            (base / "config.json").write_text(json.dumps(config))
            cls.trained("wide", {"type": "full"}, base, init="random")
        return folder

    def test_rows_that_are_no_whole_blocks_have_more_bits_and_it_is_said(self):
        _, told = self.export(self.lora, "gguf", "--type", "q4_k_m")
        self.assertIn("their rows are no multiple of 256", " ".join(told["notes"]))

    def test_a_qlora_run_is_merged_into_what_it_was_trained_on(self):
        for name, nested in (("qlora", True), ("qlora-plain", False)):
            qlora = self.trained(name, {"type": "qlora", "r": 8, "double_quant": nested})
            _, told = self.export(qlora, "merged")
            self.assertNotIn("loss_of_run_over_nf4", told)
            _, based = self.export(qlora, "merged", "--into", "base")
            # The run's own loss is that over the weights in 4 bits; the base's own give another one.
            self.assertEqual(based["loss_of_run_over_nf4"], told["loss_of_run"])
            self.assertGreater(abs(based["loss_of_export"] - told["loss_of_run"]), 20 * told["mean_difference"])
            self.assertLess(told["mean_difference"], 1e-5)
        text = output("export", qlora, "--to", "merged", "--into", "base", "--out", self.folder / "text")
        self.assertIn("over the 4-bit weights that it was trained on", text)

    def modelfile(self, source):
        """(TEMPLATE, notes) of a run whose rows were rendered by its model's template."""
        base = self.folder / "base"
        shutil.copytree(self.run_folder, base, ignore=shutil.ignore_patterns("checkpoint-*", "recipe.yaml", "*.jsonl", "run.json"))
        (base / "chat_template.jinja").write_text(source)
        name = f"templated-{len(source)}"
        templated = self.trained(name, {"type": "lora", "r": 2}, base, schedule={"max_steps": 1})
        self.assertTrue((templated / "chat_template.jinja").exists())
        out, told = self.export(templated, "ollama", "--type", "q8_0", "--limit", "4")
        text = (out / "Modelfile").read_text()
        self.assertTrue(text.startswith("FROM ./model.gguf\n"))
        self.assertIn('PARAMETER num_ctx 256\nPARAMETER stop "<|endoftext|>"\n', text)  # all the positions that the model has
        self.assertIn(f"ollama create {name} -f {out}/Modelfile", told["next"])
        return text.split('"""')[1] if '"""' in text else None, told["notes"]

    def test_a_modelfile_has_the_runs_template_in_go(self):
        chatml = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                  "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
        template, notes = self.modelfile(chatml)
        self.assertEqual(notes, [])
        turns = [("system", "Be brief."), ("user", "Hello"), ("assistant", "Hi"), ("user", "Why?")]
        for messages in (turns[1:2], turns[1:], turns[:2], turns):
            wanted = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in messages) + "<|im_start|>assistant\n"
            self.assertEqual(rendered_by_go(self, template, messages), wanted)

    def test_a_modelfile_without_a_template_says_why(self):
        template, notes = self.modelfile("{% for m in messages %}{{ m.content | upper }}{% endfor %}")
        self.assertIsNone(template)
        self.assertIn("TEMPLATE is left out", notes[-1])
        out, told = self.export(self.lora, "ollama")
        self.assertIn('TEMPLATE """{{ .Prompt }}"""', (out / "Modelfile").read_text())
        self.assertIn("the rows had no chat template", told["notes"][-1])

    def test_vllm_gets_the_adapter_that_it_serves(self):
        out, told = self.export(self.lora, "vllm")
        self.assertTrue({"adapter_config.json", "adapter_model.safetensors", "check.json"} <= {path.name for path in out.iterdir()})
        self.assertFalse({"recipe.yaml", "metrics.jsonl", "run.json"} & {path.name for path in out.iterdir()})
        base = json.loads((out / "adapter_config.json").read_text())["base_model_name_or_path"]
        self.assertEqual(base, str(self.run_folder))
        self.assertEqual(told["next"], [f"vllm serve {base} --enable-lora --max-lora-rank 8 --lora-modules lora={out}"])
        out, told = self.export(self.run_folder, "vllm")
        self.assertEqual((told["next"], told["mean_difference"]), ([f"vllm serve {out}"], 0))

    def test_families_that_others_do_not_serve_are_merged_alone(self):
        self.trained_as("t5", small_models.T5, task="seq2seq", data={"eval": 4, "max_length": {"source": 24, "target": 16}})
        self.trained_as("gla", small_models.GLA, data={"eval": 4})
        for name in ("t5", "gla"):
            with self.subTest(model=name):
                self.export(self.folder / name, "merged")
                self.refused("vLLM has no", self.folder / name, "--to", "vllm")
                self.refused("GGUF is not supported for", self.folder / name, "--to", "gguf")

    def test_preferences_with_label_smoothing_are_compared_by_a_loss_that_needs_no_reference(self):
        self.trained_as("dpo", small_models.LLAMA, task="dpo", data={"eval": 4}, dpo={"label_smoothing": 0.1, "ftx": 0.5}, model=str(self.run_folder),
                        init="weights", method={"type": "lora", "r": 4})
        _, told = self.export(self.folder / "dpo", "merged")
        self.assertEqual(told["rows"], 4)
        self.assertGreater(json.loads(output("export", self.folder / "dpo", "--to", "gguf", "--type", "q4_0", "--out", self.folder / "q4", "--json"))["mean_difference"], 0)

    def trained_as(self, name, config, **settings):
        """A run of a few steps of a tiny model, in the test's folder."""
        place = self.folder / f"of-{name}"
        place.mkdir()
        output("train", small_models.tiny_recipe(place, config, name, **settings), "--set", f"output={self.folder / name}", "--quiet")

    def test_what_vllm_serves_as_another_adapter_is_refused(self):
        config = json.loads((self.lora / "adapter_config.json").read_text())
        for changes, says in (({"use_dora": True}, "DoRA"), ({"modules_to_save": ["norm"]}, "modules_to_save"),
                              ({"rank_pattern": {"q_proj": 4}}, "rank_pattern"), ({"alpha_pattern": {"q_proj": 4}}, "alpha_pattern"),
                              ({"target_modules": ["q_proj", "embed_tokens"]}, "embedding or the head"), ({"r": 513}, "a rank of 513")):
            adapter = self.folder / "adapter"
            shutil.copytree(self.lora, adapter, ignore=shutil.ignore_patterns("checkpoint-*"), dirs_exist_ok=True)
            (adapter / "adapter_config.json").write_text(json.dumps({**config, **changes}))
            with self.subTest(says=says):
                self.refused(says, adapter, "--to", "vllm")
                self.refused("--to merged", adapter, "--to", "vllm")

    def peak(self, *words):
        """Bytes of the process at most."""
        process = subprocess.Popen([str(PLIMSOLL), *map(str, words)], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, words)
        return usage.ru_maxrss * 1024

    @not_sanitized("its memory is measured")
    def test_an_export_takes_hardly_more_memory_than_an_evaluation(self):
        model = self.folder / "model"
        shutil.copytree(ROOT / "demo/model", model)
        shutil.copy(ROOT / "demo/larger.json", model / "config.json")  # 100 MB of weights
        self.trained("larger", {"type": "full"}, model, init="random", batch={"effective": 1}, schedule={"max_steps": 1})
        larger = self.run_folder.parent / "larger"
        evaluation = self.peak("eval", larger, "--limit", "2", "--batch", "1", "--threads", "1")
        for to, kind in (("merged", "bf16"), ("gguf", "q4_k_m")):
            peak = self.peak("export", larger, "--to", to, "--type", kind, "--limit", "2", "--threads", "1", "--out", self.folder / to)
            self.assertLess(peak, evaluation + (24 << 20))

    def test_a_full_disk_leaves_nothing(self):
        for limit in (2_000, 1_000_000):
            for to in ("merged", "gguf"):
                limits = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
                done = run("export", self.lora, "--to", to, "--out", self.folder / "out", preexec_fn=limits)
                self.assertEqual(done.returncode, 5, done.stderr)
                self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_kill_leaves_the_old_state_or_the_new(self):
        words = [str(PLIMSOLL), "export", str(self.lora), "--to", "gguf", "--type", "q4_0", "--out", str(self.folder / "out")]
        start = time.monotonic()
        subprocess.run(words, check=True, capture_output=True)
        whole = time.monotonic() - start
        files = sorted(path.name for path in (self.folder / "out").iterdir())
        shutil.rmtree(self.folder / "out")
        for part in (0.4, 0.7, 0.9):
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(whole * part)
            process.send_signal(signal.SIGKILL)
            process.wait()
            if (self.folder / "out").exists():
                self.assertEqual(sorted(path.name for path in (self.folder / "out").iterdir()), files)
                shutil.rmtree(self.folder / "out")
        subprocess.run(words, check=True, capture_output=True)  # what was left is cleared away
        self.assertEqual([path.name for path in self.folder.iterdir()], ["out"])


if __name__ == "__main__":
    main(testLoader=SuiteLoader("export_test"))
