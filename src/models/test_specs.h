// Models of tests, by the sizes that config.json states. For tests only.
#pragma once

#include <nlohmann/json.hpp>

#include "models/spec.h"

namespace plimsoll {

struct TestSizes {
  const char* family = "llama";
  int64_t hidden = 32, mlp = 64, layers = 2, heads = 4, kv_heads = 2, vocab = 128;
  bool tied = false;
};

inline ModelSpec test_spec(const TestSizes& sizes) {
  return parse_model_spec({{"model_type", sizes.family},
                           {"hidden_size", sizes.hidden},
                           {"intermediate_size", sizes.mlp},
                           {"num_hidden_layers", sizes.layers},
                           {"num_attention_heads", sizes.heads},
                           {"num_key_value_heads", sizes.kv_heads},
                           {"vocab_size", sizes.vocab},
                           {"tie_word_embeddings", sizes.tied}},
                          "test");
}

// Qwen2.5-0.5B.
inline TestSizes half_billion() {
  return {.family = "qwen2",
          .hidden = 896,
          .mlp = 4864,
          .layers = 24,
          .heads = 14,
          .vocab = 151936,
          .tied = true};
}

inline ModelSpec mistral_7b() {
  return test_spec({.family = "mistral",
                    .hidden = 4096,
                    .mlp = 14336,
                    .layers = 32,
                    .heads = 32,
                    .kv_heads = 8,
                    .vocab = 32000});
}

}  // namespace plimsoll
