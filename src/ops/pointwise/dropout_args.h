// The arguments of the kernels of dropout, on every backend.
#pragma once

#include "ops/binding.h"
#include "ops/name_hash.h"
#include "ops/pointwise/dropout_kernels.h"

namespace plimsoll {

// Seed and step are known when the call runs; threads are the CPU's alone.
template <class T>
Dropout<T> dropout_args(const Binding& b) {
  using at = operand::dropout;
  const Tensor& x = b.input_tensor(at::x);
  return {.x = b.input<T>(at::x),
          .y = b.output<T>(at::y),
          .tokens = x.shape[0],
          .width = x.shape[1],
          .samples = b.input<int32_t>(at::samples),
          .positions = b.input<int32_t>(at::positions),
          .probability = b.op().attr_float("p"),
          .scope_hash = name_hash(b.op().scope)};
}

}  // namespace plimsoll
