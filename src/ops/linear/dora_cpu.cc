#include "ops/cpu_dispatch.h"
#include "ops/linear/dora_kernels.h"

namespace plimsoll {

BoundCall bind_dora_norm(const CpuBinding& b) {
  const Tensor& weight = b.input_tensor(1);
  return with_element_type(b, weight.dtype, [&](auto zero) -> BoundCall {
    using Args = DoraNorm<decltype(zero)>;
    const Args args{.a = b.input<decltype(zero)>(0),
                    .weight = b.input<decltype(zero)>(1),
                    .b = b.input<decltype(zero)>(2),
                    .lengths = b.output<float>(0),
                    .r = b.input_tensor(0).shape[0],
                    .in = weight.shape[1],
                    .out = weight.shape[0],
                    .scale = static_cast<float>(b.op().attr_float("scale")),
                    .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, dora_norm, Args);
    return [=] { kernel(args); };
  });
}

BoundCall bind_dora_scale(const CpuBinding& b) {
  const Tensor& u = b.input_tensor(0);
  return with_element_type(b, u.dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const DoraScale<T> args{.u = b.input<T>(0),
                            .magnitude = b.input<float>(1),
                            .lengths = b.input<float>(2),
                            .bias = b.input<T>(4),
                            .minus = b.input<T>(5),
                            .addend = b.input<T>(6),
                            .y = b.output<T>(0),
                            .rows = u.shape[0],
                            .width = u.shape[1],
                            .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, dora_scale, DoraScale<T>);
    return [=, step = b.input<double>(3), axis = b.op().axis] {
      DoraScale<T> now = args;
      if (step != nullptr) now.rows = live_tokens(step, axis);
      kernel(now);
    };
  });
}

BoundCall bind_dora_scale_grad(const CpuBinding& b) {
  const Tensor& u = b.input_tensor(0);
  return with_element_type(b, u.dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const DoraScaleGrad<T> args{.u = b.input<T>(0),
                                .magnitude = b.input<float>(1),
                                .lengths = b.input<float>(2),
                                .d_y = b.input<T>(3),
                                .d_u = b.output<T>(0),
                                .d_magnitude = b.output<float>(1),
                                .partials = reinterpret_cast<float*>(b.scratch()),
                                .rows = u.shape[0],
                                .width = u.shape[1],
                                .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, dora_scale_grad, DoraScaleGrad<T>);
    return [=, step = b.input<double>(4), accumulate = b.op().attr_int("accumulate"), axis = b.op().axis] {
      DoraScaleGrad<T> now = args;
      now.rows = live_tokens(step, axis);
      now.accumulate = !overwrites(accumulate, step);
      kernel(now);
    };
  });
}

}  // namespace plimsoll
