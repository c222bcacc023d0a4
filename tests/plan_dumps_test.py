"""Programs, layouts and tables of plans are those that tests/golden/plan-dumps.json holds the digests of.

A change of structure changes none of them; PLIMSOLL_GOLDEN=write writes the file anew where a change is meant.

Usage: plan_dumps_test.py PLIMSOLL            (from the repository's root; standard library only)
       plan_dumps_test.py PLIMSOLL --beside OTHER   shows the lines where the dumps of two programs differ, and their reports, with
                                                    what the host needs, of fixed plans and of those that the planner chooses
"""
import difflib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from command_run import CommandTest, output, PLIMSOLL, ROOT

GOLDEN = ROOT / "tests/golden/plan-dumps.json"
DUMPS = ("graph", "program", "layout", "table")

COMMON = {"hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 4, "num_attention_heads": 8,
          "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False}
MODELS = {"llama": {"model_type": "llama", "head_dim": 32},
          "mistral": {"model_type": "mistral", "head_dim": 32, "sliding_window": 24},
          "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
          "qwen3": {"model_type": "qwen3", "head_dim": 64},
          "smollm3": {"model_type": "smollm3"},
          "gemma2": {"model_type": "gemma2", "head_dim": 32, "sliding_window": 24},
          "gemma3_text": {"model_type": "gemma3_text", "head_dim": 32, "sliding_window": 24, "sliding_window_pattern": 2},
          "olmo3": {"model_type": "olmo3", "sliding_window": 24},
          "granite": {"model_type": "granite", "logits_scaling": 8, "residual_multiplier": 0.22},
          "t5": {"model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 160, "num_layers": 3, "num_decoder_layers": 4, "num_heads": 4,
                 "dropout_rate": 0.1, "pad_token_id": 0, "decoder_start_token_id": 0},
          "bert": {"model_type": "bert", "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu", "pad_token_id": 0,
                   "num_labels": 3},
          "gla": {"model_type": "gla", "num_heads": 4, "num_key_value_heads": 4, "hidden_act": "swish", "tie_word_embeddings": True}}
DECODERS = ("llama", "mistral", "qwen2", "qwen3")
LORA = ("--method", "lora", "--rank", "4")
QLORA = ("--method", "qlora", "--rank", "4")
# What the planner would choose is said, so that its choices are not what is held fast here; so is the machine.
FIXED = ("--length", "32", "--threads", "2", "--max-isa", "avx2", "--no-probe", "--memory", "64GiB")
CHUNK = ("--set", "memory.loss_chunk=64")
PLAIN = ("--batch", "4", "--micro-batch", "2", "--set", "memory.recompute=none", "--set", "memory.offload=none")
DISK = ("--disk", "1GiB", "--batch", "4", "--micro-batch", "2")
CASES = {
    "llama full": ("llama", "--method", "full", *PLAIN),
    "mistral full": ("mistral", "--method", "full", *PLAIN),
    "qwen2 full": ("qwen2", "--method", "full", *PLAIN),
    "smollm3 lora": ("smollm3", *LORA, *PLAIN),
    **{f"{model} full": (model, "--method", "full", *PLAIN) for model in ("gemma2", "gemma3_text", "olmo3", "granite")},
    "gemma3_text lora, recompute block": ("gemma3_text", *LORA, "--batch", "4", "--micro-batch", "2", "--set", "memory.offload=none",
                                          "--set", "memory.recompute=block"),
    "qwen3 full": ("qwen3", "--method", "full", *PLAIN),
    **{f"llama full, {name}": ("llama", "--method", "full", "--optimizer", name, *PLAIN)
       for name in ("adamw8bit", "lion", "sgd", "adafactor")},
    **{f"qwen2 full, {precision}": ("qwen2", "--method", "full", "--precision", precision, *PLAIN)
       for precision in ("fp32", "bf16-master", "bf16-pure")},
    **{f"{model} lora": (model, *LORA, *PLAIN) for model in DECODERS},
    "llama lora, dropout": ("llama", *LORA, "--set", "method.dropout=0.1", *PLAIN),
    "llama lora, two modules": ("llama", *LORA, "--set", "method.targets=[q_proj, v_proj]", *PLAIN),
    "llama qlora": ("llama", *QLORA, *PLAIN),
    "qwen3 qlora, fp32": ("qwen3", *QLORA, "--precision", "fp32", *PLAIN),
    "llama full, packed": ("llama", "--method", "full", "--set", "data.packing=true", *PLAIN),
    "llama full, chunks": ("llama", "--method", "full", *PLAIN, "--set", "memory.loss_chunk=16"),
    **{f"{model} full, recompute {name}": (model, "--method", "full", "--batch", "4", "--micro-batch", "2",
                                           "--set", "memory.offload=none", "--set", f"memory.recompute={name}")
       for model in ("llama", "qwen3") for name in ("act", "cheap", "mlp", "attention", "block")},
    **{f"llama full, {part} on disk": ("llama", "--method", "full", *DISK, "--set", "memory.recompute=none",
                                       "--set", f"memory.offload=[{part}]")
       for part in ("states", "gradients", "weights", "activations")},
    "llama full, all on disk": ("llama", "--method", "full", *DISK, "--set", "memory.recompute=block",
                                "--set", "memory.offload=[states, gradients, weights, activations]"),
    "qwen3 lora, weights on disk": ("qwen3", *LORA, *DISK, "--set", "memory.recompute=none",
                                    "--set", "memory.offload=[weights]"),
    **{f"{model} {method}, recompute {point}": (model, "--method", method, "--set", "task=seq2seq", "--batch", "4", "--micro-batch", "2",
                                                "--set", "memory.offload=none", "--set", f"memory.recompute={point}")
       for model, method, point in (("t5", "full", "none"), ("t5", "full", "block"), ("t5", "lora", "mlp"))},
    "t5 full, weights and states on disk": ("t5", "--method", "full", "--set", "task=seq2seq", *DISK, "--set", "memory.recompute=none",
                                            "--set", "memory.offload=[weights, states]"),
    "gla full": ("gla", "--method", "full", *PLAIN),
    "gla full, recompute block": ("gla", "--method", "full", "--batch", "4", "--micro-batch", "2", "--set", "memory.offload=none",
                                  "--set", "memory.recompute=block"),
    "bert full, classify": ("bert", "--method", "full", "--set", "task=classify", *PLAIN),
    "llama full, classify": ("llama", "--method", "full", "--set", "task=classify", "--set", "classify.labels=[a, b]", *PLAIN),
    "qwen2 lora, reward": ("qwen2", *LORA, "--set", "task=reward", *PLAIN),
    "llama full, dpo": ("llama", "--method", "full", "--set", "task=dpo", *PLAIN),
    "llama lora, dpo": ("llama", *LORA, "--set", "task=dpo", *PLAIN),
    "llama full, noise": ("llama", "--method", "full", "--set", "method.neftune_alpha=5", *PLAIN),
    "qwen3 lora, dora": ("qwen3", *LORA, "--set", "method.dora=true", *PLAIN),
    "llama full, states on a card's host": ("llama", "--method", "full", "--device", "card", "--batch", "4",
                                            "--micro-batch", "2", "--set", "memory.recompute=none",
                                            "--set", "memory.offload=[states]", "--host-memory", "8GiB"),
}


# Plans that are chosen among alternatives: presets, captured graphs, shared prefixes, outputs of frozen blocks that are kept, and budgets from
# large to none that fits. Compared with those of another program alone: what the planner prefers may change.
ROWS = ("--set", "data.train=rows.jsonl", "--set", "data.format=input-ids", "--set", "data.max_length=96", "--set", "schedule.epochs=3")
UPPER = ("--method", "lora", "--rank", "4", "--set", "method.layers=[2, 3]", "--disk", "1GiB")
HERE = ("--threads", "2", "--max-isa", "avx2", "--no-probe")
CARD = ("--device", "card", "--gpu")
QWEN, MISTRAL = str(ROOT / "examples/qwen2.5-0.5b-lora"), str(ROOT / "examples/mistral-7b-lora")
CHOSEN = {
    **{f"rows, {method}, {memory}": ("llama", *ROWS, "--method", method, "--memory", memory) for method in ("full", "lora")
       for memory in ("64GiB", "130MiB", "100MiB", "60MiB", "20MiB")},
    **{f"preset {preset}, {memory}": (QWEN, "--memory", memory, "--set", f"memory.plan={preset}") for preset in "abc" for memory in ("16GiB", "2GiB")},
    **{f"preset {preset}, rows": ("qwen3", *ROWS, "--method", "full", "--memory", "4GiB", "--set", f"memory.plan={preset}") for preset in "abc"},
    **{f"frozen rows {keep}, prefixes {share}": ("llama", *ROWS, *UPPER, "--memory", "4GiB", "--set", f"memory.keep_frozen={keep}",
                                                 "--set", f"data.share_prefixes={share}") for keep in ("on", "auto", "off") for share in ("auto", "off", "on") if keep != "on" or share != "on"},
    **{f"prefixes {share}, {memory}": ("llama", *ROWS, "--method", "full", "--memory", memory, "--set", f"data.share_prefixes={share}", "--batch", "32")
       for share in ("on", "auto") for memory in ("64MiB", "80MiB", "110MiB")},
    **{f"graphs {graphs}, {card}, {memory}": (model, "--memory", memory, *CARD, card, "--set", f"memory.graphs={graphs}")
       for graphs in ("auto", "on", "off") for model, card, memory in ((QWEN, "RTX 3060 12GB", "auto"), (QWEN, "RTX 3060 12GB", "2GiB"), (MISTRAL, "H200", "auto"))},
    **{f"7b on a card, {more}": (MISTRAL, "--method", "full", *CARD, "RTX 3060 12GB", *more) for more in ((), ("--host-memory", "64GiB"), ("--host-memory", "8GiB"))},
    "full, tight, plan b on a card": (QWEN, "--method", "full", *CARD, "T4 16GB", "--precision", "fp16", "--set", "memory.plan=b"),
    "sweep": ("llama", *ROWS, "--method", "full", "--sweep", "memory=60MiB..1GiB"),
    "compare": ("llama", *ROWS, "--memory", "1GiB", "--compare", "method=full,lora", "--compare", "memory.keep_frozen=auto,on"),
    "longest": ("llama", "--memory", "200MiB", "--max", "length"),
    "explained": ("qwen2", "--memory", "1GiB", "--method", "full", "--explain"),
}


def plan_words(model, *options):
    """Scores of whole sequences have no logits over the vocabulary, and so no chunks of them."""
    scores = "task=classify" in options or "task=reward" in options
    return ("plan", model, *FIXED, *(() if scores else CHUNK), *options)


def write_models(folder):
    for name, keys in MODELS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(COMMON | keys))


