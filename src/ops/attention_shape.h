// From an attention op to the shape its kernels know; rule and binding share it.
#pragma once

#include "graph/graph.h"
#include "ops/attention_scratch.h"

namespace plimsoll {

// Of any of the three kinds of attention.
AttentionShape attention_shape(const Graph& graph, const Op& op);

}  // namespace plimsoll
