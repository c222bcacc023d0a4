// Ministral: a Mistral whose layers have windows by their types. Ministral 3: no windows as a rule, and queries that grow
// with their position.
#include "models/dense_decoder.h"

namespace plimsoll {
namespace {

std::vector<int64_t> by_type(const ConfigReader& in, int64_t layers) { return windows_from(in, layers, 0); }

void parse(const ConfigReader& in, ModelSpec& spec) {
  parse_dense_decoder(in,
                      {.kv_heads = 8,
                       .max_positions = 131072,
                       .may_bias_attention = false,
                       .may_bias_mlp = false,
                       .windows = by_type},
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
  const bool old = in.has("rope_scaling") && !in.at("rope_scaling").empty();
  const char* const key = old ? "rope_scaling" : "rope_parameters";
  if (!in.has(key)) {
    spec.rope = rope_of_class();
    spec.query_position_beta = 0.1;
    return;
  }
  const ConfigReader rope(in.at(key), in.where() + ": " + key);
  for (const char* needed : {"llama_4_scaling_beta", "original_max_position_embeddings"})
    if (!rope.has(needed)) rope.fail("'" + std::string(needed) + "' is missing");
  spec.query_position_beta = rope.number("llama_4_scaling_beta", 0.0, 0.0, 1e6);
}

}  // namespace

const FamilyRule ministral_family{.model_type = "ministral",
                                  .architecture = "MinistralForCausalLM",
                                  .parse = parse,
                                  .inputs = dense_decoder_inputs,
                                  .hidden = dense_decoder_hidden,
                                  .final_norm = dense_decoder_final_norm,
                                  .shares_prefixes = true};
const FamilyRule ministral3_family{.model_type = "ministral3",
                                   .architecture = "Ministral3ForCausalLM",
                                   .parse = parse_3,
                                   .inputs = dense_decoder_inputs,
                                   .hidden = dense_decoder_hidden,
                                   .final_norm = dense_decoder_final_norm,
                                   .shares_prefixes = true};

}  // namespace plimsoll
