"""Input that is missing, damaged, absurd or hostile: a clear error, the right exit code, nothing half-written.

Usage: bad_input_test.py PLIMSOLL (from the repository's root). Standard library alone.
"""
import json
import math
import os
import re
import resource
import shutil
import struct
import subprocess
import time
import unittest
from pathlib import Path

import command_run
from command_run import ROOT, run
from refusals import DAMAGED, MODEL_FILES, ROWS, STOPPED, USAGE, BadInputTest, write_recipe

DEEP = "[" * 100_000
GOOD = json.dumps({"prompt": "a", "response": "b"}) + "\n"


def split_safetensors(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + size]), data[8 + size:]


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class ModelFiles(BadInputTest):
    def test_weights_that_are_missing_or_cut_off(self):
        file = self.model() / "model.safetensors"
        whole = file.read_bytes()
        for content in (b"", whole[:100], whole[:100_000], whole + b"more"):
            file.write_bytes(content)
            self.training_refused(DAMAGED, file, file.parent)
        file.unlink()
        self.training_refused(USAGE, "has neither model.safetensors nor", file.parent)

    def test_headers_that_are_huge_deep_or_lie(self):
        file = self.model() / "model.safetensors"
        header, data = split_safetensors(file)
        name = next(key for key in header if key != "__metadata__")

        def lying(**changes):
            return safetensors({**header, name: {**header[name], **changes}}, data)
        shape = header[name]["shape"]
        for content, code, says in (
                (b"\xff" * 8 + file.read_bytes()[8:], DAMAGED, "claims a header of 18446744073709551615 bytes"),
                (struct.pack("<Q", 10**9) + b"{}", DAMAGED, "claims a header"),
                (safetensors(DEEP.encode()), DAMAGED, "nested deeper"),
                (lying(dtype="I64"), DAMAGED, name), (lying(dtype="X9"), USAGE, "the element type X9"),
                (lying(dtype="I32"), USAGE, "is i32, which does not convert"),
                (lying(shape=[1 << 62, 1 << 62]), DAMAGED, "impossible shape"),
                (lying(shape=shape[::-1]), USAGE, "has shape"), (lying(data_offsets=[8, 16]), DAMAGED, name),
                (safetensors({("other" if key == name else key): value for key, value in header.items()}, data),
                 USAGE, f"has no tensor '{name}'")):
            file.write_bytes(content)
            self.training_refused(code, [file.parent, says], file.parent)

    def test_weights_that_are_not_finite_are_named_before_the_first_step(self):
        model = self.model()
        header, data = split_safetensors(model / "model.safetensors")
        name = next(key for key in header if key != "__metadata__")
        begin = header[name]["data_offsets"][0]
        for value in (math.nan, math.inf):
            changed = bytearray(data)
            changed[begin + 40:begin + 44] = struct.pack("<f", value)
            (model / "model.safetensors").write_bytes(safetensors(header, bytes(changed)))
            for method in ({"type": "full"}, {"type": "lora", "r": 4}):
                self.training_refused(DAMAGED, [name, "element 10 is NaN or infinite"], model, method=method)
        self.refused(DAMAGED, name, "generate", model, "--prompt", "x")

    def test_an_index_that_names_what_is_not_there(self):
        model = self.model()
        header, _ = split_safetensors(model / "model.safetensors")
        (model / "model.safetensors").unlink()
        index = model / "model.safetensors.index.json"
        names = [key for key in header if key != "__metadata__"]
        index.write_text(json.dumps({"weight_map": {key: f"model-{i % 2}.safetensors" for i, key in enumerate(names)}}))
        self.training_refused(DAMAGED, [index, "model-0.safetensors, model-1.safetensors"], model)
        for text in (DEEP, "[]", '{"weight_map": {"a": "../x"}}', '{"weight_map": 7}'):
            index.write_text(text)
            self.training_refused(DAMAGED, index, model)

    def test_configurations_that_are_missing_absurd_or_no_json(self):
        model = self.model()
        file = model / "config.json"
        config = json.loads(file.read_text())
        for text, code, says in (
                (json.dumps({**config, "num_hidden_layers": 10**9}), USAGE, "'num_hidden_layers' is 1000000000, must"),
                (json.dumps({**config, "num_hidden_layers": 2**64 - 1}), USAGE, str(2**64 - 1)),
                (json.dumps({**config, "num_hidden_layers": 1.5}), USAGE, "'num_hidden_layers'"),
                (json.dumps({**config, "num_hidden_layers": config["num_hidden_layers"] + 1}), USAGE, "has no tensor"),
                (json.dumps({**config, "quantization_config": 7}), DAMAGED, "quantization_config"),
                ("[]", USAGE, ""), (file.read_text()[:50], DAMAGED, "not valid JSON"), (DEEP, DAMAGED, "nested deeper"),
                ('{"a":' * 100_000, DAMAGED, "nested deeper")):
            file.write_text(text)
            self.training_refused(code, [model, says], model)
        file.unlink()
        self.training_refused(USAGE, file, model)
        self.refused(USAGE, file, "plan", model)

    def test_configurations_that_ask_for_what_is_not_computed_are_refused_in_a_line(self):
        model = self.model()
        file = model / "config.json"
        config = json.loads(file.read_text())
        gemma = {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"]}
        phi = {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"]}

        def longrope(**settings):
            return phi | {"rope_scaling": {"type": "longrope", "short_factor": [1.0] * 16, "long_factor": [2.0] * 16} | settings}
        for changes, says in (
                (gemma | {"layer_types": ["odd"] * 4}, "'layer_types': \"odd\" is not supported"),
                (gemma | {"layer_types": ["full_attention"]}, "must list one type per layer"),
                (gemma | {"use_bidirectional_attention": True}, "'use_bidirectional_attention' is not supported"),
                ({"per_layer_config": {"1": {"head_dim": 64}}}, "'per_layer_config' is not supported"),
                ({"attention_dropout": 0.1}, "attention_dropout is not supported"),
                ({"quantization_config": {"quant_method": "fp8"}}, "quant_method 'fp8' is not supported"),
                (longrope(type="su"), "'su' is longrope"), (longrope(type="linear"), "rope type 'linear' is not supported"),
                (longrope(type="yarn", short_factor=None), "'short_factor' is missing"),
                (longrope(long_factor=[1.0] * 4), "'long_factor' must list 16 numbers"),
                ({"model_type": "phimoe"}, "the nearest that works is phi3"),
                ({"model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"], "head_dim": 32, "num_experts": 8, "mlp_only_layers": [0]}, "layer 1 needs a mixture of experts ('num_experts': 8, "),
                ({"model_type": "falcon_h1"}, "Mamba 2 layers")):
            file.write_text(json.dumps({**config, **changes}))
            text = self.refused(USAGE, says, "plan", model, "--length", 32, "--no-probe")
            self.assertEqual(text.count("\n"), 1, text)
        file.write_text(json.dumps({**config, **phi}))
        self.training_refused(USAGE, "'q_proj' is a part of one matrix here, qkv_proj", model, method={"type": "lora", "targets": ["q_proj"]})

    def test_a_vocabulary_smaller_than_the_ids(self):
        model = self.model()
        file = model / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "vocab_size": 100}))
        for changes in ({}, {"data": {"on_error": "skip"}}):
            text = self.training_refused(USAGE, ["the tokenizer gives the id", "the ids 0 to 99"], model, init="random",
                                         **changes)
            self.assertIn(str(ROWS), text)
        rows = self.folder / "rows.jsonl"
        for row, says in (({"input_ids": [1, 99999]}, "rows.jsonl:2: holds the token id 99999"),
                          ({"input_ids": [1, 2], "labels": [1, -7]}, "rows.jsonl:2: holds the label -7")):
            fine = {key: [1, 2] for key in row}
            rows.write_text(json.dumps(fine) + "\n" + json.dumps(row) + "\n")
            self.training_refused(DAMAGED, says, model, init="random", data={"train": str(rows)})

    def test_deep_json_in_every_file_of_a_model(self):
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json"):
            model = self.model()
            (model / name).write_text(DEEP)
            self.training_refused(DAMAGED, model / name, model)
            self.refused(DAMAGED, model / name, "generate", model, "--prompt", "x")

    def test_tokenizers_that_are_no_json_are_told_in_a_line(self):
        model = self.model()
        good = (model / "tokenizer.json").read_bytes()
        for content in (b"", good[:5000], b"no json", b"\xff\xfe{}", b"\0" * 50, b'{"model": {"vocab": {"a": 1,}}}', b"[]",
                        b'{"version": 1e999}', b'{"a": "\\ud800"}', b'{"a": "' + b"x" * 3_000_000):
            (model / "tokenizer.json").write_bytes(content)
            text = self.refused(DAMAGED, f"error: {model}/tokenizer.json: ", "generate", model, "--prompt", "x")
            self.assertEqual(text.count("\n"), 1, text)
            self.assertLess(len(text), 600)
            self.assertNotIn("exception", text)

    def test_adapters_that_are_none(self):
        adapter = self.folder / "adapter"
        adapter.mkdir()
        shutil.copy(self.run_folder / "model.safetensors", adapter / "adapter_model.safetensors")
        file = adapter / "adapter_config.json"
        good = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
        wrong = ({"r": "x"}, {"r": -8}, {"r": 1.5}, {"r": 10**11}, {"lora_alpha": None}, {"lora_alpha": True}, {"target_modules": [7]},
                 {"task_type": True}, {"init_lora_weights": [1]}, {"use_dora": "yes"}, {"layers_to_transform": [0.5]},
                 {"layers_to_transform": 1e300}, {"layers_to_transform": [-1]}, {"layers_to_transform": [True]})
        for text in (DEEP, "[]", '{"peft_type": "LORA"}', '{"peft_type": 7}',
                     *(json.dumps({**good, **changes}) for changes in wrong)):
            file.write_text(text)
            self.refused(DAMAGED, file, "generate", self.run_folder, "--adapter", adapter, "--prompt", "x")
            self.refused(DAMAGED, file, "merge", adapter, "--base", self.run_folder, "--out", self.folder / "merged")
            self.assertFalse((self.folder / "merged").exists())
        # What PEFT would compute otherwise is refused by its key, keys of tomorrow too; what is off is not there.
        for key, value in (("alora_invocation_tokens", [5]), ("kasa_config", {"beta": 1.0}), ("arrow_config", {"top_k": 1}), ("use_qalora", True),
                           ("use_bdlora", {"nblocks": 2}), ("lora_bias", True), ("bias", "all"), ("exclude_modules", ["q_proj"]), ("of_tomorrow", 0.5),
                           *(("init_lora_weights", start) for start in ("pissa", "pissa_niter_8", "olora", "corda", "loftq", "lora_ga", "mica"))):
            file.write_text(json.dumps({**good, key: value}))
            self.refused(USAGE, f"'{key}'", "merge", adapter, "--base", self.run_folder, "--out", self.folder / "merged")
        for words in (("generate", self.run_folder, "--adapter", adapter, "--prompt", "x"),
                      ("eval", self.run_folder, "--adapter", adapter, "--data", ROOT / "demo/data/facts/train.parquet")):
            self.refused(USAGE, "'init_lora_weights'", *words)
        self.training_refused(USAGE, "'init_lora_weights'", self.run_folder, init="weights", adapter=str(adapter), method={"type": "lora"})
        for changes in ({"of_tomorrow": None, "kasa_config": None, "use_qalora": False, "exclude_modules": [], "bias": "none"},
                        {"task_type": None, "use_dora": None, "init_lora_weights": "gaussian", "megatron_core": "megatron.core"},
                        {"init_lora_weights": "eva", "eva_config": {"rho": 2.0}, "qalora_group_size": 16}):
            file.write_text(json.dumps({**good, **changes}))
            self.refused(USAGE, "holds no LoRA weights", "merge", adapter, "--base", self.run_folder, "--out", self.folder / "merged")
        file.write_text(json.dumps({**good, "base_model_name_or_path": "a" * 5000}))
        self.refused(USAGE, "File name too long", "generate", adapter, "--prompt", "x")


