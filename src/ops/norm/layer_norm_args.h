// The arguments of the kernels of layer_norm, on every backend.
#pragma once

#include "ops/binding.h"
#include "ops/norm/layer_norm_kernels.h"

namespace plimsoll {

// Threads are the CPU's alone.
template <class T, class W>
LayerNorm<T, W> layer_norm_args(const Binding& b) {
  using at = operand::layer_norm;
  return {.x = b.input<T>(at::x),
          .weight = b.input<W>(at::weight),
          .bias = b.input<W>(at::bias),
          .y = b.output<T>(at::y),
          .stats = b.output<float>(at::stats),
          .rows = b.input_tensor(at::x).shape[0],
          .width = b.input_tensor(at::x).shape[1],
          .eps = static_cast<float>(b.op().attr_float("eps"))};
}

// Without `accumulate`, which is known when the call runs.
template <class T, class W, class G>
LayerNormGrad<T, W, G> layer_norm_grad_args(const Binding& b) {
  using at = operand::layer_norm_grad;
  return {.d_y = b.input<T>(at::d_y),
          .x = b.input<T>(at::x),
          .weight = b.input<W>(at::weight),
          .stats = b.input<float>(at::stats),
          .d_x_in = b.input<T>(at::d_x_in),
          .d_x = b.output<T>(at::d_x),
          .d_weight = b.output<G>(at::d_weight),
          .partials = reinterpret_cast<float*>(b.scratch()),
          .rows = b.input_tensor(at::x).shape[0],
          .width = b.input_tensor(at::x).shape[1]};
}

}  // namespace plimsoll
