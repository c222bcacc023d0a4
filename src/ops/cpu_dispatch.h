// Helpers that the CPU bind functions share: element types and instruction sets to kernels, and the step
// values.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "ops/cpu_kernel.h"
#include "ops/step_values.h"
#include "tensor/f16.h"

namespace plimsoll {

#define OP(name, ...) BoundCall bind_##name(const CpuBinding& binding);
#include "ops/ops.def"
#undef OP

// Returns true if the op's halves are f16: all of an op's halves are of one type.
bool computes_in_f16(const CpuBinding& binding);

// The kernel for an instruction set, of those that there are; f16 is computed with AVX2 everywhere. Kernels
// are overloaded on their arguments, so that is named: PLIMSOLL_KERNEL(b, add, Add<float>).
template <class Arguments>
using Kernel = void (*)(const Arguments&);
template <class Arguments>
Kernel<Arguments> pick(const CpuBinding& b, Kernel<Arguments> avx2, Kernel<Arguments> avx512,
                       Kernel<Arguments> avx512_bf16, Kernel<Arguments> avx2_f16) {
  if (computes_in_f16(b)) return avx2_f16;
  const Isa isa = b.settings().isa;
  return isa == Isa::avx2 ? avx2 : isa == Isa::avx512 ? avx512 : avx512_bf16;
}
#define PLIMSOLL_KERNEL(b, name, ...) \
  pick<__VA_ARGS__>(b, avx2::name, avx512::name, avx512_bf16::name, avx2_f16::name)
// Chooses a kernel that has no use for the BF16 instructions.
#define PLIMSOLL_PLAIN_KERNEL(b, name, ...) \
  pick<__VA_ARGS__>(b, avx2::name, avx512::name, avx512::name, avx2_f16::name)

[[noreturn]] void refuse_element_type(const CpuBinding& b, DType dtype);

// make(float{}) for f32, make(uint16_t{}) for halves: which they are is a matter of the kernel that is
// picked.
template <class Make>
BoundCall with_element_type(const CpuBinding& b, DType dtype, Make make) {
  if (dtype == DType::f32) return make(float{});
  if (dtype == DType::bf16 || dtype == DType::f16) return make(uint16_t{});
  refuse_element_type(b, dtype);
}

// The same for calls that compute here: make(F16{}) for f16.
template <class Make>
BoundCall with_number_type(const CpuBinding& b, DType dtype, Make make) {
  if (dtype == DType::f16) return make(F16{});
  return with_element_type(b, dtype, make);
}

// make(T{}, G{}) for activations T and a gradient G: f32 with f32, bf16 with f32 or bf16, f16 with f32.
template <class Make>
BoundCall with_gradient_type(const CpuBinding& b, DType dtype, DType gradient, Make make) {
  if (dtype == DType::f32 && gradient == DType::f32) return make(float{}, float{});
  const bool half = dtype == DType::bf16 || dtype == DType::f16;
  if (half && gradient == DType::f32) return make(uint16_t{}, float{});
  if (half && gradient == dtype) return make(uint16_t{}, uint16_t{});
  throw InternalError("no CPU kernel for " + std::string(to_string(dtype)) + " with a gradient of " +
                      std::string(to_string(gradient)) + ": " + print_op(b.graph(), b.op()));
}

// Arguments of a kernel that runs on the binding's threads.
template <class Args>
Args with_threads(const CpuBinding& b, Args args) {
  args.threads = b.settings().threads;
  return args;
}

// Returns true if a gradient is overwritten: by its first writer, in the first micro-step of an effective batch or
// in each of them.
inline bool overwrites(int64_t accumulate, const double* step) {
  return accumulate == kOverwritesEach ||
         (accumulate == kOverwritesFirst && step_value(step, StepValue::first_micro_step) == 1.0);
}

}  // namespace plimsoll
