// embedding_noise (NEFTune).
#include "ops/gpu_step.h"
#include "ops/philox.h"
#include "ops/pointwise/noise_args.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr unsigned kNoiseThreads = 256;
// Elements that a counter's four words serve lie this far apart (ops/philox.h).
constexpr int64_t kNoiseLanes = 16;
constexpr int64_t kNoiseChunk = 4 * kNoiseLanes;

// Four elements of a token a thread; rows of length 0 are copied. y may be x. Arguments as the CPU's
// kernel has them.
template <class T>
__global__ void __launch_bounds__(kNoiseThreads) add_noise(EmbeddingNoise<T> a, const double* step) {
  const int64_t lanes = (a.width + kNoiseChunk - 1) / kNoiseChunk * kNoiseLanes;  // to a token
  const int64_t number = int64_t{blockIdx.x} * kNoiseThreads + threadIdx.x;
  if (number >= a.tokens * lanes) return;
  const int64_t token = number / lanes;
  const int64_t counter = number % lanes;
  const int64_t length = a.lengths[token];
  uint32_t words[4] = {};
  float most = 0;
  if (length > 0) {
    const PhiloxStream stream =
        philox_stream(step_seed(step), a.scope_hash, static_cast<uint32_t>(a.positions[token]),
                      static_cast<uint32_t>(a.samples[token]),
                      static_cast<uint32_t>(step_value(step, StepValue::optimizer_step)));
    philox(stream, static_cast<uint32_t>(counter), words);
    const double elements = static_cast<double>(length) * static_cast<double>(a.width);
    most = static_cast<float>(a.alpha / sqrt(elements) / 2147483648.0);
  }
  PL_UNROLL
  for (int w = 0; w < 4; ++w) {
    const int64_t element = counter / kNoiseLanes * kNoiseChunk + w * kNoiseLanes + counter % kNoiseLanes;
    if (element >= a.width) continue;
    const int64_t at = token * a.width + element;
    const float noise = most * static_cast<float>(static_cast<int32_t>(words[w]));
    a.y[at] = gpu::rounded<T>(gpu::to_float(a.x[at]) + noise);
  }
}

}  // namespace

BoundCall bind_gpu_embedding_noise(const GpuBinding& b) {
  using at = operand::embedding_noise;
  return with_gpu_type(b, b.input_tensor(at::x).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const auto args = embedding_noise_args<T>(b);
    const unsigned blocks = gpu::blocks_of(
        args.tokens * ((args.width + kNoiseChunk - 1) / kNoiseChunk * kNoiseLanes), kNoiseThreads);
    return [=, &stream = b.stream(), step = b.input<double>(at::step)] {
      gpu::launch(stream, {blocks}, {kNoiseThreads}, add_noise<T>, args, step);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
