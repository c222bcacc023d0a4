// What the bind functions of the optimizers share: the addresses of a slice in its operands, and the values
// that change from step to step.
#pragma once

#include "ops/cpu_dispatch.h"
#include "ops/name_hash.h"
#include "ops/optimizer.h"
#include "ops/optimizer_kernels.h"

namespace plimsoll {

// The slice in an output; nullptr where the output is absent. `block`: elements of the weight to a value of
// it.
template <class T>
T* updated_slice(const CpuBinding& b, size_t output, int64_t block = 1) {
  if (!b.op().has_output(output)) return nullptr;
  const ElementRange range = updated_range(b.graph(), b.op());
  return b.output<T>(output) + range_in(b.graph(), b.op(), b.op().outputs[output], range, block).first;
}

template <class T>
const T* gradient_slice(const CpuBinding& b, size_t input = kGradientInput) {
  const ElementRange range = updated_range(b.graph(), b.op(), input);
  return b.input<T>(input) + range_in(b.graph(), b.op(), b.op().inputs[input], range).first;
}

// `norm`: the result of grad_norm; nullptr where nothing is clipped.
inline double clip_factor(const double* norm) { return norm == nullptr ? 1.0 : norm[1]; }

// make(P{}, G{}) for the types of what is updated (the master copy, output `master`, where there is one) and
// of the gradient.
template <class Make>
BoundCall with_update_types(const CpuBinding& b, size_t master, Make make) {
  const Tensor& updated = b.output_tensor(b.op().has_output(master) ? master : 0);
  return with_element_type(b, updated.dtype, [&](auto p) {
    return with_element_type(b, b.input_tensor(kGradientInput).dtype, [&](auto g) { return make(p, g); });
  });
}

template <class P, class G>
WeightUpdate<P, G> weight_update(const CpuBinding& b, size_t master) {
  const ElementRange range = updated_range(b.graph(), b.op());
  const bool has_master = b.op().has_output(master);
  return {.step = {.weight_decay = b.op().attr_float("weight_decay")},
          .name_hash = name_hash(b.op().scope),
          .weight = updated_slice<P>(b, has_master ? master : 0),
          .copy = has_master ? updated_slice<uint16_t>(b, 0) : nullptr,
          .gradient = gradient_slice<G>(b),
          .count = range.elements,
          .first_element = range.first,
          .threads = b.settings().threads};
}

// Times the learning rate, where the weight trains with another one.
inline double rate_factor(const Op& op) { return op.attrs.contains("rate") ? op.attr_float("rate") : 1.0; }

// A call of `kernel` with `args`, their step filled in from the step values and the norm.
template <class Args>
BoundCall bind_update(const CpuBinding& b, const Args& args, Kernel<Args> kernel) {
  return [args, kernel, rate = rate_factor(b.op()), step = b.input<double>(kStepInput),
          norm = b.input<double>(kNormInput)] {
    Args now = args;
    now.update.step.learning_rate = rate * step_value(step, StepValue::learning_rate);
    now.update.step.step = static_cast<int64_t>(step_value(step, StepValue::optimizer_step));
    now.update.step.seed = step_seed(step);
    now.update.step.clip_factor = clip_factor(norm);
    kernel(now);
  };
}

}  // namespace plimsoll
