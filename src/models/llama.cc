// Llama, and what its keys describe.
#include "models/dense_decoder.h"

namespace plimsoll {
namespace {

void parse(const ConfigReader& in, ModelSpec& spec) { parse_dense_decoder(in, {}, spec); }

}  // namespace

const FamilyRule llama_family{.model_type = "llama",
                              .architecture = "LlamaForCausalLM",
                              .parse = parse,
                              .inputs = dense_decoder_inputs,
                              .hidden = dense_decoder_hidden,
                              .final_norm = dense_decoder_final_norm,
                              .shares_prefixes = true};

}  // namespace plimsoll
