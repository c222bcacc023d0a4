"""The tiny random models that parity is checked on: every family and every variant of it that Plimsoll runs."""
from dataclasses import dataclass, field

import torch
from transformers import (BertConfig, Gemma2Config, Gemma3Config, Gemma3TextConfig, GraniteConfig, LlamaConfig, MinistralConfig, Ministral3Config, Mistral3Config, MistralConfig, ModernBertConfig, Olmo2Config, Olmo3Config, Phi3Config,
                          Qwen2Config, Qwen3_5Config, Qwen3_5TextConfig, Qwen3Config, Qwen3NextConfig, RobertaConfig, SmolLM3Config)

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
    renamed: tuple = ()                   # (from, to) of the beginnings of names in the weight files


def shaped(config, **changes):
    return config(**{**SHAPE, **changes})


def rope(kind, **parameters):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=10000.0, **parameters))


LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
YARN = rope("yarn", factor=4.0, original_max_position_embeddings=16)
# A part of each head turns (6 of 8 pairs); some rows, and some answers on their way, are longer than the 16 tokens at which frequencies change.
LONGROPE = dict(head_dim=16, original_max_position_embeddings=16, partial_rotary_factor=0.75, **rope(
    "longrope", partial_rotary_factor=0.75, original_max_position_embeddings=16,
    short_factor=[1.0, 1.05, 1.1, 1.2, 1.4, 1.8], long_factor=[1.1, 1.7, 2.4, 3.5, 5.0, 8.0]))
# The base grows beyond 16 positions. With a cache, transformers keeps keys turned with an older base, so greedy
# generation is compared only inside the first range.
DYNAMIC = dict(max_position_embeddings=16, **rope("dynamic", factor=2.0))

# Windows and RoPE by layer: full layers are scaled, sliding ones are not. Rows are longer than the windows.
BY_LAYER = dict(num_hidden_layers=3, sliding_window=8, layer_types=["sliding_attention", "full_attention", "sliding_attention"])
GEMMA = dict(head_dim=32, tie_word_embeddings=True, **BY_LAYER)
GEMMA3_ROPES = dict(rope_parameters={"full_attention": dict(rope_type="linear", rope_theta=1e6, factor=8.0),
                                     "sliding_attention": dict(rope_type="default", rope_theta=10000.0)})
OLMO3_ROPES = dict(rope_parameters={"full_attention": dict(rope_type="yarn", rope_theta=5e5, factor=8.0, original_max_position_embeddings=8),
                                    "sliding_attention": dict(rope_type="default", rope_theta=5e5)})
# Caps that logits of these models reach.
CAPS = dict(attn_logit_softcapping=2.0, final_logit_softcapping=1.5)
FACTORS = dict(embedding_multiplier=12, attention_multiplier=0.0078125, residual_multiplier=0.22, logits_scaling=8)

# A small tower for images, which the text never reads.
TOWER = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14)
TOKENS_OF_IMAGES = dict(image_token_index=500)


# Long contexts: rows, and an answer on its way, go beyond a window of 64 and beyond 64 original positions.
LONG_CONTEXT = dict(lengths=(24, 96, 70, 2), prompts=(56, 9))

# The gated delta rule, with rows longer than a chunk.
DELTA = dict(num_hidden_layers=4, head_dim=32, max_position_embeddings=128, linear_num_key_heads=2, linear_num_value_heads=4,
             linear_key_head_dim=32, linear_value_head_dim=16, linear_conv_kernel_dim=4)
LONGER = dict(lengths=(24, 70, 9, 2))


