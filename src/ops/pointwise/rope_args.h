// The arguments of the kernels of rope, on every backend.
#pragma once

#include "ops/binding.h"
#include "ops/pointwise/rope_kernels.h"

namespace plimsoll {

inline PositionFactor position_factor(const Op& op) {
  if (!op.attrs.contains("position_beta")) return {};
  return {op.attr_float("position_beta"), op.attr_int("original_length")};
}

// Values of a head, of which a table of `rotary` columns turns the first.
inline int64_t rope_head_dim(const Op& op, int64_t rotary) {
  return op.attrs.contains("head_dim") ? op.attr_int("head_dim") : rotary;
}

// Threads are the CPU's alone.
template <class T>
Rope<T> rope_args(const Binding& b) {
  using at = operand::rope;
  const Tensor& x = b.input_tensor(at::x);
  const int64_t rotary = b.input_tensor(at::table).shape[1];
  const int64_t head_dim = rope_head_dim(b.op(), rotary);
  return {.x = b.input<T>(at::x),
          .table = b.input<float>(at::table),
          .y = b.output<T>(at::y),
          .tokens = x.shape[0],
          .heads = x.shape[1] / head_dim,
          .head_dim = head_dim,
          .rotary = rotary,
          .inverse = b.op().attr_int("inverse") == 1};
}

}  // namespace plimsoll
