#include "ops/gpu_norm_rows.h"
#include "ops/norm/layer_norm_args.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

// The arguments are those of the CPU's kernel (ops/norm/layer_norm_kernels.h), with the GPU's types. y may be
// x: a thread writes where it alone reads.
template <class T, class W, int kRowThreads>
__global__ void __launch_bounds__(kNormThreads) layer_norm_rows(LayerNorm<T, W> a) {
  const int64_t row = own_row<kRowThreads>();
  if (row >= a.rows) return;
  const bool packed = a.width % gpu::kEight == 0;
  const T* const x = a.x + row * a.width;
  const auto width = static_cast<float>(a.width);
  float sum = 0;
  for_eights<kRowThreads>(a.width, [&](int64_t at, int count) {
    float v[gpu::kEight];
    gpu::load8(v, x + at, count, packed);
    PL_UNROLL
    for (int i = 0; i < gpu::kEight; ++i) sum += v[i];
  });
  const float mean = row_sum<kRowThreads>(sum) / width;
  float squares = 0;
  for_eights<kRowThreads>(a.width, [&](int64_t at, int count) {
    float v[gpu::kEight];
    gpu::load8(v, x + at, count, packed);
    PL_UNROLL
    for (int i = 0; i < gpu::kEight; ++i)
      if (i < count) squares = gpu::fma(v[i] - mean, v[i] - mean, squares);
  });
  const float rstd = 1.0F / sqrtf(row_sum<kRowThreads, 1>(squares) / width + a.eps);
  if (threadIdx.x % kRowThreads == 0) {
    a.stats[2 * row] = mean;
    a.stats[2 * row + 1] = rstd;
  }
  for_eights<kRowThreads>(a.width, [&](int64_t at, int count) {
    float v[gpu::kEight], w[gpu::kEight], bias[gpu::kEight] = {};
    gpu::load8(v, x + at, count, packed);
    gpu::load8(w, a.weight + at, count, packed);
    if (a.bias != nullptr) gpu::load8(bias, a.bias + at, count, packed);
    PL_UNROLL
    for (int i = 0; i < gpu::kEight; ++i) v[i] = gpu::fma((v[i] - mean) * rstd, w[i], bias[i]);
    gpu::store8(a.y + row * a.width + at, v, count, packed);
  });
}

// d_x = rstd * (g - mean(g) - n * mean(g * n)), g = d_y * weight, n = the normalised x. Rows of padding are
// left alone.
template <class T, class W, class G, int kRowThreads>
__global__ void __launch_bounds__(kNormThreads) layer_norm_grad_x(LayerNormGrad<T, W, G> a, NormLive live) {
  const int64_t row = own_row<kRowThreads>();
  if (row >= live.rows()) return;
  const bool packed = a.width % gpu::kEight == 0;
  const int64_t begin = row * a.width;
  const float mean = a.stats[2 * row], rstd = a.stats[2 * row + 1];
  const auto width = static_cast<float>(a.width);
  float sum = 0, products = 0;
  for_eights<kRowThreads>(a.width, [&](int64_t at, int count) {
    float x[gpu::kEight], d_y[gpu::kEight], w[gpu::kEight];
    gpu::load8(x, a.x + begin + at, count, packed);
    gpu::load8(d_y, a.d_y + begin + at, count, packed);  // zeros beyond the row's end
    gpu::load8(w, a.weight + at, count, packed);
    PL_UNROLL
    for (int i = 0; i < gpu::kEight; ++i) {
      const float g = d_y[i] * w[i];
      sum += g;
      products = gpu::fma(g, (x[i] - mean) * rstd, products);
    }
  });
  const float mean_g = row_sum<kRowThreads>(sum) / width;
  const float mean_gn = row_sum<kRowThreads, 1>(products) / width;
  for_eights<kRowThreads>(a.width, [&](int64_t at, int count) {
    float x[gpu::kEight], d_y[gpu::kEight], w[gpu::kEight], added[gpu::kEight] = {};
    gpu::load8(x, a.x + begin + at, count, packed);
    gpu::load8(d_y, a.d_y + begin + at, count, packed);
    gpu::load8(w, a.weight + at, count, packed);
    if (a.d_x_in != nullptr) gpu::load8(added, a.d_x_in + begin + at, count, packed);
    PL_UNROLL
    for (int i = 0; i < gpu::kEight; ++i)
      x[i] = gpu::fma(-((x[i] - mean) * rstd), mean_gn, d_y[i] * w[i] - mean_g) * rstd + added[i];
    gpu::store8(a.d_x + begin + at, x, count, packed);
  });
}

