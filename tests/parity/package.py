"""Objects of transformers, PEFT and TRL as recipes of plimsoll_ml, and a result that they load: `make parity`.

    python -m tests.parity.package --plimsoll build/plimsoll

Each object gives the plan, to the byte of its table, of the recipe that is written by hand. TRL's are left out where TRL is not installed.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import sys
import tempfile

import torch
from peft import LoraConfig, PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, TrainingArguments

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
import plimsoll_ml as pm  # noqa: E402

SHAPE = {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
         "vocab_size": 151936, "tie_word_embeddings": True, "max_position_embeddings": 32768}
LORA = {"type": "lora", "r": 16, "alpha": 32, "dropout": 0.05, "targets": "all-linear"}
CHECKS = 0


def same(name, ours, by_hand):
    global CHECKS
    CHECKS += 1
    for one, other in zip(ours, by_hand):
        assert one and one == other, f"{name}: the plans differ\n{one[:2000]}\n{other[:2000]}"
    print(f"ok  {name}", flush=True)


def tables(recipe, **options):
    return [pm.dump(recipe, what, memory="16GiB", **options) for what in ("table", "program")]


def refused(name, words, call):
    global CHECKS
    CHECKS += 1
    try:
        call()
    except pm.InputError as error:
        assert words in error.message, error.message
        print(f"ok  {name}: {error.message.splitlines()[0][:100]}", flush=True)
        return
    raise AssertionError(f"{name}: was not refused")


def plans(folder):
    config = AutoConfig.for_model("qwen2", **SHAPE)
    config.save_pretrained(folder / "model")
    model = str(folder / "model")
    adapter = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", lora_dropout=0.05, task_type="CAUSAL_LM")
    same("a config", tables(config, length=512), tables({"model": model}, length=512))
    same("a config that was loaded from a folder", tables(AutoConfig.from_pretrained(model), length=512), tables({"model": model}, length=512))
    same("a config and a LoraConfig", tables(config, peft_config=adapter, length=512), tables({"model": model, "method": LORA}, length=512))
    dora = LoraConfig(r=8, target_modules=["q_proj", "v_proj"], use_dora=True, use_rslora=True)
    by_hand = {"type": "lora", "r": 8, "alpha": 8, "targets": ["q_proj", "v_proj"], "dora": True, "rslora": True}
    same("DoRA with rank-stabilised scale", tables(config, peft_config=dora, length=512), tables({"model": model, "method": by_hand}, length=512))
    with torch.device("meta"):
        whole = AutoModelForCausalLM.from_config(config)
    arguments = TrainingArguments("out", per_device_train_batch_size=4, gradient_accumulation_steps=2, learning_rate=3e-5, use_cpu=True)
    written = {"model": model, "method": {"type": "full"}, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "learning_rate": 3e-5,
               "use_cpu": True}
    same("a model and TrainingArguments", tables(whole, args=arguments, length=512), tables(written, length=512))
    same("a dict beside a config", tables(config, args={"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8}, length=512),
         tables({"model": model, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 8}, length=512))
    refused("a key that is none", "optm", lambda: pm.plan(config, args={"optm": "adamw"}, memory="8GiB"))
    from peft import PrefixTuningConfig
    refused("another adapter", "PREFIX_TUNING", lambda: pm.plan(config, peft_config=PrefixTuningConfig(num_virtual_tokens=4), memory="8GiB"))
    refused("ranks by layer", "rank_pattern", lambda: pm.plan(config, peft_config=LoraConfig(rank_pattern={"q_proj": 4}), memory="8GiB"))
    fits = pm.fit(config, gpu="RTX 3060 12GB", lengths=[512], methods=["lora"])
    assert fits and fits[0]["memory_bytes"] == pm.fit(model, gpu="RTX 3060 12GB", lengths=[512], methods=["lora"])[0]["memory_bytes"]
    return config, adapter, model


def plans_of_trl(config, adapter, model):
    if importlib.util.find_spec("trl") is None:
        print("SKIPPED TRL's objects: trl is not installed", flush=True)
        return
    import trl

    arguments = trl.SFTConfig(output_dir="out", per_device_train_batch_size=2, gradient_accumulation_steps=8, max_length=1024, learning_rate=2e-4,
                              use_cpu=True, bf16=False)
    version = ".".join(trl.__version__.split(".")[:2])
    written = {"model": model, "method": LORA, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 8, "max_length": 1024,
               "learning_rate": 2e-4, "use_cpu": True, "bf16": False}
    same("SFTConfig", tables(config, peft_config=adapter, args=arguments), tables(written, as_=f"trl-{version}"))


def out_of_memory():
    said = []
    try:
        with pm.hf.doctor_on_oom(show=said.append):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 14.74 GiB of which 1.14 GiB is free. "
                                         "Process 9 has 13.59 GiB memory in use. Of the allocated memory 13.20 GiB is allocated by PyTorch, and 250.11 MiB is "
                                         "reserved by PyTorch but unallocated.")
    except torch.OutOfMemoryError as error:
        assert said and "plimsoll doctor" in said[0] and error.__notes__ == said, said
    print("ok  the doctor's verdict is a note of the exception", flush=True)


def loads(folder):
    recipe = {"model": ROOT / "demo/model", "init": "random", "method": {"type": "full"}, "precision": "fp32",
              "data": {"train": ROOT / "demo/data/facts/train.parquet", "max_length": 16}, "schedule": {"max_steps": 2}, "output": folder / "base"}
    base = pm.train(recipe, progress=False)
    model = base.load()
    assert type(model).__name__ == "LlamaForCausalLM" or hasattr(model, "lm_head"), type(model)
    adapter = pm.train({**{key: value for key, value in recipe.items() if key != "init"}, "model": base.folder, "method": {"type": "lora"},
                        "output": folder / "adapter"}, progress=False)
    loaded = adapter.load()
    assert isinstance(loaded, PeftModel), type(loaded)
    assert torch.isfinite(loaded(torch.tensor([[5, 17, 30]])).logits).all()
    print("ok  results are loaded by transformers and PEFT", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plimsoll", required=True)
    options = parser.parse_args()
    os.environ["PLIMSOLL_BINARY"] = str(pathlib.Path(options.plimsoll).resolve())
    os.environ["PLIMSOLL_NO_PROBE"] = "1"
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        plans_of_trl(*plans(folder))
        out_of_memory()
        loads(folder)
    print(json.dumps({"plans_compared_or_refused": CHECKS}))


if __name__ == "__main__":
    main()
