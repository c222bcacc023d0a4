#include "ops/cpu_dispatch.h"
#include "ops/pointwise/sigmoid_gate_kernels.h"

namespace plimsoll {
BoundCall bind_sigmoid_gate(const CpuBinding& b) {
  using at = operand::sigmoid_gate;
  const Tensor& x = b.input_tensor(at::x);
  return with_element_type(b, x.dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const SigmoidGate<T> args{.x = b.input<T>(at::x),
                              .gate = b.input<T>(at::gate),
                              .y = b.output<T>(at::y),
                              .rows = x.shape.rows(),
                              .width = x.shape.last(),
                              .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, sigmoid_gate, SigmoidGate<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_sigmoid_gate_grad(const CpuBinding& b) {
  using at = operand::sigmoid_gate_grad;
  const Tensor& x = b.input_tensor(at::x);
  return with_element_type(b, x.dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const SigmoidGateGrad<T> args{.x = b.input<T>(at::x),
                                  .gate = b.input<T>(at::gate),
                                  .d_y = b.input<T>(at::d_y),
                                  .d_x = b.output<T>(at::d_x),
                                  .d_gate = b.output<T>(at::d_gate),
                                  .rows = x.shape.rows(),
                                  .width = x.shape.last(),
                                  .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, sigmoid_gate_grad, SigmoidGateGrad<T>);
    return [=] { kernel(args); };
  });
}

}  // namespace plimsoll
