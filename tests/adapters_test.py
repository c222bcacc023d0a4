"""Adapters as people set them, as whole commands: planned, trained, resumed, merged, answered with, and what is refused."""
import json
import shutil
import struct
import unittest

from command_run import CommandTest, ROOT, assert_curves_agree, output, run
from shard import SuiteLoader

WAYS = {
    "patterns": {"r": 4, "rank_pattern": {"q_proj": 2, r"layers\.1\..*": 3}, "alpha_pattern": {"v_proj": 4}},
    "layers": {"r": 4, "layers": [1], "targets": ["q_proj", "v_proj"]},
    "saved": {"r": 4, "targets": ["q_proj"], "modules_to_save": ["embed_tokens", "norm"], "loraplus_ratio": 4},
    "dora": {"r": 4, "dora": True, "dropout": 0.1, "neftune_alpha": 5},
    "pissa": {"r": 4, "init": "pissa_niter_4", "rank_pattern": {"v_proj": 2}},
    "olora": {"r": 4, "init": "olora"},
    "table_and_head": {"r": 4, "targets": ["embed_tokens", "lm_head", "q_proj"], "dropout": 0.1},
    "qlora_table": {"type": "qlora", "r": 4, "targets": ["all-linear", "embed_tokens", "lm_head"]},
    "qdora": {"type": "qlora", "r": 4, "dora": True},
    "int8_table": {"type": "qlora", "bits": 8, "r": 4, "targets": ["all-linear", "embed_tokens", "lm_head"]},
}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def shapes_in(path):
    """{tensor name: shape} of a safetensors file."""
    data = path.read_bytes()
    header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


