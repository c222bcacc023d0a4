// nf4_dequantize, with the bits of the CPU's: no sums.
#include <algorithm>
#include <iterator>

#include "ops/gpu_dispatch.h"
#include "ops/linear/nf4_args.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr unsigned kNf4Threads = 256;
constexpr int kLevels = 16;

template <class T>
struct Dequantize {
  const uint8_t* codes;
  const float* absmax;  // null with double quantisation: the next four
  const uint8_t* absmax_codes;
  const float* nested_absmax;
  const float* nested_map;
  const float* nested_offset;
  T* weight;
  int64_t count;
  float levels[kLevels] = {};

  [[nodiscard]] PL_DEV float scale(int64_t block) const {
    if (absmax != nullptr) return absmax[block];
    const float scaled = nested_map[absmax_codes[block]] * nested_absmax[block / kNf4NestedBlock];
    return scaled + *nested_offset;
  }
};

// A thread for eight weights, which share a block's scale.
template <class T>
__global__ void __launch_bounds__(kNf4Threads) dequantize(Dequantize<T> a) {
  static_assert(kNf4Block % gpu::kEight == 0);
  PL_SHARED(float, levels, kLevels);
  PL_UNROLL
  for (unsigned i = 0; i < kLevels;
       ++i)  // a parameter that is indexed by the thread would be copied to its stack
    if (threadIdx.x == i) levels[i] = a.levels[i];
  __syncthreads();
  const int64_t at = (int64_t{blockIdx.x} * kNf4Threads + threadIdx.x) * gpu::kEight;
  if (at >= a.count) return;
  const int count = a.count - at < gpu::kEight ? static_cast<int>(a.count - at) : gpu::kEight;
  const float scale = a.scale(at / kNf4Block);
  float values[gpu::kEight] = {};
  PL_UNROLL
  for (int i = 0; i < gpu::kEight; i += 2) {
    if (i >= count) continue;
    const uint8_t pair = a.codes[(at + i) / 2];  // the first of two in the high half
    values[i] = levels[pair >> 4] * scale;
    values[i + 1] = levels[pair & 0xF] * scale;
  }
  gpu::store8(a.weight + at, values, count, count == gpu::kEight);
}

}  // namespace

BoundCall bind_gpu_nf4_dequantize(const GpuBinding& b) {
  using at = operand::nf4_dequantize;
  return with_gpu_type(b, b.output_tensor(at::weight).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    auto args = nf4_dequantize_args<Dequantize<T>, T>(b);
    std::copy(std::begin(kNf4Levels), std::end(kNf4Levels), args.levels);
    return [args, &stream = b.stream()] {
      gpu::launch(stream, {gpu::blocks_of(args.count, int64_t{kNf4Threads} * gpu::kEight)}, {kNf4Threads},
                  dequantize<T>, args);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
