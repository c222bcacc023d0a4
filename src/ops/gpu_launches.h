// The number of kernels that ops launch on a GPU: the nodes of a captured graph, and the host's launches
// without one. Facts that plans and kernels share; the op harness holds every kernel to them.
#pragma once

#include <cstdint>

#include "graph/graph.h"

namespace plimsoll {

// Squares that one launch of grad_norm adds up: as many as it takes as arguments.
inline constexpr int64_t kSquaresOfLaunch = 128;

// Of one call of an op, a transfer's copy included. `library`: at the most, where a library may compute
// products: what is added to one is brought first, and a sum in parts is put together behind it.
int64_t gpu_launches(const Graph& graph, const Op& op, bool library);
int64_t gpu_launches(const Graph& program, bool library);

}  // namespace plimsoll