// A thread a column, a block of the grid's second dimension kLayerNormRowsPerBlock rows.
template <class T, class W, class G>
__global__ void __launch_bounds__(kNormThreads)
    layer_norm_weight_parts(LayerNormGrad<T, W, G> a, NormLive live) {
  const int64_t column = int64_t{blockIdx.x} * kNormThreads + threadIdx.x;
  if (column >= a.width) return;
  const int64_t begin = blockIdx.y * kLayerNormRowsPerBlock;
  const int64_t rows = live.rows();
  const int64_t end = begin + kLayerNormRowsPerBlock < rows ? begin + kLayerNormRowsPerBlock : rows;
  float sum = 0;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * a.width + column;
    const float n = (gpu::to_float(a.x[at]) - a.stats[2 * row]) * a.stats[2 * row + 1];
    sum = gpu::fma(gpu::to_float(a.d_y[at]), n, sum);
  }
  a.partials[blockIdx.y * a.width + column] = sum;
}

template <class T, class W, class G>
void launch_layer_norm_grad(gpu::Stream& stream, const LayerNormGrad<T, W, G>& a, const NormLive& live) {
  if (a.d_x != nullptr) {
    const bool narrow = a.width <= kNormWarpWidth;
    const int rows = narrow ? kNormRowsPerBlock<gpu::kWarpSize> : 1;
    gpu::launch(
        stream, {gpu::blocks_of(a.rows, rows)}, {kNormThreads},
        narrow ? layer_norm_grad_x<T, W, G, gpu::kWarpSize> : layer_norm_grad_x<T, W, G, kNormThreads>, a,
        live);
  }
  if (a.d_weight == nullptr) return;
  const unsigned columns = gpu::blocks_of(a.width, kNormThreads);
  const unsigned blocks = gpu::blocks_of(a.rows, kLayerNormRowsPerBlock);
  gpu::launch(stream, {columns, blocks}, {kNormThreads}, layer_norm_weight_parts<T, W, G>, a, live);
  gpu::launch(stream, {columns}, {kNormThreads}, sum_parts<G>, a.partials, int64_t{blocks}, a.width, live,
              a.d_weight);
}

template <class T, class W, class G>
BoundCall make_layer_norm_grad(const GpuBinding& b) {
  using at = operand::layer_norm_grad;
  const auto args = layer_norm_grad_args<T, W, G>(b);
  const NormLive live{b.input<double>(at::step), b.op().axis, 1, b.op().attr_int("accumulate")};
  return [args, live, &stream = b.stream()] { launch_layer_norm_grad(stream, args, live); };
}

}  // namespace

BoundCall bind_gpu_layer_norm(const GpuBinding& b) {
  using at = operand::layer_norm;
  return with_weight_types(
      b, b.input_tensor(at::x).dtype, b.input_tensor(at::weight).dtype, [&](auto t, auto w) -> BoundCall {
        using T = decltype(t);
        using W = decltype(w);
        const auto args = layer_norm_args<T, W>(b);
        const bool narrow = args.width <= kNormWarpWidth;
        const unsigned blocks = gpu::blocks_of(args.rows, narrow ? kNormRowsPerBlock<gpu::kWarpSize> : 1);
        const auto kernel =
            narrow ? layer_norm_rows<T, W, gpu::kWarpSize> : layer_norm_rows<T, W, kNormThreads>;
        return [=, &stream = b.stream()] { gpu::launch(stream, {blocks}, {kNormThreads}, kernel, args); };
      });
}

BoundCall bind_gpu_layer_norm_grad(const GpuBinding& b) {
  using at = operand::layer_norm_grad;
  const DType gradient = b.op().has_output(at::d_weight) ? b.output_tensor(at::d_weight).dtype : DType::f32;
  return with_weight_types(
      b, b.input_tensor(at::x).dtype, b.input_tensor(at::weight).dtype, [&](auto t, auto w) {
        return with_gpu_types(b, b.input_tensor(at::weight).dtype, gradient, [&](auto, auto g) {
          return make_layer_norm_grad<decltype(t), decltype(w), decltype(g)>(b);
        });
      });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
