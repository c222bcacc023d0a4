// linear, linear_dx, linear_dw, bias_grad.
#include "ops/gpu_dispatch.h"
#include "ops/linear/gpu_column_sums.h"
#include "ops/linear/gpu_matmul.h"
#include "ops/linear/linear_products.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

// Inputs `left` and `right`, where the op has them.
void take_adapter(const GpuBinding& b, size_t left, size_t right, GpuMatmul& product) {
  if (!b.has_input(left)) return;
  product.adapter_a = b.input(left);
  product.adapter_b = b.input(right);
  product.adapter_alpha = static_cast<float>(b.op().attr_float("adapter_scale"));
}

// c = scale * a b, and what else is given; `step` is the number of the step tensor.
BoundCall bind_product(const GpuBinding& b, GpuMatmul product, size_t step) {
  require_matmul(b, product.shape);
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
  ask_library(b, product, sent != nullptr || !b.has_input(step), library_workspace(b));
  return [product, &stream = b.stream()] { launch_matmul(stream, product); };
}

}  // namespace

BoundCall bind_gpu_linear(const GpuBinding& b) {
  using at = operand::linear;
  GpuMatmul product{.shape = linear_product(b.graph(), b.op()),
                    .a = b.input(at::x),
                    .b = b.input(at::weight),
                    .c = b.output(at::y),
                    .addend = b.input(at::addend),
                    .bias = b.input(at::bias)};
  take_adapter(b, at::t, at::b, product);
  return bind_product(b, product, at::step);
}

BoundCall bind_gpu_linear_dx(const GpuBinding& b) {
  using at = operand::linear_dx;
  GpuMatmul product{.shape = linear_dx_product(b.graph(), b.op()),
                    .a = b.input(at::d_y),
                    .b = b.input(at::weight),
                    .c = b.output(at::d_x),
                    .addend = b.input(at::d_x_in)};
  take_adapter(b, at::d_t, at::a, product);
  return bind_product(b, product, at::step);
}

BoundCall bind_gpu_linear_dw(const GpuBinding& b) {
  using at = operand::linear_dw;
  return bind_product(
      b,
      {.shape = linear_dw_product(b.graph(), b.op()),
       .a = b.input(at::d_y),
       .b = b.input(at::x),
       .c = b.output(at::d_weight),
       .addend = b.output(at::d_weight),
       .accumulation = Accumulation{b.op().attr_int("accumulate"), b.input<double>(at::step)}},
      at::step);
}

BoundCall bind_gpu_bias_grad(const GpuBinding& b) {
  using at = operand::bias_grad;
  const Tensor& d_y = b.input_tensor(at::d_y);
  return with_gpu_types(b, d_y.dtype, b.output_tensor(at::d_bias).dtype, [&](auto t, auto g) -> BoundCall {
    using T = decltype(t);
    using G = decltype(g);
    const GpuColumnSums<T, G> sums{.x = b.input<T>(at::d_y),
                                   .rows = d_y.shape[0],
                                   .columns = d_y.shape[1],
                                   .partials = reinterpret_cast<float*>(b.scratch()),
                                   .sums = b.output<G>(at::d_bias)};
    return [sums, &stream = b.stream(), live = live_rows(b, at::step),
            accumulation = Accumulation{b.op().attr_int("accumulate"), b.input<double>(at::step)}] {
      launch_column_sums(stream, sums, live, accumulation);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
