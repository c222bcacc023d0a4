"""Whole runs on the emulated card (docs/explanation/cuda.md): its loss curve is PyTorch's and the CPU's, of every family and task.

Usage: emulated_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from shard import SuiteLoader, is_mine
from small_models import BERT, DELTA, GLA, LLAMA, LOSSLESS, ROOT, STEPS, T5, TODAY, golden_recipe, pairs, steps, tiny_recipe, write_rows

PLIMSOLL = ROOT / "build" / "plimsoll"
LIMIT = 1e-4  # fp32: of each step's loss
BF16_LIMIT = 0.02  # sums in another order round otherwise
LABELS = {"labels": ["question", "order", "fact"]}
# Orders of the queues: more of them, and of more runs, with `make gpu-orders`.
SEEDS = int(os.environ.get("PLIMSOLL_SEEDS", 0))
# What is below 64 KiB is not moved: of adapters' runs, weights as wide as that.
MOVED = {"full": (LLAMA, {}), "lora": ({**LLAMA, "hidden_size": 128, "intermediate_size": 128}, {"method": {"type": "lora", "r": 4}}),
         "qlora": ({**LLAMA, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1}, {"method": {"type": "qlora", "r": 4}}),
         "t5": (T5, {"task": "seq2seq", "data": {"max_length": {"source": 24, "target": 16}}}), "gla": (GLA, {}), "qwen3_5": (DELTA, {}), "reward": (LLAMA, {"task": "reward"})}


class EmulatedTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def plimsoll(self, *words, **variables):
        return subprocess.run([str(PLIMSOLL), *map(str, words)], capture_output=True, text=True, timeout=600,
                              env={**os.environ, "PLIMSOLL_NO_PROBE": "1", **variables})

    def train(self, recipe, device, output):
        done = self.plimsoll("train", recipe, "--quiet", "--device", device)
        self.assertEqual(done.returncode, 0, done.stderr)
        return steps(self.folder / output)

    def check(self, name, method):
        golden = ROOT / "tests/golden" / name
        more = {"method": method}
        if method["type"] == "lora":
            more["adapter"] = str(golden / "adapter")
        expected = json.loads((golden / "expected.json").read_text())["train"]
        emulated = self.train(golden_recipe(golden, self.folder, "emulated", **more), "emulated", "emulated")
        for step, loss, norm in zip(emulated, expected["losses"], expected["grad_norms"], strict=True):
            self.assertLessEqual(abs(step["loss"] - loss), LIMIT * abs(loss), f"loss of step {step['step']}")
            self.assertLessEqual(abs(step["grad_norm"] - norm), 1e-3 * norm, f"norm of step {step['step']}")
        cpu = self.train(golden_recipe(golden, self.folder, "cpu", **more), "cpu", "cpu")
        for here, there in zip(emulated, cpu, strict=True):
            self.assertLessEqual(abs(here["loss"] - there["loss"]), LIMIT * there["loss"])

    def test_full_fine_tuning_has_the_losses_of_pytorch_and_of_the_cpu(self):
        self.check("llama_full", {"type": "full"})

    def test_lora_has_the_losses_of_peft_and_of_the_cpu(self):
        self.check("llama_lora", {"type": "lora"})

    def both(self, limit, on_cpu=None, **more):
        """A few steps on each device; `limit` is relative, of each loss."""
        golden = ROOT / "tests/golden/llama_full"
        schedule = {"name": "cosine", "warmup": 1, "max_steps": STEPS}
        runs = {device: self.train(golden_recipe(golden, self.folder, device, **{"method": {"type": "full"}, "schedule": schedule, **more,
                                                                                 **(on_cpu or {} if device == "cpu" else {})}), device, device)
                for device in ("emulated", "cpu")}
        self.assertEqual(len(runs["emulated"]), STEPS)
        for here, there in zip(runs["emulated"], runs["cpu"], strict=True):
            self.assertLessEqual(abs(here["loss"] - there["loss"]), limit * there["loss"], f"step {here['step']}")
            self.assertLessEqual(abs(here["grad_norm"] - there["grad_norm"]), 10 * limit * there["grad_norm"])
        return runs["emulated"]

    def test_bf16_follows_the_cpu_and_twice_the_same_run_gives_the_same_bits(self):
        first = self.both(BF16_LIMIT, precision="bf16")
        shutil.rmtree(self.folder / "emulated")
        shutil.rmtree(self.folder / "cpu")
        again = self.both(BF16_LIMIT, precision="bf16")
        self.assertEqual([s["loss"] for s in first], [s["loss"] for s in again])

    def test_fp16_follows_the_cpu_with_the_same_scale_of_the_loss(self):
        for method in ({"type": "full"}, {"type": "qlora", "r": 4}):
            with self.subTest(method["type"]):
                self.setUp()
                self.both(BF16_LIMIT / 4, precision="fp16", method=method)
                scales = [[step["loss_scale"] for step in steps(self.folder / device)] for device in ("emulated", "cpu")]
                self.assertEqual(*scales)

    def test_products_cut_to_tf32_follow_the_cpu_less_closely_and_only_cards_have_them(self):
        cut = self.both(2e-3, precision={"weights": "fp32", "tf32": True}, on_cpu={"precision": "fp32"})
        shutil.rmtree(self.folder / "emulated")
        shutil.rmtree(self.folder / "cpu")
        whole = self.both(LIMIT, precision="fp32")
        self.assertNotEqual([step["loss"] for step in cut], [step["loss"] for step in whole])
        path = golden_recipe(ROOT / "tests/golden/llama_full", self.folder, "refused", precision={"weights": "fp32", "tf32": True})
        for words, why in ((("--device", "cpu"), "precision.tf32: applies to matrix products"),
                           (("--gpu", "RTX 2080 Ti"), "precision.tf32: the RTX 2080 Ti 11GB does not compute in TF32"),
                           (("--device", "emulated", "--set", "precision.weights=bf16"), "precision.tf32: is of products of fp32 weights")):
            done = self.plimsoll("plan", path, *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(why, done.stderr)

    def test_adapters_with_dropout_and_over_quantised_bases_follow_the_cpu(self):
        for method in ({"type": "lora", "r": 4, "dropout": 0.2}, {"type": "qlora", "r": 4}, {"type": "qlora", "bits": 8, "r": 4}):
            with self.subTest(str(method)):
                self.setUp()
                self.both(LIMIT, method=method)

    def test_every_optimizer_follows_the_cpu(self):
        for name in ("lion", "sgd", "adafactor", "adamw8bit"):
            with self.subTest(name):
                self.setUp()
                self.both(LIMIT, optimizer={"name": name, "lr": 1e-3})

    def test_packing_evaluation_and_recomputation_follow_the_cpu(self):
        rows = str(ROOT / "tests/golden/llama_full/train.jsonl")
        self.both(LIMIT, data={"train": rows, "eval": rows, "format": "input-ids", "max_length": 64, "packing": True},
                  batch={"effective": 4, "micro": 2}, memory={"recompute": "block"})

    cells = 0  # that a test has come to

    def next_cell_is_mine(self):
        """Whether the slices that run have the next cell of this test's grid (tests/shard.py)."""
        self.cells += 1
        return is_mine("emulated", self.cells)

    def follows(self, name, config, lossless=(), limit=LIMIT, always=False, **settings):
        """The CPU's losses, and with means that lose nothing the same bits. A cell of the grid, whose losses are compared `always` or in its slice."""
        if not self.next_cell_is_mine():
            if not always:
                return
            lossless = ()
        with self.subTest(name):
            self.setUp()
            emulated = self.train(tiny_recipe(self.folder, config, "emulated", **settings), "emulated", "emulated")
            cpu = self.train(tiny_recipe(self.folder, config, "cpu", **settings), "cpu", "cpu")
            self.assertEqual(len(emulated), STEPS)
            self.assertNotEqual(emulated[0]["loss"], emulated[-1]["loss"])
            for here, there in zip(emulated, cpu, strict=True):
                self.assertLessEqual(abs(here["loss"] - there["loss"]), limit * abs(there["loss"]), f"step {here['step']}")
                self.assertLessEqual(abs(here["grad_norm"] - there["grad_norm"]), 10 * limit * there["grad_norm"])
            for words in lossless:
                shutil.rmtree(self.folder / "emulated")
                done = self.plimsoll("train", self.folder / "emulated.json", "--quiet", "--device", "emulated", *words)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual([step["loss"] for step in steps(self.folder / "emulated")], [step["loss"] for step in emulated], words)

    def test_a_t5_follows_the_cpu_and_means_that_lose_nothing_keep_its_bits(self):
        target = {"data": {"max_length": {"source": 24, "target": 16}}}
        self.follows("relu", T5, LOSSLESS, task="seq2seq", **target)
        dropping = {**T5, "feed_forward_proj": "gated-gelu", "dropout_rate": 0.1}
        self.follows("gated gelu, dropout", dropping, task="seq2seq", **target)
        # Attention by tensor cores.
        self.follows("bf16", dropping, LOSSLESS, limit=BF16_LIMIT, task="seq2seq", precision="bf16", **target)

    def test_gated_linear_attention_follows_the_cpu_and_means_that_lose_nothing_keep_its_bits(self):
        self.follows("full", GLA, LOSSLESS)
        self.follows("grouped, clamped", {**GLA, "num_heads": 4, "num_kv_heads": 2, "clamp_min": -0.2})
        self.follows("convolved", {**GLA, "use_short_conv": True})
        self.follows("bf16", GLA, LOSSLESS, limit=BF16_LIMIT, precision="bf16")

    def test_the_gated_delta_rule_follows_the_cpu_and_means_that_lose_nothing_keep_its_bits(self):
        self.follows("full", DELTA, LOSSLESS)
        self.follows("bf16", DELTA, limit=BF16_LIMIT, precision="bf16")

    def test_decoders_of_today_follow_the_cpu_and_means_that_lose_nothing_keep_their_bits(self):
        for name, config in TODAY.items():
            self.follows(name, config, LOSSLESS[1:3], always=True)
        self.follows("caps in bf16", TODAY["gemma2"], limit=BF16_LIMIT, precision="bf16")
        self.follows("caps of words", TODAY["gemma2"], task="classify", classify={**LABELS, "words": [" river", " stone", " cloud"]})
        self.follows("caps of preferences", TODAY["gemma2"], task="dpo", method={"type": "lora", "r": 4})
        self.follows("factors of preferences", TODAY["granite"], task="dpo", method={"type": "lora", "r": 4})
        self.follows("noise behind a factor", TODAY["gemma3"], method={"type": "lora", "r": 4, "dora": True, "neftune_alpha": 5.0})
        chats = [{"prompt": "Answer in a few words, and name a thing. " + pair["prompt"], "response": pair[answer]}
                 for pair in pairs(4) for answer in ("chosen", "rejected")]
        self.shares("caps of shared rows", TODAY["gemma2"], chats, whole=True)

    def test_whole_sequences_that_are_scored_follow_the_cpu(self):
        self.follows("reward", LLAMA, LOSSLESS, task="reward", reward={"centering": 0.01})
        self.follows("classes", LLAMA, task="classify", classify=LABELS)
        self.follows("words", LLAMA, task="classify", classify={**LABELS, "words": [" river", " stone", " cloud"]})
        self.follows("classes of BERT", BERT, task="classify", classify=LABELS)
        self.follows("classes of T5", T5, task="classify", classify=LABELS)
        self.follows("rewards of GLA", GLA, task="reward")

    def test_preferences_follow_the_cpu(self):
        for loss in ("sigmoid", "ipo", "orpo"):
            self.follows(loss, LLAMA, LOSSLESS[:1], task="dpo", dpo={"loss": loss}, method={"type": "lora", "r": 4})

    def test_dora_and_noise_follow_the_cpu(self):
        self.follows("dora", LLAMA, LOSSLESS[1:2], method={"type": "lora", "r": 4, "dora": True, "neftune_alpha": 5.0})

    def shares(self, name, config, rows, limit=LIMIT, whole=False, packing=False, **settings):
        """With shared beginnings the losses of the CPU in the planned bytes; where `whole`, those of rows apart too, and evaluations. A cell."""
        if not self.next_cell_is_mine():
            return
        with self.subTest(name):
            self.setUp()
            train = write_rows(self.folder / "shared.jsonl", rows)
            runs, records = {}, {}
            for run, device, share in (("on", "emulated", "on"), ("cpu", "cpu", "on"), ("off", "emulated", "off"))[:2 + whole]:
                data = {"train": train, "share_prefixes": share, "packing": packing, **({"eval": train} if whole else {})}
                recipe = tiny_recipe(self.folder, config, run, **{"batch": {"effective": 4}, **settings, "data": data})
                runs[run] = self.train(recipe, device, run)
                records[run] = json.loads((self.folder / run / "run.json").read_text())
                self.assertEqual(records[run]["planned"]["device_arena_bytes"], records[run]["measured"]["device_arena_bytes"])
            self.assertGreater(records["on"]["shared"], 0.2)
            self.assertEqual(records["on"]["shared"], records["cpu"]["shared"])
            self.assertNotEqual(runs["on"][0]["loss"], runs["on"][-1]["loss"])
            for other in set(runs) - {"on"}:
                for here, there in zip(runs["on"], runs[other], strict=True):
                    self.assertLessEqual(abs(here["loss"] - there["loss"]), limit * abs(there["loss"]), f"step {here['step']}, {other}")
                    self.assertLessEqual(abs(here["grad_norm"] - there["grad_norm"]), 10 * limit * there["grad_norm"])
                if whole:
                    self.assertLessEqual(abs(records["on"]["eval_loss"] - records[other]["eval_loss"]), limit * abs(records[other]["eval_loss"]))
            if whole:
                self.assertEqual(records["off"]["shared"], 0)
                self.assertLess(records["on"]["planned"]["device_arena_bytes"], records["off"]["planned"]["device_arena_bytes"])

    def test_rows_that_share_what_they_begin_with_follow_rows_apart_and_the_cpu(self):
        """Chats behind one system prompt, of which some part later, and pairs behind theirs."""
        system = "Answer in a few words, and name a thing that you see. "
        chats = [{"prompt": system + pair["prompt"], "response": pair[answer]} for pair in pairs(4) for answer in ("chosen", "rejected")]
        lora = {"method": {"type": "lora", "r": 4}}
        self.shares("full", LLAMA, chats)
        self.shares("lora", LLAMA, chats, whole=True, **lora)
        self.shares("tensor cores", LLAMA, chats, limit=BF16_LIMIT, precision="bf16", **lora)
        self.shares("preferences", LLAMA, pairs(4), whole=True, task="dpo", **lora)
        self.shares("rewards", LLAMA, pairs(4), task="reward")
        self.shares("draws", LLAMA, chats, method={"type": "lora", "r": 4, "dropout": 0.2, "neftune_alpha": 5.0})
        self.shares("packed", LLAMA, chats, packing=True, **{**lora, "batch": {"effective": 2}})
        self.shares("linear attention", GLA, chats, whole=True, **lora)

    def orders(self, config, settings):
        """The same bits, whatever order of the queues, where all that can be is moved to the host."""
        recipe = tiny_recipe(self.folder, config, "emulated", **settings, memory={"offload": ["states", "gradients", "weights", "activations"]})
        losses = []
        for order in ("at-once", "late", *map(str, range(1, SEEDS + 1) if SEEDS else [7])):
            done = self.plimsoll("train", recipe, "--quiet", "--device", "emulated", "--overwrite", PLIMSOLL_EMULATED_ORDER=order)
            self.assertEqual(done.returncode, 0, done.stderr)
            losses.append([step["loss"] for step in steps(self.folder / "emulated")])
            for side in ("planned", "measured"):
                self.assertGreater(json.loads((self.folder / "emulated/run.json").read_text())[side]["host_arena_bytes"], 0)
            self.assertEqual(losses[-1], losses[0], order)
        return recipe

    def test_every_order_of_the_queues_gives_the_same_bits_and_no_other_word_is_one(self):
        for name, (config, settings) in list(MOVED.items())[:None if SEEDS else 1]:
            with self.subTest(name):
                self.setUp()
                recipe = self.orders(config, settings)
        done = self.plimsoll("train", recipe, "--device", "emulated", "--overwrite", PLIMSOLL_EMULATED_ORDER="often")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("PLIMSOLL_EMULATED_ORDER: 'often' is no order", done.stderr)

    def captured(self, recipe, graphs, *words):
        """What a run with or without captured graphs leaves: losses, all weights, and what it says of the card."""
        done = self.plimsoll("train", recipe, "--quiet", "--device", "emulated", "--set", f"memory.graphs={graphs}", *(words or ("--overwrite",)))
        self.assertEqual(done.returncode, 0, done.stderr)
        run = self.folder / "run"
        weights = {path.name: path.read_bytes() for path in run.glob("*.safetensors")}
        self.assertGreater(len(weights), 0)
        return [(step["loss"], step["grad_norm"]) for step in steps(run)], weights, json.loads((run / "run.json").read_text())["card"]

    def test_captured_graphs_keep_the_bits_in_the_bytes_that_were_planned(self):
        """Two micro-steps a step, evaluations between them, and a run that goes on."""
        rows = write_rows(self.folder / "eval.jsonl", [{"prompt": pair["prompt"], "response": pair["chosen"]} for pair in pairs(6)])
        more = {"data": {"eval": rows}, "eval": {"every": 1}, "save": {"every": 2}}
        # Packed, a graph is launched with other documents than it was captured with.
        for name, settings in {"full": {"data": {"eval": rows, "packing": True}}, "lora": {"method": {"type": "lora", "r": 4, "dropout": 0.2}},
                               "homes on the host": {"memory": {"offload": ["states", "weights", "activations"]}, "precision": "bf16"}}.items():
            if not self.next_cell_is_mine():
                continue
            with self.subTest(name):
                recipe = tiny_recipe(self.folder, LLAMA, "run", **{**more, **settings})
                losses, weights, card = self.captured(recipe, "off")
                self.assertEqual([card["graphs"], card["planned_graph_bytes"]], [0, 0])
                with_graphs = self.captured(recipe, "on")
                self.assertEqual(with_graphs[:2], (losses, weights))
                plan = json.loads(self.plimsoll("plan", recipe, "--json", "--device", "emulated", "--set", "memory.graphs=on").stdout)
                planned = {one["program"]: one for one in plan["device"]["graphs"]}
                self.assertEqual({one["graphs"] for one in planned.values()}, {1})
                self.assertEqual(set(planned), {"micro-step", "update", "evaluation"})
                card = with_graphs[2]
                self.assertEqual(card["graphs"], 3)
                self.assertEqual(card["graph_nodes"], sum(one["nodes"] for one in planned.values()))
                self.assertGreaterEqual(card["planned_graph_bytes"], card["graph_bytes"])
                self.assertGreater(card["graph_bytes"], 0)
                if name != "lora":
                    continue
                shutil.rmtree(self.folder / f"run/checkpoint-{STEPS}")
                self.assertEqual(self.captured(recipe, "on", "--resume")[:2], (losses, weights))
                shutil.rmtree(self.folder / f"run/checkpoint-{STEPS}")
                self.assertEqual(self.captured(recipe, "off", "--resume")[:2], (losses, weights))

    def test_what_a_disk_moves_is_captured_by_no_graph_and_the_plan_says_so(self):
        recipe = tiny_recipe(self.folder, LLAMA, "run", memory={"disk": "1GiB", "offload": ["states", "activations"]})
        plain = self.captured(recipe, "off")
        self.assertEqual(self.captured(recipe, "on")[:2], plain[:2])
        said = self.plimsoll("plan", recipe, "--device", "emulated", "--set", "memory.graphs=on").stdout
        self.assertIn("none of update: transfers from a disk need the host", " ".join(said.split()))

    @unittest.skipIf(Path("/dev/nvidiactl").exists(), "a driver may be here")
    def test_a_profile_says_where_the_card_was_and_not_when_it_was_asked(self):
        """This order does nothing before the host waits."""
        recipe = tiny_recipe(self.folder, LLAMA, "run")
        done = self.plimsoll("train", recipe, "--quiet", "--device", "emulated", "--profile", PLIMSOLL_EMULATED_ORDER="late")
        self.assertEqual(done.returncode, 0, done.stderr)
        events = json.loads((self.folder / "run/trace.json").read_text())["traceEvents"]
        took = {kind: sum(event["dur"] for event in events if event.get("cat") == kind) for kind in ("micro-step", "update")}
        whole = sum(event["dur"] for event in events if event["name"].startswith("recorded step"))
        self.assertGreater(sum(took.values()), 0.8 * whole, f"{took} of {whole}")

    def test_a_trap_of_a_kernel_ends_a_run_that_goes_on_later_and_names_its_op_where_each_is_waited_for(self):
        recipe = tiny_recipe(self.folder, LLAMA, "trapped", save={"every": 1})
        whole = self.plimsoll("train", recipe, "--quiet", "--device", "emulated", "--set", f"output={self.folder / 'whole'}")
        self.assertEqual(whole.returncode, 0, whole.stderr)
        # Of some 150 launches a micro-step: in the second step or later, where a checkpoint is.
        done = self.plimsoll("train", recipe, "--quiet", "--device", "emulated", PLIMSOLL_EMULATED_TRAP="900")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("the GPU failed: unspecified launch failure", done.stderr)
        self.assertIn("PLIMSOLL_CARD_WAITS=1", done.stderr)
        self.assertRegex(done.stderr, r"the last checkpoint is whole: \S+: --resume continues from there")
        for trap, words in (("20", "there is no checkpoint yet: the run begins again with --overwrite"), ("900", r"the last checkpoint is whole")):
            named = self.plimsoll("train", tiny_recipe(self.folder, LLAMA, f"named{trap}", save={"every": 1}), "--quiet", "--device", "emulated", PLIMSOLL_EMULATED_TRAP=trap, PLIMSOLL_CARD_WAITS="1")
            self.assertEqual(named.returncode, 5, named.stderr)
            self.assertRegex(named.stderr, r"the GPU failed in \w+( of [\w.]+)?: unspecified launch failure")
            self.assertIn(words, named.stderr)
        again = self.plimsoll("train", recipe, "--quiet", "--device", "emulated", "--resume")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual([step["loss"] for step in steps(self.folder / "trapped")], [step["loss"] for step in steps(self.folder / "whole")])

    def test_a_card_that_is_not_there_is_refused_with_what_is_missing(self):
        recipe = tiny_recipe(self.folder, LLAMA, "cuda")
        for words in (("train", recipe), ("plan", recipe), ("train", recipe, "--set", "memory.gpu=H100")):
            done = self.plimsoll(*words, "--device", "cuda")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, r"device: cuda: (this program was built without CUDA|no NVIDIA driver was found)")
            self.assertIn("choose device: cpu (--device cpu)", done.stderr)
        self.assertFalse((self.folder / "cuda").exists())
        done = self.plimsoll("plan", recipe, "--device", "cuda", "--set", "memory.gpu=H100")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_a_kernel_does_not_do_is_refused_by_name(self):
        recipe = tiny_recipe(self.folder, {**T5, "relative_attention_num_buckets": 256, "relative_attention_max_distance": 512}, "emulated",
                             task="seq2seq", data={"max_length": {"source": 24, "target": 16}})
        done = self.plimsoll("train", recipe, "--device", "emulated")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("no kernel for GPUs does this yet: a bias of more than 64 buckets a side", done.stderr)
        self.assertIn("choose device: cpu", done.stderr)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        PLIMSOLL = Path(sys.argv.pop(1)).resolve()
    unittest.main(testLoader=SuiteLoader("emulated_test", ("self.follows", "self.shares", "next_cell_is_mine")))
