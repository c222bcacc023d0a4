// OLMo 2 and OLMo 3: no norms before attention and MLP but behind them, and queries and keys normalised over all heads.
#include "models/dense_decoder.h"

namespace plimsoll {
namespace {

constexpr double kTheta = 5e5;  // of OLMo 3's class

DenseDecoderFacts facts() {
  return {.rms_norm_eps = 1e-5,
          .padding_row = 1,
          .norm_form = NormForm::round_last,
          .norms_before = false,
          .norms_behind = true,
          .qk_norm_of_rows = true,
          .may_bias_mlp = false};
}

void parse_2(const ConfigReader& in, ModelSpec& spec) { parse_dense_decoder(in, facts(), spec); }

// Scaled RoPE is of the layers that do not slide alone.
void parse_3(const ConfigReader& in, ModelSpec& spec) {
  DenseDecoderFacts olmo3 = facts();
  olmo3.thetas_by_layer = ThetasByLayer{kTheta, kTheta};
  olmo3.sliding = [](const ConfigReader& config, int64_t layers) {
    return sliding_layers(config, layers, 4);
  };
  parse_dense_decoder(in, olmo3, spec);
}

}  // namespace

const FamilyRule olmo2_family = dense_decoder_family("olmo2", "Olmo2ForCausalLM", parse_2);
const FamilyRule olmo3_family = dense_decoder_family("olmo3", "Olmo3ForCausalLM", parse_3);

}  // namespace plimsoll
