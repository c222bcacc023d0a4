#include "ops/cpu_dispatch.h"
#include "ops/name_hash.h"
#include "ops/pointwise/noise_kernels.h"

namespace plimsoll {

BoundCall bind_embedding_noise(const CpuBinding& b) {
  const Tensor& x = b.input_tensor(0);
  return with_element_type(b, x.dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const EmbeddingNoise<T> args{.x = b.input<T>(0),
                                 .y = b.output<T>(0),
                                 .tokens = x.shape[0],
                                 .width = x.shape[1],
                                 .samples = b.input<int32_t>(1),
                                 .positions = b.input<int32_t>(2),
                                 .lengths = b.input<int32_t>(3),
                                 .alpha = b.op().attr_float("alpha"),
                                 .scope_hash = name_hash(b.op().scope),
                                 .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, embedding_noise, EmbeddingNoise<T>);
    return [=, step = b.input<double>(4)] {
      EmbeddingNoise<T> now = args;
      now.seed = step_seed(step);
      now.step = static_cast<uint32_t>(step_value(step, StepValue::optimizer_step));
      kernel(now);
    };
  });
}

}  // namespace plimsoll
