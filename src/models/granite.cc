// Granite: Llama's layers with four factors, of embeddings, scores, residuals and logits.
#include "models/dense_decoder.h"

namespace plimsoll {
namespace {

void parse(const ConfigReader& in, ModelSpec& spec) {
  parse_dense_decoder(in, {}, spec);
  const auto factor = [&](const char* key) { return in.number(key, 1.0, 1e-9, 1e9); };
  spec.embedding_factor = factor("embedding_multiplier");
  spec.attention_scale = factor("attention_multiplier");
  spec.residual_factor = factor("residual_multiplier");
  spec.logit_factor = 1.0 / factor("logits_scaling");
}

}  // namespace

const FamilyRule granite_family = dense_decoder_family("granite", "GraniteForCausalLM", parse);

}  // namespace plimsoll
