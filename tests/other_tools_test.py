"""Recipes written for other tools, and first contact without one: other_tools_test.py PLIMSOLL (standard library only).

Every sample of tests/other_tools is read, its effective recipe compared with what its tool would do, and trained
for two steps from random weights.
"""
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "tests" / "other_tools"
PLIMSOLL = ROOT / "build" / "plimsoll"
MODEL = ROOT / "demo" / "model"

# What each sample means, by key. "data.train" is given by name.
EXPECTED = {
    "llama_factory_lora_sft.yaml": {
        "task": "sft", "method.type": "lora", "method.r": 8, "method.alpha": 16, "method.targets": "all-linear",
        "data.train": "facts.jsonl", "data.format": "alpaca", "data.template": "llama-factory/empty", "data.eval": "10%",
        "data.columns": {"instruction": "question", "output": "answer"}, "data.max_length": 64, "batch.effective": 8,
        "batch.micro": 1, "optimizer.name": "adamw", "optimizer.lr": 1e-4, "schedule.name": "cosine",
        "schedule.warmup": "10%", "schedule.epochs": 3, "precision": "bf16", "eval.every": 500, "eval.micro": 1,
        "save.every": 500, "log.every": 10},
    "llama_factory_full_sft.yaml": {
        "method.type": "full", "precision": "bf16-pure", "batch.effective": 2, "batch.micro": 1,
        "optimizer.lr": 1e-5, "schedule.epochs": 1, "memory.tier": None},
    "llama_factory_freeze.yaml": {
        "method.type": "full", "precision": "bf16-master", "batch.effective": 2, "batch.micro": 1,
        "method.freeze": [r"^(?!.*(?:\.3\.mlp|\.3\.input_layernorm|embed_tokens|^v_head\.|^score\.)).*"]},
    "axolotl_lora.yml": {
        "method.type": "lora", "method.r": 16, "method.alpha": 32, "method.dropout": 0.05,
        "method.targets": "all-linear", "data.train": "facts.jsonl", "data.format": "alpaca",
        "data.template": "axolotl/formats", "data.truncation": "drop", "data.eval": "10%", "data.max_length": 64,
        "batch.effective": 8, "eval.every": "6.25%", "save.every": "25%", "batch.micro": 2,
        "optimizer.name": "adamw8bit", "optimizer.lr": 2e-4, "schedule.warmup": 10, "schedule.epochs": 4,
        "precision": "bf16"},
    "axolotl_qlora.yml": {
        "method.type": "qlora", "method.r": 32, "method.alpha": 16, "method.targets": ["q_proj", "v_proj"],
        "data.train": "notes.jsonl", "data.format": "text", "data.columns": {"text": "text"}, "data.eval": None,
        "batch.effective": 2, "optimizer.name": "adamw", "optimizer.weight_decay": 0.01,
        "schedule.warmup": "axolotl 10%", "data.truncation": "refuse", "data.bos": True},
    "torchtune_lora.yaml": {
        "method.type": "lora", "method.r": 8, "method.alpha": 16,
        "method.targets": ["q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        "data.train": "notes.jsonl", "data.format": "text", "data.max_length": 63, "data.bos": True, "batch.effective": 4,
        "batch.micro": 2, "optimizer.lr": 2e-3, "optimizer.weight_decay": 0.01, "optimizer.max_grad_norm": 0,
        "schedule.name": "cosine", "schedule.warmup": 1, "precision": "bf16", "device": "cpu"},
    "trl_sft.json": {
        "method.type": "lora", "method.r": 4, "method.alpha": 8, "method.dropout": 0.05,
        "data.train": "notes.jsonl", "data.columns": {"text": "text"}, "batch.effective": 4,
        "optimizer.betas": [0.9, 0.95], "schedule.name": "constant", "schedule.warmup": 0, "schedule.max_steps": None,
        "precision": "bf16", "eval.every": 0, "save.every": "epoch", "seed": 7, "data.template": "trl", "data.bos": True,
        "data.train_on_prompt": "messages"},
    "launch.sh": {
        "method.type": "lora", "method.r": 4, "method.alpha": 8, "batch.effective": 32, "batch.micro": 2, "optimizer.lr": 1e-3,
        "schedule.epochs": 1, "schedule.name": "linear", "data.max_length": 64, "data.train": "facts.jsonl", "data.template": "auto",
        "precision": "bf16", "save.every": 500, "log.every": 500},
    "sections.yaml": {
        "method.type": "lora", "method.r": 4, "method.alpha": 8, "method.dropout": 0, "batch.effective": 8, "batch.micro": 2,
        "optimizer.lr": 1e-3, "data.max_length": 64, "precision": "fp32", "seed": 7},
    "script.yaml": {
        "method.type": "lora", "method.r": 4, "method.alpha": 8, "batch.effective": 6, "batch.micro": 2,
        "data.max_length": 48, "optimizer.lr": 1e-3, "schedule.epochs": 2, "data.prefetch": 2},
    "script.json": {
        "method.type": "lora", "method.r": 8, "method.targets": ["q_proj", "k_proj", "v_proj"],
        "data.eval": "notes.jsonl", "eval.every": 50, "eval.micro": 2, "save.every": 100, "save.keep": 3,
        "batch.effective": 4, "memory.tier": None},
    # One for each class of rows and of keys that make recipes finds.
    "llama_factory_qwen.yaml": {
        "data.format": "alpaca", "data.template": "llama-factory/qwen", "method.alpha": 16, "method.r": 8,
        "batch.effective": 4, "schedule.name": "cosine", "schedule.epochs": 3},
    "llama_factory_chat.yaml": {
        "data.format": "messages", "data.template": "llama-factory/llama3", "data.eval": 4, "eval.every": "epoch",
        "save.every": "epoch", "stop.patience": 3, "save.hub": "chat", "precision": "fp32", "optimizer.lr": 5e-5},
    "axolotl_alpaca.yml": {
        "data.format": "alpaca", "data.template": "axolotl/alpaca", "data.truncation": "drop", "data.eval": "20%",
        "method.targets": ["q_proj", "v_proj"], "schedule.warmup": "axolotl", "stop.above": 50, "stop.above_steps": 3,
        "eval.every": "25%", "save.every": "25%", "data.special_tokens": {"eos_token": "<|endoftext|>"}},
    "axolotl_chat.yml": {
        "data.format": "messages", "data.template": "axolotl/chatml", "data.packing": True, "method.type": "full",
        "optimizer.name": "adamw8bit", "data.columns": {"messages": "conversations"},
        "precision": {"weights": "bf16", "gradients": "bf16", "states": "fp32", "master": False, "rounding": "stochastic"}},
    "torchtune_alpaca.yaml": {
        "data.format": "alpaca", "data.template": "torchtune/qwen2-uncut", "data.train_on_prompt": True,
        "data.special_tokens": {"eos_token": "<|im_end|>"},
        "data.max_length": None, "eval.every": 2, "precision": "bf16-pure", "device": "auto"},
    "trl_messages.yaml": {
        "data.template": "trl", "data.train_on_prompt": "messages", "method.targets": ["q_proj", "v_proj"],
        "schedule.name": "cosine", "schedule.min_ratio": 0.1, "method.dropout": 0.05},
    "trl_pairs.yaml": {
        "data.template": "trl", "data.columns": {"prompt": "prompt", "response": "completion"},
        "schedule.max_steps": 20, "precision": "bf16-master"},
    # Preferences, rewards and classes.
    "trl_dpo.yaml": {
        "task": "dpo", "dpo.loss": "ipo", "dpo.beta": 0.2, "method.type": "lora", "method.r": 4, "method.dropout": 0, "data.train": "preferred.jsonl"},
    "torchtune_dpo.yaml": {
        "task": "dpo", "dpo.loss": "sigmoid", "dpo.beta": 0.05, "data.format": "preference", "data.template": "torchtune/llama3",
        "data.columns": {"prompt": "prompt", "chosen": "chosen", "rejected": "rejected"}, "method.type": "lora", "optimizer.weight_decay": 0.05},
    "trl_reward.yaml": {
        "task": "reward", "reward.centering": 0.01, "reward.head": "score", "method.type": "lora", "method.dropout": 0, "data.train": "preferred.jsonl"},
    "axolotl_dpo.yml": {
        "task": "dpo", "dpo.loss": "sigmoid", "dpo.beta": 0.2, "data.format": "preference", "data.template": "axolotl/chatml",
        "data.columns": {"prompt": "asked", "chosen": "better", "rejected": "worse"}, "method.targets": "all-linear"},
    "llama_factory_orpo.yaml": {
        "task": "dpo", "dpo.loss": "orpo", "dpo.beta": 0.2, "method.type": "full", "data.format": "preference",
        "data.template": "llama-factory/qwen"},
    "llama_factory_rm.yaml": {
        "task": "reward", "reward.head": "value", "method.type": "lora", "data.train": "preferred.jsonl"},
    "script_glue.yaml": {
        "task": "classify", "classify.glue": "sst2", "data.train": "opinions.jsonl", "data.max_length": 64, "method.type": "full",
        "precision": "fp32", "log.every": 500, "save.every": 500, "save.keep": "all"},
    "dataclass.yaml": {
        "method.type": "full", "batch.effective": 4, "batch.micro": 4, "precision": "bf16-master",
        "data.max_length": 64, "optimizer.lr": 1e-3},
}


def run(*words, **options):
    environment = {k: v for k, v in os.environ.items() if k != "PLIMSOLL_SET"}
    environment.update(options.pop("env", {}))
    return subprocess.run([str(PLIMSOLL), *map(str, words)], capture_output=True, text=True, timeout=600,
                          env=environment, **options)


def value_of(recipe, key):
    for part in key.split("."):
        recipe = recipe[part]
    return recipe


class OtherToolsTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def test_every_sample_is_expected_here(self):
        samples = {p.name for p in SAMPLES.iterdir() if p.suffix in (".yaml", ".yml", ".json", ".sh")}
        self.assertEqual(samples - {"ds_z3_config.json"}, set(EXPECTED))

    def test_samples_mean_what_their_tools_would_do(self):
        for name, expected in EXPECTED.items():
            done = run("recipe", SAMPLES / name, "--json")
            self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")
            answer = json.loads(done.stdout)
            for key, wanted in expected.items():
                found = value_of(answer["recipe"], key)
                if key in ("data.train", "data.eval") and str(wanted).endswith(".jsonl"):
                    found = found if isinstance(found, str) else found[0]
                    wanted = str(SAMPLES / "data" / wanted)
                self.assertEqual(found, wanted, f"{name}: {key}")
            self.assertEqual(answer["recipe"]["model"], str(MODEL), name)
            report = answer["other_tools"]
            self.assertTrue(report["mapped"], name)
            self.assertTrue(all(line["reason"] for line in report["no_effect"]), name)

    def test_of_two_trainings_a_line_names_one_and_half_an_epoch_is_half_its_steps(self):
        script = SAMPLES / "scripts" / "two.sh"
        done = run("plan", script, "--memory", "1GiB")
        self.assertEqual(done.returncode, 2)
        self.assertIn("starts 2 trainings (lines 4, 5)", done.stderr)
        rows = len((SAMPLES / "data" / "facts.jsonl").read_text().splitlines())
        for line, rate, batch in ((4, 1e-3, 4), (5, 1e-4, 2)):
            recipe = json.loads(run("recipe", f"{script}:{line}", "--json").stdout)["recipe"]
            self.assertEqual((recipe["optimizer"]["lr"], recipe["batch"]["effective"]), (rate, batch))
            self.assertEqual(recipe["schedule"]["epochs"], 0.5)
            planned = json.loads(run("plan", f"{script}:{line}", "--json", "--memory", "1GiB").stdout)["run"]
            an_epoch = -(-rows // batch)
            self.assertEqual((planned["epochs"], planned["steps"]), (0.5, -(-an_epoch // 2)))
            output = self.folder / str(line)
            done = run("train", f"{script}:{line}", "--set", f"output={output}", "--set", "init=random", "--set", "memory=1GiB")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads((output / "run.json").read_text())["steps"], planned["steps"])

    def test_what_a_script_declares_is_trained_by(self):
        output = self.folder / "run"
        done = run("train", SAMPLES / "scripts" / "declared.sh", "--set", f"output={output}", "--set", "init=random", "--set", "memory=1GiB")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("declared.py declares what its command leaves out, and that is taken: use_lora true (line 10), lora_r 4 (line 11)", done.stderr)
        recipe = json.loads(run("recipe", SAMPLES / "scripts" / "declared.sh", "--json").stdout)["recipe"]
        self.assertEqual((recipe["method"]["type"], recipe["method"]["r"], recipe["method"]["alpha"]), ("lora", 4, 8))
        self.assertEqual((recipe["optimizer"]["lr"], recipe["data"]["max_length"], recipe["batch"]["effective"]), (1e-3, 48, 4))
        adapter = json.loads((output / "adapter_config.json").read_text())
        self.assertEqual((adapter["r"], adapter["lora_alpha"]), (4, 8))

    def test_a_script_that_fire_starts_is_trained_by_its_parameters_and_branches_that_its_script_takes(self):
        (self.folder / "settings.sh").write_text("LENGTH=240\nQUICK=true\n")
        (self.folder / "finetune.py").write_text(
            "def train(base_model: str = '', batch_size: int = 4, micro_batch_size: int = 2, learning_rate: float = 1e-3,\n"
            "          cutoff_len: int = 96, lora_r: int = 4, lora_target_modules: List[str] = ['q_proj', 'v_proj']):\n"
            "    config = LoraConfig(r=lora_r, lora_alpha=8)\n"
            "    Trainer(args=TrainingArguments(warmup_steps=1, lr_scheduler_type='cosine'))\n\n\nfire.Fire(train)\n")
        script, output = self.folder / "run.sh", self.folder / "run"
        script.write_text(
            "source ./settings.sh\nMORE=()\nif [ \"$QUICK\" = true ]; then\n  MORE+=(--max_steps 2)\nelse\n  MORE+=(--num_epochs 9)\nfi\n"
            "[ -z \"$LENGTH\" ] || MORE+=(--cutoff_len $LENGTH)\n"
            f"python finetune.py --base_model {MODEL} --data_path {SAMPLES}/data/alpaca.jsonl ${{MORE[@]}} \"$@\"\n")
        done = run("train", script, "--set", f"output={output}", "--set", "init=random", "--set", "memory=1GiB")
        self.assertEqual(done.returncode, 0, done.stderr)
        recipe = json.loads(run("recipe", script, "--json").stdout)["recipe"]
        self.assertEqual((recipe["method"]["type"], recipe["method"]["r"], recipe["method"]["alpha"]), ("lora", 4, 8))
        self.assertEqual((recipe["batch"]["effective"], recipe["data"]["max_length"], recipe["optimizer"]["lr"]), (4, 240, 1e-3))
        self.assertEqual((recipe["schedule"]["name"], recipe["schedule"]["warmup"]), ("cosine", 1))
        self.assertEqual(json.loads((output / "run.json").read_text())["steps"], 2)

    def test_samples_train(self):
        for name in EXPECTED:
            output = self.folder / name
            # The demo's tokenizer has no <|im_end|>.
            own = ["--set", "data.special_tokens=null"] if name == "torchtune_alpaca.yaml" else []
            done = run("train", SAMPLES / name, "--set", "schedule.max_steps=2", "--set", f"output={output}", *own)
            self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")
            self.assertEqual(len((output / "metrics.jsonl").read_text().splitlines()), 2, name)
            self.assertIn("note    keys of", done.stderr)
            if name == "llama_factory_freeze.yaml":  # a state for each weight that trains
                states = (output / "checkpoint-2" / "optimizer.safetensors").read_bytes()
                header = json.loads(states[8:8 + int.from_bytes(states[:8], "little")])
                weights = {key.rsplit(".weight", 1)[0] for key in header if ".weight" in key}
                layer = "model.layers.3."
                self.assertEqual(weights, {"model.embed_tokens", layer + "input_layernorm"}
                                 | {f"{layer}mlp.{part}_proj" for part in ("gate", "up", "down")})
            again = run("plan", "--no-probe", output / "recipe.yaml")  # the effective recipe, in our keys alone
            self.assertEqual((again.returncode, again.stderr), (0, ""), name)

    def test_pairs_are_trained_without_dropout_where_their_tools_set_it_to_0(self):
        for name, more, words, dropout in (
                ("trl_dpo.yaml", "", (), 0), ("trl_dpo.yaml", "disable_dropout: false", (), 0.1), ("trl_dpo.yaml", "disable_dropout: true", (), 0),
                ("trl_dpo.yaml", "", ("--set", "method.dropout=0.2"), 0.2),
                ("trl_reward.yaml", "", (), 0), ("axolotl_dpo.yml", "", (), 0), ("axolotl_lora.yml", "", (), 0.1), ("llama_factory_rm.yaml", "", (), 0.1)):
            text = [line for line in (SAMPLES / name).read_text().splitlines() if not line.startswith("lora_dropout:")]
            recipe = self.folder / name
            recipe.write_text("\n".join([*text, "lora_dropout: 0.1", more]).replace("../../demo/model", str(MODEL)).replace("data/", f"{SAMPLES}/data/")
                              .replace("dataset_dir: data", f"dataset_dir: {SAMPLES}/data"))
            done = run("recipe", recipe, "--json", *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["recipe"]["method"]["dropout"], dropout, (name, more, words))
            told = run("plan", recipe, *words).stderr
            self.assertEqual("trains pairs without dropout" in told, dropout == 0 or words == ("--set", "method.dropout=0.2"), (name, told))

    def test_a_schedule_of_deepspeeds_file_trains_at_its_rates(self):
        (self.folder / "ds.json").write_text(json.dumps({"zero_optimization": {"stage": 2}, "scheduler": {
            "type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}}}))
        text = (SAMPLES / "trl_pairs.yaml").read_text().replace("../../demo/model", str(MODEL)).replace("data/", f"{SAMPLES}/data/")
        recipe, output = self.folder / "r.yaml", self.folder / "run"
        recipe.write_text(text + "deepspeed: ds.json\nwarmup_steps: 4\nlearning_rate: 1.0e-3\n")
        done = run("train", recipe, "--set", "schedule.max_steps=6", "--set", f"output={output}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the scheduler of DeepSpeed's file (WarmupLR) decides", done.stderr)
        rates = [json.loads(line)["lr"] for line in (output / "metrics.jsonl").read_text().splitlines()]
        for rate, wanted in zip(rates, (0, 0, 0.5e-3, 1e-3 * math.log(3) / math.log(4), 1e-3, 1e-3), strict=True):
            self.assertAlmostEqual(rate, wanted, places=9)
        again = run("plan", "--no-probe", output / "recipe.yaml")
        self.assertEqual((again.returncode, again.stderr), (0, ""))

    def test_unknown_keys_are_left_out_by_the_one_command_that_the_refusal_prints(self):
        recipe = self.folder / "r.yaml"
        text = (SAMPLES / "trl_pairs.yaml").read_text().replace("../../demo/model", str(MODEL)).replace("data/", f"{SAMPLES}/data/")
        recipe.write_text(text + "my_helper: 3\ntraining_mood: {good: 1}\n")
        done = run("plan", recipe)
        self.assertEqual(done.returncode, 2)
        printed = re.findall(r"--set (\S+=null)", done.stderr.splitlines()[-1])
        self.assertEqual(printed, ["my_helper=null", "training_mood=null"])
        self.assertEqual(run("plan", recipe, *[w for key in printed for w in ("--set", key)]).returncode, 0)

    def test_plan_reports_on_standard_error_and_in_json(self):
        done = run("plan", SAMPLES / "axolotl_lora.yml", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("note    keys of axolotl:"), 1)
        self.assertIn("'flash_attention: true' has no effect: ", done.stderr)
        report = json.loads(done.stdout)["other_tools"]
        self.assertEqual(report["tool"], "axolotl")
        self.assertIn({"place": f"{SAMPLES / 'axolotl_lora.yml'}:27", "theirs": "lora_r: 16", "ours": "method.r: 16"},
                      report["mapped"])

    def test_a_batch_over_processes_is_told_and_a_run_begun_by_one_process_goes_on(self):
        recipe, output = self.folder / "axolotl.yaml", self.folder / "run"
        recipe.write_text(f"base_model: {MODEL}\ninit: random\nadapter: lora\nlora_r: 2\nlora_alpha: 4\nsequence_len: 48\n"
                          f"datasets: [{{path: {SAMPLES / 'data/facts.jsonl'}, type: {{field_instruction: question, "
                          f"field_output: answer}}}}]\nmicro_batch_size: 1\ngradient_accumulation_steps: 2\n"
                          f"learning_rate: 1e-3\noutput_dir: {output}\n")
        done = run("recipe", recipe)
        self.assertIn("# batch.effective is 2, that of one process; of N processes it is N x 2: --set world_size=N",
                      done.stdout)
        self.assertEqual(len(json.loads(run("recipe", recipe, "--json").stdout)["other_tools"]["notes"]), 1)
        recipe.write_text(recipe.read_text() + "world_size: 3\n")
        # Earlier versions read one process, fp32, and checkpoints at the end.
        before = ("batch.effective=2", "precision=fp32", "save.every=0", "save.keep=2")
        done = run("train", recipe, "--set", "schedule.max_steps=1", *(w for s in before for w in ("--set", s)))
        self.assertEqual(done.returncode, 0, done.stderr)
        done = run("train", recipe, "--resume", "--set", "schedule.max_steps=2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("was begun with batch.effective: 2, as earlier versions read this file, and continues so; a new run has 6",
                      done.stderr)
        kept = (output / "recipe.yaml").read_text()
        self.assertIn("effective: 2\n", kept)
        self.assertIn("precision: fp32\n", kept)
        done = run("train", recipe, "--resume", "--set", "schedule.max_steps=3", "--set", "batch.effective=6")
        self.assertEqual(done.returncode, 2)
        self.assertIn("batch.effective was 2, the recipe says 6", done.stderr)

    def test_a_template_that_is_not_named_is_empty_where_the_model_has_none(self):
        model, rows = self.folder / "model", self.folder / "rows.jsonl"
        shutil.copytree(MODEL, model)
        rows.write_text(json.dumps({"instruction": "one two", "input": "", "output": "three"}) + "\n")
        (self.folder / "dataset_info.json").write_text(json.dumps({"r": {"file_name": "rows.jsonl"}}))
        words = {}
        for template in ("", "template: empty\n"):
            recipe = self.folder / "r.yaml"
            recipe.write_text(f"model_name_or_path: model\nstage: sft\ndataset: r\ndataset_dir: .\ncutoff_len: 64\n{template}")
            done = run("plan", recipe, "--dump", "rows")
            self.assertEqual(done.returncode, 0, done.stderr)
            words[template] = done.stdout
        self.assertEqual(*words.values())
        self.assertNotIn("Below is an instruction", words[""])
        (model / "chat_template.jinja").write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
        done = run("plan", self.folder / "r.yaml", "--dump", "rows", "--set", "template=null")
        self.assertNotEqual(done.stdout, words[""], done.stderr)

    def test_swifts_rows_of_pairs_are_two_conversations(self):
        model = self.folder / "model"
        shutil.copytree(MODEL, model)
        (model / "chat_template.jinja").write_text(
            "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}"
            "{% else %}<{{ m.content }}>{% endif %}{% endfor %}")
        def turn(role, content):
            return {"role": role, "content": content}
        asked = [turn("user", "one"), turn("assistant", "two"), turn("user", "three")]
        chosen, rejected = asked + [turn("assistant", "four")], asked + [turn("assistant", "five")]
        told = {}
        for name, row in {"pairs": {"chosen": chosen, "rejected": rejected}, "answer": {"messages": chosen, "rejected_response": "five"},
                          "messages": {"messages": chosen, "rejected_messages": rejected}}.items():
            (self.folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
            for kind in ("dpo", "rm"):
                script = self.folder / "t.sh"
                script.write_text(f"swift rlhf --rlhf_type {kind} --model model --dataset rows.jsonl --max_length 64 --output_dir out\n")
                done = run("plan", script, "--dump", "rows")
                self.assertEqual(done.returncode, 0, done.stderr)
                told[name, kind] = done.stdout
        for kind in ("dpo", "rm"):
            self.assertEqual(len({told[name, kind] for name in ("pairs", "answer", "messages")}), 1, told)

    def test_rows_of_torchtune_begin_with_its_system_message_and_answers_of_pairs_end_with_a_token_that_is_no_target(self):
        pairs = run("plan", SAMPLES / "torchtune_dpo.yaml", "--dump", "rows")
        self.assertEqual(pairs.returncode, 0, pairs.stderr)
        for line in map(json.loads, pairs.stdout.splitlines()):
            self.assertEqual((line["labels"][-1], line["labels"][-2]), (-100, line["ids"][-2]))
        rows = self.folder / "rows.jsonl"
        rows.write_text(json.dumps({"input": "one", "output": "two"}) + "\n")
        recipe = self.folder / "r.yaml"
        told = {}
        for tokenizer in ("llama3.llama3_tokenizer", "phi3.phi3_mini_tokenizer", "phi4.phi4_tokenizer"):
            for system in ("null", "Be good."):
                recipe.write_text(f"model: {{_component_: torchtune.models.llama3.llama3_8b}}\ncheckpointer: {{checkpoint_dir: {MODEL}}}\n"
                                  f"tokenizer: {{_component_: torchtune.models.{tokenizer}, max_seq_len: 256}}\nbatch_size: 1\n"
                                  f"dataset: {{_component_: torchtune.datasets.instruct_dataset, source: json, data_files: {rows}, "
                                  f"new_system_prompt: {system}}}\n")
                done = run("plan", recipe, "--dump", "rows")
                self.assertEqual(done.returncode, 0, done.stderr)
                told[tokenizer, system] = json.loads(done.stdout)
            usual, begun = told[tokenizer, "null"], told[tokenizer, "Be good."]
            self.assertGreater(len(begun["ids"]), len(usual["ids"]))
            self.assertEqual([x for x in begun["labels"] if x != -100], [x for x in usual["labels"] if x != -100])

    def test_every_checkpoint_of_an_epoch_stays_and_the_best_of_them_ends_the_run(self):
        recipe, output = self.folder / "axolotl.yaml", self.folder / "run"
        rows = self.folder / "rows.jsonl"
        rows.write_text("".join((SAMPLES / "data/facts.jsonl").read_text().splitlines(True)[:8]))
        recipe.write_text(f"base_model: {MODEL}\ninit: random\nadapter: lora\nlora_r: 2\nlora_alpha: 4\nsequence_len: 48\n"
                          f"datasets: [{{path: {rows}, type: {{field_instruction: question, field_output: answer}}}}]\n"
                          f"micro_batch_size: 4\nval_set_size: 0.5\neval_strategy: epoch\nload_best_model_at_end: true\n"
                          f"save_total_limit: -1\nnum_epochs: 6\nlearning_rate: 1e-3\noutput_dir: {output}\n")
        done = run("train", recipe)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(list(output.glob("checkpoint-*"))), 6)
        self.assertRegex(done.stderr, r"note    up to 6 checkpoints of .*, .* of disk in all, stay in .*save.keep: all")

    def test_our_own_recipes_have_no_report(self):
        recipe = ROOT / "demo" / "recipes" / "full.yaml"
        self.assertNotIn("other_tools", json.loads(run("plan", recipe, "--json").stdout))
        self.assertNotIn("#", run("recipe", recipe).stdout)

    def test_a_model_of_the_hub_comes_from_the_cache_or_its_download_command_is_told(self):
        environment = {"HF_HUB_CACHE": str(self.folder / "hub")}
        done = run("plan", "Org/Tiny", "--length", 64, env=environment)
        self.assertEqual(done.returncode, 2)
        self.assertIn("plimsoll fetch Org/Tiny --config-only\n", done.stderr)
        snapshot = self.folder / "hub/models--Org--Tiny/snapshots/0123abc"
        blobs = self.folder / "hub/models--Org--Tiny/blobs"
        blobs.mkdir(parents=True)
        snapshot.mkdir(parents=True)
        for file in MODEL.iterdir():  # files of a snapshot are links
            shutil.copy(file, blobs / file.name)
            (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
        (snapshot.parent.parent / "refs").mkdir()
        (snapshot.parent.parent / "refs/main").write_text("0123abc")
        self.assertEqual(run("plan", "Org/Tiny", "--length", 64, env=environment).returncode, 0)
        output = self.folder / "run"
        done = run("train", SAMPLES / "script.yaml", "--set", "model_name=Org/Tiny", "--set", "schedule.max_steps=1",
                   "--set", f"output={output}", env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_nothing_is_begun_while_data_is_missing(self):
        output = self.folder / "run"
        done = run("train", SAMPLES / "script.yaml", "--set", "train_file=org/rows", "--set", f"output={output}",
                   env={"HF_HUB_CACHE": str(self.folder)})
        self.assertEqual(done.returncode, 2)
        self.assertIn("plimsoll fetch org/rows --dataset", done.stderr)
        self.assertFalse(output.exists())


class FirstContactTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def test_plan_of_a_model_folder_says_the_same_as_set(self):
        card = self.folder / "card"
        card.mkdir()
        shutil.copy(MODEL / "config.json", card)  # config.json alone
        short = run("plan", card, "--json", "--method", "lora", "--rank", 4, "--length", 96, "--memory", "64MiB",
                    "--batch", 6, "--micro-batch", 3, "--precision", "fp32", "--optimizer", "lion")
        self.assertEqual(short.returncode, 0, short.stderr)
        sets = ["method.type=lora", "method.r=4", "data.max_length=96", "memory.device=64MiB", "batch.effective=6",
                "batch.micro=3", "precision=fp32", "optimizer.name=lion"]
        long = run("plan", card, "--json", *(word for s in sets for word in ("--set", s)))
        short, long = json.loads(short.stdout), json.loads(long.stdout)
        self.assertEqual(short["variant"], long["variant"])
        self.assertEqual(short["device"], long["device"])
        self.assertEqual(short["variant"]["effective_batch"], 6)
        self.assertEqual(run("plan", card, "--length", 64, "--memory", "100KiB").returncode, 3)

    def test_the_words_that_people_try_first_are_options(self):
        recipe = self.folder / "r.yaml"
        done = run("init", MODEL, ROOT / "demo/data/facts/train.parquet", "--out", recipe, "--lr", "1e-3", "--epochs", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = run("plan", recipe, "--no-probe", "--json", "--lr", "3e-4", "--epochs", 3, "--output", self.folder / "o")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = run("train", recipe, "--no-probe", "--lr", "3e-4", "--epochs", 1, "--output", self.folder / "o",
                   "--set", "schedule.max_steps=1", "--set", "init=random", "--method", "full")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("note    method.r, method.alpha of the recipe have no effect with method.type: full", done.stderr)
        said = (self.folder / "o/recipe.yaml").read_text()
        self.assertIn("lr: 3e-4\n", said)
        self.assertIn("type: full\n", said)
        self.assertIn("lr: 0.001", recipe.read_text())

    def test_init_decides_before_it_looks_at_what_was_set(self):
        rows = self.folder / "rows.jsonl"
        rows.write_text("".join(json.dumps({"source": f"a river {i}", "target": "b"}) + "\n" for i in range(240)))
        texts = self.folder / "texts.jsonl"
        texts.write_text("".join(json.dumps({"text": f"a river {i}", "label": "ab"[i % 2]}) + "\n" for i in range(240)))
        t5 = ROOT / "examples/seq2seq/model"
        for model, data, words, found in (
                (t5, rows, ["eval.every=100"], "every: 100"),
                (MODEL, texts, ["save.best=accuracy"], "best: accuracy"),
                (MODEL, texts, ["task=classify"], "labels: [a, b]")):
            recipe = self.folder / f"{words[0][:4]}.yaml"
            done = run("init", model, data, "--out", recipe, *(w for s in words for w in ("--set", s)))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(found, recipe.read_text())
            self.assertIn("eval: 2%", recipe.read_text())
            self.assertEqual(run("plan", "--no-probe", recipe).returncode, 0, recipe.read_text())

    def test_init_writes_a_recipe_that_plan_and_train_take(self):
        cases = {"facts.jsonl": ({"question": "a b c", "answer": "d"}, "prompt-response"),
                 "notes.jsonl": ({"text": "some words of text"}, "text"),
                 "ids.jsonl": ({"input_ids": [1, 2, 3, 4]}, "input-ids")}
        for name, (row, row_format) in cases.items():
            (self.folder / name).write_text("".join(json.dumps(row) + "\n" for _ in range(40)))
            for method in ("lora", "full", "qlora"):
                recipe = self.folder / f"{name}-{method}" / "recipe.yaml"
                recipe.parent.mkdir()
                done = run("init", MODEL, self.folder / name, "--out", recipe, "--method", method)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(f"format: {row_format}", recipe.read_text())
                self.assertIn("# ", recipe.read_text())
                self.assertEqual(run("plan", recipe).returncode, 0)
                if method == "full":  # the folder has no weights to put adapters over
                    done = run("train", recipe, "--set", "schedule.max_steps=1")
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertTrue((recipe.parent / "runs" / f"model-{Path(name).stem}-full" / "metrics.jsonl").exists())

    def test_init_finds_the_task_in_columns_and_model(self):
        t5 = ROOT / "examples/seq2seq/model"
        rows = {"kinds": {"text": "a river", "label": "b"}, "grades": {"sentence": "a river", "label": 2.5},
                "pairs": {"prompt": "a", "chosen": " b", "rejected": " c"}, "sources": {"source": "a river", "target": "b"}}
        for name, row in rows.items():
            other = {"kinds": {"label": "a"}, "grades": {"label": 0.5}}.get(name, {})
            (self.folder / f"{name}.jsonl").write_text("".join(json.dumps({**row, **(other if i % 2 else {})}) + "\n" for i in range(20)))
        for model, name, words in ((MODEL, "kinds", "classify: {labels: [a, b]}"), (MODEL, "grades", "classify: {problem: numbers}"),
                                   (MODEL, "pairs", "task: dpo"), (t5, "sources", "task: seq2seq"), (t5, "kinds", "task: classify"),
                                   (t5, "pairs", "task: reward")):
            recipe = self.folder / f"{Path(model).name}-{name}-{words[:8]}.yaml"
            done = run("init", model, self.folder / f"{name}.jsonl", "--out", recipe)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(words, recipe.read_text())
            self.assertEqual(run("plan", recipe).returncode, 0, recipe.read_text())

    def test_batches_of_public_distributed_runs_are_those_worked_out_by_hand(self):
        rows = [line for line in (ROOT / "tests/other_tools/batches.md").read_text().splitlines()
                if line.startswith("| ") and not line.startswith("| File")]
        self.assertGreaterEqual(len(rows), 60)
        script = self.folder / "run.sh"
        for line in rows:
            file, decides, by_hand, here = (cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1])
            *files, command = re.findall("`([^`]*)`", decides)
            for name, text in (one.split(": ", 1) for one in files):
                (self.folder / name).write_text(text)
            script.write_text(command.replace("; ", "\n") + " --model_name_or_path m --learning_rate 1e-5\n")
            # A script's name says another loss than its command: the task is stated, since batches are what is compared.
            done = run("recipe", script, "--json", *(("--set", "task=sft") if " dpo" in command else ()))
            with self.subTest(file, command=command):
                if here.startswith("refused: "):
                    self.assertEqual(done.returncode, 2, done.stdout)
                    self.assertIn(here.removeprefix("refused: "), done.stderr)
                    continue
                self.assertEqual(done.returncode, 0, done.stderr)
                told = json.loads(done.stdout)
                self.assertEqual(told["recipe"]["batch"]["effective"], int(here.removesuffix(" a process")), by_hand)
                notes = json.dumps(told)
                self.assertEqual("that of one process" in notes, here.endswith(" a process"), notes[-600:])
                if not here.endswith(" a process"):  # the sum itself
                    self.assertEqual(eval(by_hand.replace("x", "*").replace("/", "//")), int(here), by_hand)

    def test_init_never_overwrites_and_names_what_it_cannot_use(self):
        recipe = self.folder / "recipe.yaml"
        recipe.write_text("mine")
        data = ROOT / "demo/data/facts/train.parquet"
        done = run("init", MODEL, data, "--out", recipe)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--force", done.stderr)
        self.assertEqual(recipe.read_text(), "mine")
        done = run("init", MODEL, data, "--force", cwd=self.folder)  # --out is recipe.yaml
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2%", recipe.read_text())
        self.assertEqual(run("plan", "recipe.yaml", cwd=self.folder).returncode, 0)
        for words in ((MODEL, self.folder / "none.jsonl"), (self.folder, data), (MODEL, recipe)):
            done = run("init", *words, "--out", self.folder / "other.yaml")
            self.assertEqual(done.returncode, 2, words)
            self.assertFalse((self.folder / "other.yaml").exists())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        PLIMSOLL = Path(sys.argv.pop(1)).resolve()
    unittest.main()
