// Each of several ranks keeps only its own piece of the layers' weights (ZeRO stage 3).
#pragma once

#include "graph/graph.h"
#include "passes/optimizers.h"

namespace plimsoll {

// The weights of `program` that the ranks divide become a rank's pieces. In each layer's forward pass, and again in its
// backward pass with what is recomputed, an all_gather in front of the first op that reads a weight makes it whole
// for those that do: no whole weight outlives its layer.
Graph gather_weights(Graph program, const Sharding& sharding);

}  // namespace plimsoll
