// The arguments of the kernels of embedding_noise, on every backend.
#pragma once

#include "ops/binding.h"
#include "ops/name_hash.h"
#include "ops/pointwise/noise_kernels.h"

namespace plimsoll {

// Seed and step are known when the call runs; threads are the CPU's alone.
template <class T>
EmbeddingNoise<T> embedding_noise_args(const Binding& b) {
  using at = operand::embedding_noise;
  const Tensor& x = b.input_tensor(at::x);
  return {.x = b.input<T>(at::x),
          .y = b.output<T>(at::y),
          .tokens = x.shape[0],
          .width = x.shape[1],
          .samples = b.input<int32_t>(at::samples),
          .positions = b.input<int32_t>(at::positions),
          .lengths = b.input<int32_t>(at::lengths),
          .alpha = b.op().attr_float("alpha"),
          .scope_hash = name_hash(b.op().scope)};
}

}  // namespace plimsoll
