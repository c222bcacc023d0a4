#include "ops/optimizer/grad_norm_kernels.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "ops/optimizer/optimizer_cpu.h"

namespace plimsoll {
namespace {

template <class T>
BoundCall make_square(const CpuBinding& b) {
  using SumKernel = double (*)(const SumOfSquares<T>&);
  const ElementRange range = updated_range(b.graph(), b.op(), operand::grad_square::gradient);
  const int64_t piece = piece_of(b.op());
  const SumOfSquares<T> args{.x = gradient_slice<T>(b, operand::grad_square::gradient),
                             .count = range.elements,
                             .partials = reinterpret_cast<double*>(b.scratch()),
                             .threads = b.settings().threads};
  const SumKernel kernel = computes_in_f16(b)              ? SumKernel{avx2_f16::sum_of_squares}
                           : b.settings().isa == Isa::avx2 ? SumKernel{avx2::sum_of_squares}
                                                           : SumKernel{avx512::sum_of_squares};
  double* const square = b.output<double>(operand::grad_square::square);
  if (piece > 0)
    return [args, kernel, piece, sums = square + range.first / piece] {
      for (int64_t first = 0; first < args.count; first += piece) {
        SumOfSquares<T> now = args;
        now.x += first;
        now.count = std::min(piece, args.count - first);
        sums[first / piece] = kernel(now);
      }
    };
  return [args, kernel, continues = range.first > 0, square] {
    SumOfSquares<T> now = args;
    now.before = continues ? *square : 0.0;
    *square = kernel(now);
  };
}

}  // namespace

BoundCall bind_grad_square(const CpuBinding& b) {
  return with_element_type(b, b.input_tensor(operand::grad_square::gradient).dtype,
                           [&](auto t) { return make_square<decltype(t)>(b); });
}

BoundCall bind_grad_norm(const CpuBinding& b) {
  std::vector<std::span<const double>> squares;
  for (size_t i = operand::grad_norm::squares; i < b.op().inputs.size(); ++i)
    squares.emplace_back(b.input<double>(i), static_cast<size_t>(b.input_tensor(i).shape.elements()));
  return
      [squares, max_norm = b.op().attr_float("max_norm"), result = b.output<double>(operand::grad_norm::norm),
       step = b.input<double>(operand::grad_norm::step), scaled = is_scaled(b.op())] {
        double sum = 0;
        for (const std::span<const double> of_weight : squares)
          for (const double square : of_weight) sum += square;
        const double scale = scaled ? step_value(step, StepValue::gradient_scale) : 0;
        const GradNorm found = grad_norm_of(std::sqrt(sum), max_norm, scale);
        result[0] = found.norm;
        result[1] = found.factor;
      };
}

}  // namespace plimsoll
