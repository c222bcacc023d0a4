"""Tiny models of every family with random weights, and recipes of a few steps with them. Standard library only."""
import json
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEPS = 4
T5 = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 32, "d_kv": 8, "d_ff": 64,
      "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4, "relative_attention_num_buckets": 8,
      "relative_attention_max_distance": 16, "dropout_rate": 0.0, "is_encoder_decoder": True, "pad_token_id": 0,
      "decoder_start_token_id": 0}
WORDS = "river stone cloud table paper green seven light horse bread".split()
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
# Decoders with norms elsewhere, windows and RoPE by layer, caps that their logits feel, factors.
BY_LAYER = {"num_hidden_layers": 3, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window": 5}
TODAY = {name: {**LLAMA, "architectures": [architecture], "model_type": family, **changes} for name, family, architecture, changes in (
    ("gemma3", "gemma3_text", "Gemma3ForCausalLM", {**BY_LAYER, "head_dim": 16, "query_pre_attn_scalar": 24, "rope_theta": 1e6,
                                                    "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    ("gemma2", "gemma2", "Gemma2ForCausalLM", {**BY_LAYER, "head_dim": 8, "query_pre_attn_scalar": 4, "initializer_range": 0.2,
                                               "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
    ("olmo3", "olmo3", "Olmo3ForCausalLM", {**BY_LAYER, "tie_word_embeddings": False, "rope_theta": 5e5, "rope_scaling": {
        "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8}}),
    ("granite", "granite", "GraniteForCausalLM", {"embedding_multiplier": 12, "attention_multiplier": 0.25, "residual_multiplier": 0.22,
                                                  "logits_scaling": 8}),
    ("ministral3", "ministral3", "Ministral3ForCausalLM", {"head_dim": 8, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 16.0, "original_max_position_embeddings": 8, "llama_4_scaling_beta": 0.3}}))}
GLA = {"architectures": ["GLAForCausalLM"], "model_type": "gla", "hidden_size": 32, "num_hidden_layers": 2, "num_heads": 2,
       "intermediate_size": 48, "max_position_embeddings": 64, "tie_word_embeddings": True, "initializer_range": 0.05}
DELTA = {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 64, "tie_word_embeddings": True,
         "initializer_range": 0.05, "full_attention_interval": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
         "linear_value_head_dim": 8}
BERT = {"architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 64, "type_vocab_size": 2, "vocab_size": 1600, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1, "layer_norm_eps": 1e-12}
# What changes where tensors are and when they are made, and no bit of the result.
LOSSLESS = (["--no-reuse"], ["--poison", "--set", "memory.recompute=block"], ["--set", "memory.disk=1GiB", "--set", "memory.offload=[states, activations]"],
            ["--set", "memory.offload=[states, gradients, weights, activations]"])


def sentence(i):
    return " ".join(WORDS[(i * step + step) % len(WORDS)] for step in (1, 3, 7))


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def pairs(count):
    """The better answer thanks, the worse one refuses."""
    return [{"prompt": f"Say something of the {sentence(i)}.", "chosen": f" Thank you, {sentence(i + 1)}, gladly.",
             "rejected": f" No. {sentence(i + 2)} is nothing to me."} for i in range(count)]


def texts(count):
    kinds = {"question": "What is the {}?", "order": "Bring me the {} now!", "fact": "The {} is there."}
    return [{"text": kinds[kind].format(sentence(i)), "label": kind} for i in range(count) for kind in kinds]


def sources(count):
    """What kind of sentence the source is."""
    kinds = {"question": "What is the {}?", "order": "Bring me the {} now!", "fact": "The {} is there."}
    return [{"source": text.format(sentence(i)), "target": f"This is a {kind}."} for i in range(count) for kind, text in kinds.items()]


def model(folder, config):
    """A folder of a model of the demo's words, or of BERT's."""
    if folder.exists():
        return folder
    folder.mkdir()
    vocab = json.loads((ROOT / "demo/model/config.json").read_text())["vocab_size"]
    (folder / "config.json").write_text(json.dumps({"vocab_size": vocab, "eos_token_id": 0, "pad_token_id": 0, **config}))
    if config["model_type"] == "bert":
        shutil.copy(ROOT / "tests/golden/tokenizers/bert_cased.json", folder / "tokenizer.json")
    else:
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(ROOT / "demo/model" / file, folder)
    return folder


# Among plans that tie by more, one may cut the loss into other chunks than another, whose sums are rounded differently.
CLOSE = {"tie": "1%"}


def tiny_recipe(folder, config, name, **settings):
    """The path of a recipe of a few steps of such a model, whose output is folder/name."""
    rows = {"reward": pairs, "dpo": pairs, "seq2seq": sources, "classify": texts}.get(settings.get("task"))
    rows = rows(8) if rows else [{"prompt": pair["prompt"], "response": pair["chosen"]} for pair in pairs(16)]
    content = {"model": str(model(folder / "model", config)), "init": "random", "method": {"type": "full"}, "precision": "fp32",
               "batch": {"effective": 4, "micro": 2}, "optimizer": {"lr": 3e-3}, "schedule": {"max_steps": STEPS, "warmup": 1},
               "output": str(folder / name), **settings,
               "data": {"train": write_rows(folder / "rows.jsonl", rows), "max_length": 48, **settings.get("data", {})},
               "memory": {**CLOSE, **settings.get("memory", {})}}
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content))
    return path


def golden_recipe(golden, folder, name, **settings):
    """The same of the model and the rows whose losses PyTorch computed."""
    train = json.loads((golden / "expected.json").read_text())["train"]
    content = {"model": str(golden / "model"), "precision": "fp32",
               "data": {"train": str(golden / "train.jsonl"), "format": "input-ids", "shuffle": False, "max_length": 64},
               "batch": {"effective": train["rows_per_step"], "micro": 3}, "optimizer": train["optimizer"],
               "schedule": {"name": "cosine", "warmup": train["warmup_steps"], "epochs": 1}, "output": str(folder / name), **settings,
               "memory": {**CLOSE, **settings.get("memory", {})}}
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content))
    return path


def steps(output):
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