class Wrappers(BadInputTest):
    """Models of images with the demo's model as their text model."""
    TOWER = ("vision_tower.patch_conv", "vision_tower.ln_pre", "multi_modal_projector.linear_1", "multi_modal_projector.linear_2",
             "multi_modal_projector.norm", "multi_modal_projector.patch_merger.merging_layer",
             *(f"vision_tower.transformer.layers.{n}.{part}" for n in range(2) for part in (
                 "attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj", "attention_norm", "ffn_norm",
                 "feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj")))

    def wrapped(self, without="nothing", before="language_model.model.", **changes):
        folder = self.model()
        text = {**json.loads((folder / "config.json").read_text()), "model_type": "mistral", "sliding_window": None}
        text.pop("architectures")
        config = {"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"], "tie_word_embeddings": True,
                  "text_config": text, "vision_config": {"model_type": "pixtral", "num_hidden_layers": 2}, **changes}
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "processor_config.json").write_text('{"image": 1}')
        header, data = split_safetensors(folder / "model.safetensors")
        header = {name.replace("model.", before, 1) if name.startswith("model.") else name: entry for name, entry in header.items()}
        for number, name in enumerate(self.TOWER):
            header[name + ".weight"] = {"dtype": "BF16", "shape": [2], "data_offsets": [len(data), len(data) + 4]}
            data += struct.pack("<HH", number, number + 1)
        kept = {name: entry for name, entry in header.items() if without not in name}
        new, parts, at = {}, [], 0
        for name, entry in kept.items():
            if name == "__metadata__":
                new[name] = entry
                continue
            first, end = entry["data_offsets"]
            new[name] = {**entry, "data_offsets": [at, at + end - first]}
            parts.append(data[first:end])
            at += end - first
        (folder / "model.safetensors").write_bytes(safetensors(new, b"".join(parts)))
        return folder

    def tensors(self, file):
        header, data = split_safetensors(file)
        return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items() if name != "__metadata__"}

    def test_what_is_no_text_is_copied_and_both_spellings_give_the_same_bits(self):
        trained = []
        for before in ("language_model.model.", "model.language_model."):
            shutil.rmtree(self.output, ignore_errors=True)
            folder = self.wrapped(before=before)
            done = run("train", write_recipe(self.folder, folder, self.output))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout + done.stderr, r"copied  24 tensors of vision_tower, multi_modal_projector \(96 B\)|copied  24 tensors of multi_modal_projector, vision_tower \(96 B\)")
            old, new = self.tensors(folder / "model.safetensors"), self.tensors(self.output / "model.safetensors")
            self.assertEqual(set(old), set(new))
            for name in old:
                self.assertEqual(old[name] == new[name], "language_model" not in name, name)
            self.assertEqual((self.output / "processor_config.json").read_text(), '{"image": 1}')
            trained.append({name.replace(before, ""): value for name, value in new.items()})
        self.assertEqual(trained[0], trained[1])

    def test_an_answer_ends_with_the_end_token_of_the_text_model(self):
        folder = self.wrapped()
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name).unlink(missing_ok=True)
        (folder / "generation_config.json").unlink(missing_ok=True)
        answered = lambda: json.loads(run("generate", folder, "--ids", "5,6,7", "--max-new-tokens", "4", "--json").stdout)
        first = answered()
        self.assertEqual((first["ended_by"], len(first["response_ids"])), ("length", 4))
        config = json.loads((folder / "config.json").read_text())
        config["text_config"]["eos_token_id"] = first["response_ids"][1]
        (folder / "config.json").write_text(json.dumps(config))
        self.assertNotEqual(answered()["ended_by"], "length")

    def test_what_lacks_its_text_or_a_part_of_its_tower_is_refused(self):
        self.training_refused(USAGE, "has no weights of the text model", self.wrapped(without="language_model"))
        for name in self.TOWER:
            if name in self.TOWER[::7]:
                self.training_refused(USAGE, f"{name.split('.', 1)[1].removeprefix('transformer.')}.weight'", self.wrapped(without=name))
        both = self.wrapped()
        header, data = split_safetensors(both / "model.safetensors")
        header["model.language_model.norm.weight"] = header["language_model.model.norm.weight"]
        new = {**header, "model.language_model.norm.weight": {"dtype": "BF16", "shape": [2], "data_offsets": [len(data), len(data) + 4]}}
        (both / "model.safetensors").write_bytes(safetensors(new, data + b"1234"))
        self.training_refused(USAGE, "which are the same tensor", both)
        self.training_refused(USAGE, "'text_config' is missing", self.wrapped(text_config=None))
        self.training_refused(USAGE, "model_type 'qwen2' is not supported within a mistral3", self.wrapped(text_config={"model_type": "qwen2"}))


