#!/usr/bin/env python3
"""Recounts the parameters of src/models/model-shapes.jsonl with transformers on the meta device (an encoder without its head).

Needs torch and transformers; shapes_test counts with the program's own families.
"""
import json
import pathlib
import sys

import torch
import transformers

transformers.logging.set_verbosity_error()
TEXT = {"gemma3": "gemma3_text", "gemma4": "gemma4_text", "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"}
wrong = 0
for line in (pathlib.Path(__file__).parents[1] / "src/models/model-shapes.jsonl").read_text().splitlines():
    row = json.loads(line)
    config = {key: value for key, value in row["config"].items() if key != "torch_dtype"}
    kind = config.pop("model_type")
    if kind == "gla":  # not in transformers
        continue
    chosen = (transformers.AutoModelForSeq2SeqLM if kind in ("t5", "mt5") else transformers.AutoModel
              if kind in ("bert", "roberta", "xlm-roberta", "modernbert") else transformers.AutoModelForCausalLM)
    with torch.device("meta"):
        model = chosen.from_config(transformers.AutoConfig.for_model(TEXT.get(kind, kind), **config))
    model.tie_weights()
    count = sum(p.numel() for p in model.parameters())
    if kind in ("t5", "mt5") and not config["tie_word_embeddings"]:  # transformers 5 ties them all the same
        count += config["vocab_size"] * config["d_model"]
    if count != row["parameters"]:
        wrong += 1
        print(row["name"], count, row["parameters"])
sys.exit(f"{wrong} wrong" if wrong else 0)
