// Tiny models that answer prompts, for tests.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/spec.h"

namespace plimsoll::test {

// Weights ten times the usual size: logits far enough apart that an error in one layer shows.
inline ModelSpec tiny_model(int64_t window) {
  ModelSpec model = parse_model_spec({{"model_type", "mistral"},
                                      {"hidden_size", 32},
                                      {"intermediate_size", 48},
                                      {"num_hidden_layers", 2},
                                      {"num_attention_heads", 4},
                                      {"num_key_value_heads", 2},
                                      {"vocab_size", 96},
                                      {"max_position_embeddings", 64},
                                      {"sliding_window", nullptr},
                                      {"initializer_range", 0.2}},
                                     "tiny");
  std::fill(model.windows.begin(), model.windows.end(), window);
  return model;
}

// Matrices that are fused, heads of which a part turns, and longrope, whose frequencies change behind 24 tokens.
inline ModelSpec tiny_phi() {
  return parse_model_spec(
      {{"model_type", "phi3"},
       {"hidden_size", 32},
       {"intermediate_size", 48},
       {"num_hidden_layers", 2},
       {"num_attention_heads", 4},
       {"num_key_value_heads", 2},
       {"vocab_size", 96},
       {"max_position_embeddings", 64},
       {"original_max_position_embeddings", 24},
       {"partial_rotary_factor", 0.5},
       {"rope_scaling", {{"type", "longrope"}, {"short_factor", {1.0, 1.5}}, {"long_factor", {3.0, 9.0}}}},
       {"initializer_range", 0.2}},
      "tiny");
}

// T5 does not scale its attention: large weights make steep softmaxes, which make differences of the last
// bits larger.
inline ModelSpec tiny_t5(double initializer_factor = 3.0) {
  return parse_model_spec({{"model_type", "t5"},
                           {"d_model", 32},
                           {"d_kv", 8},
                           {"d_ff", 48},
                           {"num_layers", 2},
                           {"num_decoder_layers", 3},
                           {"num_heads", 4},
                           {"vocab_size", 96},
                           {"relative_attention_num_buckets", 8},
                           {"relative_attention_max_distance", 12},
                           {"tie_word_embeddings", false},
                           {"initializer_factor", initializer_factor},
                           {"decoder_start_token_id", 3}},
                          "tiny");
}

inline ModelSpec tiny_gla(bool convolved = false) {
  return parse_model_spec({{"model_type", "gla"},
                           {"hidden_size", 32},
                           {"intermediate_size", 48},
                           {"num_hidden_layers", 2},
                           {"num_heads", 4},
                           {"num_kv_heads", 2},
                           {"vocab_size", 96},
                           {"use_short_conv", convolved},
                           {"initializer_range", 0.2}},
                          "tiny");
}

// A layer of the gated delta rule, then one of gated attention.
inline ModelSpec tiny_delta() {
  return parse_model_spec({{"model_type", "qwen3_5_text"},
                           {"hidden_size", 32},
                           {"intermediate_size", 48},
                           {"num_hidden_layers", 2},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"head_dim", 16},
                           {"vocab_size", 96},
                           {"full_attention_interval", 2},
                           {"linear_num_key_heads", 2},
                           {"linear_num_value_heads", 4},
                           {"linear_key_head_dim", 8},
                           {"linear_value_head_dim", 8},
                           {"initializer_range", 0.2}},
                          "tiny");
}

}  // namespace plimsoll::test
