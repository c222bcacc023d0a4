#include "ops/cpu_dispatch.h"
#include "ops/pointwise/swiglu_kernels.h"

namespace plimsoll {

BoundCall bind_swiglu(const CpuBinding& b) {
  using at = operand::swiglu;
  const Tensor& gate = b.input_tensor(at::gate);
  return with_element_type(b, gate.dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const int64_t width = gate.shape.last();
    const Swiglu<T> args{.gate = b.input<T>(at::gate),
                         .up = b.input<T>(at::up),
                         .gate_stride = width,
                         .s = b.output<T>(at::s),
                         .rows = gate.shape.rows(),
                         .width = width,
                         .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, swiglu, Swiglu<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_swiglu_grad(const CpuBinding& b) {
  using at = operand::swiglu_grad;
  const Tensor& gate = b.input_tensor(at::gate);
  return with_element_type(b, gate.dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const int64_t width = gate.shape.last();
    const SwigluGrad<T> args{.d_s = b.input<T>(at::d_s),
                             .gate = b.input<T>(at::gate),
                             .up = b.input<T>(at::up),
                             .d_gate = b.output<T>(at::d_gate),
                             .d_up = b.output<T>(at::d_up),
                             .gate_stride = width,
                             .d_gate_stride = width,
                             .rows = gate.shape.rows(),
                             .width = width,
                             .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, swiglu_grad, SwigluGrad<T>);
    return [=] { kernel(args); };
  });
}

}  // namespace plimsoll
