#include "ops/cpu_dispatch.h"
#include "ops/linear/nf4_args.h"

namespace plimsoll {

BoundCall bind_nf4_dequantize(const CpuBinding& b) {
  using at = operand::nf4_dequantize;
  return with_element_type(b, b.output_tensor(at::weight).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const auto args = with_threads(b, nf4_dequantize_args<Nf4Dequantize<T>, T>(b));
    const auto kernel = PLIMSOLL_PLAIN_KERNEL(b, nf4_dequantize, Nf4Dequantize<T>);
    return [=] { kernel(args); };
  });
}

}  // namespace plimsoll
