"""Gated linear attention as whole commands: trained by every method, resumed, packed, answered from, merged, and what is refused.

Usage: gla_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import json
import shutil
import struct
import unittest

from command_run import CommandTest, output, ROOT

SHAPE = {"architectures": ["GLAForCausalLM"], "model_type": "gla", "hidden_size": 64, "num_hidden_layers": 2, "num_heads": 2,
         "intermediate_size": 96, "vocab_size": 1536, "max_position_embeddings": 64, "tie_word_embeddings": True,
         "initializer_range": 0.05, "eos_token_id": 1535, "dtype": "float32"}
TARGETS = ["q_proj", "k_proj", "v_proj", "g_proj", "gk_proj.0", "gk_proj.1", "o_proj", "gate_proj", "up_proj", "down_proj"]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def losses(run):
    return [step["loss"] for step in lines(run / "metrics.jsonl")]


def header(path):
    """{tensor: {dtype, shape, data_offsets}} of a safetensors file, and where its data begin."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    names = json.loads(data[8:8 + size])
    names.pop("__metadata__", None)
    return names, 8 + size


def fuse_gates(model):
    """Writes gate_proj and up_proj as one, as fla did until February 2025."""
    path = model / "model.safetensors"
    names, start = header(path)
    data = path.read_bytes()
    tensors = {name: (one, data[start + one["data_offsets"][0]:start + one["data_offsets"][1]]) for name, one in names.items()}
    for name in [name for name in tensors if ".mlp.up_proj." in name]:
        gate = name.replace("up_proj", "gate_proj")
        shape = tensors[gate][0]["shape"]
        tensors[gate] = ({"dtype": "F32", "shape": [2 * shape[0], shape[1]]}, tensors[gate][1] + tensors.pop(name)[1])
    head, body = {}, b""
    for name, (one, bytes_) in tensors.items():
        head[name] = {"dtype": one["dtype"], "shape": one["shape"], "data_offsets": [len(body), len(body) + len(bytes_)]}
        body += bytes_
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


class OfStates:
    """What holds of models that carry a state from token to token: `shape` is a config.json, `scorer` the class with a head that scores."""
    needs_run = False
    shape, scorer = SHAPE, "GLAForSequenceClassification"

    def setUp(self):
        super().setUp()
        self.model = self.folder / "model"
        shutil.copytree(ROOT / "demo/model", self.model)
        self.configure()

    def configure(self, **changes):
        (self.model / "config.json").write_text(json.dumps({**self.shape, **changes}))

    def recipe(self, name, **changes):
        recipe = {"model": str(self.model), "init": "random", "method": {"type": "full"}, "precision": "fp32",
                  "data": {"train": str(ROOT / "demo/data/facts/train.parquet"), "max_length": 96, "eval": 16},
                  "batch": {"effective": 8}, "optimizer": {"lr": 3e-3}, "schedule": {"max_steps": 4, "warmup": 1},
                  "memory": {"tie": "1%"}, "output": str(self.folder / name)}
        for key, value in changes.items():
            recipe[key] = {**recipe[key], **value} if isinstance(recipe.get(key), dict) else value
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({key: value for key, value in recipe.items() if value is not None}))
        return path, self.folder / name

    def train(self, name, **changes):
        recipe, out = self.recipe(name, **changes)
        output("train", recipe, "--quiet")
        done = json.loads((out / "run.json").read_text())
        self.assertEqual(done["planned"]["device_arena_bytes"], done["measured"]["device_arena_bytes"])
        return recipe, out

    def test_splits_packing_and_every_means_of_memory_give_the_same_run(self):
        _, whole = self.train("whole", batch={"micro": 8})
        _, split = self.train("split", batch={"micro": 3})
        for ours, theirs in zip(losses(split), losses(whole)):
            self.assertAlmostEqual(ours, theirs, delta=1e-4)
        # Rows one after the other on one axis: no state passes from one to the next. The first step changes nothing.
        evaluated = []
        for name, changes in {"packed": {"data": {"packing": True}}, "alone": {"batch": {"micro": 1}}}.items():
            _, out = self.train(name, schedule={"max_steps": 1}, **changes)
            evaluated.append(lines(out / "eval.jsonl")[-1]["loss"])
        self.assertAlmostEqual(*evaluated, places=5)
        kept = (whole / "model.safetensors").read_bytes()
        moved = {"offload": ["states", "gradients", "weights", "activations"], "disk": "1GiB"}
        for name, means in {"recomputed": {"recompute": "block"}, "mixers": {"recompute": "attention"}, "moved": moved}.items():
            _, out = self.train(name, batch={"micro": 8}, memory=means)
            self.assertEqual((out / "model.safetensors").read_bytes(), kept, name)

    def test_whole_sequences_are_scored(self):
        rows = [{"text": f"The {word} is {kind}.", "label": kind} for word in ("stone", "river", "cloud") for kind in ("red", "blue")]
        path = self.folder / "texts.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows * 4))
        _, out = self.train("classes", task="classify", classify={"labels": ["red", "blue"]}, schedule={"max_steps": 20},
                            data={"train": str(path), "eval": None})
        self.assertLess(losses(out)[-1], 0.5 * losses(out)[0])
        self.assertEqual(json.loads((out / "config.json").read_text())["architectures"], [self.scorer])


