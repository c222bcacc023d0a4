// The arguments of the kernels of rope, on every backend.
#pragma once

#include "ops/binding.h"
#include "ops/pointwise/rope_kernels.h"

namespace plimsoll {

inline PositionFactor position_factor(const Op& op) {
  if (!op.attrs.contains("position_beta")) return {};
  return {op.attr_float("position_beta"), op.attr_int("original_length")};
}

// Threads are the CPU's alone.
template <class T>
Rope<T> rope_args(const Binding& b) {
  using at = operand::rope;
  const Tensor& x = b.input_tensor(at::x);
  const int64_t head_dim = b.input_tensor(at::table).shape[1];
  return {.x = b.input<T>(at::x),
          .table = b.input<float>(at::table),
          .y = b.output<T>(at::y),
          .tokens = x.shape[0],
          .heads = x.shape[1] / head_dim,
          .head_dim = head_dim,
          .inverse = b.op().attr_int("inverse") == 1};
}

}  // namespace plimsoll
