"""Random small recipes for the load line: families, methods, types, lengths, means and budgets, from one seed.

Everything that a recipe names is made here: a model folder (config.json only, weights are random) and rows of token ids.
"""
import json
import random
from pathlib import Path

FAMILIES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
            "qwen3": "Qwen3ForCausalLM"}
RECOMPUTE = ("auto", "none", "act", "cheap", "mlp", "attention", "block")
OFFLOADS = ("states", "gradients", "weights", "activations")


def model_config(rng, length):
    family = rng.choice(sorted(FAMILIES))
    kv_heads = rng.choice((1, 2, 4))
    heads = kv_heads * rng.choice((1, 2, 3))
    head_dim = rng.choice((16, 32, 64))
    config = {"model_type": family, "architectures": [FAMILIES[family]], "hidden_size": heads * head_dim,
              "intermediate_size": 32 * rng.randint(2, 16), "num_hidden_layers": rng.randint(1, 8),
              "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": rng.randint(300, 6000),
              "max_position_embeddings": max(length, 64), "rms_norm_eps": 1e-6, "eos_token_id": 1,
              "tie_word_embeddings": rng.random() < 0.5}
    if family == "mistral":
        config["sliding_window"] = rng.choice((None, 8, 48))
    if family == "qwen3":
        config["head_dim"] = head_dim
    return config


def rows(rng, count, longest, vocab):
    """The first row is as long as rows can be: the first batch is the largest."""
    lengths = [longest] + [rng.randint(2, longest) for _ in range(count - 1)]
    return [{"input_ids": [rng.randrange(vocab) for _ in range(length)]} for length in lengths]


def method(rng):
    kind = rng.choice(("full", "full", "lora", "lora", "qlora"))
    if kind == "full":
        return {"type": "full"}
    options = {"type": kind, "r": rng.choice((2, 4, 8)), "dropout": rng.choice((0.0, 0.0, 0.2))}
    if rng.random() < 0.3:
        options["targets"] = ["q_proj", "v_proj"]
    return options


def optimizer(rng, full):
    name = rng.choice(("adamw",) * 4 + (("adamw8bit", "lion", "sgd", "adafactor") if full else ("adamw8bit", "lion")))
    return {"name": name, "lr": 1e-3 if name != "lion" else 1e-4, "max_grad_norm": rng.choice((0.0, 1.0))}


def memory(rng):
    options = {"recompute": rng.choice(("auto",) * 4 + RECOMPUTE)}
    if rng.random() < 0.5:
        options["disk"] = "1GiB"
        if rng.random() < 0.6:
            options["offload"] = rng.sample(OFFLOADS, rng.randint(1, len(OFFLOADS)))
    if rng.random() < 0.3:
        options["loss_chunk"] = rng.choice((8, 32, 256))
    return options


def write_recipe(folder, seed):
    """Writes recipe number `seed` into `folder` and returns (path, settings)."""
    rng = random.Random(seed)
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    length = rng.choice((12, 40, 96, 200, 384))
    config = model_config(rng, length)
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model/config.json").write_text(json.dumps(config))
    with open(folder / "rows.jsonl", "w", encoding="utf-8") as out:
        for row in rows(rng, rng.randint(6, 30), rng.choice((length, 2 * length)), config["vocab_size"]):
            out.write(json.dumps(row) + "\n")
    train = method(rng)
    effective = rng.randint(1, 8)
    settings = {
        "model": str(folder / "model"), "init": "random", "method": train,
        "data": {"train": str(folder / "rows.jsonl"), "format": "input-ids", "max_length": length},
        "batch": {"effective": effective}, "optimizer": optimizer(rng, train["type"] == "full"),
        "schedule": {"max_steps": rng.randint(2, 4), "warmup": 1},
        "precision": rng.choice(("fp32", "bf16", "bf16", "bf16-master", "bf16-pure")),
        "memory": memory(rng), "save": {"every": rng.choice((0, 2)), "keep": 1}, "output": str(folder / "run")}
    if train["type"] == "qlora":
        settings["precision"] = rng.choice(("fp32", "bf16"))
    elif settings["optimizer"]["name"] in ("adamw8bit", "adafactor") and train["type"] == "full":
        settings["precision"] = rng.choice(("fp32", "bf16", "bf16-master"))  # their states are small without bf16
    if rng.random() < 0.6:
        settings["data"]["eval"] = "20%"
        settings["eval"] = {"every": rng.choice((0, 1)), "micro": rng.choice(("auto", 1, 2))}
    if rng.random() < 0.4:
        settings["batch"]["micro"] = rng.randint(1, effective)
    path = folder / "recipe.json"
    path.write_text(json.dumps(settings, indent=1))
    return path, settings
