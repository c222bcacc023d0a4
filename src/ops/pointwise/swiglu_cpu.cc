#include "ops/cpu_dispatch.h"
#include "ops/pointwise/swiglu_kernels.h"

namespace plimsoll {

BoundCall bind_swiglu(const CpuBinding& b) {
  const Tensor& gate = b.input_tensor(0);
  return with_element_type(b, gate.dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const int64_t width = gate.shape.last();
    const Swiglu<T> args{.gate = b.input<T>(0),
                         .up = b.input<T>(1),
                         .gate_stride = width,
                         .s = b.output<T>(0),
                         .rows = gate.shape.rows(),
                         .width = width,
                         .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, swiglu, Swiglu<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_swiglu_grad(const CpuBinding& b) {
  const Tensor& gate = b.input_tensor(0);
  return with_element_type(b, gate.dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const int64_t width = gate.shape.last();
    const SwigluGrad<T> args{.d_s = b.input<T>(2),
                             .gate = b.input<T>(0),
                             .up = b.input<T>(1),
                             .d_gate = b.output<T>(0),
                             .d_up = b.output<T>(1),
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
