#include "ops/cpu_dispatch.h"
#include "ops/linear/dora_args.h"

namespace plimsoll {

BoundCall bind_dora_norm(const CpuBinding& b) {
  using at = operand::dora_norm;
  return with_element_type(b, b.input_tensor(at::weight).dtype, [&](auto zero) -> BoundCall {
    using Args = DoraNorm<decltype(zero)>;
    const Args args = with_threads(b, dora_norm_args<decltype(zero)>(b));
    const auto kernel = PLIMSOLL_KERNEL(b, dora_norm, Args);
    return [=] { kernel(args); };
  });
}

BoundCall bind_dora_scale(const CpuBinding& b) {
  using at = operand::dora_scale;
  return with_element_type(b, b.input_tensor(at::u).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const DoraScale<T> args = with_threads(b, dora_scale_args<T>(b));
    const auto kernel = PLIMSOLL_KERNEL(b, dora_scale, DoraScale<T>);
    return [=, step = b.input<double>(at::step), axis = b.op().axis] {
      DoraScale<T> now = args;
      if (step != nullptr) now.rows = live_tokens(step, axis);
      kernel(now);
    };
  });
}

BoundCall bind_dora_scale_grad(const CpuBinding& b) {
  using at = operand::dora_scale_grad;
  return with_element_type(b, b.input_tensor(at::u).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const DoraScaleGrad<T> args = with_threads(b, dora_scale_grad_args<T>(b));
    const auto kernel = PLIMSOLL_KERNEL(b, dora_scale_grad, DoraScaleGrad<T>);
    return [=, step = b.input<double>(at::step), accumulate = b.op().attr_int("accumulate"),
            axis = b.op().axis] {
      DoraScaleGrad<T> now = args;
      now.rows = live_tokens(step, axis);
      now.accumulate = !overwrites(accumulate, step);
      kernel(now);
    };
  });
}

}  // namespace plimsoll
