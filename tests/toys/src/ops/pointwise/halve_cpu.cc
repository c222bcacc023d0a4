#include "ops/cpu_dispatch.h"
#include "ops/pointwise/halve_kernels.h"

namespace plimsoll {

BoundCall bind_halve(const CpuBinding& b) {
  using at = operand::halve;
  return with_element_type(b, b.output_tensor(at::y).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Halve<T> args{b.input<T>(at::x), b.output<T>(at::y), b.output_tensor(at::y).shape.elements()};
    const auto kernel = PLIMSOLL_PLAIN_KERNEL(b, halve, Halve<T>);
    return [=] { kernel(args); };
  });
}

}  // namespace plimsoll
