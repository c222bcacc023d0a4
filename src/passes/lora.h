// Low-rank adapters beside chosen linear layers: y += scale * B (A dropout(x)).
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace plimsoll {

struct LoraOptions {
  int64_t r = 16;
  double alpha = 32.0;
  double dropout = 0.0;  // on the input of A only
  bool rslora = false;   // scale alpha / sqrt(r) instead of alpha / r
  // Module names or their last parts; empty: every linear layer of the body.
  std::vector<std::string> targets = {};
};

// Replaces each targeted linear op; adapters `<module>.lora_A.weight` [r, in] and `<module>.lora_B.weight`
// [out, r] are born trainable, in the layer's type. Throws UsageError for a target that names no linear
// layer.
Graph add_lora(const Graph& graph, const LoraOptions& options);

// The scope of the linear layer that ops of this scope belong to or adapt.
std::string_view adapted_module(std::string_view scope);

}  // namespace plimsoll
