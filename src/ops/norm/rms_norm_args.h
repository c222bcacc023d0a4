// The arguments of the kernels of rms_norm, on every backend.
#pragma once

#include "ops/binding.h"
#include "ops/norm/norm_form.h"
#include "ops/norm/rms_norm_kernels.h"

namespace plimsoll {

// Threads are the CPU's alone.
template <class T, class W>
RmsNorm<T, W> rms_norm_args(const Binding& b) {
  using at = operand::rms_norm;
  const int64_t width = b.input_tensor(at::weight).shape[0];
  return {.x = b.input<T>(at::x),
          .weight = b.input<W>(at::weight),
          .y = b.output<T>(at::y),
          .rstd = b.output<float>(at::rstd),
          .rows = b.input_tensor(at::x).shape.elements() / width,
          .width = width,
          .eps = static_cast<float>(b.op().attr_float("eps")),
          .rounds_first = norm_form(b.op()) == NormForm::round_first,
          .added = norm_form(b.op()) == NormForm::plus_one ? 1.0F : 0.0F};
}

// Without `accumulate`, which is known when the call runs.
template <class T, class W, class G>
RmsNormGrad<T, W, G> rms_norm_grad_args(const Binding& b) {
  using at = operand::rms_norm_grad;
  const int64_t width = b.input_tensor(at::weight).shape[0];
  return {.d_y = b.input<T>(at::d_y),
          .x = b.input<T>(at::x),
          .weight = b.input<W>(at::weight),
          .rstd = b.input<float>(at::rstd),
          .d_x_in = b.input<T>(at::d_x_in),
          .d_x = b.output<T>(at::d_x),
          .d_weight = b.output<G>(at::d_weight),
          .partials = reinterpret_cast<float*>(b.scratch()),
          .rows = b.input_tensor(at::x).shape.elements() / width,
          .width = width,
          .rounds_first = norm_form(b.op()) == NormForm::round_first,
          .added = norm_form(b.op()) == NormForm::plus_one ? 1.0F : 0.0F};
}

}  // namespace plimsoll