class Adapters(CommandTest):
    def recipe(self, name, method, **changes):
        recipe = {"model": str(self.run_folder), "method": {"type": "lora", **method}, "precision": "fp32",
                  "data": {"train": str(ROOT / "demo/data/reverse/train.parquet"), "max_length": 32, "eval": 16},
                  "batch": {"effective": 8}, "optimizer": {"lr": 3e-3}, "schedule": {"max_steps": 6, "warmup": 1},
                  "save": {"every": 3}, "output": str(self.folder / name)}
        for key, value in changes.items():
            recipe[key] = {**recipe[key], **value} if isinstance(recipe.get(key), dict) else value
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(recipe))
        return path, self.folder / name

    def trained(self, name, method, **changes):
        recipe, out = self.recipe(name, method, **changes)
        output("train", recipe, "--quiet")
        return recipe, out

    def test_every_way_runs_in_the_planned_bytes_and_resumes_bit_for_bit(self):
        for name, method in WAYS.items():
            with self.subTest(name):
                recipe, out = self.trained(name, method)
                done = json.loads((out / "run.json").read_text())
                self.assertEqual(done["planned"]["device_arena_bytes"], done["measured"]["device_arena_bytes"])
                whole = (out / "adapter_model.safetensors").read_bytes()
                shutil.rmtree(out / "checkpoint-6")
                output("train", recipe, "--quiet", "--resume")
                self.assertEqual((out / "adapter_model.safetensors").read_bytes(), whole)

    def test_splits_give_the_same_losses_under_noise_and_dropout(self):
        losses = {}
        for micro in (1, 3, 8):
            _, out = self.trained(f"micro{micro}", WAYS["dora"], batch={"micro": micro})
            losses[micro] = [step["loss"] for step in lines(out / "metrics.jsonl")]
        assert_curves_agree(self, losses.values())
        _, out = self.trained("silent", {**WAYS["dora"], "neftune_alpha": 0})
        self.assertNotAlmostEqual(lines(out / "metrics.jsonl")[0]["loss"], losses[8][0], delta=1e-4)

    def test_a_merged_folder_has_the_losses_of_the_adapter_over_its_base(self):
        rows = ["--data", ROOT / "demo/data/reverse/train.parquet", "--limit", 40, "--max-length", 32, "--json"]
        for name in ("patterns", "layers", "saved", "dora", "pissa", "olora", "table_and_head"):
            with self.subTest(name):
                out = self.trained(name, WAYS[name])[1]
                merged = self.folder / f"{name}-merged"
                output("merge", out, "--out", merged)
                beside = json.loads(output("eval", out, *rows))["loss"]
                self.assertAlmostEqual(json.loads(output("eval", merged, *rows))["loss"], beside, delta=1e-4)
                steps = lines(out / "metrics.jsonl")
                if "init" not in WAYS[name]:  # what begins with a part of the weight takes other steps
                    self.assertLess(steps[-1]["loss"], steps[0]["loss"])
                output("generate", out, "--prompt", "What", "--max-new-tokens", 2)

    def test_the_saved_folder_says_how_it_was_made_and_is_continued(self):
        out = self.trained("patterns", WAYS["patterns"])[1]
        config = json.loads((out / "adapter_config.json").read_text())
        self.assertEqual(config["rank_pattern"], WAYS["patterns"]["rank_pattern"])
        self.assertEqual(list(config["rank_pattern"]), list(WAYS["patterns"]["rank_pattern"]))
        shapes = shapes_in(out / "adapter_model.safetensors")
        name = "base_model.model.model.layers.{}.self_attn.{}_proj.lora_A.weight"
        self.assertEqual([shapes[name.format(*at)][0] for at in ((0, "q"), (0, "k"), (1, "q"), (1, "k"))], [2, 4, 2, 3])
        saved = shapes_in(self.trained("saved", WAYS["saved"])[1] / "adapter_model.safetensors")
        self.assertIn("base_model.model.model.embed_tokens.weight", saved)
        self.assertIn("base_model.model.model.layers.0.input_layernorm.weight", saved)
        started = self.trained("pissa", WAYS["pissa"])[1]
        config = json.loads((started / "adapter_config.json").read_text())
        self.assertEqual((config["r"], config["rank_pattern"]), (8, {"v_proj": 4}))
        dora = self.trained("dora", WAYS["dora"])[1]
        self.assertTrue(json.loads((dora / "adapter_config.json").read_text())["use_dora"])
        again = self.trained("again", {}, adapter=str(dora))[1]
        self.assertEqual(shapes_in(again / "adapter_model.safetensors"), shapes_in(dora / "adapter_model.safetensors"))
        self.assertLess(lines(again / "metrics.jsonl")[0]["loss"], lines(dora / "metrics.jsonl")[0]["loss"])
        self.assertIn("use_dora", output("inspect", dora))

    def test_an_adapter_of_the_embedding_is_saved_as_peft_has_it(self):
        shapes = shapes_in(self.trained("table_and_head", WAYS["table_and_head"])[1] / "adapter_model.safetensors")
        vocabulary, width = shapes_in(self.run_folder / "model.safetensors")["model.embed_tokens.weight"]
        prefix = "base_model.model."
        self.assertEqual(shapes[prefix + "model.embed_tokens.lora_embedding_A"], [4, vocabulary])
        self.assertEqual(shapes[prefix + "model.embed_tokens.lora_embedding_B"], [width, 4])
        self.assertEqual(shapes[prefix + "lm_head.lora_B.weight"], [vocabulary, 4])

    def test_an_adapter_over_random_weights_is_refused_where_there_are_weights_and_noted_before_the_first_step(self):
        for method in ({"r": 2}, {"type": "qlora", "r": 2}):
            recipe, out = self.recipe("random", method, init="random")
            self.assertIn("has weights, which init: random does not read", output("train", recipe, code=2))
            self.assertFalse(out.exists())
            self.assertIn("new random weights, which are not saved", output("plan", recipe))
            self.assertIn("new random weights", json.loads(output("plan", recipe, "--json"))["notes"][0])
        recipe, _ = self.recipe("shape", {"r": 2}, init="random", model=str(ROOT / "demo/model"))
        told = run("train", recipe)
        self.assertEqual(told.returncode, 0, told.stderr)
        said = told.stdout + told.stderr
        self.assertNotIn("next       plimsoll generate", said)
        self.assertIn("the base of this adapter was random", said)
        self.assertLess(said.index("new random weights, which are not saved"), said.index("loss"))
        # A run that was begun so goes on.
        shape = self.folder / "with_shape"
        shutil.copytree(ROOT / "demo/model", shape)
        recipe, out = self.trained("begun", {"r": 2}, init="random", model=str(shape))
        whole = (out / "adapter_model.safetensors").read_bytes()
        shutil.rmtree(out / "checkpoint-6")
        shutil.copy(self.run_folder / "model.safetensors", shape)
        output("train", recipe, "--quiet", "--resume")
        self.assertEqual((out / "adapter_model.safetensors").read_bytes(), whole)
        self.assertIn("has weights, which init: random does not read", output("train", recipe, "--overwrite", code=2))

    def test_a_first_recipe_puts_no_adapter_over_random_weights(self):
        data, drafts = ROOT / "demo/data/facts/train.parquet", {}
        for method in ("lora", "qlora", "full"):
            drafts[method] = self.folder / f"{method}.yaml"
            output("init", ROOT / "demo/model", data, "--out", drafts[method], "--method", method)
        self.assertIn("init: random", drafts["full"].read_text())
        for method in ("lora", "qlora"):
            self.assertNotIn("init: random", drafts[method].read_text())
            self.assertIn("the folder has no weights", drafts[method].read_text().lower())
            output("plan", drafts[method])
            told = output("train", drafts[method], code=2)
            self.assertIn("has neither model.safetensors nor", told)
            self.assertIn("Put the model's weights there", told)

    def test_what_names_nothing_is_refused(self):
        for method, told in (({"layers": [99]}, "method.layers: no adapted linear layer is in layer 99"),
                             ({"modules_to_save": ["pooler"]}, "method.modules_to_save: 'pooler' matches no module"),
                             ({"rank_pattern": {"(q": 2}}, "method.rank_pattern: '(q' is not a regular expression"),
                             ({"rank_pattern": {"q_proj": 0}}, "method.rank_pattern: expected a map"),
                             ({"init": "svd"}, "method.init: expected lora, pissa"),
                             ({"init": "pissa", "type": "qlora"}, "method.init: pissa takes a part out of the weights"),
                             ({"init": "olora", "dora": True}, "method.init: olora beside method.dora"),
                             ({"dora": True, "targets": ["lm_head"]}, "method.dora: applies to linear layers below the output head"),
                             ({"init": "pissa", "targets": ["embed_tokens"]}, "method.init: applies to linear layers"),
                             ({"loraplus_ratio": 4, "targets": ["embed_tokens"]}, "method.targets names an embedding"),
                             ({"targets": ["score"]}, "method.targets: 'score' matches no linear layer or embedding"),
                             ({"init": "olora", "r": 200}, "has no rank 200 for method.init"),
                             ({"type": "full", "dora": True}, "method.dora")):
            with self.subTest(told):
                recipe, _ = self.recipe("refused", method)
                self.assertIn(told, output("plan", recipe, code=2))
        pairs = self.folder / "pairs.jsonl"
        pairs.write_text("".join(json.dumps({"prompt": "a", "chosen": " b", "rejected": " c"}) + "\n" for _ in range(40)))
        recipe, _ = self.recipe("dpo", WAYS["saved"], task="dpo", data={"train": str(pairs)})
        self.assertIn("what trains whole is no longer the base", output("plan", recipe, code=2))

    def test_frozen_parts_stay_as_they_are(self):
        recipe, out = self.trained("frozen", {"type": "full", "freeze": ["embed_tokens", r"layers\.0"]}, precision="bf16-master")
        done = json.loads((out / "run.json").read_text())
        self.assertEqual(done["planned"]["device_arena_bytes"], done["measured"]["device_arena_bytes"])
        whole = (out / "model.safetensors").read_bytes()
        shutil.rmtree(out / "checkpoint-6")
        output("train", recipe, "--quiet", "--resume")
        self.assertEqual((out / "model.safetensors").read_bytes(), whole)
        states = shapes_in(out / "checkpoint-6" / "optimizer.safetensors")
        self.assertFalse([name for name in states if "layers.0." in name or "embed_tokens" in name])
        self.assertIn("frozen: embed_tokens", output("plan", recipe))
        steps = lines(out / "metrics.jsonl")
        self.assertLess(steps[-1]["loss"], steps[0]["loss"])
        for method, told in (({"type": "full", "freeze": ["encoder"]}, "method.freeze: 'encoder' matches no weight"),
                             ({"type": "full", "freeze": [".*"]}, "method.freeze: nothing is left to train"),
                             ({"freeze": ["embed_tokens"]}, "method.freeze: beside adapters")):
            with self.subTest(told):
                self.assertIn(told, output("plan", self.recipe("refused", method)[0], code=2))

    def test_other_tools_say_the_same(self):
        rows = str(ROOT / "demo/data/reverse/train.parquet")
        theirs = self.folder / "theirs.yaml"
        theirs.write_text(f"base_model: {self.run_folder}\ndatasets: [{{path: {rows}, type: alpaca}}]\nadapter: lora\nlora_r: 4\n"
                          "lora_alpha: 8\nlora_target_linear: true\nlora_target_modules: [embed_tokens]\npeft_use_dora: true\nloraplus_lr_ratio: 16\n"
                          "neftune_noise_alpha: 5\nlora_modules_to_save: [embed_tokens, lm_head]\n"
                          "peft_layers_to_transform: [0, 1]\n")
        ours = json.loads(run("recipe", theirs, "--json").stdout)["recipe"]["method"]
        self.assertEqual({key: ours[key] for key in ("dora", "loraplus_ratio", "neftune_alpha", "modules_to_save", "layers", "targets")},
                         {"dora": True, "loraplus_ratio": 16, "neftune_alpha": 5,
                          "modules_to_save": ["embed_tokens", "lm_head"], "layers": [0, 1],
                          "targets": ["all-linear", "embed_tokens"]})


if __name__ == "__main__":
    unittest.main(testLoader=SuiteLoader("adapters_test"))
