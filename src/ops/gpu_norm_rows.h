// Helpers that RMSNorm and LayerNorm share on GPUs: which threads take which row, and the sum of a weight's
// gradient.
#pragma once

#include "ops/gpu_dispatch.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

inline constexpr int kNormThreads = 128;
// A warp takes a row up to this width (heads, tiny models), a block a wider one.
inline constexpr int64_t kNormWarpWidth = 256;

template <int kRowThreads>
constexpr int kNormRowsPerBlock = kNormThreads / kRowThreads;

// Sums over the threads of a row, in each of them. A kernel's sums have a number each: the next may be under
// way while threads still read the last.
template <int kRowThreads, int kNumber = 0>
PL_DEV float row_sum(float x) {
  if constexpr (kRowThreads == gpu::kWarpSize) {
    return gpu::warp_sum(x);
  } else {
    PL_SHARED(float, parts, kNormThreads / gpu::kWarpSize);
    return gpu::block_sum<kNormThreads>(x, parts);
  }
}
template <int kRowThreads>
PL_DEV int64_t own_row() {
  return int64_t{blockIdx.x} * kNormRowsPerBlock<kRowThreads> + static_cast<int>(threadIdx.x) / kRowThreads;
}

// visit(column, count) for the eights of a row that are this thread's.
template <int kRowThreads, class Visit>
PL_DEV void for_eights(int64_t width, Visit visit) {
  constexpr int64_t kStride = int64_t{kRowThreads} * gpu::kEight;
  for (int64_t at = static_cast<int>(threadIdx.x) % kRowThreads * gpu::kEight; at < width; at += kStride) {
    const int64_t left = width - at;
    visit(at, left >= gpu::kEight ? gpu::kEight : static_cast<int>(left));
  }
}

// The values of a step that the kernels of the gradient read.
struct NormLive {
  const double* step;
  AxisId axis;
  int64_t groups;      // rows to a token
  int64_t accumulate;  // of the weight's gradient
  PL_DEV int64_t rows() const { return live_tokens(step, axis) * groups; }
};

// The parts in order, so that the sum does not depend on when blocks ran.
template <class G>
__global__ void __launch_bounds__(kNormThreads)
    sum_parts(const float* parts, int64_t blocks, int64_t width, NormLive live, G* d_weight) {
  const int64_t column = int64_t{blockIdx.x} * kNormThreads + threadIdx.x;
  if (column >= width) return;
  float sum = 0;
  for (int64_t b = 0; b < blocks; ++b) sum += parts[b * width + column];
  if (!overwrites_gradient(live.accumulate, live.step)) sum += gpu::to_float(d_weight[column]);
  d_weight[column] = gpu::rounded<G>(sum);
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
