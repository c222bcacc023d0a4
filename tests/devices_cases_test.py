"""Every family, task and method on several devices: 20 steps have the losses of one device.

Usage: devices_cases_test.py PLIMSOLL [--all] (from the repository's root). Half of the cases run, each on one of two, three and four processes that divide states,
gradients or weights; `--all` runs all of them on each number of processes, which divide weights, and states or gradients (make devices-cases, some minutes). Standard library only; skipped where Open MPI is not installed.
"""
import functools
import json
import shutil
import sys
import unittest
import zlib

import command_run
from command_run import ROOT, CommandTest, losses_of, output
from several_devices_test import MPIRUN, PLUGIN
from shard import SHARDS, is_mine
from small_models import sources, pairs, texts, write_rows

sys.path.insert(0, str(ROOT / "scripts"))
from write_reference import TINY  # noqa: E402: a tiny model of each family

ALL = "--all" in sys.argv
if ALL:
    sys.argv.remove("--all")
STEPS = 20
CLOSE = 1e-5  # of fp32, of losses above 1 their share: a T5 with random weights begins with 29
COUNTS = (2, 3, 4)
STAGES = ("states", "gradients", "weights")
ENCODERS = ("bert", "roberta", "xlm-roberta", "modernbert")
WRAPPED = tuple(name for name, (_, config) in TINY.items() if "text_config" in config)  # they train their text part, which is a family of its own
LORA, QLORA = {"type": "lora", "r": 4}, {"type": "qlora", "r": 4}
# Matrices that four processes divide, in whole blocks of 4 bits.
WIDE = {"hidden_size": 64, "intermediate_size": 128}
WIDE_T5 = {"d_model": 64, "d_kv": 16, "d_ff": 128}
TASKS = {"reward": {"task": "reward"}, "dpo": {"task": "dpo"}, "ipo": {"task": "dpo", "dpo": {"loss": "ipo"}}, "orpo": {"task": "dpo", "dpo": {"loss": "orpo"}},
         "classify": {"task": "classify", "classify": {"labels": ["question", "order", "fact"]}}, "pretrain": {"task": "pretrain"}, "mlm": {"task": "mlm"}}
OF_DECODERS = [name for name in TASKS if name != "mlm"]


def cases():
    """{name: (model type, settings)}: every family in full and with adapters, every task so, and 4 bits."""
    found = {}
    for name in TINY:
        if name in WRAPPED:
            continue
        own = {"task": "seq2seq"} if name in ("t5", "mt5") else TASKS["classify"] if name in ENCODERS else {}
        found[f"{name} full"] = name, own
        found[f"{name} lora"] = name, {**own, "method": LORA}
    for model_type, task in (*(("llama", task) for task in OF_DECODERS), *((name, "mlm") for name in ENCODERS)):
        found[f"{model_type} {task} full"] = model_type, TASKS[task]
        found[f"{model_type} {task} lora"] = model_type, {**TASKS[task], "method": LORA}
    for name in ("llama", "qwen3", "gemma3_text", "phi3", "olmo2", "qwen3_5_text"):
        found[f"{name} qlora"] = name, {"method": QLORA}
    found["llama reward qlora"] = "llama", {**TASKS["reward"], "method": QLORA}
    found["t5 qlora"] = "t5", {"task": "seq2seq", "method": QLORA}
    return found


def chosen(name):
    """The numbers of processes that a case runs on; none where another slice has it, or where `--all` alone runs it: all of them take minutes."""
    key = zlib.crc32(name.encode())
    if ALL:
        return COUNTS
    return (COUNTS[key // SHARDS % SHARDS],) if key % 2 == 0 and is_mine("devices_cases", key // 2) else ()


@unittest.skipUnless(PLUGIN.exists() and MPIRUN, "Open MPI is not installed: scripts/setup.sh --dev")
class EveryCase(CommandTest):
    needs_run = False

    def recipe(self, model_type, settings):
        architecture, config = TINY[model_type]
        changes = WIDE_T5 if model_type in ("t5", "mt5") else WIDE
        model = self.folder / "model"
        model.mkdir()
        encodes = model_type in ENCODERS
        vocab = 1600 if encodes else json.loads((ROOT / "demo/model/config.json").read_text())["vocab_size"]
        (model / "config.json").write_text(json.dumps({"model_type": model_type, "architectures": [architecture], "eos_token_id": 0, "pad_token_id": 0,
                                                       "vocab_size": vocab, **config, **changes}))
        shutil.copy(ROOT / ("tests/golden/tokenizers/bert_cased.json" if encodes else "demo/model/tokenizer.json"), model / "tokenizer.json")
        kind = settings.get("task", "sft")
        rows = {"seq2seq": sources, "classify": texts}.get(kind, pairs)(8)
        if kind == "sft":
            rows = [{"prompt": pair["prompt"], "response": pair["chosen"]} for pair in rows]
        if kind in ("pretrain", "mlm"):
            rows = [{"text": pair["prompt"] + pair["chosen"]} for pair in rows]
        path = self.folder / "recipe.json"
        path.write_text(json.dumps({
            "model": str(model), "init": "random", "method": {"type": "full"}, "precision": "fp32",
            "data": {"train": write_rows(self.folder / "rows.jsonl", rows), "max_length": 48}, "batch": {"effective": 8}, "optimizer": {"lr": 1e-3},
            "schedule": {"max_steps": STEPS, "warmup": 2}, "memory": {"tie": "1%"}, **settings}))
        return path

    def train(self, recipe, devices, stage="auto"):
        """The losses, and the bytes that the first process sent."""
        out = self.folder / f"{stage}-on-{devices}"
        copies = ("--set", "memory.node_copy=false") if stage == "weights" else ()  # else what is frozen is there once, and is not divided
        output("train", recipe, "--devices", devices, "--threads", 1, "--quiet", "--set", f"output={out}", "--set", f"memory.shard={stage}", *copies)
        ranks = json.loads((out / "run.json").read_text()).get("ranks", [])
        return losses_of(out), ranks[0]["sent_bytes"] if ranks else 0

    def check(self, name, counts):
        recipe = self.recipe(*cases()[name])
        alone, _ = self.train(recipe, 1)
        self.assertEqual(len(alone), STEPS)
        worst = {}
        for count in counts:
            key = zlib.crc32(name.encode()) + count
            sent = {}
            for stage in (STAGES[key % 2], "weights") if ALL else (STAGES[key % len(STAGES)],):
                found, sent[stage] = self.train(recipe, count, stage)
                self.assertEqual(len(found), STEPS)
                worst[count, stage] = max(abs(own - other) / max(1, own) for own, other in zip(alone, found))
            if ALL:  # so that something was cut
                self.assertGreater(sent.pop("weights"), *sent.values())
        if ALL:
            print(f"{name:28}" + "".join(f"  {stage} on {count}: {value:.1e}" for (count, stage), value in worst.items()), flush=True)
        self.assertLess(max(worst.values()), CLOSE, worst)


for case in cases():
    if chosen(case):
        setattr(EveryCase, "test_" + case.replace(" ", "_"), functools.partialmethod(EveryCase.check, case, chosen(case)))


class Slices(unittest.TestCase):
    def test_every_family_is_among_the_cases(self):
        self.assertEqual({model_type for model_type, _ in cases().values()} | set(WRAPPED), set(TINY))


if __name__ == "__main__":
    command_run.main()
