// Gemma 3, the model of texts: norms before and behind attention and MLP, windows and RoPE by the layer's type.
#include <cmath>

#include "models/dense_decoder.h"

namespace plimsoll {
namespace {

std::vector<bool> sliding(const ConfigReader& in, int64_t layers) {
  return sliding_layers(in, layers, in.integer("sliding_window_pattern", 1, kMostLayers, 6));
}

void parse(const ConfigReader& in, ModelSpec& spec) {
  parse_dense_decoder(in,
                      {.qk_norm = true,
                       .head_dim = 256,
                       .kv_heads = 4,
                       .max_positions = 131072,
                       .tied_head = true,
                       .padding_row = 0,
                       .norm_form = NormForm::plus_one,
                       .norms_behind = true,
                       .gelu_gate = true,
                       .may_bias_mlp = false,
                       .thetas_by_layer = ThetasByLayer{1e6, 1e4, "rope_local_base_freq"},
                       .sliding = sliding},
                      spec);
  spec.embedding_factor = std::sqrt(static_cast<double>(spec.hidden));
  spec.rounds_embedding_factor = true;
  // attn_logit_softcapping is not read: transformers caps no scores of Gemma 3, whatever the file says.
  spec.attention_scale = 1.0 / std::sqrt(in.number("query_pre_attn_scalar", 256.0, 1e-6, 1e9));
  spec.logit_softcap = in.number("final_logit_softcapping", 0.0, 0.0, 1e9);
}

}  // namespace

const FamilyRule gemma3_text_family{.model_type = "gemma3_text",
                                    .architecture = "Gemma3ForCausalLM",
                                    .scoring_name = "Gemma3TextForSequenceClassification",
                                    .parse = parse,
                                    .inputs = dense_decoder_inputs,
                                    .hidden = dense_decoder_hidden,
                                    .final_norm = dense_decoder_final_norm,
                                    .shares_prefixes = true};

}  // namespace plimsoll
