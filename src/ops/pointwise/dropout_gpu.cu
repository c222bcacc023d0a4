#include "ops/gpu_dispatch.h"
#include "ops/philox.h"
#include "ops/pointwise/dropout_args.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr unsigned kDropoutThreads = 256;
// Elements that a counter's four words serve lie this far apart (ops/philox.h).
constexpr int64_t kDropoutLanes = 16;
constexpr int64_t kDropoutChunk = 4 * kDropoutLanes;

// Four elements of a token a thread. y may be x. Arguments as the CPU's kernel has them; seed and step are
// the step tensor's.
template <class T>
__global__ void __launch_bounds__(kDropoutThreads)
    drop(Dropout<T> a, const double* step, float factor, uint32_t threshold) {
  const int64_t lanes = (a.width + kDropoutChunk - 1) / kDropoutChunk * kDropoutLanes;  // to a token
  const int64_t number = int64_t{blockIdx.x} * kDropoutThreads + threadIdx.x;
  if (number >= a.tokens * lanes) return;
  const int64_t token = number / lanes;
  const int64_t counter = number % lanes;
  const PhiloxStream stream =
      philox_stream(step_seed(step), a.scope_hash, static_cast<uint32_t>(a.positions[token]),
                    static_cast<uint32_t>(a.samples[token]),
                    static_cast<uint32_t>(step_value(step, StepValue::optimizer_step)));
  uint32_t words[4];
  philox(stream, static_cast<uint32_t>(counter), words);
  PL_UNROLL
  for (int w = 0; w < 4; ++w) {
    const int64_t element =
        counter / kDropoutLanes * kDropoutChunk + w * kDropoutLanes + counter % kDropoutLanes;
    if (element >= a.width) continue;
    const int64_t at = token * a.width + element;
    const float kept = gpu::to_float(a.x[at]) * factor;
    a.y[at] = gpu::rounded<T>(words[w] >= threshold ? kept : 0.0F);
  }
}

}  // namespace

BoundCall bind_gpu_dropout(const GpuBinding& b) {
  using at = operand::dropout;
  return with_gpu_type(b, b.input_tensor(at::x).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const double p = b.op().attr_float("p");
    const auto args = dropout_args<T>(b);
    const auto factor = static_cast<float>(1.0 / (1.0 - p));
    const auto threshold = static_cast<uint32_t>(p * 4294967296.0);  // of an element's 32 bits
    const unsigned blocks = gpu::blocks_of(
        args.tokens * ((args.width + kDropoutChunk - 1) / kDropoutChunk * kDropoutLanes), kDropoutThreads);
    return [=, &stream = b.stream(), step = b.input<double>(at::step)] {
      gpu::launch(stream, {blocks}, {kDropoutThreads}, drop<T>, args, step, factor, threshold);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
