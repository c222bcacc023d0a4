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

const FamilyRule qwen3_family = dense_decoder_family("qwen3", "Qwen3ForCausalLM", parse);

}  // namespace plimsoll
