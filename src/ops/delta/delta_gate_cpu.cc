#include "ops/cpu_dispatch.h"
#include "ops/delta/delta_gate_kernels.h"

namespace plimsoll {
namespace {

template <class T, class W, class G>
BoundCall make_delta_gate_grad(const CpuBinding& b) {
  using at = operand::delta_gate_grad;
  using Args = DeltaGateGrad<T, W, G>;
  const Args args{.a = b.input<T>(at::a),
                  .b = b.input<T>(at::b),
                  .a_log = b.input<W>(at::a_log),
                  .dt_bias = b.input<W>(at::dt_bias),
                  .d_g = b.input<float>(at::d_g),
                  .d_beta = b.input<float>(at::d_beta),
                  .d_a = b.output<T>(at::d_a),
                  .d_b = b.output<T>(at::d_b),
                  .d_a_log = b.output<G>(at::d_a_log),
                  .d_dt_bias = b.output<G>(at::d_dt_bias),
                  .partials = reinterpret_cast<float*>(b.scratch()),
                  .rows = b.input_tensor(at::a).shape[0],
                  .heads = b.input_tensor(at::a).shape[1],
                  .threads = b.settings().threads};
  const auto kernel = PLIMSOLL_KERNEL(b, delta_gate_grad, Args);
  return [=, step = b.input<double>(at::step), a_log = b.op().attr_int("accumulate"),
          dt_bias = b.op().attr_int("accumulate_bias"), axis = b.op().axis] {
    Args now = args;
    now.live = live_tokens(step, axis);
    now.accumulates_a_log = !overwrites(a_log, step);
    now.accumulates_dt_bias = !overwrites(dt_bias, step);
    kernel(now);
  };
}

// The type of both weights' gradients.
DType weight_gradient_type(const CpuBinding& b) {
  using at = operand::delta_gate_grad;
  const bool has_a_log = b.has_output(at::d_a_log), has_dt_bias = b.has_output(at::d_dt_bias);
  if (!has_a_log && !has_dt_bias) return DType::f32;
  const DType type = has_a_log ? b.output_tensor(at::d_a_log).dtype : b.output_tensor(at::d_dt_bias).dtype;
  check_internal(!has_dt_bias || b.output_tensor(at::d_dt_bias).dtype == type,
                 "delta_gate_grad: gradients of two types");
  return type;
}

}  // namespace

BoundCall bind_delta_gate(const CpuBinding& b) {
  using at = operand::delta_gate;
  return with_gradient_type(b, b.input_tensor(at::a).dtype, b.input_tensor(at::a_log).dtype,
                            [&](auto t, auto w) -> BoundCall {
                              using Args = DeltaGate<decltype(t), decltype(w)>;
                              const Args args{.a = b.input<decltype(t)>(at::a),
                                              .b = b.input<decltype(t)>(at::b),
                                              .a_log = b.input<decltype(w)>(at::a_log),
                                              .dt_bias = b.input<decltype(w)>(at::dt_bias),
                                              .g = b.output<float>(at::g),
                                              .beta = b.output<float>(at::beta),
                                              .rows = b.input_tensor(at::a).shape[0],
                                              .heads = b.input_tensor(at::a).shape[1],
                                              .threads = b.settings().threads};
                              const auto kernel = PLIMSOLL_KERNEL(b, delta_gate, Args);
                              return [=] { kernel(args); };
                            });
}

BoundCall bind_delta_gate_grad(const CpuBinding& b) {
  using at = operand::delta_gate_grad;
  const DType gradient = weight_gradient_type(b);
  return with_gradient_type(
      b, b.input_tensor(at::a).dtype, b.input_tensor(at::a_log).dtype, [&](auto t, auto w) -> BoundCall {
        using T = decltype(t);
        using W = decltype(w);
        if constexpr (sizeof(W) == 2)
          if (size_of(gradient) == 2) return make_delta_gate_grad<T, W, uint16_t>(b);
        check_internal(gradient == DType::f32, "delta_gate_grad: no CPU kernel for the gradient's type");
        return make_delta_gate_grad<T, W, float>(b);
      });
}

}  // namespace plimsoll
