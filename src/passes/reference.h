// Adds the reference model of preference training, which reads two models: the one that trains, and the one
// that it began as. With adapters the second is the frozen base, which is there already.
#pragma once

#include "graph/graph.h"

namespace plimsoll {

// `forward` ends with a preference_loss without a reference. What leads to its log-probabilities is computed
// a second time from the same weights, block by block ahead of the model's own, and becomes the reference
// (Op::of_reference): adapters leave it as it is, and nothing of it is read by a backward pass.
Graph add_reference(const Graph& forward);

}  // namespace plimsoll
