// Adds the reference model of preference training, which reads two models: the one that trains, and the one
// that it began as. With adapters the second is the frozen base, which is there already.
#pragma once

#include "graph/graph.h"

namespace plimsoll {

// `forward` ends with a preference_loss without a reference. The ops that lead to its log-probabilities are
// computed a second time from the same weights, block by block ahead of the model's own, and become the
// reference (Op::of_reference): adapters leave them as they are, and no backward pass reads them.
Graph add_reference(const Graph& forward);

}  // namespace plimsoll
