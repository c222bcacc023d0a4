#include "ops/cpu_dispatch.h"
#include "ops/norm/rms_norm_kernels.h"

namespace plimsoll {
namespace {

// make(T{}, W{}) for activations T and a weight W: f32 with f32, bf16 with f32 or bf16.
template <class Make>
BoundCall with_weight_type(const CpuBinding& b, Make make) {
  return with_gradient_type(b, b.input_tensor(0).dtype, b.input_tensor(1).dtype, make);
}

// The gradient's type; without a gradient any that has a kernel.
DType gradient_type(const CpuBinding& b) {
  return b.op().has_output(1) ? b.output_tensor(1).dtype : DType::f32;
}

template <class T, class W, class G>
BoundCall make_grad(const CpuBinding& b) {
  const int64_t width = b.input_tensor(1).shape[0];
  using Args = RmsNormGrad<T, W, G>;
  const Args args{.d_y = b.input<T>(3),
                  .x = b.input<T>(0),
                  .weight = b.input<W>(1),
                  .rstd = b.input<float>(2),
                  .d_x_in = b.input<T>(4),
                  .d_x = b.output<T>(0),
                  .d_weight = b.output<G>(1),
                  .partials = reinterpret_cast<float*>(b.scratch()),
                  .rows = b.input_tensor(0).shape.elements() / width,
                  .width = width,
                  .threads = b.settings().threads};
  const auto kernel = PLIMSOLL_KERNEL(b, rms_norm_grad, Args);
  const int64_t groups = b.input_tensor(0).shape[1] / width;
  return [=, step = b.input<double>(5), accumulate = b.op().attr_int("accumulate"), axis = b.op().axis] {
    Args now = args;
    // Rows of padding hold nothing and would disturb the weight's gradient.
    now.rows = live_tokens(step, axis) * groups;
    now.accumulate = !overwrites(accumulate, step);
    kernel(now);
  };
}

}  // namespace

BoundCall bind_rms_norm(const CpuBinding& b) {
  return with_weight_type(b, [&](auto t, auto w) -> BoundCall {
    using T = decltype(t);
    using W = decltype(w);
    const int64_t width = b.input_tensor(1).shape[0];
    const RmsNorm<T, W> args{.x = b.input<T>(0),
                             .weight = b.input<W>(1),
                             .y = b.output<T>(0),
                             .rstd = b.output<float>(1),
                             .rows = b.input_tensor(0).shape.elements() / width,
                             .width = width,
                             .eps = static_cast<float>(b.op().attr_float("eps")),
                             .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, rms_norm, RmsNorm<T, W>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_rms_norm_grad(const CpuBinding& b) {
  return with_weight_type(b, [&](auto t, auto w) -> BoundCall {
    using T = decltype(t);
    using W = decltype(w);
    if constexpr (sizeof(W) == 2) {
      if (size_of(gradient_type(b)) == 2) return make_grad<T, W, uint16_t>(b);
    }
    check_internal(gradient_type(b) == DType::f32, "rms_norm_grad: no CPU kernel for the gradient's type");
    return make_grad<T, W, float>(b);
  });
}

}  // namespace plimsoll
