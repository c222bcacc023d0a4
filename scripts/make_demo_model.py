#!/usr/bin/env python3
"""Writes demo/model: the shape of the demo's small Llama and its tokenizer, trained on the demo's questions.

There are no weights: the demo trains them from scratch. The tokenizer is byte-level BPE in the form Qwen2 uses
(NFC, its pre-tokenizer expression, digits one by one). Needs the tokenizers package; the result is committed, so
the demo itself needs no Python packages.
"""
import json
import pathlib

import pyarrow.parquet
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "demo" / "model"
END = "<|endoftext|>"
VOCABULARY = 1536  # a multiple of 64: whole tiles in every kernel
QWEN2_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
               r"|\s+(?!\S)|\s+")


def training_text():
    for path in sorted((ROOT / "demo" / "data").glob("*/train.parquet")):
        table = pyarrow.parquet.read_table(path)
        for column in ("prompt", "response"):
            yield from table[column].to_pylist()


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY - 1, min_frequency=2, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(training_text(), trainer)
    tokenizer.add_special_tokens([AddedToken(END, special=True)])
    return tokenizer


def write_json(name, value):
    (OUT / name).write_text(json.dumps(value, indent=2) + "\n")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer()
    end = tokenizer.token_to_id(END)
    tokenizer.save(str(OUT / "tokenizer.json"))
    write_json("config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": 128,
        "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 32, "hidden_act": "silu", "max_position_embeddings": 256, "initializer_range": 0.02,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rope_scaling": None, "attention_bias": False,
        "mlp_bias": False, "tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": end,
        "pad_token_id": None, "dtype": "float32", "use_cache": True})
    write_json("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "bos_token": None, "pad_token": None,
        "clean_up_tokenization_spaces": False, "model_max_length": 256,
        "added_tokens_decoder": {str(end): {"content": END, "lstrip": False, "normalized": False, "rstrip": False,
                                            "single_word": False, "special": True}}})
    write_json("generation_config.json", {"eos_token_id": end, "do_sample": False, "max_new_tokens": 16})
    print(f"demo/model: {tokenizer.get_vocab_size():,} of {VOCABULARY:,} ids used")


if __name__ == "__main__":
    main()
