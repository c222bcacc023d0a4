// Qwen3: queries and keys normalised per head.
#include "models/dense_decoder.h"

namespace plimsoll {
namespace {

void parse(const ConfigReader& in, ModelSpec& spec) {
  parse_dense_decoder(
      in, {.qk_norm = true, .head_dim = 128, .kv_heads = 32, .max_positions = 32768, .windows = qwen_windows},
      spec);
}

}  // namespace

const FamilyRule qwen3_family{.model_type = "qwen3",
                              .architecture = "Qwen3ForCausalLM",
                              .parse = parse,
                              .inputs = dense_decoder_inputs,
                              .hidden = dense_decoder_hidden,
                              .final_norm = dense_decoder_final_norm,
                              .shares_prefixes = true};

}  // namespace plimsoll
