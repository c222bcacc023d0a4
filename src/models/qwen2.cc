// Qwen2 and Qwen2.5: biases at query, key and value.
#include "models/dense_decoder.h"

namespace plimsoll {
namespace {

void parse(const ConfigReader& in, ModelSpec& spec) {
  parse_dense_decoder(in, {.qkv_bias = true, .kv_heads = 32, .max_positions = 32768, .windows = qwen_windows},
                      spec);
}

}  // namespace

const FamilyRule qwen2_family = dense_decoder_family("qwen2", "Qwen2ForCausalLM", parse);

}  // namespace plimsoll