def write_rows(path):
    """Rows of many lengths that begin alike."""
    begin = [(7 * i) % 900 + 5 for i in range(30)]
    rows = ([begin + [(11 * i + 5 * j) % 900 + 5 for j in range(5 + 7 * i % 50)] for i in range(64)])
    path.write_text("".join(json.dumps({"input_ids": ids, "labels": [-100] * 30 + ids[30:]}) + "\n" for ids in rows))


def show_reports(programs, folder):
    """Prints where two programs report other plans; whether they do."""
    found = False
    meminfo = folder / "meminfo"
    meminfo.write_text(f"MemAvailable: {48 << 20} kB\n")
    environment = {**os.environ, "PLIMSOLL_NO_PROBE": "1", "PLIMSOLL_MEMINFO": str(meminfo)}
    words = {name: ("plan", *options, *HERE) for name, options in CHOSEN.items()}
    words |= {name: plan_words(model, *options) for name, (model, *options) in CASES.items()}
    for name, one in words.items():
        for form in ((), ("--json",)):
            said = [subprocess.run([program, *one, *form], capture_output=True, text=True, cwd=folder, env=environment) for program in programs]
            assert said[0].returncode in (0, 3), f"{name} {form}: {said[0].stderr}"
            old, new = (f"exit code {done.returncode}\n{done.stdout}{done.stderr}".splitlines() for done in said)
            lines = list(difflib.unified_diff(old, new, f"{name}: {programs[0]}", f"{name}: {programs[1]}", lineterm="", n=0))
            found = found or bool(lines)
            print("\n".join(lines[:40]), end="\n" * bool(lines))
    print(f"{len(words)} reports compared")
    return found


