#include <algorithm>

#include "ops/cpu_dispatch.h"
#include "ops/cpu_elements.h"
#include "ops/parallel_memory.h"

namespace plimsoll {
namespace {

float single(float x) { return x; }
template <class T>
float single(T x) {
  return static_cast<float>(as_f64(x));
}

// Sums in f32, row by row, as GPUs have them.
template <class T>
void mean_of(const T* x, int64_t rows, int64_t width, T* y) {
  for (int64_t c = 0; c < width; ++c) {
    float sum = 0;
    for (int64_t r = 0; r < rows; ++r) sum += single(x[r * width + c]);
    set_rounded(y[c], rows > 0 ? static_cast<double>(sum / static_cast<float>(rows)) : 0.0);
  }
}

template <class T>
BoundCall bind_mean(const CpuBinding& b) {
  using at = operand::mean_rows;
  const Shape& y = b.output_tensor(at::y).shape;
  return [=, x = b.input<T>(at::x), starts = b.input<int32_t>(at::seq_starts),
          step = b.input<double>(at::step), to = b.output<T>(at::y), count = y[0], width = y[1],
          axis = b.op().axis, threads = b.settings().threads] {
    const int64_t live = live_sequences(step, axis);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t s = 0; s < count; ++s) {
      const int64_t begin = s < live ? starts[s] : 0, rows = s < live ? starts[s + 1] - begin : 0;
      mean_of(x + begin * width, rows, width, to + s * width);
    }
  };
}

template <class T>
BoundCall bind_mean_grad(const CpuBinding& b) {
  using at = operand::mean_rows_grad;
  const Shape& d_x = b.output_tensor(at::d_x).shape;
  return [=, d_y = b.input<T>(at::d_y), starts = b.input<int32_t>(at::seq_starts),
          step = b.input<double>(at::step), to = b.output<T>(at::d_x), tokens = d_x[0], width = d_x[1],
          axis = b.op().axis, threads = b.settings().threads] {
    parallel_clear(to, tokens * width * int64_t{sizeof(T)}, threads);
    const int64_t live = live_sequences(step, axis);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t s = 0; s < live; ++s) {
      const auto rows = static_cast<float>(starts[s + 1] - starts[s]);
      for (int64_t t = starts[s]; t < starts[s + 1]; ++t)
        for (int64_t c = 0; c < width; ++c)
          set_rounded(to[t * width + c], static_cast<double>(single(d_y[s * width + c]) / rows));
    }
  };
}

}  // namespace

BoundCall bind_mean_rows(const CpuBinding& b) {
  using at = operand::mean_rows;
  return with_number_type(b, b.input_tensor(at::x).dtype,
                          [&](auto zero) -> BoundCall { return bind_mean<decltype(zero)>(b); });
}
BoundCall bind_mean_rows_grad(const CpuBinding& b) {
  using at = operand::mean_rows_grad;
  return with_number_type(b, b.input_tensor(at::d_y).dtype,
                          [&](auto zero) -> BoundCall { return bind_mean_grad<decltype(zero)>(b); });
}

}  // namespace plimsoll
