// Gemma 2: norms before and behind attention and MLP, a cap on scores and on logits, a window in every other layer.
#include <cmath>

#include "models/dense_decoder.h"

namespace plimsoll {
namespace {

std::vector<bool> sliding(const ConfigReader& in, int64_t layers) { return sliding_layers(in, layers, 2); }

// A cap, which null turns off.
double cap(const ConfigReader& in, const char* key, double otherwise) {
  return in.number(key, in.names(key) ? 0.0 : otherwise, 0.0, 1e9);
}

void parse(const ConfigReader& in, ModelSpec& spec) {
  parse_dense_decoder(in,
                      {.head_dim = 256,
                       .kv_heads = 4,
                       .max_positions = 8192,
                       .tied_head = true,
                       .padding_row = 0,
                       .norm_form = NormForm::plus_one,
                       .norms_behind = true,
                       .gelu_gate = true,
                       .may_bias_mlp = false,
                       .sliding = sliding},
                      spec);
  spec.embedding_factor = std::sqrt(static_cast<double>(spec.hidden));
  spec.rounds_embedding_factor = true;
  spec.attention_scale = 1.0 / std::sqrt(in.number("query_pre_attn_scalar", 256.0, 1e-6, 1e9));
  spec.attention_softcap = cap(in, "attn_logit_softcapping", 50.0);
  spec.logit_softcap = cap(in, "final_logit_softcapping", 30.0);
}

}  // namespace

const FamilyRule gemma2_family{.model_type = "gemma2",
                               .architecture = "Gemma2ForCausalLM",
                               .parse = parse,
                               .inputs = dense_decoder_inputs,
                               .hidden = dense_decoder_hidden,
                               .final_norm = dense_decoder_final_norm,
                               .shares_prefixes = true};

}  // namespace plimsoll