class Gla(OfStates, CommandTest):
    def test_adapters_name_their_targets_so_that_peft_finds_them(self):
        for name, method in {"lora": {}, "dora": {"dora": True}, "some": {"targets": ["gk_proj.1", "q_proj"]}}.items():
            _, out = self.train(name, method={"type": "lora", "r": 2, **method}, schedule={"max_steps": 1})
            targets = json.loads((out / "adapter_config.json").read_text())["target_modules"]
            # "0" and "1" are the blocks model.layers.0 and model.layers.1 to PEFT.
            self.assertFalse([target for target in targets if target.isdigit()], targets)
            self.assertIn("gk_proj.1", targets)
            self.train(f"{name}_again", method={"type": "lora"}, adapter=str(out), schedule={"max_steps": 1})

    def test_a_run_resumes_bit_for_bit_answers_and_is_evaluated(self):
        recipe, out = self.train("run", schedule={"max_steps": 8, "warmup": 1}, save={"every": 4})
        self.assertLess(losses(out)[-1], losses(out)[0])
        weights = (out / "model.safetensors").read_bytes()
        shutil.rmtree(out / "checkpoint-8")
        output("train", recipe, "--quiet", "--resume")
        self.assertEqual((out / "model.safetensors").read_bytes(), weights)
        loss = lines(out / "eval.jsonl")[-1]["loss"]
        self.assertAlmostEqual(json.loads(output("eval", out, "--json"))["loss"], loss, places=5)
        # Longer than max_position_embeddings: no positions are encoded.
        words = ["generate", out, "--prompt", "What is the capital of France?", "--max-new-tokens", 80, "--json"]
        self.assertEqual(*(json.loads(output(*words, *more))["response"] for more in ([], ["--context", 4000])))
        inspected = json.loads(output("inspect", out, "--json"))
        self.assertIn("GLA", json.dumps(inspected))
        self.assertIn("GGUF is not supported for GLAForCausalLM",
                      output("convert", out, "--to", "gguf", "--out", self.folder / "x.gguf", code=2))

    def test_adapters_reach_every_projection_and_are_merged(self):
        for kind in ("lora", "qlora"):
            _, base = self.train(f"base_{kind}", schedule={"max_steps": 1})
            _, out = self.train(kind, model=str(base), init=None, precision="bf16" if kind == "qlora" else "fp32",
                                method={"type": kind, "r": 2, "targets": TARGETS})
            names = set(header(out / "adapter_model.safetensors")[0])
            for target in TARGETS:
                part = "mlp" if target in ("gate_proj", "up_proj", "down_proj") else "attn"
                self.assertIn(f"base_model.model.model.layers.1.{part}.{target}.lora_B.weight", names)
            self.assertEqual(len(names), 2 * 2 * len(TARGETS))
            _, every = self.train(f"every_{kind}", model=str(base), init=None, method={"type": kind, "r": 2, "targets": "all-linear"})
            self.assertEqual(set(header(every / "adapter_model.safetensors")[0]), names)
        output("merge", self.folder / "lora", "--out", self.folder / "merged")
        rows = self.folder / "rows.jsonl"
        rows.write_text('{"prompt": "What is the capital of France?", "response": "It is Paris."}\n')
        folded, beside = (json.loads(output("eval", self.folder / name, "--data", rows, "--json"))["loss"] for name in ("merged", "lora"))
        self.assertAlmostEqual(folded, beside, places=5)
        _, told = self.recipe("wrong", model=str(self.folder / "base_lora"), init=None, method={"type": "lora", "targets": ["gk_proj"]})
        self.assertIn("gk_proj.0, gk_proj.1", output("plan", self.folder / "wrong.json", code=2))

    def test_old_checkpoints_with_one_matrix_for_gate_and_up_are_read(self):
        _, out = self.train("run")
        old = self.folder / "old"
        shutil.copytree(out, old)
        fuse_gates(old)
        self.assertNotIn("model.layers.0.mlp.up_proj.weight", header(old / "model.safetensors")[0])
        words = ["--prompt", "What is", "--max-new-tokens", 8]
        self.assertEqual(output("generate", old, *words), output("generate", out, *words))
        output("convert", old, "--shard-size", "1GiB", "--out", self.folder / "new")
        self.assertEqual(header(self.folder / "new/model.safetensors")[0].keys(), header(out / "model.safetensors")[0].keys())
        self.assertEqual(output("generate", self.folder / "new", *words), output("generate", out, *words))

    def test_what_is_not_built_is_refused_by_name(self):
        recipe, _ = self.recipe("refused")
        for key, value in {"feature_map": "relu", "use_gv": True, "conv_bias": True, "attn": {"layers": [1], "num_heads": 2}}.items():
            self.configure(**{key: value})
            self.assertIn(f"'{key}'", output("plan", recipe, code=2))


if __name__ == "__main__":
    unittest.main()
