// Computes LoRA's product without a pass over what it is added to: B's product is fused with the base's, and
// in the backward pass A's with that of the base's weight (docs/decisions/19-merged-adapters.md).
#pragma once

#include "graph/graph.h"

namespace plimsoll {

// Fuses the adapter's product into every base product whose output only its adapter reads, where x lives as
// long anyway. The program computes the same, but for the rounding of what was written in between.
Graph merge_adapters(Graph graph);

}  // namespace plimsoll
