#include "ops/cpu_dispatch.h"
#include "ops/linear/int8_args.h"

namespace plimsoll {

BoundCall bind_int8_dequantize(const CpuBinding& b) {
  using at = operand::int8_dequantize;
  return with_element_type(b, b.output_tensor(at::weight).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const auto args = with_threads(b, int8_dequantize_args<Int8Dequantize<T>, T>(b));
    const auto kernel = PLIMSOLL_PLAIN_KERNEL(b, int8_dequantize, Int8Dequantize<T>);
    return [=] { kernel(args); };
  });
}

}  // namespace plimsoll
