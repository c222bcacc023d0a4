#include "passes/layers.h"

#include <charconv>

namespace plimsoll {

int32_t layer_of(std::string_view scope) {
  constexpr std::string_view kLayers = "layers.";
  const size_t at = scope.find(kLayers);
  if (at == std::string_view::npos || (at > 0 && scope[at - 1] != '.')) return kNoLayer;
  const std::string_view rest = scope.substr(at + kLayers.size());
  int32_t layer = kNoLayer;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  const bool whole_part = end == rest.data() + rest.size() || *end == '.';
  return error == std::errc() && layer >= 0 && whole_part ? layer : kNoLayer;
}

}  // namespace plimsoll
