// The width of heads that `rope` turns, and the factor of queries by their position.
#pragma once

#include "graph/graph.h"

namespace plimsoll {

// Values of a head: as many as the table has, or more.
inline int64_t rope_head(const Op& op, const Tensor& table) {
  return op.attrs.contains("head_dim") ? op.attr_int("head_dim") : table.shape[1];
}

// The factor of a table of RoPE by position: 1 + beta ln(1 + floor(position / length)).
struct PositionFactor {
  double beta = 0;
  int64_t length = 1;
};
inline PositionFactor position_factor(const Op& op) {
  if (!op.attrs.contains("position_beta")) return {};
  return {op.attr_float("position_beta"), op.attr_int("original_length")};
}

}  // namespace plimsoll
