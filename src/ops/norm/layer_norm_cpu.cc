#include "ops/cpu_dispatch.h"
#include "ops/norm/layer_norm_args.h"

namespace plimsoll {
namespace {

template <class T, class W, class G>
BoundCall make_layer_norm_grad(const CpuBinding& b) {
  using at = operand::layer_norm_grad;
  using Args = LayerNormGrad<T, W, G>;
  const Args args = with_threads(b, layer_norm_grad_args<T, W, G>(b));
  const auto kernel = PLIMSOLL_KERNEL(b, layer_norm_grad, Args);
  return
      [=, step = b.input<double>(at::step), accumulate = b.op().attr_int("accumulate"), axis = b.op().axis] {
        Args now = args;
        // Rows of padding hold nothing and would disturb the weight's gradient.
        now.rows = live_tokens(step, axis);
        now.accumulate = !overwrites(accumulate, step);
        kernel(now);
      };
}

}  // namespace

BoundCall bind_layer_norm(const CpuBinding& b) {
  using at = operand::layer_norm;
  return with_gradient_type(b, b.input_tensor(at::x).dtype, b.input_tensor(at::weight).dtype,
                            [&](auto t, auto w) {
                              using Args = LayerNorm<decltype(t), decltype(w)>;
                              const Args args = with_threads(b, layer_norm_args<decltype(t), decltype(w)>(b));
                              const auto kernel = PLIMSOLL_KERNEL(b, layer_norm, Args);
                              return BoundCall([=] { kernel(args); });
                            });
}

BoundCall bind_layer_norm_grad(const CpuBinding& b) {
  using at = operand::layer_norm_grad;
  const DType gradient = b.op().has_output(at::d_weight) ? b.output_tensor(at::d_weight).dtype : DType::f32;
  return with_gradient_type(
      b, b.input_tensor(at::x).dtype, b.input_tensor(at::weight).dtype, [&](auto t, auto w) {
        using T = decltype(t);
        using W = decltype(w);
        if constexpr (sizeof(W) == 2)
          if (size_of(gradient) == 2) return make_layer_norm_grad<T, W, uint16_t>(b);
        check_internal(gradient == DType::f32, "layer_norm_grad: no CPU kernel for the gradient's type");
        return make_layer_norm_grad<T, W, float>(b);
      });
}

}  // namespace plimsoll