def show_differences(other):
    """Prints them; whether there are some."""
    found = False
    with tempfile.TemporaryDirectory() as folder:
        write_models(Path(folder))
        write_rows(Path(folder) / "rows.jsonl")
        found = show_reports((other, str(PLIMSOLL)), Path(folder))
        for name, (model, *options) in CASES.items():
            for kind in DUMPS:
                words = (*plan_words(model, *options), "--dump", kind)
                old, new = (subprocess.run([program, *words], capture_output=True, text=True, cwd=folder).stdout
                            for program in (other, PLIMSOLL))
                lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), f"{name}, {kind}: {other}",
                                                  f"{name}, {kind}: {PLIMSOLL}", lineterm="", n=0))
                found = found or bool(lines)
                print("\n".join(lines[:40] + ([f"... {len(lines) - 40} lines more"] if len(lines) > 40 else [])), end="\n" * bool(lines))
    return found


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class PlanDumps(CommandTest):
    needs_run = False

    def dumps(self, words):
        model, *options = words
        return {kind: digest(output(*plan_words(self.folder / model, *options), "--dump", kind)) for kind in DUMPS}

    def test_the_dumps_of_fixed_plans_are_those_on_record(self):
        write_models(self.folder)
        found = {name: self.dumps(words) for name, words in CASES.items()}
        if os.environ.get("PLIMSOLL_GOLDEN") == "write":
            GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
        expected = json.loads(GOLDEN.read_text())
        self.assertEqual(list(found), list(expected))
        for name in CASES:
            with self.subTest(name):
                self.assertEqual(found[name], expected[name])

    def dump(self, what, *words, code=0):
        model, *options = words
        return output(*plan_words(self.folder / model, *options), "--dump", what, code=code)

    def test_a_pass_is_dumped_as_it_leaves_the_programs(self):
        write_models(self.folder)
        words = CASES["llama full, all on disk"]
        kept, again = self.dump("differentiate", *words), self.dump("recompute", *words)
        self.assertNotIn(".re f32", kept.replace("bf16", "f32"))
        self.assertIn(".re f32", again.replace("bf16", "f32"))
        self.assertNotIn(" = fetch(", again)
        moved = self.dump("slice-updates", *words)
        self.assertEqual(moved.count("graph "), 1)  # the update alone
        self.assertIn(" = fetch(", moved)
        self.assertNotIn("scratch=", moved)
        self.assertEqual(self.dump("workspaces", *words), self.dump("program", *words))
        self.assertEqual(self.dump("train-all", *words), self.dump("graph", *words) + "\n")

    def test_every_block_is_named_with_its_kind(self):
        write_models(self.folder)
        lines = self.dump("graph", *CASES["llama full"]).splitlines()
        self.assertEqual([line for line in lines if line.startswith("block ")],
                         [f"block {i} model.layers.{i} layer" for i in range(4)])

    def test_passes_that_do_nothing_here_and_names_of_none_are_refused(self):
        write_models(self.folder)
        error = self.dump("offload-weights", *CASES["llama full"], code=2)
        self.assertIn("no program of this plan goes through the pass 'offload-weights'", error)
        error = self.dump("nonsense", *CASES["llama full"], code=2)
        names = error.split("or a pass: ")[1].split("\n")[0].split(", ")
        documented = (ROOT / "docs/reference/formats.md").read_text().split("In the order in which they\nrun: ")[1].split(".\n")[0]
        self.assertEqual(names, [name.strip("`") for name in documented.replace("\n", " ").split(", ")])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--beside"]:
        sys.exit(show_differences(str(Path(sys.argv[2]).resolve())))
    unittest.main()
