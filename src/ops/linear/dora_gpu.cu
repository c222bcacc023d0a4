// dora_norm, dora_scale and its gradient.
#include "ops/gpu_step.h"
#include "ops/linear/dora_args.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr int kDoraThreads = 128;

// A block a row. The arguments are those of the CPU's kernels (ops/linear/dora_args.h), with the GPU's
// types.
template <class T>
__global__ void __launch_bounds__(kDoraThreads) row_lengths(DoraNorm<T> a) {
  PL_SHARED(float, parts, kDoraThreads / gpu::kWarpSize);
  const int64_t row = blockIdx.x;
  float squares = 0;
  for (int64_t i = threadIdx.x; i < a.in; i += kDoraThreads) {
    float value = gpu::to_float(a.weight[row * a.in + i]);
    for (int64_t k = 0; k < a.r; ++k)
      value = gpu::fma(a.scale * gpu::to_float(a.b[row * a.r + k]), gpu::to_float(a.a[k * a.in + i]), value);
    squares = gpu::fma(value, value, squares);
  }
  const float length = sqrtf(gpu::block_sum<kDoraThreads>(squares, parts));
  // A row of zeros has a magnitude of 0 and stays one, rather than becoming 0 / 0.
  constexpr float kLeast = 1.17549435e-38F;
  if (threadIdx.x == 0) a.lengths[row] = length < kLeast ? kLeast : length;
}

// A thread a value. y may be u, minus or addend.
template <class T>
__global__ void __launch_bounds__(kDoraThreads) scale_rows(DoraScale<T> a, LiveRows live) {
  const int64_t at = int64_t{blockIdx.x} * kDoraThreads + threadIdx.x;
  if (at >= live.of(a.rows) * a.width) return;
  const int64_t i = at % a.width;
  float y = gpu::to_float(a.u[at]) * (a.magnitude[i] / a.lengths[i]);
  if (a.bias != nullptr) y += gpu::to_float(a.bias[i]);
  if (a.addend != nullptr) y += gpu::to_float(a.addend[at]);
  if (a.minus != nullptr) y -= gpu::to_float(a.minus[at]);
  a.y[at] = gpu::rounded<T>(y);
}

// A thread a column, a block of the grid's second dimension kDoraRowsPerBlock rows. d_u may be u or d_y.
template <class T>
__global__ void __launch_bounds__(kDoraThreads) grad_parts(DoraScaleGrad<T> a, LiveRows live) {
  const int64_t column = int64_t{blockIdx.x} * kDoraThreads + threadIdx.x;
  if (column >= a.width) return;
  const int64_t begin = blockIdx.y * kDoraRowsPerBlock;
  const int64_t rows = live.of(a.rows);
  const int64_t end = begin + kDoraRowsPerBlock < rows ? begin + kDoraRowsPerBlock : rows;
  const float factor = a.magnitude[column] / a.lengths[column];
  float sum = 0;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * a.width + column;
    const float d_y = gpu::to_float(a.d_y[at]);
    sum = gpu::fma(d_y, gpu::to_float(a.u[at]), sum);
    if (a.d_u != nullptr) a.d_u[at] = gpu::rounded<T>(d_y * factor);
  }
  if (a.d_magnitude != nullptr) a.partials[blockIdx.y * a.width + column] = sum;
}

// The parts in order.
template <class T>
__global__ void __launch_bounds__(kDoraThreads)
    grad_magnitude(DoraScaleGrad<T> a, int64_t blocks, Accumulation accumulation) {
  const int64_t column = int64_t{blockIdx.x} * kDoraThreads + threadIdx.x;
  if (column >= a.width) return;
  float sum = 0;
  for (int64_t b = 0; b < blocks; ++b) sum += a.partials[b * a.width + column];
  sum /= a.lengths[column];
  a.d_magnitude[column] = accumulation.adds() ? sum + a.d_magnitude[column] : sum;
}

}  // namespace

BoundCall bind_gpu_dora_norm(const GpuBinding& b) {
  using at = operand::dora_norm;
  return with_gpu_type(b, b.input_tensor(at::weight).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const auto args = dora_norm_args<T>(b);
    return [args, &stream = b.stream()] {
      gpu::launch(stream, {static_cast<unsigned>(args.out)}, {kDoraThreads}, row_lengths<T>, args);
    };
  });
}

BoundCall bind_gpu_dora_scale(const GpuBinding& b) {
  using at = operand::dora_scale;
  return with_gpu_type(b, b.input_tensor(at::u).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const auto args = dora_scale_args<T>(b);
    return [args, live = live_rows(b, at::step), &stream = b.stream()] {
      gpu::launch(stream, {gpu::blocks_of(args.rows * args.width, kDoraThreads)}, {kDoraThreads},
                  scale_rows<T>, args, live);
    };
  });
}

BoundCall bind_gpu_dora_scale_grad(const GpuBinding& b) {
  using at = operand::dora_scale_grad;
  return with_gpu_type(b, b.input_tensor(at::u).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const auto args = dora_scale_grad_args<T>(b);
    const Accumulation accumulation{b.op().attr_int("accumulate"), b.input<double>(at::step)};
    return [=, live = live_rows(b, at::step), &stream = b.stream()] {
      const unsigned columns = gpu::blocks_of(args.width, kDoraThreads);
      const unsigned blocks = gpu::blocks_of(args.rows, kDoraRowsPerBlock);
      gpu::launch(stream, {columns, blocks}, {kDoraThreads}, grad_parts<T>, args, live);
      if (args.d_magnitude != nullptr)
        gpu::launch(stream, {columns}, {kDoraThreads}, grad_magnitude<T>, args, int64_t{blocks},
                    accumulation);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
