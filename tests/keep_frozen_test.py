"""What frozen layers say of each row, kept from one epoch to the next, as whole commands: the same bits with and without, resumed, planned, and what
is refused."""
import json
import shlex
import shutil
import unittest

import seq2seq_test
from command_run import as_if_written_by_the_run, CommandTest, ROOT, losses_of, output, run
from shard import SuiteLoader
from scores_test import pairs, sentence, texts, write_rows

USAGE, NO_ROOM, DAMAGED, LOST = 2, 3, 4, 5
FILE = "frozen.rows"


class KeepFrozen(CommandTest):
    needs_run = False
    model = seq2seq_test.Seq2Seq.model

    def recipe(self, name, **changes):
        facts = [{"prompt": f"Say something of the {sentence(i)}.", "response": sentence(i + 1)[:10 + i]} for i in range(44)]
        recipe = {"model": str(ROOT / "demo/model"), "init": "random", "precision": "fp32",
                  "method": {"type": "lora", "r": 4, "layers": [2, 3]},
                  "data": {"train": write_rows(self.folder / "facts.jsonl", facts), "max_length": 48, "eval": 4, "share_prefixes": "off"},
                  "batch": {"effective": 8}, "optimizer": {"lr": 3e-3}, "schedule": {"epochs": 3, "warmup": 1}, "eval": {"every": 4},
                  "memory": {"disk": "1GiB", "keep_frozen": "on", "tie": "1%"}, "output": str(self.folder / name)}
        for key, value in changes.items():
            recipe[key] = {**recipe[key], **value} if isinstance(recipe.get(key), dict) and key != "method" else value
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(recipe))
        return path, self.folder / name

    def trained(self, name, **changes):
        recipe, folder = self.recipe(name, **changes)
        output("train", recipe, "--quiet")
        self.assertFalse((folder / FILE).exists(), "it goes with the end of the run")
        done = json.loads((folder / "run.json").read_text())
        taken, planned = (done[key]["disk_bytes"] for key in ("measured", "planned"))
        self.assertEqual(taken, planned)
        return folder

    def assert_same_bits(self, name, file, **changes):
        kept = self.trained(f"{name}_kept", **changes)
        usual = self.trained(f"{name}_usual", **{**changes, "memory": {"disk": "1GiB", "offload": [], "keep_frozen": "off"}})
        self.assertEqual(losses_of(kept), losses_of(usual))
        self.assertEqual((kept / file).read_bytes(), (usual / file).read_bytes())
        return kept

    def test_adapters_of_the_upper_layers_have_the_same_bits(self):
        for precision in ("fp32", "bf16"):
            self.assert_same_bits(precision, "adapter_model.safetensors", precision=precision)
        self.assert_same_bits("qlora", "adapter_model.safetensors", method={"type": "qlora", "r": 4, "layers": [3]}, batch={"micro": 3})

    def test_frozen_layers_encoders_and_bodies_under_a_head_have_the_same_bits(self):
        full = {"type": "full"}
        self.assert_same_bits("full", "model.safetensors", method={**full, "freeze": ["model.embed_tokens", r"model\.layers\.[01]"]})
        sources = {"train": write_rows(self.folder / "rows.jsonl", seq2seq_test.rows(12)), "eval": 4, "max_length": {"source": 24, "target": 16}}
        self.assert_same_bits("t5", "model.safetensors", task="seq2seq", model=str(self.model()), data=sources,
                              method={**full, "freeze": ["encoder", "shared"]})
        labelled = {"train": write_rows(self.folder / "texts.jsonl", texts(12)), "eval": 4, "max_length": 32}
        self.assert_same_bits("head", "model.safetensors", task="classify", data=labelled,
                              classify={"labels": ["question", "order", "fact"]}, method={**full, "freeze": ["model"]})

    def pairs(self, **changes):
        data = {"train": write_rows(self.folder / "pairs.jsonl", pairs(20)), "eval": 4, "max_length": 64}
        return {"task": "reward", "data": data, "schedule": {"epochs": 2}, **changes}

    def test_both_answers_of_a_pair_are_kept_with_the_same_bits(self):
        freeze = {"type": "full", "freeze": ["model.embed_tokens", r"model\.layers\.[01]"]}
        for name, file, changes in (("score", "model.safetensors", {"method": {"type": "full", "freeze": ["model"]}}),
                                    ("value", "adapter_model.safetensors", {"reward": {"head": "value"}}),
                                    ("dpo", "model.safetensors", {"task": "dpo", "method": freeze}),
                                    ("orpo", "adapter_model.safetensors", {"task": "dpo", "dpo": {"loss": "orpo"}, "batch": {"micro": 3}})):
            self.assert_same_bits(name, file, **self.pairs(**changes))
        often = self.pairs(task="dpo", dpo={"loss": "orpo"}, schedule={"epochs": 10}, memory={"disk": "1GiB", "keep_frozen": "auto"})
        recipe, _ = self.recipe("often", **often)
        self.assertIn("outputs of the frozen blocks kept", json.loads(output("plan", recipe, "--json"))["variant"]["words"])
        self.trained("often", **often)

    def test_records_of_first_answers_alone_are_written_anew(self):
        changes = self.pairs(save={"every": 3})
        whole = self.trained("pairs", **changes)
        recipe, folder = self.recipe("stopped_pairs", **changes, stop={"above": 0.1, "above_steps": 1})
        output("train", recipe, "--quiet", code=LOST)
        kept = (folder / FILE).read_bytes()
        first = kept[:kept.index(b"\n")].replace(b', "records": 2', b"")
        self.assertLess(len(first), kept.index(b"\n"))
        as_if_written_by_the_run(folder, FILE)
        # The form of versions that wrote one record a row, whose mark of the end says that all are there.
        (folder / FILE).write_bytes(first.ljust(kept.index(b"\n")) + kept[kept.index(b"\n"):])
        output("train", recipe, "--quiet", "--resume", "--set", "stop.above=null")
        self.assertEqual((folder / "adapter_model.safetensors").read_bytes(), (whole / "adapter_model.safetensors").read_bytes())

    def test_a_run_that_was_stopped_goes_on_with_what_is_kept(self):
        whole = self.trained("whole", save={"every": 5})
        recipe, folder = self.recipe("resumed", save={"every": 5})
        output("train", recipe, "--quiet")
        shutil.rmtree(folder / "checkpoint-15")
        output("train", recipe, "--quiet", "--resume")
        self.assertEqual((folder / "adapter_model.safetensors").read_bytes(), (whole / "adapter_model.safetensors").read_bytes())

        recipe, folder = self.recipe("stopped", stop={"above": 0.1, "above_steps": 1}, save={"every": 5})
        output("train", recipe, "--quiet", code=LOST)
        kept = (folder / FILE).read_bytes()
        first = kept.index(b"\n") + 1
        shutil.copytree(folder, self.folder / "copy")
        for broken, code in ((kept[:-500], 0), (kept[:first + 4] + b"?" + kept[first + 5:], 0),
                             (kept[:first + 40] + bytes(64) + kept[first + 104:-32], 0),  # a power cut before all was there
                             (kept[:-300] + b"?" + kept[-299:], DAMAGED)):
            shutil.rmtree(folder)
            shutil.copytree(self.folder / "copy", folder)
            (folder / FILE).write_bytes(broken)
            told = output("train", recipe, "--quiet", "--resume", "--set", "stop.above=null", code=code)
            if code == 0:
                self.assertEqual((folder / "adapter_model.safetensors").read_bytes(), (whole / "adapter_model.safetensors").read_bytes())
            else:
                self.assertRegex(told, f"{FILE}: row .* is damaged.*memory.keep_frozen=off")

    def test_it_is_planned_where_the_run_is_sooner_over(self):
        recipe, _ = self.recipe("planned", memory={"disk": "1GiB", "keep_frozen": "auto"}, schedule={"epochs": 10})
        plan = json.loads(output("plan", recipe, "--json"))
        self.assertIn("outputs of the frozen blocks kept", plan["variant"]["words"])
        kept = {part["name"]: part["bytes"] for part in plan["disk"]["components"]}["outputs of the frozen blocks"]
        self.assertEqual(kept, plan["data"]["tokens"] * 128 * 4 + (plan["data"]["rows"] + 1) * 32 + 64)
        off = json.loads(output("plan", recipe, "--json", "--set", "memory.keep_frozen=off"))
        self.assertLess(plan["run"]["seconds"], off["run"]["seconds"])
        self.assertLess(plan["predicted"]["seconds_per_step"], off["predicted"]["seconds_per_step"])
        self.assertIn("frozen", output("plan", recipe))
        for words in (["schedule.epochs=1"], ["memory.disk=0"], ["method.layers=all"], ["method.neftune_alpha=5"], ["data.packing=true"],
                      ["memory.disk=10KiB"]):
            sets = [word for each in words for word in ("--set", each)]
            self.assertNotIn("kept", json.loads(output("plan", recipe, "--json", *sets))["variant"]["words"], words)

    def test_a_disk_that_is_too_small_is_refused_with_commands_that_work(self):
        memory = {"memory": {"disk": "20KiB", "keep_frozen": "on"}}
        for name, changes in (("small", {}), ("tight", {"precision": "bf16", "method": {"type": "full", "freeze": ["model.embed_tokens", r"model\.layers\.[01]"]}})):
            recipe, _ = self.recipe(name, **changes, **memory)
            least = json.loads(run("plan", recipe, "--json").stdout)["disk"]["planned_bytes"]
            text = output("plan", recipe, code=NO_ROOM)
            self.assertIn(f"--set memory.disk={least}B", text)
            self.assertEqual(json.loads(output("plan", recipe, "--json", "--set", f"memory.disk={least}B"))["disk"]["planned_bytes"], least)
            output("plan", recipe, "--set", f"memory.disk={least - 1}B", code=NO_ROOM)
            commands = [line.split("plimsoll plan ")[1] for line in text.splitlines() if "plimsoll plan " in line]
            self.assertIn("same result, with a larger disk", text)
            for command in commands:
                output("plan", *shlex.split(command))

    def test_a_disk_and_a_memory_that_are_both_too_small_are_both_named(self):
        recipe, _ = self.recipe("both", memory={"disk": "20KiB", "device": "48MiB", "keep_frozen": "on"})
        text = output("plan", recipe, code=NO_ROOM)
        self.assertRegex(text, r"does not fit   the process needs .*, 48.0 MiB may be used .*,\n  and what is offloaded needs .* of disk, 20.0 KiB")
        commands = [line.split("plimsoll plan ")[1] for line in text.splitlines() if "plimsoll plan " in line]
        self.assertTrue(commands, text)
        for command in commands:
            output("plan", *shlex.split(command))

    def test_what_cannot_be_kept_is_refused_where_it_is_asked_for(self):
        recipe, _ = self.recipe("refused")
        for words, why in (("memory.disk=0", "memory.disk is 0"), ("method.layers=all", "no block without random draws"),
                           ("method.neftune_alpha=5", "no block without random draws"), ("data.packing=true", "data.packing")):
            self.assertRegex(output("plan", recipe, "--set", words, code=USAGE), f"memory.keep_frozen: on, but .*{why}")


if __name__ == "__main__":
    unittest.main(testLoader=SuiteLoader("keep_frozen_test"))
