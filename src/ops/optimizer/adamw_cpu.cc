#include "ops/name_hash.h"
#include "ops/optimizer/adamw_kernels.h"
#include "ops/optimizer/optimizer_cpu.h"

namespace plimsoll {
namespace {

// The attributes; what changes from step to step is filled in by the call.
AdamWStep constants_of(const Op& op) {
  return {.beta1 = op.attr_float("beta1"),
          .beta2 = op.attr_float("beta2"),
          .eps = op.attr_float("eps"),
          .weight_decay = op.attr_float("weight_decay")};
}

template <class P, class G, class S>
BoundCall make_adamw(const CpuBinding& b) {
  using at = operand::adamw;
  using Args = AdamW<P, G, S>;
  const bool has_master = b.has_output(at::master);
  const ElementRange range = updated_range(b.graph(), b.op());
  Args args{.step = constants_of(b.op()),
            .name_hash = name_hash(b.op().scope),
            .weight = updated_slice<P>(b, has_master ? size_t{at::master} : size_t{at::weight}),
            .copy = has_master ? updated_slice<uint16_t>(b, at::weight) : nullptr,
            .gradient = gradient_slice<G>(b),
            .m = updated_slice<S>(b, at::m),
            .v = updated_slice<S>(b, at::v),
            .count = range.elements,
            .first_element = range.first,
            .threads = b.settings().threads};
  const auto kernel = PLIMSOLL_KERNEL(b, adamw, Args);
  return [=, rate = rate_factor(b.op()), step = b.input<double>(kStepInput),
          norm = b.input<double>(kNormInput)] {
    if (overflowed(norm)) return;
    Args now = args;
    now.step.learning_rate = rate * step_value(step, StepValue::learning_rate);
    now.step.step = static_cast<int64_t>(step_value(step, StepValue::optimizer_step));
    now.step.seed = step_seed(step);
    now.step.clip_factor = clip_factor(norm);
    kernel(now);
  };
}

}  // namespace

BoundCall bind_adamw(const CpuBinding& b) {
  using at = operand::adamw;
  const Tensor& updated = b.output_tensor(b.has_output(at::master) ? at::master : at::weight);
  return with_element_type(b, updated.dtype, [&](auto p) {
    return with_element_type(b, b.input_tensor(kGradientInput).dtype, [&](auto g) {
      return with_element_type(b, b.output_tensor(at::m).dtype,
                               [&](auto s) { return make_adamw<decltype(p), decltype(g), decltype(s)>(b); });
    });
  });
}

}  // namespace plimsoll
