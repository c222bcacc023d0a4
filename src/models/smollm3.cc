// SmolLM3: Llama's layers, some of which are not rotated (NoPE), every fourth by default.
#include <algorithm>
#include <functional>

#include "base/format.h"
#include "models/dense_decoder.h"

namespace plimsoll {
namespace {

// Tells for each layer if it is rotated. In `no_rope_layers` a 1 is a layer with RoPE and a 0 one without,
// whatever the name says (configuration_smollm3.py).
std::vector<bool> rotated_layers(const ConfigReader& in, int64_t layers) {
  std::vector<bool> rotated(static_cast<size_t>(layers));
  if (!in.has("no_rope_layers")) {
    const int64_t interval = in.integer("no_rope_layer_interval", 1, kMostLayers, 4);
    for (int64_t i = 0; i < layers; ++i) rotated[static_cast<size_t>(i)] = (i + 1) % interval != 0;
    return rotated;
  }
  const ConfigReader::Json& list = in.at("no_rope_layers");
  if (!list.is_array() || list.size() < rotated.size())
    in.fail("'no_rope_layers' must list one number per layer");
  for (size_t i = 0; i < rotated.size(); ++i) {
    if (list[i] != 0 && list[i] != 1)
      in.fail(
          formatted("'no_rope_layers': {} must be 1, a layer with RoPE, or 0, one without", list[i].dump()));
    rotated[i] = list[i] == 1;
  }
  return rotated;
}

// The windows by layer. If windows are used at all, the layers without RoPE have them; `layer_types` decides
// first.
std::vector<int64_t> windows(const ConfigReader& in, int64_t layers) {
  if (in.flag("use_sliding_window", false)) {
    if (!in.has("sliding_window")) return std::vector<int64_t>(static_cast<size_t>(layers), 0);
    std::vector<int64_t> found = windows_from(in, layers, 0);
    if (in.has("layer_types")) return found;
    const std::vector<bool> rotated = rotated_layers(in, layers);
    for (size_t i = 0; i < found.size(); ++i)
      if (rotated[i]) found[i] = 0;
    return found;
  }
  // transformers' masks and its kernels read such a file differently.
  if (in.has("layer_types") && in.at("layer_types").is_array())
    for (const ConfigReader::Json& type : in.at("layer_types"))
      if (type != "full_attention")
        in.fail(
            formatted("'layer_types' names {}; set 'use_sliding_window' to true, or all layers to "
                      "\"full_attention\"",
                      type.dump()));
  return std::vector<int64_t>(static_cast<size_t>(layers), 0);
}

void parse(const ConfigReader& in, ModelSpec& spec) {
  parse_dense_decoder(
      in, {.kv_heads = 4, .max_positions = 32768, .rope_theta = 2e6, .tied_head = true, .windows = windows},
      spec);
  const std::vector<bool> rotated = rotated_layers(in, spec.layers);
  if (std::ranges::all_of(rotated, std::identity())) return;
  spec.other_ropes = {{.type = RopeType::none}};
  for (const bool one : rotated) spec.rope_of_layer.push_back(one ? 0 : 1);
}

}  // namespace

const FamilyRule smollm3_family = dense_decoder_family("smollm3", "SmolLM3ForCausalLM", parse);

}  // namespace plimsoll
