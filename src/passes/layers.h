// Which layer of the decoder an op belongs to, by the scope that the model gave it.
#pragma once

#include <cstdint>
#include <string_view>

namespace plimsoll {

inline constexpr int32_t kNoLayer = -1;

// 3 for "model.layers.3.mlp.up_proj"; kNoLayer outside of the layers (embedding, last norm, head).
int32_t layer_of(std::string_view scope);

}  // namespace plimsoll
