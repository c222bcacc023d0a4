// The matrix products of linear and its gradients: facts that the rule (scratch, cost) and the kernel share.
#pragma once

#include "device/description.h"
#include "graph/graph.h"

namespace plimsoll {

MatmulShape linear_product(const Graph& graph, const Op& op);     // y = x W^T, and a fused adapter's t B^T
MatmulShape linear_dx_product(const Graph& graph, const Op& op);  // d_x = d_y W, and a fused adapter's d_t A
MatmulShape linear_dw_product(const Graph& graph, const Op& op);  // gradient = d_y^T x

}  // namespace plimsoll
