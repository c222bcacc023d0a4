#include <memory>

#include "cpu/matmul.h"
#include "ops/cpu_dispatch.h"
#include "ops/linear/linear_products.h"
#include "ops/parallel_memory.h"
#include "ops/pointwise/elementwise_kernels.h"

namespace plimsoll {
namespace {

std::shared_ptr<const Matmul> product(const CpuBinding& b, const MatmulShape& shape) {
  return Matmul::create(shape, b.settings().isa, b.settings().threads);
}

// Rows that carry tokens; all `rows` where the op was not given the step's values.
int64_t live_rows(const double* step, AxisId axis, int64_t rows) {
  return step == nullptr ? rows : live_tokens(step, axis);
}

// Inputs `left` and `right`, where the op has them.
void take_adapter(const CpuBinding& b, size_t left, size_t right, Matmul::Args& args) {
  if (!b.has_input(left)) return;
  args.adapter_a = b.input(left);
  args.adapter_b = b.input(right);
  args.adapter_alpha = static_cast<float>(b.op().attr_float("adapter_scale"));
}

// `output` = [addend +] alpha * a b [+ adapter] [+ bias]. An addend that lies elsewhere is copied to the output
// first.
BoundCall bind_product(const CpuBinding& b, size_t output, const MatmulShape& shape, Matmul::Args args,
                       const void* addend, const double* step) {
  args.alpha = static_cast<float>(b.op().attr_float("scale"));
  args.c = b.output(output);
  args.accumulate = addend != nullptr;
  args.scratch = b.scratch();
  const int64_t copied = addend == nullptr ? 0 : b.output_tensor(output).bytes();
  return [=, matmul = product(b, shape), axis = b.op().axis, threads = b.settings().threads] {
    if (copied > 0) parallel_copy(args.c, addend, copied, threads);
    Matmul::Args now = args;
    now.live = live_rows(step, axis, shape.m);
    matmul->run(now);
  };
}

}  // namespace

BoundCall bind_linear(const CpuBinding& b) {
  using at = operand::linear;
  Matmul::Args args{.a = b.input(at::x), .b = b.input(at::weight), .bias = b.input(at::bias)};
  take_adapter(b, at::t, at::b, args);
  return bind_product(b, at::y, linear_product(b.graph(), b.op()), args, b.input(at::addend),
                      b.input<double>(at::step));
}

BoundCall bind_linear_dx(const CpuBinding& b) {
  using at = operand::linear_dx;
  Matmul::Args args{.a = b.input(at::d_y), .b = b.input(at::weight)};
  take_adapter(b, at::d_t, at::a, args);
  return bind_product(b, at::d_x, linear_dx_product(b.graph(), b.op()), args, b.input(at::d_x_in),
                      b.input<double>(at::step));
}

BoundCall bind_linear_dw(const CpuBinding& b) {
  using at = operand::linear_dw;
  const MatmulShape shape = linear_dw_product(b.graph(), b.op());
  const Matmul::Args args{.a = b.input(at::d_y),
                          .b = b.input(at::x),
                          .c = b.output(at::d_weight),
                          .alpha = static_cast<float>(b.op().attr_float("scale")),
                          .scratch = b.scratch()};
  return [=, matmul = product(b, shape), step = b.input<double>(at::step),
          accumulate = b.op().attr_int("accumulate"), axis = b.op().axis] {
    Matmul::Args now = args;
    now.live = live_rows(step, axis, shape.k);
    now.accumulate = !overwrites(accumulate, step);
    matmul->run(now);
  };
}

BoundCall bind_bias_grad(const CpuBinding& b) {
  using at = operand::bias_grad;
  const Tensor& d_y = b.input_tensor(at::d_y);
  const DType gradient = b.output_tensor(at::d_bias).dtype;
  return with_gradient_type(b, d_y.dtype, gradient, [&](auto t, auto g) -> BoundCall {
    using Args = ColumnSums<decltype(t), decltype(g)>;
    const Args args{.x = b.input<decltype(t)>(at::d_y),
                    .rows = d_y.shape[0],
                    .columns = d_y.shape[1],
                    .partials = reinterpret_cast<float*>(b.scratch()),
                    .sums = b.output<decltype(g)>(at::d_bias),
                    .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, column_sums, Args);
    return [=, step = b.input<double>(at::step), accumulate = b.op().attr_int("accumulate"),
            axis = b.op().axis] {
      Args now = args;
      now.rows = live_rows(step, axis, args.rows);
      now.accumulate = !overwrites(accumulate, step);
      kernel(now);
    };
  });
}

}  // namespace plimsoll
