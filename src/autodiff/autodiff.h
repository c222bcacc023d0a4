// Adds gradients to a forward graph by asking each op's rule. Nothing here knows an op.
#pragma once

#include "graph/graph.h"

namespace plimsoll {

struct AutodiffOptions {
  DType gradient_dtype = DType::f32;  // of the persistent gradient tensors
};

// The gradient tensor's name of a trainable weight.
std::string gradient_name(const std::string& weight);

// Appends the backward pass of the loss that the last op computes. Trainable weights get a persistent
// gradient tensor
// `<name>.grad`; branches without a trainable ancestor get nothing. Throws InternalError when an op on the
// way has no gradient rule.
Graph differentiate(Graph forward, const AutodiffOptions& options);

}  // namespace plimsoll
