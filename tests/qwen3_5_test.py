"""The gated delta rule as whole commands: trained by every method, resumed, packed, shared, answered from, merged, and what is refused.

Usage: qwen3_5_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import json
import shutil
import unittest

import gla_test
from command_run import CommandTest, output
from gla_test import header, lines, losses

SHAPE = {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 1, "head_dim": 32, "intermediate_size": 128, "vocab_size": 1536, "max_position_embeddings": 4096, "tie_word_embeddings": True,
         "initializer_range": 0.05, "eos_token_id": 1535, "dtype": "float32", "full_attention_interval": 2, "linear_num_key_heads": 2,
         "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16}
NET = ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"]
ATTENTION, MLP = ["q_proj", "k_proj", "v_proj", "o_proj"], ["gate_proj", "up_proj", "down_proj"]


class Qwen35(gla_test.OfStates, CommandTest):
    shape, scorer = SHAPE, "Qwen3_5TextForSequenceClassification"

    def test_a_run_resumes_bit_for_bit_answers_and_is_evaluated(self):
        recipe, out = self.train("run", schedule={"max_steps": 8, "warmup": 1}, save={"every": 4})
        self.assertLess(losses(out)[-1], losses(out)[0])
        weights = (out / "model.safetensors").read_bytes()
        shutil.rmtree(out / "checkpoint-8")
        output("train", recipe, "--quiet", "--resume")
        self.assertEqual((out / "model.safetensors").read_bytes(), weights)
        self.assertAlmostEqual(json.loads(output("eval", out, "--json"))["loss"], lines(out / "eval.jsonl")[-1]["loss"], places=5)
        words = ["generate", out, "--prompt", "What is the capital of France?", "--max-new-tokens", 80, "--json"]
        self.assertEqual(*(json.loads(output(*words, *more))["response"] for more in ([], ["--context", 3000])))
        self.assertIn("Qwen3_5", output("inspect", out, "--json"))
        beams = json.loads(output(*words, "--num-beams", 3, "--num-return-sequences", 3))
        self.assertEqual(len(beams["next_best"]), 2)
        self.assertGreater(beams["score"], beams["next_best"][1]["score"])

    def test_what_a_gguf_holds_is_read_back_and_others_are_refused(self):
        _, out = self.train("run", schedule={"max_steps": 2})
        made = self.folder / "made"
        output("export", out, "--to", "gguf", "--out", made)
        check = json.loads((made / "check.json").read_text())
        self.assertLess(check["largest_difference_of_a_row"], 1e-5)
        for changes, says in (({"linear_key_head_dim": 8}, "keys and values of different sizes"), ({"attention_bias": True}, "biases"),
                              ({"model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"], "num_experts": 0}, "dense MLPs alone"),
                              ({"layer_types": ["full_attention", "linear_attention"]}, "attention in other layers than every n-th")):
            config = json.loads((out / "config.json").read_text())
            folder = self.folder / says.replace(" ", "-")
            shutil.copytree(out, folder, ignore=shutil.ignore_patterns("checkpoint-*"))
            (folder / "config.json").write_text(json.dumps({**config, **changes}))
            self.assertIn(says, output("convert", folder, "--to", "gguf", "--out", self.folder / "x.gguf", code=2))

    def test_prefixes_that_rows_share_change_nothing(self):
        rows = self.folder / "rows.jsonl"
        rows.write_text("".join(json.dumps({"prompt": "The capital of the country is " * 4, "response": f" {word}."}) + "\n"
                                for word in "one two three four five six seven eight".split()))
        shared, apart = (losses(self.train(kind, data={"train": str(rows), "eval": None, "share_prefixes": kind})[1]) for kind in ("on", "off"))
        for ours, theirs in zip(shared, apart):
            self.assertAlmostEqual(ours, theirs, delta=1e-4)

    def test_adapters_reach_every_projection_and_are_merged(self):
        _, base = self.train("base", schedule={"max_steps": 1})
        for kind in ("lora", "qlora"):
            _, out = self.train(kind, model=str(base), init=None, precision="bf16" if kind == "qlora" else "fp32",
                                method={"type": kind, "r": 2, "targets": "all-linear"})
            names = set(header(out / "adapter_model.safetensors")[0])
            wanted = [f"0.linear_attn.{name}" for name in NET] + [f"1.self_attn.{name}" for name in ATTENTION]
            wanted += [f"{layer}.mlp.{name}" for layer in (0, 1) for name in MLP]
            self.assertEqual(names, {f"base_model.model.model.layers.{name}.lora_{part}.weight" for name in wanted for part in "AB"})
        output("merge", self.folder / "lora", "--out", self.folder / "merged")
        rows = self.folder / "rows.jsonl"
        rows.write_text('{"prompt": "What is the capital of France?", "response": "It is Paris."}\n')
        folded, beside = (json.loads(output("eval", self.folder / name, "--data", rows, "--json"))["loss"] for name in ("merged", "lora"))
        self.assertAlmostEqual(folded, beside, places=5)
        path, _ = self.recipe("wrong", model=str(base), init=None, method={"type": "lora", "targets": ["conv1d"]})
        self.assertIn("conv1d", output("plan", path, code=2))

    def test_what_is_not_built_is_refused_by_name(self):
        recipe, _ = self.recipe("refused")
        for key, value in {"output_gate_type": "sigmoid", "attn_output_gate": False, "linear_num_value_heads": 3, "linear_key_head_dim": 12}.items():
            self.configure(**{key: value})
            self.assertIn(key, output("plan", recipe, code=2))


if __name__ == "__main__":
    unittest.main()
