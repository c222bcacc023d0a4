"""GGUF files, read back by a reader of a few lines: names, shapes, numbers, tokenizer.

Usage: gguf_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import json
import shutil
import struct
import unittest

from command_run import CommandTest, output

F32, F16, Q8_0, BF16 = 0, 1, 8, 30
NUMBERS = {4: "<I", 5: "<i", 6: "<f", 7: "<?"}


class Gguf:
    def __init__(self, path):
        self.data, self.at = path.read_bytes(), 4
        assert self.data[:4] == b"GGUF"
        version, tensors, values = self.take("<I"), self.take("<Q"), self.take("<Q")
        assert version == 3
        self.values = {}
        for _ in range(values):
            key = self.text()
            assert key not in self.values, key
            self.values[key] = self.value(self.take("<I"))
        self.tensors = {}
        for _ in range(tensors):
            name = self.text()
            shape = [self.take("<Q") for _ in range(self.take("<I"))][::-1]
            self.tensors[name] = (shape, self.take("<I"), self.take("<Q"))
        self.start = (self.at + 31) // 32 * 32

    def take(self, format):
        value = struct.unpack_from(format, self.data, self.at)[0]
        self.at += struct.calcsize(format)
        return value

    def text(self):
        size = self.take("<Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            item, count = self.take("<I"), self.take("<Q")
            return [self.value(item) for _ in range(count)]
        return self.take(NUMBERS[kind])

    def rows(self, name):
        """The tensor's numbers, row by row."""
        shape, kind, offset = self.tensors[name]
        count, start = 1, self.start + offset
        for extent in shape:
            count *= extent
        assert start % 32 == 0
        if kind == Q8_0:
            numbers = []
            for block in range(count // 32):
                scale, *codes = struct.unpack_from("<e32b", self.data, start + 34 * block)
                numbers += [scale * code for code in codes]
        elif kind == BF16:
            bits = struct.unpack_from(f"<{count}H", self.data, start)
            numbers = list(struct.unpack(f"<{count}f", struct.pack(f"<{count}I", *(b << 16 for b in bits))))
        else:
            numbers = list(struct.unpack_from(f"<{count}{'f' if kind == F32 else 'e'}", self.data, start))
        width = shape[-1]
        return [numbers[i:i + width] for i in range(0, count, width)]


def stored(path):
    """{name: rows} of an f32 safetensors file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        numbers = struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end])
        width = entry["shape"][-1]
        tensors[name] = [list(numbers[i:i + width]) for i in range(0, len(numbers), width)]
    return tensors


def dealt(rows, head):
    """Rows of q_proj and k_proj as the architecture llama has them: those of a head's halves in turn."""
    result = []
    for first in range(0, len(rows), head):
        for i in range(head // 2):
            result += [rows[first + i], rows[first + head // 2 + i]]
    return result


class Export(CommandTest):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "model"
        shutil.copytree(self.run_folder, self.model, ignore=shutil.ignore_patterns("checkpoint-*", "*.jsonl", "run.json"))

    def convert(self, dtype, model=None):
        file = self.folder / f"{dtype}.gguf"
        output("convert", model or self.model, "--to", "gguf", "--dtype", dtype, "--out", file)
        return Gguf(file)

    def change_config(self, **changes):
        path = self.model / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    def test_weights_are_those_of_the_model_in_the_order_that_llama_has(self):
        theirs, ours = stored(self.model / "model.safetensors"), self.convert("f32")
        names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
        for layer in range(4):
            for name, new in (("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"),
                              ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
                              ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"),
                              ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down")):
                names[f"model.layers.{layer}.{name}.weight"] = f"blk.{layer}.{new}.weight"
        self.assertEqual(set(ours.tensors), set(names.values()))
        self.assertEqual(set(theirs), set(names))
        for name, new in names.items():
            rows = dealt(theirs[name], 32) if ".q_proj" in name or ".k_proj" in name else theirs[name]
            self.assertEqual(ours.rows(new), rows, name)

    def test_inspect_says_whose_such_a_file_is(self):
        self.convert("f16")
        self.assertIn("is a GGUF file", output("inspect", self.folder / "f16.gguf", code=2))

    def test_types_round_as_they_promise(self):
        theirs = stored(self.model / "model.safetensors")["model.layers.0.mlp.up_proj.weight"]
        largest = max(abs(x) for row in theirs for x in row)
        for dtype, kind, number in (("f16", F16, 1), ("bf16", BF16, 32), ("q8_0", Q8_0, 7)):
            file = self.convert(dtype)
            self.assertEqual(file.tensors["blk.0.ffn_up.weight"][1], kind)
            self.assertEqual(file.tensors["blk.0.attn_norm.weight"][1], F32)
            self.assertEqual(file.values["general.file_type"], number)
            rows = file.rows("blk.0.ffn_up.weight")
            for row, exact in zip(rows, theirs):
                for first in range(0, len(row), 32):
                    step = max(abs(x) for x in exact[first:first + 32]) / 127
                    for value, wanted in zip(row[first:first + 32], exact[first:first + 32]):
                        allowed = {F16: abs(wanted) * 2**-11 + 2**-25, BF16: abs(wanted) * 2**-8,
                                   Q8_0: step * 0.5 + abs(wanted) * 2**-10}[kind]
                        self.assertLessEqual(abs(value - wanted), allowed * 1.001)
        self.assertGreater(largest, 0)

    def test_what_a_reader_must_know_is_said(self):
        config = json.loads((self.model / "config.json").read_text())
        values = self.convert("f16").values
        for key, expected in (("general.architecture", "llama"), ("llama.block_count", config["num_hidden_layers"]),
                              ("llama.embedding_length", config["hidden_size"]),
                              ("llama.feed_forward_length", config["intermediate_size"]),
                              ("llama.attention.head_count", 4), ("llama.attention.head_count_kv", 2),
                              ("llama.rope.dimension_count", 32), ("llama.context_length", 256),
                              ("llama.rope.freq_base", 10000.0), ("tokenizer.ggml.model", "gpt2"),
                              ("tokenizer.ggml.pre", "qwen2"), ("tokenizer.ggml.eos_token_id", 1535),
                              ("tokenizer.ggml.add_bos_token", False)):
            self.assertEqual(values[key], expected, key)
        tokenizer = json.loads((self.model / "tokenizer.json").read_text())
        tokens = values["tokenizer.ggml.tokens"]
        self.assertEqual(len(tokens), config["vocab_size"])
        for piece, number in tokenizer["model"]["vocab"].items():
            self.assertEqual(tokens[number], piece)
        self.assertEqual((tokens[1535], values["tokenizer.ggml.token_type"][1535]), ("<|endoftext|>", 3))
        merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
        self.assertEqual(values["tokenizer.ggml.merges"], merges)

    def test_scalings_are_said_or_refused(self):
        original = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 64}
        self.change_config(rope_scaling=original)
        (factors,) = self.convert("f16").rows("rope_freqs.weight")
        self.assertEqual((len(factors), factors[0], factors[-1]), (16, 1.0, 8.0))
        self.change_config(rope_scaling={"rope_type": "linear", "factor": 2.0})
        values = self.convert("bf16").values
        self.assertEqual((values["llama.rope.scaling.type"], values["llama.rope.scaling.factor"]), ("linear", 2.0))
        self.change_config(rope_scaling={"rope_type": "dynamic", "factor": 2.0})
        self.assertIn("RoPE scaling (dynamic)", output("convert", self.model, "--to", "gguf", "--out",
                                                       self.folder / "x.gguf", code=2))
        self.assertEqual(list(self.folder.glob("*x.gguf*")), [])

    def test_a_smollm3_is_written_only_with_the_layers_without_rope_that_llama_cpp_assumes(self):
        layers = json.loads((self.model / "config.json").read_text())["num_hidden_layers"]
        usual = [int((layer + 1) % 4 != 0) for layer in range(layers)]
        self.change_config(model_type="smollm3", architectures=["SmolLM3ForCausalLM"], no_rope_layers=usual)
        self.assertEqual(self.convert("f16").values["general.architecture"], "smollm3")
        for other in ([1] * layers, [0] + usual[1:]):
            self.change_config(no_rope_layers=other)
            self.assertIn("are not every fourth", output("convert", self.model, "--to", "gguf", "--out", self.folder / "x.gguf", code=2))

    def test_a_ministral3_says_what_its_queries_grow_by_and_that_yarn_has_no_factor(self):
        key = "mistral3.rope.scaling."
        rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "llama_4_scaling_beta": 0.25}
        self.change_config(model_type="ministral3", architectures=["Ministral3ForCausalLM"], rope_parameters={**rope, "mscale": 1.0, "mscale_all_dim": 1.0})
        values = self.convert("f16").values
        self.assertEqual((values["general.architecture"], values["mistral3.attention.temperature_scale"]), ("mistral3", 0.25))
        self.assertEqual((values[key + "type"], values[key + "original_context_length"], values[key + "yarn_log_multiplier"]), ("yarn", 64, 1.0))
        self.change_config(rope_parameters={**rope, "llama_4_scaling_beta": 0.0})
        values = self.convert("bf16").values
        self.assertFalse({"mistral3.attention.temperature_scale", key + "yarn_log_multiplier"} & set(values))

    def test_a_model_that_llama_cpp_would_read_as_another_is_refused(self):
        config = json.loads((self.model / "config.json").read_text())
        llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
        yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 1.0, "mscale_all_dim": 1.0}
        for family, architecture, changes, says in (
                ("olmo3", "Olmo3ForCausalLM", {"rope_theta": 20.0, "tie_word_embeddings": False}, "a rope_theta of sliding layers other than 20"),
                ("gemma3_text", "Gemma3ForCausalLM", {"rope_theta": 20.0, "rope_local_base_freq": 20.0, "query_pre_attn_scalar": 32},
                 "a rope_theta of sliding layers other than 10000"),
                ("gemma3_text", "Gemma3ForCausalLM", {"layer_types": ["full_attention"] * 4, "query_pre_attn_scalar": 32}, "windows in other layers"),
                ("mistral", "MistralForCausalLM", {"rope_scaling": yarn}, "yarn with parameters of its own"),
                ("qwen2", "Qwen2ForCausalLM", {"rope_scaling": llama3}, "RoPE scaling of type llama3")):
            (self.model / "config.json").write_text(json.dumps({**config, "model_type": family, "architectures": [architecture], **changes}))
            with self.subTest(family=family, says=says):
                self.assertIn(says, output("convert", self.model, "--to", "gguf", "--out", self.folder / "x.gguf", code=2))
                self.assertEqual(list(self.folder.glob("*x.gguf*")), [])

    def test_other_word_boundaries_and_existing_files_are_refused(self):
        path = self.model / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = r"\p{L}+|\s+"
        words = ("convert", self.model, "--to", "gguf", "--out", self.folder / "x.gguf")
        output(*words)
        self.assertIn("exists already", output(*words, code=2))
        path.write_text(json.dumps(tokenizer))
        self.assertIn("cuts words in a way of its own", output(*words[:-1], self.folder / "y.gguf", code=2))

    def test_a_model_card_lies_beside_it_in_a_folder_of_its_own_only(self):
        (self.model / "README.md").write_text("---\nlibrary_name: transformers\nlicense: mit\n---\n\n# Facts\n")
        shared, own = self.folder / "shared", self.folder / "own"
        shared.mkdir()
        (shared / "notes.txt").write_text("mine")
        for folder in (shared, own):
            words = ("convert", self.model, "--to", "gguf", "--dtype", "q8_0", "--out", folder / "facts.gguf", "--json")
            self.assertEqual(json.loads(output(*words))["card"], folder == own)
        self.assertEqual(sorted(path.name for path in shared.iterdir()), ["facts.gguf", "notes.txt"])
        card = (own / "README.md").read_text()
        self.assertTrue(card.startswith("---\nlibrary_name: gguf\nlicense: mit\n---\n\n# Facts\n"), card)
        self.assertIn("facts.gguf, q8_0", card)
        (own / "README.md").write_text("the user's")  # another file beside it leaves what the user made of it
        output("convert", self.model, "--to", "gguf", "--out", own / "other.gguf")
        self.assertEqual((own / "README.md").read_text(), "the user's")

    def test_sentence_pieces_have_scores_in_the_order_of_their_merges(self):
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            (self.model / name).unlink(missing_ok=True)
        self.change_config(bos_token_id=1, eos_token_id=2)
        tokenizer = json.loads(open("tests/golden/tokenizers/llama2.json").read())
        (self.model / "tokenizer.json").write_text(json.dumps(tokenizer))
        values = self.convert("f16").values
        self.assertEqual((values["tokenizer.ggml.model"], values["tokenizer.ggml.add_space_prefix"]), ("llama", True))
        vocab, scores = tokenizer["model"]["vocab"], values["tokenizer.ggml.scores"]
        merged = ["".join(m) if not isinstance(m, str) else m.replace(" ", "") for m in tokenizer["model"]["merges"]]
        first = list(dict.fromkeys(merged))
        ranked = [scores[vocab[piece]] for piece in first]
        self.assertEqual(ranked, sorted(ranked, reverse=True))
        self.assertEqual(values["tokenizer.ggml.token_type"][vocab["<0x41>"]], 6)


if __name__ == "__main__":
    unittest.main()
