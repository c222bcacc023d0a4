// The arguments of the kernels of DoRA, on every backend. Threads are the CPU's alone.
#pragma once

#include "ops/binding.h"
#include "ops/linear/dora_kernels.h"

namespace plimsoll {

template <class T>
DoraNorm<T> dora_norm_args(const Binding& b) {
  using at = operand::dora_norm;
  const Tensor& weight = b.input_tensor(at::weight);
  return {.a = b.input<T>(at::a),
          .weight = b.input<T>(at::weight),
          .b = b.input<T>(at::b),
          .lengths = b.output<float>(at::lengths),
          .r = b.input_tensor(at::a).shape[0],
          .in = weight.shape[1],
          .out = weight.shape[0],
          .scale = static_cast<float>(b.op().attr_float("scale"))};
}

template <class T>
DoraScale<T> dora_scale_args(const Binding& b) {
  using at = operand::dora_scale;
  const Tensor& u = b.input_tensor(at::u);
  return {.u = b.input<T>(at::u),
          .magnitude = b.input<float>(at::magnitude),
          .lengths = b.input<float>(at::lengths),
          .bias = b.input<T>(at::bias),
          .minus = b.input<T>(at::minus),
          .addend = b.input<T>(at::addend),
          .y = b.output<T>(at::y),
          .rows = u.shape[0],
          .width = u.shape[1]};
}

// Without `accumulate`, which is known when the call runs.
template <class T>
DoraScaleGrad<T> dora_scale_grad_args(const Binding& b) {
  using at = operand::dora_scale_grad;
  const Tensor& u = b.input_tensor(at::u);
  return {.u = b.input<T>(at::u),
          .magnitude = b.input<float>(at::magnitude),
          .lengths = b.input<float>(at::lengths),
          .d_y = b.input<T>(at::d_y),
          .d_u = b.output<T>(at::d_u),
          .d_magnitude = b.output<float>(at::d_magnitude),
          .partials = reinterpret_cast<float*>(b.scratch()),
          .rows = u.shape[0],
          .width = u.shape[1]};
}

}  // namespace plimsoll
