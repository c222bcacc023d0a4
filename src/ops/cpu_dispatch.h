// What the bind functions share: element types and instruction sets to kernels, and the step values.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "ops/cpu_kernel.h"
#include "ops/step_values.h"

namespace plimsoll {

#define OP(name) BoundCall bind_##name(const CpuBinding& binding);
#include "ops/ops.def"
#undef OP

// The kernel for an instruction set, of those that there are. Kernels are overloaded on their arguments, so
// that is named: pick<Add<float>>(isa, avx2::add, ...).
template <class Arguments>
using Kernel = void (*)(const Arguments&);
template <class Arguments>
Kernel<Arguments> pick(Isa isa, Kernel<Arguments> avx2, Kernel<Arguments> avx512) {
  return isa == Isa::avx2 ? avx2 : avx512;
}
template <class Arguments>
Kernel<Arguments> pick(Isa isa, Kernel<Arguments> avx2, Kernel<Arguments> avx512,
                       Kernel<Arguments> avx512_bf16) {
  return isa < Isa::avx512_bf16 ? pick(isa, avx2, avx512) : avx512_bf16;
}

// make(float{}) or make(uint16_t{}) for f32 and bf16.
template <class Make>
BoundCall with_element_type(const CpuBinding& b, DType dtype, Make make) {
  if (dtype == DType::f32) return make(float{});
  if (dtype == DType::bf16) return make(uint16_t{});
  throw InternalError("no CPU kernel for " + std::string(to_string(dtype)) + ": " +
                      print_op(b.graph(), b.op()));
}

// make(T{}, G{}) for activations T and a gradient G: f32 with f32, bf16 with f32 or bf16.
template <class Make>
BoundCall with_gradient_type(const CpuBinding& b, DType dtype, DType gradient, Make make) {
  if (dtype == DType::f32 && gradient == DType::f32) return make(float{}, float{});
  if (dtype == DType::bf16 && gradient == DType::f32) return make(uint16_t{}, float{});
  if (dtype == DType::bf16 && gradient == DType::bf16) return make(uint16_t{}, uint16_t{});
  throw InternalError("no CPU kernel for " + std::string(to_string(dtype)) + " with a gradient of " +
                      std::string(to_string(gradient)) + ": " + print_op(b.graph(), b.op()));
}

// Whether a gradient is overwritten: by the first writer of the first micro-step of an effective batch.
inline bool overwrites(int64_t accumulate, const double* step) {
  return accumulate == 0 && step_value(step, StepValue::first_micro_step) == 1.0;
}

}  // namespace plimsoll
