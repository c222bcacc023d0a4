// The arguments of the kernels of rope, on every backend.
#pragma once

#include "ops/binding.h"
#include "ops/pointwise/rope_heads.h"
#include "ops/pointwise/rope_kernels.h"

namespace plimsoll {

// Threads are the CPU's alone.
template <class T>
Rope<T> rope_args(const Binding& b) {
  using at = operand::rope;
  const Tensor& x = b.input_tensor(at::x);
  const int64_t head_dim = rope_head(b.op(), b.input_tensor(at::table));
  return {.x = b.input<T>(at::x),
          .table = b.input<float>(at::table),
          .y = b.output<T>(at::y),
          .tokens = x.shape[0],
          .heads = x.shape[1] / head_dim,
          .head_dim = head_dim,
          .turned = b.input_tensor(at::table).shape[1],
          .inverse = b.op().attr_int("inverse") == 1};
}

}  // namespace plimsoll
