// NF4 (QLoRA): frozen weights of the layers are kept in 4 bits, and dequantised right before each product
// that reads them.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace plimsoll {

struct QuantiseOptions {
  bool nested = true;  // the scales of the blocks in 8 bits (double quantisation): 0.37 bits a weight less
  // Modules whose weights keep their type, by the ends of their names: "wo", "layers.3.mlp.down_proj".
  std::vector<std::string> kept = {};

  // True if all blocks of a stack keep the same modules.
  [[nodiscard]] bool blocks_are_alike() const;
};

// Replaces every frozen weight [out, in] of a linear op but the head's and those of `kept`, as bitsandbytes
// does, by its NF4 tensors (ops/linear/nf4.h): the codes keep the weight's name. Each linear op reads the
// output of an nf4_dequantize op of its own; passes/recompute makes that anew for the backward pass. Applied
// after LoRA and before autodiff. Throws UsageError for a weight with an odd number of inputs.
Graph quantise(const Graph& graph, const QuantiseOptions& options);

}  // namespace plimsoll
