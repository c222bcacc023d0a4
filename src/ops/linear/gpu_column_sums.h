// Sums of columns, as the gradients of biases are: over blocks of rows, then over the blocks in order.
#pragma once

#include "gpu/math.h"
#include "ops/gpu_step.h"
#include "ops/pointwise/elementwise_kernels.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

inline constexpr unsigned kColumnThreads = 128;

// Sums of each column over kColumnSumRowsPerBlock rows: a thread for a column and a block of rows.
template <class T>
__global__ void __launch_bounds__(kColumnThreads)
    sum_columns(const T* x, int64_t rows, int64_t columns, LiveRows live, float* partials) {
  const int64_t column = int64_t{blockIdx.x} * kColumnThreads + threadIdx.x;
  const int64_t begin = int64_t{blockIdx.y} * kColumnSumRowsPerBlock, there = live.of(rows);
  if (column >= columns || begin >= there) return;
  const int64_t end = begin + kColumnSumRowsPerBlock < there ? begin + kColumnSumRowsPerBlock : there;
  float sum = 0;
  for (int64_t row = begin; row < end; ++row) sum += gpu::to_float(x[row * columns + column]);
  partials[blockIdx.y * columns + column] = sum;
}
// The blocks' sums in order.
template <class G>
__global__ void __launch_bounds__(kColumnThreads)
    add_column_sums(const float* partials, int64_t rows, int64_t columns, LiveRows live,
                    Accumulation accumulation, G* gradient) {
  const int64_t column = int64_t{blockIdx.x} * kColumnThreads + threadIdx.x;
  if (column >= columns) return;
  float sum = accumulation.adds() ? gpu::to_float(gradient[column]) : 0.0F;
  const int64_t blocks = column_sum_blocks(live.of(rows));
  for (int64_t block = 0; block < blocks; ++block) sum += partials[block * columns + column];
  gradient[column] = gpu::rounded<G>(sum);
}

template <class T, class G>
struct GpuColumnSums {
  const T* x = nullptr;           // [rows, columns]
  int64_t rows = 0, columns = 0;  // planned
  float* partials = nullptr;      // [column_sum_blocks(rows), columns]
  G* sums = nullptr;              // [columns]
};
template <class T, class G>
void launch_column_sums(gpu::Stream& stream, const GpuColumnSums<T, G>& a, LiveRows live,
                        Accumulation accumulation) {
  const unsigned across = gpu::blocks_of(a.columns, kColumnThreads);
  const auto blocks = static_cast<unsigned>(column_sum_blocks(a.rows));
  gpu::launch(stream, {across, blocks}, {kColumnThreads}, sum_columns<T>, a.x, a.rows, a.columns, live,
              a.partials);
  gpu::launch(stream, {across}, {kColumnThreads}, add_column_sums<G>, a.partials, a.rows, a.columns, live,
              accumulation, a.sums);
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
