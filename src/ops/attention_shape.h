// From an attention op to the shape its kernels know; rule and binding share it.
#pragma once

#include "graph/graph.h"
#include "ops/attention_scratch.h"

namespace plimsoll {

// Of attention or its gradient: whether its sequences are segments of trees.
bool has_parents(const Op& op);
// Of any of the three kinds of attention.
AttentionShape attention_shape(const Graph& graph, const Op& op);
// Of attention_grad's workspace, behind the kernel's own: the gradient of a bias before it is added to what
// there is.
int64_t attention_bias_sums_bytes(const AttentionShape& shape);

}  // namespace plimsoll
