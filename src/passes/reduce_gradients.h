// Several ranks keep of each gradient their own piece alone (ZeRO stage 2).
#pragma once

#include <cstdint>
#include <string>

#include "graph/graph.h"

namespace plimsoll {

// A rank's piece of a weight's gradient.
Tensor gradient_piece(const Tensor& gradient, int64_t elements);
// The gradient that the update of a weight reads: whole, or a rank's piece. kNoTensor where the program has neither.
TensorId find_gradient(const Graph& update, const std::string& weight);

// The gradients of `train` that so many ranks cut become activations, which each micro-step overwrites; behind the last
// writer a reduce_scatter adds the rank's piece of them, summed over all ranks, to the piece that it keeps. Gradients too
// small to be cut stay as they are.
Graph reduce_gradients(Graph train, int64_t ranks);

}  // namespace plimsoll
