#include "ops/cpu_dispatch.h"
#include "ops/pointwise/halves.h"
#include "ops/pointwise/swiglu_kernels.h"

namespace plimsoll {

BoundCall bind_swiglu(const CpuBinding& b) {
  using at = operand::swiglu;
  const Tensor& gate = b.input_tensor(at::gate);
  return with_element_type(b, gate.dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const GatedRows<T> in = gated_rows<T, at>(b);
    const Swiglu<T> args{.gate = in.gate,
                         .up = in.up,
                         .gate_stride = in.stride,
                         .s = b.output<T>(at::s),
                         .rows = in.rows,
                         .width = in.width,
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
    const GatedRows<T> in = gated_rows<T, at>(b);
    const SwigluGrad<T> args{.d_s = b.input<T>(at::d_s),
                             .gate = in.gate,
                             .up = in.up,
                             .d_gate = b.output<T>(at::d_gate),
                             .d_up = gated_d_up<T, at>(b, in.width),
                             .gate_stride = in.stride,
                             .d_gate_stride = in.stride,
                             .rows = in.rows,
                             .width = in.width,
                             .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, swiglu_grad, SwigluGrad<T>);
    return [=] { kernel(args); };
  });
}

}  // namespace plimsoll
