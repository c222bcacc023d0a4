#include "ops/gpu_step.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr unsigned kMeanThreads = 256;

template <class T>
struct MeanRows {
  const T* from;  // x, or d_y
  const int32_t* starts;
  const double* step;
  AxisId axis;
  T* to;
  int64_t rows, width;  // of `to`
};

// A block a sequence, a thread its columns in turn.
template <class T>
__global__ void __launch_bounds__(kMeanThreads) mean_of_rows(MeanRows<T> a) {
  const int64_t s = blockIdx.x;
  const bool live = s < live_sequences(a.step, a.axis);
  const int64_t begin = live ? a.starts[s] : 0, rows = live ? a.starts[s + 1] - begin : 0;
  for (int64_t c = threadIdx.x; c < a.width; c += kMeanThreads) {
    float sum = 0;
    for (int64_t r = 0; r < rows; ++r) sum += gpu::to_float(a.from[(begin + r) * a.width + c]);
    a.to[s * a.width + c] = gpu::rounded<T>(rows > 0 ? sum / static_cast<float>(rows) : 0.0F);
  }
}

// A block a row of d_x.
template <class T>
__global__ void __launch_bounds__(kMeanThreads) share_of_rows(MeanRows<T> a) {
  const int64_t token = blockIdx.x;
  const int64_t s = sequence_of(a.starts, live_sequences(a.step, a.axis), token);
  const float rows = s < 0 ? 1.0F : static_cast<float>(a.starts[s + 1] - a.starts[s]);
  for (int64_t c = threadIdx.x; c < a.width; c += kMeanThreads)
    a.to[token * a.width + c] = gpu::rounded<T>(s < 0 ? 0.0F : gpu::to_float(a.from[s * a.width + c]) / rows);
}

}  // namespace

BoundCall bind_gpu_mean_rows(const GpuBinding& b) {
  using at = operand::mean_rows;
  const Shape& y = b.output_tensor(at::y).shape;
  return with_gpu_type(b, b.input_tensor(at::x).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const MeanRows<T> args{b.input<T>(at::x),
                           b.input<int32_t>(at::seq_starts),
                           b.input<double>(at::step),
                           b.op().axis,
                           b.output<T>(at::y),
                           y[0],
                           y[1]};
    return [args, &stream = b.stream()] {
      gpu::launch(stream, {static_cast<unsigned>(args.rows)}, {kMeanThreads}, mean_of_rows<T>, args);
    };
  });
}

BoundCall bind_gpu_mean_rows_grad(const GpuBinding& b) {
  using at = operand::mean_rows_grad;
  const Shape& d_x = b.output_tensor(at::d_x).shape;
  return with_gpu_type(b, b.input_tensor(at::d_y).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const MeanRows<T> args{b.input<T>(at::d_y),
                           b.input<int32_t>(at::seq_starts),
                           b.input<double>(at::step),
                           b.op().axis,
                           b.output<T>(at::d_x),
                           d_x[0],
                           d_x[1]};
    return [args, &stream = b.stream()] {
      gpu::launch(stream, {static_cast<unsigned>(args.rows)}, {kMeanThreads}, share_of_rows<T>, args);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
