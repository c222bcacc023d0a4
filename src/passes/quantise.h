// NF4 (QLoRA): frozen weights of the layers in 4 bits, made whole right before each product that reads them.
#pragma once

#include <string_view>

#include "graph/graph.h"

namespace plimsoll {

struct QuantiseOptions {
  bool nested = true;  // the scales of the blocks in 8 bits (double quantisation): 0.37 bits a weight less
};

// Replaces every frozen weight [out, in] of a linear op but the head's, as bitsandbytes does, by its NF4
// tensors (ops/nf4.h): the codes keep the weight's name. Each linear op reads the output of an nf4_dequantize
// op of its own; passes/recompute makes that anew for the backward pass. Applied after LoRA and before
// autodiff. Throws UsageError for a weight with an odd number of inputs.
Graph quantise(const Graph& graph, const QuantiseOptions& options);

}  // namespace plimsoll
