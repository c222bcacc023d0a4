#include "ops/cpu_dispatch.h"
#include "ops/pointwise/dropout_args.h"

namespace plimsoll {

BoundCall bind_dropout(const CpuBinding& b) {
  using at = operand::dropout;
  return with_element_type(b, b.input_tensor(at::x).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Dropout<T> args = with_threads(b, dropout_args<T>(b));
    const auto kernel = PLIMSOLL_KERNEL(b, dropout, Dropout<T>);
    return [=, step = b.input<double>(at::step)] {
      Dropout<T> now = args;
      now.seed = step_seed(step);
      now.step = static_cast<uint32_t>(step_value(step, StepValue::optimizer_step));
      kernel(now);
    };
  });
}

}  // namespace plimsoll
