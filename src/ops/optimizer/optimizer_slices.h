// Helpers that the optimizers' bind functions share on every backend: the addresses of a slice in its
// operands, and factors.
#pragma once

#include "ops/binding.h"
#include "ops/optimizer/optimizer.h"

namespace plimsoll {

// The slice in an output; nullptr where the output is absent. `block`: elements of the weight to a value of
// it.
template <class T>
T* updated_slice(const Binding& b, size_t output, int64_t block = 1) {
  if (!b.has_output(output)) return nullptr;
  const ElementRange range = updated_range(b.graph(), b.op());
  return b.output<T>(output) + range_in(b.graph(), b.op(), b.op().outputs[output], range, block).first;
}

template <class T>
const T* gradient_slice(const Binding& b, size_t input = kGradientInput) {
  const ElementRange range = updated_range(b.graph(), b.op(), input);
  return b.input<T>(input) + range_in(b.graph(), b.op(), b.op().inputs[input], range).first;
}

// `norm`: the result of grad_norm; nullptr where nothing is clipped. constexpr so that kernels of GPUs have
// it too.
constexpr double clip_factor(const double* norm) { return norm == nullptr ? 1.0 : norm[1]; }

// Gradients that overflowed update nothing.
constexpr bool overflowed(const double* norm) { return norm != nullptr && !(norm[1] == norm[1]); }

// Times the learning rate, where the weight trains with another one.
inline double rate_factor(const Op& op) { return op.attrs.contains("rate") ? op.attr_float("rate") : 1.0; }

}  // namespace plimsoll
