// The keys of config.json and the layers that the dense decoders (Llama, Mistral, Qwen2, Qwen3, SmolLM3) share. A
// family of theirs is a file with its facts.
#pragma once

#include "models/family.h"

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
  // The sliding windows of `layers` layers, 0: none; nullptr: the family has none.
  std::vector<int64_t> (*windows)(const ConfigReader&, int64_t layers) = nullptr;
};

void parse_dense_decoder(const ConfigReader& in, const DenseDecoderFacts& facts, ModelSpec& spec);
// Windows of layers from `first` on, where `sliding_window` has one; `layer_types` decides first.
std::vector<int64_t> windows_from(const ConfigReader& in, int64_t layers, int64_t first);
// Qwen: windows from max_window_layers on, where use_sliding_window is set.
std::vector<int64_t> qwen_windows(const ConfigReader& in, int64_t layers);

void dense_decoder_inputs(ModelBuilder& b);
TensorId dense_decoder_hidden(ModelBuilder& b);
TensorId dense_decoder_final_norm(ModelBuilder& b, TensorId h);

}  // namespace plimsoll
