"""A base in 8 bits (method.bits: 8), as whole commands: its bytes, bitsandbytes' codes, resuming, merging, folders in 8 bits, and what is refused."""
import array
import json
import shutil
import struct

from command_run import CommandTest, ROOT, losses_of, main, output, run

FACTS = str(ROOT / "demo/data/facts/train.parquet")
EIGHT = {"type": "qlora", "bits": 8, "r": 4}


def read_tensors(path):
    """{name: (dtype, shape, bytes)} of a safetensors file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {name: (entry["dtype"], entry["shape"], data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]])
            for name, entry in header.items() if name != "__metadata__"}


def write_tensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def quantised(values, width):
    """bitsandbytes' int8_vectorwise_quant of a weight that was made f16, as it is on CPUs: (codes, largest magnitude of each row)."""
    codes, largest = array.array("b"), array.array("f")
    halves = struct.unpack(f"<{len(values)}e", struct.pack(f"<{len(values)}e", *values))
    for start in range(0, len(halves), width):
        row = halves[start:start + width]
        largest.append(max(map(abs, row)))
        factor = f32(127 * f32(1 / largest[-1])) if largest[-1] else 0.0
        codes.extend(round(f32(value * factor)) for value in row)  # ties to even
    return codes, largest


def is_of_layer(name, shape):
    return len(shape) == 2 and ".layers." in name


def in_eight_bits(folder, out, reading=0, keeps="nothing"):
    """The folder's model as transformers saves one that was loaded with load_in_8bit."""
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("checkpoint-*", "recipe.yaml", "*.jsonl", "run.json", ".plimsoll", "checksums.json"))
    tensors = {}
    for name, (dtype, shape, data) in read_tensors(folder / "model.safetensors").items():
        if not is_of_layer(name, shape) or keeps in name:
            tensors[name] = dtype, shape, data
            continue
        assert dtype == "F32", (name, dtype)
        codes, largest = quantised(array.array("f", data), shape[1])
        module = name.removesuffix(".weight")
        tensors |= {name: ("I8", shape, codes.tobytes()), f"{module}.SCB": ("F32", [shape[0]], largest.tobytes()),
                    f"{module}.weight_format": ("U8", [], bytes([reading]))}
    write_tensors(out / "model.safetensors", tensors)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False, "llm_int8_threshold": 6.0}
    (out / "config.json").unlink()
    (out / "config.json").write_text(json.dumps(config))
    return out


