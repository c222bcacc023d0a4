// Rows moved or cleared as words: the widest ones that rows of their size are made of; and rows of which
// several are added to one.
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

// Rows of a list, each of which is added to the row that it names: `name(i)`, of which several may name the
// same. A block of kThreads for each; the one of the first that names a row adds all that do, in their order,
// as the CPU does: no two blocks meet in a row, and no bit depends on when blocks run.
template <int kThreads>
struct NamedRows {
  static constexpr int kWarps = kThreads / gpu::kWarpSize;
  struct Bits {
    uint32_t masks[kWarps];  // a bit for each of kThreads rows
  };

  // Returns true if an earlier row names the same as row `own`; the block's threads ask together.
  template <class NameOf>
  static PL_DEV bool is_repeated(int own, const NameOf& name) {
    PL_SHARED(float, parts, kWarps);
    const auto sought = name(own);
    float found = 0;
    for (int i = static_cast<int>(threadIdx.x); i < own; i += kThreads)
      if (name(i) == sought) found = 1;
    return gpu::block_sum<kThreads>(found, parts) > 0;
  }

  // Adds the rows `from` [count, width] from `first` on that name what it does to `to`, rounded to G after
  // each. The block's threads look at kThreads rows at a time; bits that are read and bits that are written
  // take turns.
  template <class T, class G, class NameOf>
  static PL_DEV void add(int first, int count, const NameOf& name, const T* from, int64_t width, G* to) {
    PL_SHARED(Bits, found, 2);
    const auto sought = name(first);
    int turn = 0;
    for (int begin = first; begin < count; begin += kThreads, turn ^= 1) {
      const int own = begin + static_cast<int>(threadIdx.x);
      const uint32_t of_warp = __ballot_sync(gpu::kAll, own < count && name(own) == sought);
      if (threadIdx.x % gpu::kWarpSize == 0) found[turn].masks[threadIdx.x / gpu::kWarpSize] = of_warp;
      __syncthreads();
      const Bits bits = found[turn];
      uint32_t any = 0;
      for (const uint32_t mask : bits.masks) any |= mask;
      if (any == 0) continue;
      for (int64_t column = threadIdx.x; column < width; column += kThreads) {
        G sum = to[column];
        for (int warp = 0; warp < kWarps; ++warp)
          for (uint32_t left = bits.masks[warp]; left != 0; left &= left - 1) {
            const int row = begin + warp * gpu::kWarpSize + gpu::lowest_bit(left);
            sum = gpu::rounded<G>(gpu::to_float(sum) + gpu::to_float(from[int64_t{row} * width + column]));
          }
        to[column] = sum;
      }
    }
  }
};

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
