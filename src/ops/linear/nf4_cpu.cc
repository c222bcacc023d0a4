#include "ops/cpu_dispatch.h"
#include "ops/linear/nf4_kernels.h"

namespace plimsoll {

BoundCall bind_nf4_dequantize(const CpuBinding& b) {
  return with_element_type(b, b.output_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const bool nested = b.op().has_input(2);
    const Nf4Dequantize<T> args{.codes = b.input<uint8_t>(0),
                                .absmax = nested ? nullptr : b.input<float>(1),
                                .absmax_codes = nested ? b.input<uint8_t>(1) : nullptr,
                                .nested_absmax = b.input<float>(2),
                                .nested_map = b.input<float>(3),
                                .nested_offset = b.input<float>(4),
                                .weight = b.output<T>(0),
                                .count = b.output_tensor(0).shape.elements(),
                                .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_PLAIN_KERNEL(b, nf4_dequantize, Nf4Dequantize<T>);
    return [=] { kernel(args); };
  });
}

}  // namespace plimsoll
