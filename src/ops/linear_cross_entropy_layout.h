// The matrix products and the workspace of linear_cross_entropy: facts that rule and kernel share.
#pragma once

#include <optional>

#include "device/description.h"
#include "graph/graph.h"

namespace plimsoll {

struct CrossEntropyProducts {
  MatmulShape logits;              // x W^T of a chunk
  std::optional<MatmulShape> d_x;  // d_logits W, where the gradient of x is wanted
  std::optional<MatmulShape> d_w;  // d_logits^T x, where the weight's gradient is wanted
};

CrossEntropyProducts cross_entropy_products(const Graph& graph, const Op& op);

// Offsets of the parts in bytes, each a multiple of 64.
struct CrossEntropyLayout {
  int64_t chunk = 0;   // rows taken at a time
  int64_t rows = 0;    // i32 [T]: the rows that carry a target
  int64_t labels = 0;  // i32 [chunk]
  int64_t losses = 0;  // f64 [chunk]
  int64_t x = 0;       // [chunk, H], gathered
  int64_t logits = 0;  // [chunk, V], then their gradient
  int64_t d_x = 0;     // [chunk, H], where wanted
  int64_t matmul = 0;  // workspace of the products, which is the rest
};

CrossEntropyLayout cross_entropy_layout(const Graph& graph, const Op& op);

}  // namespace plimsoll
