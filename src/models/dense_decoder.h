// The keys of config.json and the layers that the dense decoders share: Llama, Mistral, Qwen2, Qwen3, SmolLM3, Gemma 2
// and 3, OLMo 2 and 3, Granite, Ministral, Phi-3. A family of theirs is a file with its facts.
#pragma once

#include "models/family.h"
#include "models/rope.h"

namespace plimsoll {

struct DenseDecoderFacts {
  bool qkv_bias = false;  // always; otherwise attention_bias decides
  bool qk_norm = false;
  int64_t head_dim = 0;  // default of the class; 0: hidden / heads
  double rms_norm_eps = 1e-6;
  // Defaults of the configuration's class, for keys that are not there.
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t max_positions = 2048;
  double rope_theta = 10000.0;
  bool tied_head = false;
  // The padding of the class, where pad_token_id is not there.
  std::optional<int64_t> padding_row = {};
  NormForm norm_form = NormForm::round_first;
  bool norms_before = true, norms_behind = false;
  bool qk_norm_of_rows = false;
  // A part of a head may turn, and scaled RoPE is longrope with this original length where config.json has none.
  int64_t longrope_original = 0;
  // Gemma's: gelu by tanh, by the key hidden_activation.
  bool gelu_gate = false;
  // Biases that config.json may ask for.
  bool may_bias_attention = true, may_bias_mlp = true;
  // Layers that slide and those that do not may have ropes of their own: set where they do.
  std::optional<ThetasByLayer> thetas_by_layer = {};
  // The layers that slide, where that goes by layer_types; each has the window sliding_window.
  std::vector<bool> (*sliding)(const ConfigReader&, int64_t layers) = nullptr;
  // The sliding windows of `layers` layers, 0: none; nullptr: the family has none.
  std::vector<int64_t> (*windows)(const ConfigReader&, int64_t layers) = nullptr;
};

// Sizes of the configuration's class, for keys that files leave out; 0: the key must be there.
struct SizesOfClass {
  int64_t heads = 0, vocab = 0;
};
void parse_dense_decoder(const ConfigReader& in, const DenseDecoderFacts& facts, ModelSpec& spec,
                         const SizesOfClass& sizes = {});
// True for each layer that slides, as layer_types says, which must be there.
std::vector<bool> slides_by_types(const ConfigReader& in, int64_t layers);
// True for each layer that slides: as layer_types says, else all but every `full_every`-th.
std::vector<bool> sliding_layers(const ConfigReader& in, int64_t layers, int64_t full_every);
// The window `sliding_window` in every layer, where it has one; `layer_types` decides first.
std::vector<int64_t> windows_everywhere(const ConfigReader& in, int64_t layers);
// Windows of layers from `first` on, where `sliding_window` has one; `layer_types` decides first.
std::vector<int64_t> windows_from(const ConfigReader& in, int64_t layers, int64_t first);
// Qwen: windows from max_window_layers on, where use_sliding_window is set.
std::vector<int64_t> qwen_windows(const ConfigReader& in, int64_t layers);

void dense_decoder_inputs(ModelBuilder& b);
TensorId dense_decoder_hidden(ModelBuilder& b);
TensorId dense_decoder_final_norm(ModelBuilder& b, TensorId h);

// The rule of a family of dense decoders with its own `parse`. `scoring_name`: FamilyRule::scoring_name.
constexpr FamilyRule dense_decoder_family(std::string_view model_type, std::string_view architecture,
                                          void (*parse)(const ConfigReader&, ModelSpec&),
                                          std::string_view scoring_name = {}) {
  return {.model_type = model_type,
          .architecture = architecture,
          .scoring_name = scoring_name,
          .parse = parse,
          .inputs = dense_decoder_inputs,
          .hidden = dense_decoder_hidden,
          .final_norm = dense_decoder_final_norm,
          .shares_prefixes = true};
}

}  // namespace plimsoll
