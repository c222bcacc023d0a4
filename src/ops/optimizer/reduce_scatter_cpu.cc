#include "ops/optimizer/optimizer_cpu.h"
#include "ops/parallel_memory.h"
#include "ops/pointwise/elementwise_kernels.h"

namespace plimsoll {

BoundCall bind_reduce_scatter(const CpuBinding& b) {
  using at = operand::reduce_scatter;
  return with_element_type(b, b.output_tensor(at::piece).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Add<T> sum{.a = b.output<T>(at::piece),
                     .b = gradient_slice<T>(b, at::gradient),
                     .y = b.output<T>(at::piece),
                     .count = updated_range(b.graph(), b.op(), at::gradient).elements,
                     .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, add, Add<T>);
    return [sum, kernel, step = b.input<double>(at::step)] {
      if (step_value(step, StepValue::first_micro_step) == 1.0)
        parallel_copy(sum.y, sum.b, sum.count * int64_t{sizeof(T)}, sum.threads);
      else
        kernel(sum);
    };
  });
}

}  // namespace plimsoll
