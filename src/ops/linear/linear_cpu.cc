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

// Inputs `t` and the one behind it, where the op has them.
void take_rider(const CpuBinding& b, size_t t, Matmul::Args& args) {
  if (!b.op().has_input(t)) return;
  args.rider_a = b.input(t);
  args.rider_b = b.input(t + 1);
  args.rider_alpha = static_cast<float>(b.op().attr_float("rider_scale"));
}

// output = [addend +] alpha * a b [+ rider] [+ bias]. An addend that lies elsewhere is copied to the output
// first.
BoundCall bind_product(const CpuBinding& b, const MatmulShape& shape, Matmul::Args args, const void* addend,
                       const double* step) {
  args.alpha = static_cast<float>(b.op().attr_float("scale"));
  args.c = b.output(0);
  args.accumulate = addend != nullptr;
  args.scratch = b.scratch();
  const int64_t copied = addend == nullptr ? 0 : b.output_tensor(0).bytes();
  return [=, matmul = product(b, shape), axis = b.op().axis, threads = b.settings().threads] {
    if (copied > 0) parallel_copy(args.c, addend, copied, threads);
    Matmul::Args now = args;
    now.live = live_rows(step, axis, shape.m);
    matmul->run(now);
  };
}

}  // namespace

BoundCall bind_linear(const CpuBinding& b) {
  Matmul::Args args{.a = b.input(0), .b = b.input(1), .bias = b.input(2)};
  take_rider(b, 5, args);
  return bind_product(b, linear_product(b.graph(), b.op()), args, b.input(3), b.input<double>(4));
}

BoundCall bind_linear_dx(const CpuBinding& b) {
  Matmul::Args args{.a = b.input(0), .b = b.input(1)};
  take_rider(b, 4, args);
  return bind_product(b, linear_dx_product(b.graph(), b.op()), args, b.input(2), b.input<double>(3));
}

BoundCall bind_linear_dw(const CpuBinding& b) {
  const MatmulShape shape = linear_dw_product(b.graph(), b.op());
  const Matmul::Args args{.a = b.input(1),
                          .b = b.input(0),
                          .c = b.output(0),
                          .alpha = static_cast<float>(b.op().attr_float("scale")),
                          .scratch = b.scratch()};
  return [=, matmul = product(b, shape), step = b.input<double>(2),
          accumulate = b.op().attr_int("accumulate"), axis = b.op().axis] {
    Matmul::Args now = args;
    now.live = live_rows(step, axis, shape.k);
    now.accumulate = !overwrites(accumulate, step);
    matmul->run(now);
  };
}

BoundCall bind_bias_grad(const CpuBinding& b) {
  const Tensor& d_y = b.input_tensor(0);
  return with_gradient_type(b, d_y.dtype, b.output_tensor(0).dtype, [&](auto t, auto g) -> BoundCall {
    using Args = ColumnSums<decltype(t), decltype(g)>;
    const Args args{.x = b.input<decltype(t)>(0),
                    .rows = d_y.shape[0],
                    .columns = d_y.shape[1],
                    .partials = reinterpret_cast<float*>(b.scratch()),
                    .sums = b.output<decltype(g)>(0),
                    .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, column_sums, Args);
    return [=, step = b.input<double>(1), accumulate = b.op().attr_int("accumulate"), axis = b.op().axis] {
      Args now = args;
      now.rows = live_rows(step, axis, args.rows);
      now.accumulate = !overwrites(accumulate, step);
      kernel(now);
    };
  });
}

}  // namespace plimsoll
