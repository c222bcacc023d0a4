#include <cmath>
#include <vector>

#include "ops/adamw_kernels.h"
#include "ops/cpu_dispatch.h"
#include "ops/name_hash.h"

namespace plimsoll {
namespace {

// Added to the norm before the division, as PyTorch's clip_grad_norm_ does.
constexpr double kClipEps = 1e-6;

template <class T>
std::function<double()> squares_of(const CpuBinding& b, size_t input) {
  using SumKernel = double (*)(const SumOfSquares<T>&);
  const SumOfSquares<T> args{.x = b.input<T>(input),
                             .count = b.input_tensor(input).shape.elements(),
                             .partials = reinterpret_cast<double*>(b.scratch()),
                             .threads = b.settings().threads};
  const SumKernel kernel =
      b.settings().isa == Isa::avx2 ? SumKernel{avx2::sum_of_squares} : SumKernel{avx512::sum_of_squares};
  return [=] { return kernel(args); };
}

// The attributes; what changes from step to step is filled in by the call.
AdamWStep constants_of(const Op& op) {
  return {.beta1 = op.attr_float("beta1"),
          .beta2 = op.attr_float("beta2"),
          .eps = op.attr_float("eps"),
          .weight_decay = op.attr_float("weight_decay")};
}

template <class P, class G, class S>
BoundCall make_adamw(const CpuBinding& b) {
  using Args = AdamW<P, G, S>;
  const bool has_master = b.op().has_output(3);
  Args args{.step = constants_of(b.op()),
            .name_hash = name_hash(b.op().scope),
            .weight = b.output<P>(has_master ? 3 : 0),
            .copy = has_master ? b.output<uint16_t>(0) : nullptr,
            .gradient = b.input<G>(2),
            .m = b.output<S>(1),
            .v = b.output<S>(2),
            .count = b.output_tensor(0).shape.elements(),
            .threads = b.settings().threads};
  const auto kernel = pick<Args>(b.settings().isa, avx2::adamw, avx512::adamw);
  return [=, step = b.input<double>(0), norm = b.input<double>(1)] {
    Args now = args;
    now.step.learning_rate = step_value(step, StepValue::learning_rate);
    now.step.step = static_cast<int64_t>(step_value(step, StepValue::optimizer_step));
    now.step.seed = step_seed(step);
    now.step.clip_factor = norm[1];
    kernel(now);
  };
}

}  // namespace

BoundCall bind_grad_norm(const CpuBinding& b) {
  std::vector<std::function<double()>> squares;
  for (size_t i = 1; i < b.op().inputs.size(); ++i)
    squares.push_back(b.input_tensor(i).dtype == DType::bf16 ? squares_of<uint16_t>(b, i)
                                                             : squares_of<float>(b, i));
  return [squares, max_norm = b.op().attr_float("max_norm"), result = b.output<double>(0)] {
    double sum = 0;
    for (const auto& one : squares) sum += one();
    const double norm = std::sqrt(sum);
    const double factor = max_norm / (norm + kClipEps);
    result[0] = norm;
    // A NaN norm keeps the factor NaN: the run stops on it, nothing is hidden.
    result[1] = max_norm > 0 && !(factor >= 1) ? factor : 1.0;
  };
}

BoundCall bind_adamw(const CpuBinding& b) {
  const Tensor& updated = b.output_tensor(b.op().has_output(3) ? 3 : 0);
  return with_element_type(b, updated.dtype, [&](auto p) {
    return with_element_type(b, b.input_tensor(2).dtype, [&](auto g) {
      return with_element_type(b, b.output_tensor(1).dtype,
                               [&](auto s) { return make_adamw<decltype(p), decltype(g), decltype(s)>(b); });
    });
  });
}

}  // namespace plimsoll
