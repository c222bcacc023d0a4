// Helpers that the optimizers' bind functions on the CPU share: element types, and the values that change
// from step to step.
#pragma once

#include "ops/cpu_dispatch.h"
#include "ops/name_hash.h"
#include "ops/optimizer/optimizer_kernels.h"
#include "ops/optimizer/optimizer_slices.h"

namespace plimsoll {

// make(P{}, G{}) for the types of what is updated (the master copy, output `master`, where there is one) and
// of the gradient.
template <class Make>
BoundCall with_update_types(const CpuBinding& b, size_t master, Make make) {
  const Tensor& updated = b.output_tensor(b.has_output(master) ? master : size_t{kWeightOutput});
  return with_element_type(b, updated.dtype, [&](auto p) {
    return with_element_type(b, b.input_tensor(kGradientInput).dtype, [&](auto g) { return make(p, g); });
  });
}

template <class P, class G>
WeightUpdate<P, G> weight_update(const CpuBinding& b, size_t master) {
  const ElementRange range = updated_range(b.graph(), b.op());
  const bool has_master = b.has_output(master);
  return {.step = {.weight_decay = b.op().attr_float("weight_decay")},
          .name_hash = name_hash(b.op().scope),
          .weight = updated_slice<P>(b, has_master ? master : size_t{kWeightOutput}),
          .copy = has_master ? updated_slice<uint16_t>(b, kWeightOutput) : nullptr,
          .gradient = gradient_slice<G>(b),
          .count = range.elements,
          .first_element = range.first,
          .threads = b.settings().threads};
}

// A call of `kernel` with `args`, their step filled in from the step values and the norm.
template <class Args>
BoundCall bind_update(const CpuBinding& b, const Args& args, Kernel<Args> kernel) {
  return [args, kernel, rate = rate_factor(b.op()), step = b.input<double>(kStepInput),
          norm = b.input<double>(kNormInput)] {
    if (overflowed(norm)) return;
    Args now = args;
    now.update.step.learning_rate = rate * step_value(step, StepValue::learning_rate);
    now.update.step.step = static_cast<int64_t>(step_value(step, StepValue::optimizer_step));
    now.update.step.seed = step_seed(step);
    now.update.step.clip_factor = clip_factor(norm);
    kernel(now);
  };
}

}  // namespace plimsoll
