"""The tiny random models that parity is checked on: every family and every variant of it that Plimsoll runs."""
from dataclasses import dataclass, field

import torch
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config, SmolLM3Config

SHAPE = dict(vocab_size=512, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-6, tie_word_embeddings=False,
             # Ten times transformers' default: logits far enough apart that an error in one layer shows.
             initializer_range=0.2, bos_token_id=None, eos_token_id=None, pad_token_id=None)
LENGTHS = (24, 9, 17, 2)  # of the batch; longer than the sliding window and than dynamic RoPE's first range


@dataclass(frozen=True)
class Case:
    name: str
    config: object
    storage: torch.dtype = torch.float32  # of the weight files
    shard: str = "10GB"                   # largest weight file
    lengths: tuple = LENGTHS
    lora: dict = field(default_factory=lambda: dict(r=4, lora_alpha=8))
    prompts: tuple = (5, 9)               # lengths of the prompts for greedy generation
    new_tokens: int = 16


def shaped(config, **changes):
    return config(**{**SHAPE, **changes})


def rope(kind, **parameters):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=10000.0, **parameters))


LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
YARN = rope("yarn", factor=4.0, original_max_position_embeddings=16)
# The base grows beyond 16 positions. With a cache, transformers keeps keys turned with an older base, so greedy
# generation is compared only inside the first range.
DYNAMIC = dict(max_position_embeddings=16, **rope("dynamic", factor=2.0))

CASES = {case.name: case for case in (
    Case("llama", shaped(LlamaConfig)),
    Case("llama_tied_biased", shaped(LlamaConfig, tie_word_embeddings=True, attention_bias=True, mlp_bias=True)),
    Case("llama_wide_heads_rslora", shaped(LlamaConfig, head_dim=32), lora=dict(r=4, lora_alpha=8, use_rslora=True)),
    Case("llama_rope_linear", shaped(LlamaConfig, **rope("linear", factor=4.0))),
    Case("llama_rope_dynamic", shaped(LlamaConfig, **DYNAMIC), prompts=(5, 8), new_tokens=8),
    Case("llama_rope_llama3", shaped(LlamaConfig, **LLAMA3)),
    Case("llama_rope_yarn", shaped(LlamaConfig, **YARN)),
    # Token 7 is in the rows: its row of the embedding learns nothing from there, and from a tied head it does.
    Case("llama_padding", shaped(LlamaConfig, pad_token_id=7)),
    Case("qwen2_tied_padding", shaped(Qwen2Config, tie_word_embeddings=True, pad_token_id=7)),
    Case("mistral_window", shaped(MistralConfig, sliding_window=8)),
    Case("mistral_fp16_shards", shaped(MistralConfig, sliding_window=None), storage=torch.float16, shard="100KB"),
    Case("qwen2_tied", shaped(Qwen2Config, tie_word_embeddings=True)),
    Case("qwen2_bf16_shards", shaped(Qwen2Config), storage=torch.bfloat16, shard="100KB"),
    Case("qwen3", shaped(Qwen3Config, head_dim=32)),
    Case("smollm3", shaped(SmolLM3Config, num_hidden_layers=4, tie_word_embeddings=True)),
    Case("smollm3_window", shaped(SmolLM3Config, no_rope_layers=[0, 1], use_sliding_window=True, sliding_window=8)),
)}
