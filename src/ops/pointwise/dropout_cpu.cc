#include "ops/cpu_dispatch.h"
#include "ops/name_hash.h"
#include "ops/pointwise/dropout_kernels.h"

namespace plimsoll {

BoundCall bind_dropout(const CpuBinding& b) {
  const Tensor& x = b.input_tensor(0);
  return with_element_type(b, x.dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Dropout<T> args{.x = b.input<T>(0),
                          .y = b.output<T>(0),
                          .tokens = x.shape[0],
                          .width = x.shape[1],
                          .samples = b.input<int32_t>(1),
                          .positions = b.input<int32_t>(2),
                          .probability = b.op().attr_float("p"),
                          .scope_hash = name_hash(b.op().scope),
                          .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, dropout, Dropout<T>);
    return [=, step = b.input<double>(3)] {
      Dropout<T> now = args;
      now.seed = step_seed(step);
      now.step = static_cast<uint32_t>(step_value(step, StepValue::optimizer_step));
      kernel(now);
    };
  });
}

}  // namespace plimsoll
