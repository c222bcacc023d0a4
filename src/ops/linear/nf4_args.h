// The arguments of the kernels of nf4_dequantize, on every backend.
#pragma once

#include "ops/binding.h"
#include "ops/linear/nf4_kernels.h"

namespace plimsoll {

// `Args`: the backend's, of element type T.
template <class Args, class T>
Args nf4_dequantize_args(const Binding& b) {
  using at = operand::nf4_dequantize;
  const bool nested = b.has_input(at::nested_absmax);
  return {.codes = b.input<uint8_t>(at::codes),
          .absmax = nested ? nullptr : b.input<float>(at::absmax),
          .absmax_codes = nested ? b.input<uint8_t>(at::absmax) : nullptr,
          .nested_absmax = b.input<float>(at::nested_absmax),
          .nested_map = b.input<float>(at::nested_quant_map),
          .nested_offset = b.input<float>(at::nested_offset),
          .weight = b.output<T>(at::weight),
          .count = b.output_tensor(at::weight).shape.elements()};
}

}  // namespace plimsoll
