// Rows moved or cleared as words: the widest ones that rows of their size are made of.
#pragma once

#include "ops/gpu_dispatch.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

struct alignas(16) SixteenBytes {
  uint32_t words[4];
};

// make(W{}, words to a row) for rows of `bytes`.
template <class Make>
BoundCall with_row_words(int64_t bytes, Make make) {
  if (bytes % 16 == 0) return make(SixteenBytes{}, bytes / 16);
  if (bytes % 4 == 0) return make(uint32_t{}, bytes / 4);
  return make(uint16_t{}, bytes / 2);
}

inline constexpr unsigned kClearThreads = 256;
template <class W>
__global__ void __launch_bounds__(kClearThreads) clear_words(W* to, int64_t count) {
  const int64_t at = int64_t{blockIdx.x} * kClearThreads + threadIdx.x;
  if (at < count) to[at] = W{};
}
template <class W>
void launch_clear(gpu::Stream& stream, W* to, int64_t count) {
  gpu::launch(stream, {gpu::blocks_of(count, kClearThreads)}, {kClearThreads}, clear_words<W>, to, count);
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
