"""Random small recipes for the load line: families, methods, types, lengths, means and budgets, from one seed.

Everything that a recipe names is made here: a model folder (config.json only, weights are random) and rows of token ids.
"""
import json
import random
from pathlib import Path

DECODERS = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
            "qwen3": "Qwen3ForCausalLM", "smollm3": "SmolLM3ForCausalLM", "gemma2": "Gemma2ForCausalLM",
            "gemma3_text": "Gemma3ForCausalLM", "olmo2": "Olmo2ForCausalLM", "olmo3": "Olmo3ForCausalLM", "granite": "GraniteForCausalLM",
            "ministral": "MinistralForCausalLM", "ministral3": "Ministral3ForCausalLM"}
RECOMPUTE = ("auto", "none", "act", "cheap", "mlp", "attention", "block")
OFFLOADS = ("states", "gradients", "weights", "activations")


def decoder_config(rng, length):
    family = rng.choice(sorted(DECODERS))
    kv_heads = rng.choice((1, 2, 4))
    heads = kv_heads * rng.choice((1, 2, 3))
    head_dim = rng.choice((16, 32, 64))
    config = {"model_type": family, "architectures": [DECODERS[family]], "hidden_size": heads * head_dim,
              "intermediate_size": 32 * rng.randint(2, 16), "num_hidden_layers": rng.randint(1, 8),
              "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": rng.randint(300, 6000),
              "max_position_embeddings": max(length, 64), "rms_norm_eps": 1e-6, "eos_token_id": 1,
              "tie_word_embeddings": rng.random() < 0.5}
    if family.startswith("gemma") or family in ("olmo3", "ministral"):
        config["sliding_window"] = rng.choice((8, 48))
    if family == "mistral":
        config["sliding_window"] = rng.choice((None, 8, 48))
    if family in ("qwen3", "ministral3") or family.startswith("gemma"):
        config["head_dim"] = head_dim
    return config


def gla_config(rng, _length):
    heads = rng.choice((1, 2, 4))
    return {"model_type": "gla", "architectures": ["GLAForCausalLM"], "hidden_size": 64 * heads, "num_heads": heads,
            "intermediate_size": 32 * rng.randint(2, 16), "num_hidden_layers": rng.randint(1, 8), "expand_k": rng.choice((0.5, 1.0)),
            "vocab_size": rng.randint(300, 6000), "eos_token_id": 1, "tie_word_embeddings": rng.random() < 0.5}


def t5_config(rng, _length):
    family, heads, width = rng.choice(("t5", "mt5")), rng.choice((1, 2, 4)), rng.choice((16, 32))
    return {"model_type": family, "architectures": [f"{family.upper()}ForConditionalGeneration"],
            "d_model": 32 * rng.randint(1, 5), "d_kv": width, "num_heads": heads, "d_ff": 32 * rng.randint(2, 16),
            "num_layers": rng.randint(1, 8), "num_decoder_layers": rng.randint(1, 8), "vocab_size": rng.randint(300, 6000),
            "dropout_rate": rng.choice((0.0, 0.1)), "is_encoder_decoder": True, "pad_token_id": 0, "decoder_start_token_id": 0}


def encoder_config(rng, length):
    heads, head_dim = rng.choice((1, 2, 4)), rng.choice((16, 32))
    return {"model_type": rng.choice(("bert", "roberta")), "hidden_size": heads * head_dim, "num_attention_heads": heads,
            "intermediate_size": 32 * rng.randint(2, 16), "num_hidden_layers": rng.randint(1, 8), "pad_token_id": 0,
            "vocab_size": rng.randint(300, 6000), "max_position_embeddings": length + 2,
            "hidden_dropout_prob": rng.choice((0.0, 0.1)), "attention_probs_dropout_prob": rng.choice((0.0, 0.1))}


# Of each model what it learns; half of all recipes are those of decoders that write.
KINDS = ((decoder_config, "sft"),) * 8 + (
    (decoder_config, "reward"), (decoder_config, "classify"), (decoder_config, "dpo"), (gla_config, "sft"), (gla_config, "classify"),
    (t5_config, "seq2seq"), (t5_config, "classify"), (t5_config, "reward"), (encoder_config, "classify"))


def row_of(task, draw, number):
    """`draw()` gives the ids of a text."""
    if task == "reward":
        return {"chosen_input_ids": draw(), "rejected_input_ids": draw()}
    if task == "dpo":
        prompt = draw()
        half = max(1, len(prompt) // 2)
        return {"prompt_input_ids": prompt[:half], "chosen_input_ids": prompt[half:] + [1], "rejected_input_ids": [2, *prompt[half:]]}
    if task == "seq2seq":
        return {"input_ids": draw(), "labels": draw()[:9]}
    return {"input_ids": draw(), **({"label": number % 3} if task == "classify" else {})}


def rows(rng, task, count, longest, vocab):
    """The first row is as long as rows can be: the first batch is the largest."""
    def texts(length):
        return lambda: [rng.randrange(3, vocab) for _ in range(length)]
    lengths = [longest] + [rng.randint(2, longest) for _ in range(count - 1)]
    return [row_of(task, texts(length), number) for number, length in enumerate(lengths)]


def method(rng, decodes):
    kind = rng.choice(("full", "full", "lora", "lora", "qlora"))
    if kind == "full":
        freeze = {"freeze": [rng.choice((r"embed\w+", r"layers\.[0-2]", r"mlp"))]} if decodes and rng.random() < 0.3 else {}
        return {"type": "full", **freeze}
    options = {"type": kind, "r": rng.choice((2, 4, 8)), "dropout": rng.choice((0.0, 0.0, 0.2))}
    if decodes and rng.random() < 0.3:
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
    make_config, task = rng.choice(KINDS)
    config = make_config(rng, length)
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model/config.json").write_text(json.dumps(config))
    with open(folder / "rows.jsonl", "w", encoding="utf-8") as out:
        for row in rows(rng, task, rng.randint(8, 30), rng.choice((length, 2 * length)), config["vocab_size"]):
            out.write(json.dumps(row) + "\n")
    train = method(rng, make_config in (decoder_config, gla_config))
    effective = rng.randint(1, 8)
    settings = {
        "model": str(folder / "model"), "init": "random", "method": train,
        "task": task, "data": {"train": str(folder / "rows.jsonl"), "max_length": length},
        "batch": {"effective": effective}, "optimizer": optimizer(rng, train["type"] == "full"),
        "schedule": {"max_steps": rng.randint(2, 4), "warmup": 1},
        "precision": rng.choice(("fp32", "bf16", "bf16", "bf16-master", "bf16-pure")),
        "memory": memory(rng), "save": {"every": rng.choice((0, 2)), "keep": 1}, "output": str(folder / "run")}
    if task == "classify":
        settings["classify"] = {"labels": ["one", "two", "three"]}
    if task in ("classify", "reward"):
        settings["memory"].pop("loss_chunk", None)  # no logits over the vocabulary
    if task == "seq2seq":
        settings["data"]["max_length"] = {"source": length, "target": 12}
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
