// linear, linear_dx, linear_dw, bias_grad.
#include "ops/gpu_dispatch.h"
#include "ops/linear/gpu_matmul.h"
#include "ops/linear/linear_products.h"
#include "ops/pointwise/elementwise_kernels.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

// Inputs `t` and the one behind it, where the op has them.
void take_rider(const GpuBinding& b, size_t t, GpuMatmul& product) {
  if (!b.op().has_input(t)) return;
  product.rider_a = b.input(t);
  product.rider_b = b.input(t + 1);
  product.rider_alpha = static_cast<float>(b.op().attr_float("rider_scale"));
}

// output = scale * a b, and what is given beside that; `step` is the number of the step tensor.
BoundCall bind_product(const GpuBinding& b, GpuMatmul product, size_t step) {
  require_matmul(b, product.shape);
  product.c = b.output(0);
  product.alpha = static_cast<float>(b.op().attr_float("scale"));
  product.tf32 = by_tf32(b);
  product.live = live_rows(b, step);
  const StepValue which = product.live.which;
  const int64_t accumulate = product.accumulation.accumulate, planned = product.shape.m;
  const auto* const sent = b.sent<double>(step, [=](const double* values) {
    return 2 * LiveRows{.step = values, .which = which}.of(planned) +
           (Accumulation{accumulate, values}.adds() ? 1 : 0);
  });
  product.live_here = {.step = sent, .which = which};
  product.accumulation_here = {accumulate, sent};
  ask_library(b, product, sent != nullptr || !b.op().has_input(step), library_workspace(b));
  return [product, &stream = b.stream()] { launch_matmul(stream, product); };
}

constexpr unsigned kColumnThreads = 128;

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

}  // namespace

BoundCall bind_gpu_linear(const GpuBinding& b) {
  GpuMatmul product{.shape = linear_product(b.graph(), b.op()),
                    .a = b.input(0),
                    .b = b.input(1),
                    .addend = b.input(3),
                    .bias = b.input(2)};
  take_rider(b, 5, product);
  return bind_product(b, product, 4);
}

BoundCall bind_gpu_linear_dx(const GpuBinding& b) {
  GpuMatmul product{
      .shape = linear_dx_product(b.graph(), b.op()), .a = b.input(0), .b = b.input(1), .addend = b.input(2)};
  take_rider(b, 4, product);
  return bind_product(b, product, 3);
}

BoundCall bind_gpu_linear_dw(const GpuBinding& b) {
  return bind_product(b,
                      {.shape = linear_dw_product(b.graph(), b.op()),
                       .a = b.input(1),
                       .b = b.input(0),
                       .addend = b.output(0),
                       .accumulation = Accumulation{b.op().attr_int("accumulate"), b.input<double>(2)}},
                      2);
}

BoundCall bind_gpu_bias_grad(const GpuBinding& b) {
  const Tensor& d_y = b.input_tensor(0);
  return with_gpu_types(b, d_y.dtype, b.output_tensor(0).dtype, [&](auto t, auto g) -> BoundCall {
    using T = decltype(t);
    using G = decltype(g);
    const int64_t rows = d_y.shape[0], columns = d_y.shape[1];
    const auto blocks = static_cast<unsigned>(column_sum_blocks(rows));
    return [=, &stream = b.stream(), x = b.input<T>(0), partials = reinterpret_cast<float*>(b.scratch()),
            gradient = b.output<G>(0), live = live_rows(b, 1),
            accumulation = Accumulation{b.op().attr_int("accumulate"), b.input<double>(1)}] {
      const unsigned across = gpu::blocks_of(columns, kColumnThreads);
      gpu::launch(stream, {across, blocks}, {kColumnThreads}, sum_columns<T>, x, rows, columns, live,
                  partials);
      gpu::launch(stream, {across}, {kColumnThreads}, add_column_sums<G>, partials, rows, columns, live,
                  accumulation, gradient);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
