// Ministral: a Mistral whose layers have windows by their types. Ministral 3: no windows as a rule, and queries that grow
// with their position.
#include "models/dense_decoder.h"

#include "base/format.h"

namespace plimsoll {
namespace {

void parse(const ConfigReader& in, ModelSpec& spec) {
  parse_dense_decoder(in,
                      {.kv_heads = 8,
                       .max_positions = 131072,
                       .may_bias_attention = false,
                       .may_bias_mlp = false,
                       .windows = windows_everywhere},
                      spec);
}

// A window, where the file has one, is every layer's.
std::vector<int64_t> every_layer(const ConfigReader& in, int64_t layers) {
  return std::vector<int64_t>(static_cast<size_t>(layers),
                              in.integer("sliding_window", 1, kMostPositions, 0));
}

// Its settings of RoPE, where the file has none.
RopeSpec rope_of_class() {
  return {.type = RopeType::yarn, .theta = 1e6, .factor = 16.0, .original_length = 16384};
}

void parse_3(const ConfigReader& in, ModelSpec& spec) {
  parse_dense_decoder(in,
                      {.head_dim = 128,
                       .rms_norm_eps = 1e-5,
                       .kv_heads = 8,
                       .max_positions = 262144,
                       .padding_row = 11,
                       .may_bias_attention = false,
                       .may_bias_mlp = false,
                       .windows = every_layer},
                      spec);
  const char* const key = rope_key(in);
  if (!in.has(key)) {
    spec.rope = rope_of_class();
    spec.query_position_beta = 0.1;
    return;
  }
  const ConfigReader rope(in.at(key), formatted("{}: {}", in.where(), key));
  for (const char* needed : {"llama_4_scaling_beta", "original_max_position_embeddings"})
    if (!rope.has(needed)) rope.fail(formatted("'{}' is missing", needed));
  spec.query_position_beta = rope.number("llama_4_scaling_beta", 0.0, 0.0, 1e6);
}

}  // namespace

const FamilyRule ministral_family = dense_decoder_family("ministral", "MinistralForCausalLM", parse);
const FamilyRule ministral3_family = dense_decoder_family("ministral3", "Ministral3ForCausalLM", parse_3);

}  // namespace plimsoll
