// Gemma 2 and Gemma 3, the models of texts: norms before and behind attention and MLP whose factor is one plus the weight.
// Gemma 2 has caps on scores and logits and a window in every other layer; Gemma 3 windows and RoPE by the layer's type.
#include <cmath>

#include "models/dense_decoder.h"

namespace plimsoll {
namespace {

DenseDecoderFacts facts() {
  return {.head_dim = 256,
          .kv_heads = 4,
          .tied_head = true,
          .padding_row = 0,
          .norm_form = NormForm::plus_one,
          .norms_behind = true,
          .gelu_gate = true,
          .may_bias_mlp = false};
}

void read_factors(const ConfigReader& in, ModelSpec& spec) {
  spec.embedding_factor = std::sqrt(static_cast<double>(spec.hidden));
  spec.rounds_embedding_factor = true;
  spec.attention_scale = 1.0 / std::sqrt(in.number("query_pre_attn_scalar", 256.0, 1e-6, 1e9));
}

// A cap, which null turns off.
double cap(const ConfigReader& in, const char* key, double otherwise) {
  return in.number(key, in.names(key) ? 0.0 : otherwise, 0.0, 1e9);
}

void parse_2(const ConfigReader& in, ModelSpec& spec) {
  DenseDecoderFacts gemma2 = facts();
  gemma2.max_positions = 8192;
  gemma2.sliding = [](const ConfigReader& config, int64_t layers) {
    return sliding_layers(config, layers, 2);
  };
  parse_dense_decoder(in, gemma2, spec);
  read_factors(in, spec);
  spec.attention_softcap = cap(in, "attn_logit_softcapping", 50.0);
  spec.logit_softcap = cap(in, "final_logit_softcapping", 30.0);
}

void parse_3(const ConfigReader& in, ModelSpec& spec) {
  DenseDecoderFacts gemma3 = facts();
  gemma3.qk_norm = true;
  gemma3.max_positions = 131072;
  gemma3.thetas_by_layer = ThetasByLayer{1e6, 1e4, "rope_local_base_freq"};
  gemma3.sliding = [](const ConfigReader& config, int64_t layers) {
    return sliding_layers(config, layers, config.integer("sliding_window_pattern", 1, kMostLayers, 6));
  };
  // Files of gemma-3-4b leave these out.
  parse_dense_decoder(in, gemma3, spec, {.heads = 8, .vocab = 262208});
  read_factors(in, spec);
  // attn_logit_softcapping is not read: transformers caps no scores of Gemma 3, whatever the file says.
  spec.logit_softcap = cap(in, "final_logit_softcapping", 0.0);
}

}  // namespace

const FamilyRule gemma2_family = dense_decoder_family("gemma2", "Gemma2ForCausalLM", parse_2);
const FamilyRule gemma3_text_family =
    dense_decoder_family("gemma3_text", "Gemma3ForCausalLM", parse_3, "Gemma3TextForSequenceClassification");

}  // namespace plimsoll