class Data(BadInputTest):
    def rows(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def rows_refused(self, code, says, name, content, **changes):
        path = self.rows(name, content)
        self.training_refused(code, [path, says], self.run_folder, data={"train": str(path)}, **changes)

    def test_files_that_are_not_what_they_are_called(self):
        parquet = ROWS.read_bytes()
        for name, content in (("a.parquet", b""), ("b.parquet", parquet[:20_000]), ("c.parquet", parquet[20_000:]),
                              ("d.parquet", b"PAR1" + b"\xff" * 100 + b"PAR1"),
                              ("e.arrow", b"ARROW1\0\0" + b"\xff" * 100), ("f.csv", 'prompt,response\n"a,b\nc'),
                              ("g.json", DEEP), ("h.json", '[{"prompt":' + DEEP),
                              ("i.jsonl", b"\0" * 4096), ("j.jsonl", b'{"prompt": "\xff\xfe", "response": "b"}\n')):
            self.rows_refused(DAMAGED, "", name, content)

    def test_a_bad_line_is_named_with_its_reason(self):
        self.rows_refused(DAMAGED, "rows.jsonl:21: is not valid JSON", "rows.jsonl",
                          GOOD * 20 + '{"prompt": "x\n' + GOOD)
        self.rows_refused(DAMAGED, "rows.jsonl:2: is nested deeper than 64", "rows.jsonl", GOOD + '{"prompt":' + DEEP + "\n" + GOOD)
        # However long the line is, the error is not.
        path = self.rows("rows.jsonl", GOOD + '{"prompt": "' + "\u00e9" * 500_000 + "\n")
        text = self.training_refused(DAMAGED, "rows.jsonl:2: is not valid JSON", self.run_folder,
                                     data={"train": str(path)})
        self.assertLess(len(text), 2000)
        path = self.rows("rows.jsonl", (GOOD * 20 + '{"prompt":' + DEEP + "\n").encode() + b'{"prompt": "\xff"}\n' + GOOD.encode())
        recipe = write_recipe(self.folder, self.run_folder, self.output, schedule={"max_steps": None},
                              data={"train": str(path), "on_error": "skip"})
        done = run("train", recipe)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{path}:21: is nested deeper", done.stdout + done.stderr)

    def test_data_without_rows_or_targets(self):
        for name, content in (("a.csv", ""), ("b.json", ""), ("c.json", "[]"), ("d.jsonl", "\n\n"),
                              ("e.csv", "prompt,response\n")):
            self.rows_refused(USAGE, "has no rows", name, content)
        self.rows_refused(USAGE, "no row has a token to learn", "rows.jsonl",
                          json.dumps({"prompt": "long " * 300, "response": "b"}) + "\n")
        self.rows_refused(USAGE, "no row has a token to learn", "rows.jsonl",
                          json.dumps({"input_ids": [1, 2, 3], "labels": [-100, -100, -100]}) + "\n")
        empty = self.folder / "empty"
        empty.mkdir()
        self.training_refused(USAGE, empty, self.run_folder, data={"train": str(empty)})
        self.training_refused(USAGE, "absent.jsonl", self.run_folder, data={"train": str(self.folder / "absent.jsonl")})

    def test_descriptions_of_data_sets(self):
        saved = self.folder / "saved"
        saved.mkdir()
        for text in (DEEP, "[]", '{"_data_files": [{"filename": "../x"}]}'):
            (saved / "state.json").write_text(text)
            self.training_refused(DAMAGED, saved / "state.json", self.run_folder, data={"train": str(saved)})
        recipe = self.folder / "factory.yaml"
        recipe.write_text(f"model_name_or_path: {self.run_folder}\nstage: sft\nfinetuning_type: full\ndataset: rows\n"
                          f"dataset_dir: {self.folder}\ntemplate: llama3\noutput_dir: {self.output}\n")
        for text in (DEEP, '{"rows": 7}', '{"rows": {"file_name": [7]}}', "[]"):
            (self.folder / "dataset_info.json").write_text(text)
            self.refused(USAGE, "dataset_info.json", "train", recipe)
            self.assertFalse(self.output.exists())

    def test_recipes_that_are_deep_or_no_text(self):
        for name in ("recipe.json", "recipe.yaml"):
            for content in (DEEP.encode(), b'{"a":' * 100_000, b"model: \xff\n", b"\0" * 100):
                path = self.rows(name, content)
                self.refused(USAGE, path, "plan", path)


class Output(BadInputTest):
    def test_places_where_nothing_can_be_written(self):
        for place in ("/dev/null/run", "/dev/full", "/proc/run"):
            path = write_recipe(self.folder, self.run_folder, place)
            self.refused(USAGE, place, "train", path, "--quiet")

    def test_a_file_system_that_is_read_only(self):
        place = self.folder / "place"
        place.mkdir()
        path = write_recipe(self.folder, self.run_folder, place / "run")
        command = f"mount -t tmpfs -o ro tmpfs {place} && {command_run.PLIMSOLL} train {path} --quiet"
        mount = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
        if subprocess.run([*mount, f"mount -t tmpfs tmpfs {place}"], capture_output=True).returncode != 0:
            self.skipTest("no mounts here")
        done = subprocess.run([*mount, command], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, USAGE, done.stderr)
        self.assertIn("Read-only file system", done.stderr)

    def test_files_that_may_not_grow_stop_the_run_and_leave_no_half_checkpoint(self):
        path = write_recipe(self.folder, self.run_folder, self.output)
        limit = 2 << 20  # below the weights' 4 MB
        self.refused(STOPPED, "File too large", "train", path, "--quiet",
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertFalse(self.output.exists())

    def test_one_folder_takes_one_run_at_a_time(self):
        path = write_recipe(self.folder, self.run_folder, self.output, schedule={"max_steps": 100_000})
        first = subprocess.Popen([str(command_run.PLIMSOLL), "train", str(path), "--quiet"])
        try:
            metrics = self.output / "metrics.jsonl"
            deadline = time.time() + 600
            while not (metrics.exists() and metrics.stat().st_size) and time.time() < deadline:
                time.sleep(0.02)
            for word in ("--resume", "--overwrite"):
                self.refused(USAGE, [self.output, f"process {first.pid}"], "train", path, "--quiet", word)
            self.assertIsNone(first.poll())
        finally:
            first.kill()
            first.wait()
        # A killed run's lock is gone with it.
        done = run("train", path, "--quiet", "--overwrite", "--set", "schedule.max_steps=1")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_clock_that_goes_back_whenever_it_is_read(self):
        shim = command_run.PLIMSOLL.parent / "tests/libfalling_clock.so"
        self.assertTrue(shim.exists(), "build the target falling_clock")
        clock = {**os.environ, "LD_PRELOAD": str(shim)}
        path = write_recipe(self.folder, ROOT / "demo/model", self.output, init="random", data={"eval": "2%"},
                            eval={"every": 2}, log={"tensorboard": True, "every": 1}, save={"every": 2, "keep": 3},
                            schedule={"max_steps": 8, "warmup": 1})
        lines = lambda name: [json.loads(line) for line in (self.output / name).read_text().splitlines()]

        def result():
            return ([[(line["step"], line["loss"]) for line in lines(name)] for name in ("metrics.jsonl", "eval.jsonl")],
                    (self.output / "model.safetensors").read_bytes(),
                    sorted(checkpoint.name for checkpoint in self.output.glob("checkpoint-*")))
        command_run.output("train", path, "--quiet")
        want = result()
        done = run("train", path, "--overwrite", env=clock)
        self.assertEqual((done.returncode, result()), (0, want), done.stderr)
        self.assertLess(lines("metrics.jsonl")[-1]["time"], lines("metrics.jsonl")[0]["time"] - 3600)
        left = re.findall(r"eta (\d+):\d\d\b", done.stderr)
        self.assertEqual(left, ["0"] * 8, done.stderr)
        # As if it had died after step 4.
        shutil.rmtree(self.output / "checkpoint-6")
        shutil.rmtree(self.output / "checkpoint-8")
        (before,) = self.output.glob("events.out.tfevents.*")
        command_run.output("train", path, "--quiet", "--resume", env=clock)
        self.assertEqual(result(), want)
        # TensorBoard reads the files in the order of their names.
        self.assertEqual(sorted(self.output.glob("events.out.tfevents.*"))[0], before)
        page = self.folder / "report.html"
        self.assertIn("8 of 8 steps", command_run.output("report", self.output, "--html", page, env=clock))


class Resume(BadInputTest):
    def test_another_model_or_recipe(self):
        path = self.copy_of_run()
        before = (self.output / "metrics.jsonl").read_bytes()
        self.refused(USAGE, "optimizer.lr", "train", path, "--resume", "--set", "optimizer.lr=0.5")
        self.refused(USAGE, "model", "train", path, "--resume", "--set", f"model={self.run_folder}",
                     "--set", "init=weights")
        self.assertEqual((self.output / "metrics.jsonl").read_bytes(), before)

    def test_a_damaged_checkpoint(self):
        good = json.loads((self.run_folder / "checkpoint-4/trainer_state.json").read_text())
        states = [DEEP, "[]", "", "{}"] + [json.dumps({**good, **wrong}) for wrong in (
            {"step": -5}, {"step": 3}, {"step": 10**18}, {"index": -8}, {"index": 1.5}, {"epoch": -1},
            {"micro_batch": -1}, {"micro_batch": 2**64 - 1}, {"loss_chunk": 0}, {"fingerprint": DEEP},
            {"fingerprint": "[]"}, {"kernels": 7})]
        path = self.copy_of_run()
        checkpoint = self.output / "checkpoint-4"
        for text in states:
            (checkpoint / "trainer_state.json").write_text(text)
            self.refused(DAMAGED, checkpoint, "train", path, "--quiet", "--resume")
        (checkpoint / "trainer_state.json").write_text(json.dumps(good))
        for name in ("optimizer.safetensors", "model.safetensors", "trainer_state.json"):
            file = checkpoint / name
            content = file.read_bytes()
            for damage in (content[:len(content) // 2], b"", None):
                file.unlink()
                if damage is not None:
                    file.write_bytes(damage)
                self.refused(DAMAGED, checkpoint, "train", path, "--quiet", "--resume")
                file.write_bytes(content)
        self.assertEqual(len((self.output / "metrics.jsonl").read_text().splitlines()), 4)

    def test_logs_and_results_that_are_none(self):
        self.copy_of_run()
        wrong = ("[]\n", DEEP + "\n",
                 '{"measured": {"device_arena_bytes": "x"}, "step": "x", "event": 7, "time": "x"}\n')
        for name in ("run.json", "metrics.jsonl", "events.jsonl", "eval.jsonl"):
            content = (self.output / name).read_bytes()
            for text in wrong:
                (self.output / name).write_text(text)
                self.refused(DAMAGED, self.output / name, "report", self.output)
                self.assertIn(run("inspect", self.output).returncode, (0, DAMAGED))
            (self.output / name).write_bytes(content)
        (self.output / "run.json").write_text('{"finished": "x", "measured": 7}')
        self.assertEqual(run("inspect", self.output).returncode, 0)


class Places(BadInputTest):
    def test_loops_of_links(self):
        loop = self.folder / "loop"
        loop.symlink_to(loop)
        for words in (("plan", loop), ("inspect", loop), ("report", loop), ("generate", loop, "--prompt", "x"),
                      ("train", loop), ("eval", loop)):
            self.refused(USAGE, loop, *words)
        self.refused(USAGE, [loop, "links"], "train", write_recipe(self.folder, self.run_folder, loop), "--quiet")
        self.training_refused(USAGE, loop, loop)
        rows = self.folder / "rows"
        rows.mkdir()
        (rows / "loop.jsonl").symlink_to("loop.jsonl")
        self.training_refused(USAGE, rows / "loop.jsonl", self.run_folder, data={"train": str(rows)})
        (rows / "loop.jsonl").unlink()
        (rows / "self").symlink_to(".")  # folders in folders are not entered
        (rows / "rows.jsonl").write_text(GOOD * 8)
        recipe = write_recipe(self.folder, self.run_folder, self.output, data={"train": str(rows)})
        done = run("train", recipe, "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_paths_with_spaces_and_unicode(self):
        place = self.folder / "täst mit leer \u4e2d\u6587 \U0001f600"
        model = place / "mo del"
        model.mkdir(parents=True)
        for name in MODEL_FILES:
            shutil.copy(self.run_folder / name, model / name)
        rows = shutil.copy(ROWS, place / "dä ta.parquet")
        output = place / "rün 1"
        path = write_recipe(place, model, output, data={"train": str(rows)}, save={"every": 1})
        self.assertEqual(command_run.output("train", path, "--quiet"), "")
        command_run.output("train", path, "--quiet", "--resume")
        command_run.output("generate", output, "--prompt", "x", "--max-new-tokens", "2")
        command_run.output("report", output, "--html", place / "bé richt.html")
        command_run.output("inspect", output)
        command_run.output("plan", output / "recipe.yaml")

    def test_names_that_are_no_unicode(self):
        place = os.fsencode(self.folder) + b"/bad\xff"
        os.mkdir(place)
        self.refused(USAGE, "is not UTF-8", "plan", os.fsdecode(place))


if __name__ == "__main__":
    unittest.main()
