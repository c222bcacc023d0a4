#include "ops/cpu_dispatch.h"
#include "ops/norm/rms_norm_args.h"

namespace plimsoll {
namespace {

// make(T{}, W{}) for activations T and a weight W: f32 with f32, bf16 with f32 or bf16.
template <class Make>
BoundCall with_weight_type(const CpuBinding& b, Make make) {
  using at = operand::rms_norm;
  return with_gradient_type(b, b.input_tensor(at::x).dtype, b.input_tensor(at::weight).dtype, make);
}

// The gradient's type; without a gradient any that has a kernel.
DType gradient_type(const CpuBinding& b) {
  using at = operand::rms_norm_grad;
  return b.op().has_output(at::d_weight) ? b.output_tensor(at::d_weight).dtype : DType::f32;
}

template <class T, class W, class G>
BoundCall make_rms_norm_grad(const CpuBinding& b) {
  using at = operand::rms_norm_grad;
  using Args = RmsNormGrad<T, W, G>;
  const Args args = with_threads(b, rms_norm_grad_args<T, W, G>(b));
  const auto kernel = PLIMSOLL_KERNEL(b, rms_norm_grad, Args);
  const int64_t groups = b.input_tensor(at::x).shape[1] / args.width;
  return
      [=, step = b.input<double>(at::step), accumulate = b.op().attr_int("accumulate"), axis = b.op().axis] {
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
    const RmsNorm<T, W> args = with_threads(b, rms_norm_args<T, W>(b));
    const auto kernel = PLIMSOLL_KERNEL(b, rms_norm, RmsNorm<T, W>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_rms_norm_grad(const CpuBinding& b) {
  return with_weight_type(b, [&](auto t, auto w) -> BoundCall {
    using T = decltype(t);
    using W = decltype(w);
    if constexpr (sizeof(W) == 2) {
      if (size_of(gradient_type(b)) == 2) return make_rms_norm_grad<T, W, uint16_t>(b);
    }
    check_internal(gradient_type(b) == DType::f32, "rms_norm_grad: no CPU kernel for the gradient's type");
    return make_rms_norm_grad<T, W, float>(b);
  });
}

}  // namespace plimsoll