class EightBits(CommandTest):
    def recipe(self, name, method, **changes):
        recipe = {"model": str(self.run_folder), "method": {"type": "qlora", **method}, "precision": "fp32",
                  "data": {"train": FACTS, "max_length": 48, "eval": 16}, "batch": {"effective": 8}, "optimizer": {"lr": 3e-3},
                  "schedule": {"max_steps": 6, "warmup": 1}, "save": {"every": 3}, "output": str(self.folder / name), **changes}
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(recipe))
        return path, self.folder / name

    def trained(self, name, method=EIGHT, *words, **changes):
        recipe, out = self.recipe(name, method, **changes)
        output("train", recipe, "--quiet", *words)
        return out

    def adapter_of(self, out):
        return (out / "adapter_model.safetensors").read_bytes()

    def test_a_plan_has_a_byte_for_each_weight_and_four_for_each_row(self):
        shapes = {name: shape for name, (_, shape, _) in read_tensors(self.run_folder / "model.safetensors").items()}
        layers = [shape for name, shape in shapes.items() if is_of_layer(name, shape)]
        recipe, _ = self.recipe("plan", EIGHT)
        plan = json.loads(output("plan", recipe, "--json"))
        components = {component["name"]: component["bytes"] for component in plan["device"]["components"]}
        # Tensors begin at multiples of 64 bytes.
        least = sum(rows * width + 4 * rows for rows, width in layers)
        self.assertGreaterEqual(components["weights (int8)"], least)
        self.assertLess(components["weights (int8)"], least + 128 * len(layers))
        self.assertNotIn("weights (nf4)", components)
        self.assertIn("qlora (int8) r4", output("plan", recipe))

    def test_a_run_takes_the_planned_bytes_resumes_bit_for_bit_and_says_its_bits(self):
        for name, method in {"int8": EIGHT, "dora": {**EIGHT, "dora": True}}.items():
            with self.subTest(name):
                out = self.trained(name, method)
                done = json.loads((out / "run.json").read_text())
                self.assertEqual(done["planned"]["device_arena_bytes"], done["measured"]["device_arena_bytes"])
                whole = losses_of(self.trained(f"{name} over whole weights", {**{key: value for key, value in method.items() if key != "bits"}, "type": "lora"}))
                self.assertLess(max(abs(one - other) for one, other in zip(losses_of(out), whole, strict=True)), 0.02)
                self.assertIn("  bits: 8\n", (out / "recipe.yaml").read_text())
                self.assertNotIn("double_quant", (out / "recipe.yaml").read_text())
                whole = self.adapter_of(out)
                shutil.rmtree(out / "checkpoint-6")
                output("train", self.folder / f"{name}.json", "--quiet", "--resume")
                self.assertEqual(self.adapter_of(out), whole)
                self.assertIn("method.bits was 8, the recipe says 4",
                              output("train", self.folder / f"{name}.json", "--resume", "--set", "schedule.max_steps=7", "--set", "method.bits=4", code=2))

    def test_offload_changes_no_bit(self):
        tight = {"memory": {"offload": ["weights", "states"], "disk": "1GiB"}, "batch": {"effective": 8, "micro": 2}}
        self.assertEqual(self.adapter_of(self.trained("free", batch=tight["batch"])), self.adapter_of(self.trained("tight", **tight)))

    def test_weights_are_those_of_bitsandbytes(self):
        """A folder that a formula of Python's own quantised gives the bits of the plain one."""
        stored = in_eight_bits(self.run_folder, self.folder / "stored")
        plain, read = self.trained("plain"), self.trained("read", model=str(stored))
        self.assertEqual(self.adapter_of(plain), self.adapter_of(read))
        self.assertEqual(losses_of(plain), losses_of(read))
        # Nearer to the whole weights than 4 bits are.
        first = {name: losses_of(self.trained(name, method))[0] for name, method in
                 {"lora": {"type": "lora", "r": 4}, "four": {"type": "qlora", "r": 4}}.items()}
        self.assertLess(abs(losses_of(plain)[0] - first["lora"]), abs(first["four"] - first["lora"]))
        self.assertNotEqual(losses_of(plain)[0], first["lora"])
        self.assertIn("bitsandbytes int8", output("inspect", stored))

    def test_answers_and_losses_are_over_the_weights_that_it_was_trained_on(self):
        out = self.trained("int8")
        last = json.loads((out / "eval.jsonl").read_text().splitlines()[-1])["loss"]
        self.assertAlmostEqual(json.loads(output("eval", out, "--json"))["loss"], last, places=5)
        told = run("generate", out, "--prompt", "Q", "--max-new-tokens", "2")
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertIn("int8", told.stdout + told.stderr)

    def test_exports_hold_what_the_run_was_trained_on_or_the_bases_own(self):
        def export(run_folder, name, *words):
            return json.loads(output("export", run_folder, "--to", "merged", "--out", self.folder / name, "--threads", 1, "--json", *words))
        out = self.trained("int8")
        told = export(out, "merged")
        self.assertLess(told["mean_difference"], 1e-5)
        based = export(out, "based", "--into", "base")
        self.assertEqual(based["loss_of_run_over_int8"], told["loss_of_run"])
        self.assertNotIn("loss_of_run_over_nf4", based)
        # Of a folder in 8 bits the whole weights, without its codes.
        read = self.trained("read", model=str(in_eight_bits(self.run_folder, self.folder / "stored")))
        self.assertLess(export(read, "whole")["mean_difference"], 1e-5)
        plain, whole = (read_tensors(self.folder / name / "model.safetensors") for name in ("merged", "whole"))
        self.assertEqual(plain, whole)
        self.assertNotIn("quantization_config", json.loads((self.folder / "whole/config.json").read_text()))
        self.assertIn("stores its weights quantised", output("export", read, "--to", "merged", "--out", self.folder / "no", "--into", "base", code=2))

    def test_what_the_folder_stores_in_codes_and_the_run_had_whole_is_written_whole(self):
        stored = str(in_eight_bits(self.run_folder, self.folder / "stored"))
        for name, targets in (("adapted", ["q_proj", "up_proj"]), ("kept", ["q_proj"])):
            out = self.trained(name, {**EIGHT, "unquantised": ["up_proj", "down_proj"], "targets": targets}, model=stored)
            told = json.loads(output("export", out, "--to", "merged", "--out", self.folder / f"{name} merged", "--threads", 1, "--json"))
            self.assertLess(told["mean_difference"], 1e-5)
            tensors = read_tensors(self.folder / f"{name} merged/model.safetensors")
            self.assertEqual({dtype for dtype, _, _ in tensors.values()}, {"F32"})
            self.assertEqual(set(tensors), set(read_tensors(self.run_folder / "model.safetensors")))

    def test_what_the_folder_stores_whole_and_the_run_had_in_codes_is_what_codes_hold(self):
        stored = in_eight_bits(self.run_folder, self.folder / "stored", keeps="down_proj")
        out = self.trained("all", {**EIGHT, "unquantised": "none", "targets": ["q_proj"]}, model=str(stored))
        told = json.loads(output("export", out, "--to", "merged", "--out", self.folder / "merged", "--threads", 1, "--json"))
        self.assertLess(told["mean_difference"], 1e-5)
        whole, merged = (next(data for name, (_, _, data) in read_tensors(path / "model.safetensors").items() if name.endswith("down_proj.weight"))
                         for path in (self.run_folder, self.folder / "merged"))
        self.assertNotEqual(whole, merged)

    def test_what_does_not_go_together_is_refused_with_the_key_to_set(self):
        stored = str(in_eight_bits(self.run_folder, self.folder / "stored"))
        for method, model, words in (
                ({"bits": 5}, None, "method.bits: expected 4 or 8"),
                ({**EIGHT, "double_quant": True}, None, "method.double_quant: has no effect with method.bits: 8; remove it"),
                ({**EIGHT, "init": "pissa"}, None, "4 or 8 bits hold no longer exactly"),
                ({"type": "lora", "bits": 8}, None, "method.bits: has no effect with method.type: lora"),
                ({"type": "qlora"}, stored, "holds its weights in 8 bits (bitsandbytes); say method.bits: 8"),
                ({"type": "lora"}, stored, "--method qlora --set method.bits=8")):
            recipe, _ = self.recipe("refused", method, **({"model": model} if model else {}))
            self.assertIn(words, output("plan", recipe, code=2))
        turned = in_eight_bits(self.run_folder, self.folder / "turned", reading=2)
        recipe, _ = self.recipe("over turned", EIGHT, model=str(turned))
        self.assertIn("weight_format: 2 is an order of rows that is not supported", output("train", recipe, code=2))

    def test_a_value_beyond_f16_is_refused_with_its_row(self):
        base = self.folder / "large"
        shutil.copytree(self.run_folder, base, ignore=shutil.ignore_patterns("checkpoint-*", "recipe.yaml", "*.jsonl", "run.json", ".plimsoll", "checksums.json"))
        tensors = read_tensors(base / "model.safetensors")
        name = next(name for name, (_, shape, _) in tensors.items() if is_of_layer(name, shape))
        dtype, shape, data = tensors[name]
        values = array.array("f", data)
        values[3 * shape[1] + 1] = 70000.0
        tensors[name] = dtype, shape, values.tobytes()
        (base / "model.safetensors").unlink()
        write_tensors(base / "model.safetensors", tensors)
        recipe, _ = self.recipe("over large", EIGHT, model=str(base))
        self.assertIn(f"{name}: row 3 holds a value that is not finite, or beyond the 65,504 of f16", output("train", recipe, code=4))


if __name__ == "__main__":
    main()
