// Converts an op of gated linear attention to the shape that its kernels take; rule and binding share it.
#pragma once

#include "graph/graph.h"
#include "ops/scan/gla_blocking.h"

namespace plimsoll {

// The shape of any of the three kinds.
GlaShape gla_shape(const Graph& graph, const Op& op);
// Returns true if its sequences are segments of trees.
bool gla_has_parents(const Op& op);

}  // namespace plimsoll
