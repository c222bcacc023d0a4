#include "ops/cpu_dispatch.h"
#include "ops/norm/layer_norm_kernels.h"

namespace plimsoll {
namespace {

template <class T, class W, class G>
BoundCall make_grad(const CpuBinding& b) {
  using Args = LayerNormGrad<T, W, G>;
  const Args args{.d_y = b.input<T>(3),
                  .x = b.input<T>(0),
                  .weight = b.input<W>(1),
                  .stats = b.input<float>(2),
                  .d_x_in = b.input<T>(4),
                  .d_x = b.output<T>(0),
                  .d_weight = b.output<G>(1),
                  .partials = reinterpret_cast<float*>(b.scratch()),
                  .width = b.input_tensor(1).shape[0],
                  .threads = b.settings().threads};
  const auto kernel = PLIMSOLL_KERNEL(b, layer_norm_grad, Args);
  return [=, step = b.input<double>(5), accumulate = b.op().attr_int("accumulate"), axis = b.op().axis] {
    Args now = args;
    // Rows of padding hold nothing and would disturb the weight's gradient.
    now.rows = live_tokens(step, axis);
    now.accumulate = !overwrites(accumulate, step);
    kernel(now);
  };
}

}  // namespace

BoundCall bind_layer_norm(const CpuBinding& b) {
  return with_gradient_type(b, b.input_tensor(0).dtype, b.input_tensor(1).dtype, [&](auto t, auto w) {
    using Args = LayerNorm<decltype(t), decltype(w)>;
    const Args args{.x = b.input<decltype(t)>(0),
                    .weight = b.input<decltype(w)>(1),
                    .bias = b.input<decltype(w)>(2),
                    .y = b.output<decltype(t)>(0),
                    .stats = b.output<float>(1),
                    .rows = b.input_tensor(0).shape[0],
                    .width = b.input_tensor(0).shape[1],
                    .eps = static_cast<float>(b.op().attr_float("eps")),
                    .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, layer_norm, Args);
    return BoundCall([=] { kernel(args); });
  });
}

BoundCall bind_layer_norm_grad(const CpuBinding& b) {
  const DType gradient = b.op().has_output(1) ? b.output_tensor(1).dtype : DType::f32;
  return with_gradient_type(b, b.input_tensor(0).dtype, b.input_tensor(1).dtype, [&](auto t, auto w) {
    using T = decltype(t);
    using W = decltype(w);
    if constexpr (sizeof(W) == 2)
      if (size_of(gradient) == 2) return make_grad<T, W, uint16_t>(b);
    check_internal(gradient == DType::f32, "layer_norm_grad: no CPU kernel for the gradient's type");
    return make_grad<T, W, float>(b);
  });
}

}  // namespace plimsoll
