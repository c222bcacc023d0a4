// Mistral: a sliding window in every layer.
#include "models/dense_decoder.h"

namespace plimsoll {
namespace {

void parse(const ConfigReader& in, ModelSpec& spec) {
  parse_dense_decoder(in, {.kv_heads = 8, .max_positions = 131072, .windows = windows_everywhere}, spec);
}

}  // namespace

const FamilyRule mistral_family = dense_decoder_family("mistral", "MistralForCausalLM", parse);

}  // namespace plimsoll
