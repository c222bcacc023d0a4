#include "ops/cpu_dispatch.h"
#include "ops/pointwise/halve_kernels.h"

namespace plimsoll {

BoundCall bind_halve(const CpuBinding& b) {
  return with_element_type(b, b.output_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Halve<T> args{b.input<T>(0), b.output<T>(0), b.output_tensor(0).shape.elements()};
    const auto kernel = PLIMSOLL_PLAIN_KERNEL(b, halve, Halve<T>);
    return [=] { kernel(args); };
  });
}

}  // namespace plimsoll
