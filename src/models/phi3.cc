// Phi-3, 3.5, 4 and 4-mini: Llama's layers with one matrix for queries, keys and values and one for the MLP's gates and
// values. A part of each head may turn, and longrope stretches its frequencies.
#include "models/dense_decoder.h"

namespace plimsoll {
namespace {

// A window, where the file has one, is every layer's.
std::vector<int64_t> windows(const ConfigReader& in, int64_t layers) {
  return std::vector<int64_t>(static_cast<size_t>(layers),
                              in.integer("sliding_window", 1, kMostPositions, 0));
}

void parse(const ConfigReader& in, ModelSpec& spec) {
  parse_dense_decoder(in,
                      {.rms_norm_eps = 1e-5,
                       .max_positions = 4096,
                       .padding_row = 32000,
                       .longrope_original = 4096,
                       .may_bias_attention = false,
                       .may_bias_mlp = false,
                       .windows = windows},
                      spec);
  spec.fused_matrices = true;
  spec.residual_dropout = in.number("resid_pdrop", 0.0, 0.0, 0.99);  // embd_pdrop is unused there
}

}  // namespace

const FamilyRule phi3_family = dense_decoder_family("phi3", "Phi3ForCausalLM", parse);

}  // namespace plimsoll
