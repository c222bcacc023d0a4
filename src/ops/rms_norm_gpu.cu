#include "ops/gpu_dispatch.h"
#include "ops/rms_norm_kernels.h"

namespace plimsoll {
namespace {

constexpr int kThreads = 128;
// A warp takes a row up to this width (heads, tiny models), a block a wider one.
constexpr int64_t kWarpWidth = 256;

template <int kRowThreads>
constexpr int kRowsPerBlock = kThreads / kRowThreads;

// Of the threads of a row, in each of them.
template <int kRowThreads>
PL_DEV float row_sum(float x) {
  if constexpr (kRowThreads == gpu::kWarpSize) {
    return gpu::warp_sum(x);
  } else {
    PL_SHARED(float, parts, kThreads / gpu::kWarpSize);
    return gpu::block_sum<kThreads>(x, parts);
  }
}
template <int kRowThreads>
PL_DEV int64_t own_row() {
  return int64_t{blockIdx.x} * kRowsPerBlock<kRowThreads> + static_cast<int>(threadIdx.x) / kRowThreads;
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

// The arguments are those of the CPU's kernel (ops/rms_norm_kernels.h), with the GPU's types.
template <class T, class W, int kRowThreads>
__global__ void __launch_bounds__(kThreads) norm(RmsNorm<T, W> a) {
  const int64_t row = own_row<kRowThreads>();
  if (row >= a.rows) return;
  const bool packed = a.width % gpu::kEight == 0;
  const T* const x = a.x + row * a.width;
  float squares = 0;
  for_eights<kRowThreads>(a.width, [&](int64_t at, int count) {
    float v[gpu::kEight];
    gpu::load8(v, x + at, count, packed);
    PL_UNROLL
    for (int i = 0; i < gpu::kEight; ++i) squares = gpu::fma(v[i], v[i], squares);
  });
  const float mean = row_sum<kRowThreads>(squares) / static_cast<float>(a.width);
  const float rstd = 1.0F / sqrtf(mean + a.eps);
  if (threadIdx.x % kRowThreads == 0) a.rstd[row] = rstd;
  for_eights<kRowThreads>(a.width, [&](int64_t at, int count) {
    float v[gpu::kEight], w[gpu::kEight];
    gpu::load8(v, x + at, count, packed);
    gpu::load8(w, a.weight + at, count, packed);
    PL_UNROLL
    for (int i = 0; i < gpu::kEight; ++i) v[i] = gpu::to_float(gpu::rounded<T>(v[i] * rstd)) * w[i];
    gpu::store8(a.y + row * a.width + at, v, count, packed);
  });
}

// What the kernels of the gradient read of a step.
struct Live {
  const double* step;
  AxisId axis;
  int64_t groups;      // rows to a token
  int64_t accumulate;  // of the weight's gradient
  PL_DEV int64_t rows() const { return live_tokens(step, axis) * groups; }
};

// d_x = rstd * (g - n * mean(g * n)), g = d_y * weight, n = x * rstd. Rows of padding are left alone.
template <class T, class W, class G, int kRowThreads>
__global__ void __launch_bounds__(kThreads) grad_x(RmsNormGrad<T, W, G> a, Live live) {
  const int64_t row = own_row<kRowThreads>();
  if (row >= live.rows()) return;
  const bool packed = a.width % gpu::kEight == 0;
  const int64_t begin = row * a.width;
  const float rstd = a.rstd[row];
  float products = 0;
  for_eights<kRowThreads>(a.width, [&](int64_t at, int count) {
    float x[gpu::kEight], d_y[gpu::kEight], w[gpu::kEight];
    gpu::load8(x, a.x + begin + at, count, packed);
    gpu::load8(d_y, a.d_y + begin + at, count, packed);
    gpu::load8(w, a.weight + at, count, packed);
    PL_UNROLL
    for (int i = 0; i < gpu::kEight; ++i) products = gpu::fma(d_y[i] * w[i], x[i] * rstd, products);
  });
  const float mean = row_sum<kRowThreads>(products) / static_cast<float>(a.width);
  for_eights<kRowThreads>(a.width, [&](int64_t at, int count) {
    float x[gpu::kEight], d_y[gpu::kEight], w[gpu::kEight], added[gpu::kEight] = {};
    gpu::load8(x, a.x + begin + at, count, packed);
    gpu::load8(d_y, a.d_y + begin + at, count, packed);
    gpu::load8(w, a.weight + at, count, packed);
    if (a.d_x_in != nullptr) gpu::load8(added, a.d_x_in + begin + at, count, packed);
    PL_UNROLL
    for (int i = 0; i < gpu::kEight; ++i)
      x[i] = gpu::fma(-(x[i] * rstd), mean, d_y[i] * w[i]) * rstd + added[i];
    gpu::store8(a.d_x + begin + at, x, count, packed);
  });
}

// A thread a column, a block of the grid's second dimension kRmsNormRowsPerBlock rows: sums d_y * n, where n
// is rounded as the forward rounded it.
template <class T, class W, class G>
__global__ void __launch_bounds__(kThreads) grad_weight_parts(RmsNormGrad<T, W, G> a, Live live) {
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= a.width) return;
  const int64_t begin = blockIdx.y * kRmsNormRowsPerBlock;
  const int64_t rows = live.rows();
  const int64_t end = begin + kRmsNormRowsPerBlock < rows ? begin + kRmsNormRowsPerBlock : rows;
  float sum = 0;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * a.width + column;
    const T n = gpu::rounded<T>(gpu::to_float(a.x[at]) * a.rstd[row]);
    sum = gpu::fma(gpu::to_float(a.d_y[at]), gpu::to_float(n), sum);
  }
  a.partials[blockIdx.y * a.width + column] = sum;
}

// The parts in order, so that the sum does not depend on when blocks ran.
template <class G>
__global__ void __launch_bounds__(kThreads)
    sum_parts(const float* parts, int64_t blocks, int64_t width, Live live, G* d_weight) {
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= width) return;
  float sum = 0;
  for (int64_t b = 0; b < blocks; ++b) sum += parts[b * width + column];
  if (!overwrites_gradient(live.accumulate, live.step)) sum += gpu::to_float(d_weight[column]);
  d_weight[column] = gpu::rounded<G>(sum);
}

