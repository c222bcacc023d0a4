// Llama, and what its keys describe.
#include "models/dense_decoder.h"

namespace plimsoll {
namespace {

void parse(const ConfigReader& in, ModelSpec& spec) { parse_dense_decoder(in, {}, spec); }

}  // namespace

const FamilyRule llama_family = dense_decoder_family("llama", "LlamaForCausalLM", parse);

}  // namespace plimsoll