def wrapped(config, text, tower, **changes):
    text = text.to_dict()
    return config(text_config=text, vision_config=tower if "depth" in tower else {**TOWER, **tower}, tie_word_embeddings=text["tie_word_embeddings"], **TOKENS_OF_IMAGES, **changes)


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
    Case("gemma3", shaped(Gemma3TextConfig, query_pre_attn_scalar=48, **GEMMA, **GEMMA3_ROPES)),
    Case("gemma3_capped", shaped(Gemma3TextConfig, final_logit_softcapping=6.0, attn_logit_softcapping=1.0, num_hidden_layers=6,
                                 head_dim=16, sliding_window=4, tie_word_embeddings=False)),
    Case("gemma3_long", shaped(Gemma3TextConfig, query_pre_attn_scalar=48, max_position_embeddings=128, **{**GEMMA, "sliding_window": 64}, **GEMMA3_ROPES), **LONG_CONTEXT),
    # With a scale for narrower heads the softmax is hard and training chaotic: transformers in fp32 is 6e-2 from itself in fp64.
    Case("gemma3_wide_heads", shaped(Gemma3TextConfig, query_pre_attn_scalar=4096, **{**GEMMA, "head_dim": 256})),
    Case("olmo2", shaped(Olmo2Config)),
    Case("olmo3", shaped(Olmo3Config, **BY_LAYER, **OLMO3_ROPES)),
    Case("granite", shaped(GraniteConfig, tie_word_embeddings=True, **FACTORS)),
    Case("granite_biased", shaped(GraniteConfig, attention_bias=True, mlp_bias=True, **FACTORS)),
    Case("ministral", shaped(MinistralConfig, head_dim=32, **BY_LAYER)),
    # Queries grow from position 8 on, and again from 16 on.
    Case("ministral3", shaped(Ministral3Config, head_dim=32, max_position_embeddings=128, tie_word_embeddings=True, **rope(
        "yarn", factor=16.0, original_max_position_embeddings=8, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3))),
    Case("phi3", shaped(Phi3Config, sliding_window=8)),
    Case("phi3_longrope", shaped(Phi3Config, tie_word_embeddings=True, **LONGROPE)),
    Case("phi3_long", shaped(Phi3Config, max_position_embeddings=128, **{**LONGROPE, "original_max_position_embeddings": 64, "rope_parameters": {
        **LONGROPE["rope_parameters"], "original_max_position_embeddings": 64}}), **LONG_CONTEXT),
    Case("gemma2", shaped(Gemma2Config, query_pre_attn_scalar=48, **GEMMA, **CAPS)),
    Case("gemma2_uncapped", shaped(Gemma2Config, attn_logit_softcapping=None, final_logit_softcapping=None,
                                   **{**GEMMA, "tie_word_embeddings": False})),
    # Models of images and texts, as transformers names their tensors in files, and as other files do. A cap of logits has no effect there.
    Case("gemma3_wrapped", wrapped(Gemma3Config, shaped(Gemma3TextConfig, query_pre_attn_scalar=48, final_logit_softcapping=6.0, **GEMMA, **GEMMA3_ROPES),
                                   dict(model_type="siglip_vision_model"), mm_tokens_per_image=4, boi_token_index=501, eoi_token_index=502)),
    Case("ministral3_wrapped", wrapped(Mistral3Config, shaped(Ministral3Config, head_dim=32, max_position_embeddings=128, **rope(
        "yarn", factor=16.0, original_max_position_embeddings=8, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3)),
        dict(model_type="pixtral", head_dim=16)), shard="100KB",
        renamed=(("language_model.model.", "model.language_model."), ("language_model.lm_head.", "lm_head."))),
    Case("qwen3_5", shaped(Qwen3_5TextConfig, **DELTA), **LONGER),
    Case("qwen3_5_tied", shaped(Qwen3_5TextConfig, tie_word_embeddings=True, **{**DELTA, "num_hidden_layers": 2, "linear_num_value_heads": 2},
                                layer_types=["full_attention", "linear_attention"]), **LONGER),
    Case("qwen3_5_thirds", shaped(Qwen3_5TextConfig, **{**DELTA, "linear_num_value_heads": 6}), storage=torch.bfloat16, shard="100KB"),
    Case("qwen3_next", shaped(Qwen3NextConfig, **{**DELTA, "num_hidden_layers": 2}, num_experts=0, layer_types=["linear_attention", "full_attention"])),
    Case("qwen3_5_wrapped", wrapped(Qwen3_5Config, shaped(Qwen3_5TextConfig, **{**DELTA, "num_hidden_layers": 2}, layer_types=[
        "linear_attention", "full_attention"]), dict(
        model_type="qwen3_5_vision", depth=2, hidden_size=32, intermediate_size=48, num_heads=2, patch_size=4, spatial_merge_size=2,
        temporal_patch_size=1, out_hidden_size=64, num_position_embeddings=16))),
    Case("smollm3_window", shaped(SmolLM3Config, no_rope_layers=[0, 1], use_sliding_window=True, sliding_window=8)),
)}

# Encoders that guess words which are hidden: tables of embeddings are the heads, beside which each word has a bias.
ENCODER = dict(vocab_size=512, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=66,
               initializer_range=0.2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
# Windows of 4 keys to each side: rows are longer.
MODERN = dict(vocab_size=512, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=64, local_attention=8,
              initializer_range=0.2, bos_token_id=None, eos_token_id=None, cls_token_id=None, sep_token_id=None, pad_token_id=0)
GUESSED = dict(prompts=(), lengths=(24, 9, 17, 3))
MASKED = {case.name: case for case in (
    Case("modernbert_words", ModernBertConfig(**MODERN), **GUESSED),
    Case("bert_words", BertConfig(**ENCODER), **GUESSED),
    Case("roberta_words", RobertaConfig(**ENCODER, type_vocab_size=1, layer_norm_eps=1e-5), **GUESSED))}
