// Mistral: a sliding window in every layer.
#include "models/dense_decoder.h"

namespace plimsoll {
namespace {

std::vector<int64_t> every_layer(const ConfigReader& in, int64_t layers) {
  return windows_from(in, layers, 0);
}

void parse(const ConfigReader& in, ModelSpec& spec) {
  parse_dense_decoder(in, {.kv_heads = 8, .max_positions = 131072, .windows = every_layer}, spec);
}

}  // namespace

const FamilyRule mistral_family{.model_type = "mistral",
                                .architecture = "MistralForCausalLM",
                                .parse = parse,
                                .inputs = dense_decoder_inputs,
                                .hidden = dense_decoder_hidden,
                                .final_norm = dense_decoder_final_norm,
                                .shares_prefixes = true};

}  // namespace plimsoll
