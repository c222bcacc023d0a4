// Converts an op of the gated delta rule to the shape that its kernels take; rule and binding share it.
#pragma once

#include "graph/graph.h"
#include "ops/delta/delta_rule_blocking.h"

namespace plimsoll {

// The shape of any of the three kinds.
DeltaShape delta_shape(const Graph& graph, const Op& op);

}  // namespace plimsoll
