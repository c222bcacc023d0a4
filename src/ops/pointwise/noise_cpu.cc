#include "ops/cpu_dispatch.h"
#include "ops/pointwise/noise_args.h"

namespace plimsoll {

BoundCall bind_embedding_noise(const CpuBinding& b) {
  using at = operand::embedding_noise;
  return with_element_type(b, b.input_tensor(at::x).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const EmbeddingNoise<T> args = with_threads(b, embedding_noise_args<T>(b));
    const auto kernel = PLIMSOLL_KERNEL(b, embedding_noise, EmbeddingNoise<T>);
    return [=, step = b.input<double>(at::step)] {
      EmbeddingNoise<T> now = args;
      now.seed = step_seed(step);
      now.step = static_cast<uint32_t>(step_value(step, StepValue::optimizer_step));
      kernel(now);
    };
  });
}

}  // namespace plimsoll
