// The arguments of the kernels of int8_dequantize, on every backend.
#pragma once

#include "ops/binding.h"
#include "ops/linear/int8_kernels.h"

namespace plimsoll {

// `Args`: the backend's, of element type T.
template <class Args, class T>
Args int8_dequantize_args(const Binding& b) {
  using at = operand::int8_dequantize;
  const Shape& shape = b.output_tensor(at::weight).shape;
  return {.codes = b.input<int8_t>(at::codes),
          .absmax = b.input<float>(at::absmax),
          .weight = b.output<T>(at::weight),
          .rows = shape[0],
          .width = shape[1]};
}

}  // namespace plimsoll
