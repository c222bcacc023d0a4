// add, scale, gather_rows, scatter_rows.
#include "ops/gpu_rows.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr unsigned kElementwiseThreads = 256;
constexpr int64_t kElementwisePerBlock = int64_t{kElementwiseThreads} * gpu::kEight;

// Outputs may be inputs.
template <class T>
__global__ void __launch_bounds__(kElementwiseThreads)
    add_values(const T* a, const T* b, T* y, int64_t count) {
  const gpu::OwnEight own(count);
  if (own.count == 0) return;
  float left[gpu::kEight], right[gpu::kEight];
  gpu::load8(left, a + own.at, own.count, own.whole());
  gpu::load8(right, b + own.at, own.count, own.whole());
  PL_UNROLL
  for (int i = 0; i < gpu::kEight; ++i) left[i] += right[i];
  gpu::store8(y + own.at, left, own.count, own.whole());
}

template <class T>
__global__ void __launch_bounds__(kElementwiseThreads)
    scale_values(const T* x, T* y, float factor, int64_t count) {
  const gpu::OwnEight own(count);
  if (own.count == 0) return;
  float value[gpu::kEight];
  gpu::load8(value, x + own.at, own.count, own.whole());
  PL_UNROLL
  for (int i = 0; i < gpu::kEight; ++i) value[i] *= factor;
  gpu::store8(y + own.at, value, own.count, own.whole());
}

// Row ids[blockIdx.x] of `from` becomes row blockIdx.x of `to`. W: as wide a word as rows are made of.
template <class W>
__global__ void __launch_bounds__(kElementwiseThreads)
    gather(const W* from, const int32_t* ids, W* to, int64_t rows, int64_t words) {
  const int64_t id = ids[blockIdx.x];
  gpu::require(id >= 0 && id < rows, "gather_rows: a row number is out of range");
  for (int64_t i = threadIdx.x; i < words; i += kElementwiseThreads)
    to[blockIdx.x * words + i] = from[id * words + i];
}

// The other way round, of the live rows alone.
template <class W>
__global__ void __launch_bounds__(kElementwiseThreads)
    scatter(const W* from, const int32_t* ids, const double* step, AxisId axis, W* to, int64_t rows,
            int64_t words) {
  if (blockIdx.x >= live_tokens(step, axis)) return;
  const int64_t id = ids[blockIdx.x];
  gpu::require(id >= 0 && id < rows, "scatter_rows: a row number is out of range");
  for (int64_t i = threadIdx.x; i < words; i += kElementwiseThreads)
    to[id * words + i] = from[blockIdx.x * words + i];
}

// The same where a row may be named several times.
template <class T>
__global__ void __launch_bounds__(kElementwiseThreads)
    add_scattered(const T* from, const int32_t* ids, const double* step, AxisId axis, T* to, int64_t rows,
                  int64_t width) {
  using Rows = NamedRows<kElementwiseThreads>;
  const auto live = static_cast<int>(live_tokens(step, axis)), first = static_cast<int>(blockIdx.x);
  if (first >= live) return;
  const auto id = [ids](int row) { return ids[row]; };
  gpu::require(id(first) >= 0 && id(first) < rows, "scatter_rows: a row number is out of range");
  if (Rows::is_repeated(first, id)) return;
  Rows::add(first, live, id, from, width, to + int64_t{id(first)} * width);
}

}  // namespace

BoundCall bind_gpu_add(const GpuBinding& b) {
  using at = operand::add;
  return with_gpu_type(b, b.output_tensor(at::y).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const int64_t count = b.output_tensor(at::y).shape.elements();
    return [=, &stream = b.stream(), left = b.input<T>(at::a), right = b.input<T>(at::b),
            y = b.output<T>(at::y)] {
      gpu::launch(stream, {gpu::blocks_of(count, kElementwisePerBlock)}, {kElementwiseThreads}, add_values<T>,
                  left, right, y, count);
    };
  });
}

BoundCall bind_gpu_scale(const GpuBinding& b) {
  using at = operand::scale;
  return with_gpu_type(b, b.output_tensor(at::y).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const int64_t count = b.output_tensor(at::y).shape.elements();
    const auto factor = static_cast<float>(b.op().attr_float("factor"));
    return [=, &stream = b.stream(), x = b.input<T>(at::x), y = b.output<T>(at::y)] {
      gpu::launch(stream, {gpu::blocks_of(count, kElementwisePerBlock)}, {kElementwiseThreads},
                  scale_values<T>, x, y, factor, count);
    };
  });
}

BoundCall bind_gpu_gather_rows(const GpuBinding& b) {
  using at = operand::gather_rows;
  const Tensor& x = b.input_tensor(at::x);
  const auto count = static_cast<unsigned>(b.input_tensor(at::rows).shape[0]);
  return with_row_words(x.shape[1] * size_of(x.dtype), [&](auto word, int64_t words) -> BoundCall {
    using W = decltype(word);
    return [=, &stream = b.stream(), from = b.input<W>(at::x), ids = b.input<int32_t>(at::rows),
            to = b.output<W>(at::y), rows = x.shape[0]] {
      gpu::launch(stream, {count}, {kElementwiseThreads}, gather<W>, from, ids, to, rows, words);
    };
  });
}

BoundCall bind_gpu_scatter_rows(const GpuBinding& b) {
  using at = operand::scatter_rows;
  const Tensor& x = b.output_tensor(at::x);
  const auto count = static_cast<unsigned>(b.input_tensor(at::y).shape[0]);
  if (b.op().attrs.contains("repeats"))
    return with_gpu_type(b, x.dtype, [&](auto zero) -> BoundCall {
      using T = decltype(zero);
      return [=, &stream = b.stream(), from = b.input<T>(at::y), ids = b.input<int32_t>(at::rows),
              step = b.input<double>(at::step), to = b.output<T>(at::x), rows = x.shape[0],
              width = x.shape[1], axis = b.op().axis] {
        launch_clear(stream, to, rows * width);
        gpu::launch(stream, {count}, {kElementwiseThreads}, add_scattered<T>, from, ids, step, axis, to, rows,
                    width);
      };
    });
  return with_row_words(x.shape[1] * size_of(x.dtype), [&](auto word, int64_t words) -> BoundCall {
    using W = decltype(word);
    return [=, &stream = b.stream(), from = b.input<W>(at::y), ids = b.input<int32_t>(at::rows),
            step = b.input<double>(at::step), to = b.output<W>(at::x), rows = x.shape[0],
            axis = b.op().axis] {
      launch_clear(stream, to, rows * words);
      gpu::launch(stream, {count}, {kElementwiseThreads}, scatter<W>, from, ids, step, axis, to, rows, words);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