template <class T, class W, class G>
void launch_grad(gpu::Stream& stream, const RmsNormGrad<T, W, G>& a, const Live& live) {
  if (a.d_x != nullptr) {
    const bool narrow = a.width <= kWarpWidth;
    const int rows = narrow ? kRowsPerBlock<gpu::kWarpSize> : 1;
    gpu::launch(stream, {gpu::blocks_of(a.rows, rows)}, {kThreads},
                narrow ? grad_x<T, W, G, gpu::kWarpSize> : grad_x<T, W, G, kThreads>, a, live);
  }
  if (a.d_weight == nullptr) return;
  const unsigned columns = gpu::blocks_of(a.width, kThreads);
  const unsigned blocks = gpu::blocks_of(a.rows, kRmsNormRowsPerBlock);
  gpu::launch(stream, {columns, blocks}, {kThreads}, grad_weight_parts<T, W, G>, a, live);
  gpu::launch(stream, {columns}, {kThreads}, sum_parts<G>, a.partials, int64_t{blocks}, a.width, live,
              a.d_weight);
}

template <class T, class W, class G>
BoundCall make_grad(const GpuBinding& b) {
  const int64_t width = b.input_tensor(1).shape[0];
  const RmsNormGrad<T, W, G> args{.d_y = b.input<T>(3),
                                  .x = b.input<T>(0),
                                  .weight = b.input<W>(1),
                                  .rstd = b.input<float>(2),
                                  .d_x_in = b.input<T>(4),
                                  .d_x = b.output<T>(0),
                                  .d_weight = b.output<G>(1),
                                  .partials = reinterpret_cast<float*>(b.scratch()),
                                  .rows = b.input_tensor(0).shape.elements() / width,
                                  .width = width};
  const Live live{b.input<double>(5), b.op().axis, b.input_tensor(0).shape[1] / width,
                  b.op().attr_int("accumulate")};
  return [args, live, &stream = b.stream()] { launch_grad(stream, args, live); };
}

}  // namespace

BoundCall bind_gpu_rms_norm(const GpuBinding& b) {
  return with_gpu_types(
      b, b.input_tensor(0).dtype, b.input_tensor(1).dtype, [&](auto t, auto w) -> BoundCall {
        using T = decltype(t);
        using W = decltype(w);
        const int64_t width = b.input_tensor(1).shape[0];
        const RmsNorm<T, W> args{.x = b.input<T>(0),
                                 .weight = b.input<W>(1),
                                 .y = b.output<T>(0),
                                 .rstd = b.output<float>(1),
                                 .rows = b.input_tensor(0).shape.elements() / width,
                                 .width = width,
                                 .eps = static_cast<float>(b.op().attr_float("eps"))};
        const bool narrow = width <= kWarpWidth;
        const unsigned blocks = gpu::blocks_of(args.rows, narrow ? kRowsPerBlock<gpu::kWarpSize> : 1);
        const auto kernel = narrow ? norm<T, W, gpu::kWarpSize> : norm<T, W, kThreads>;
        return [=, &stream = b.stream()] { gpu::launch(stream, {blocks}, {kThreads}, kernel, args); };
      });
}

BoundCall bind_gpu_rms_norm_grad(const GpuBinding& b) {
  const DType gradient = b.op().has_output(1) ? b.output_tensor(1).dtype : DType::f32;
  return with_gpu_types(b, b.input_tensor(0).dtype, b.input_tensor(1).dtype, [&](auto t, auto w) {
    return with_gpu_types(b, b.input_tensor(1).dtype, gradient,
                          [&](auto, auto g) { return make_grad<decltype(t), decltype(w), decltype(g)>(b); });
  });
}

}  // namespace plimsoll
