// Helpers that the bind functions of GPU kernels share: element types to kernels, and the step values on the
// device.
#pragma once

#include <string>

#include "gpu/device.h"
#include "ops/gpu_kernel.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

#define GPU_OP(name) BoundCall bind_gpu_##name(const GpuBinding& binding);
#include "ops/gpu_kernels.def"
#undef GPU_OP

// make(T{}) for weights that are updated, their gradients and states: f32 or bf16.
template <class Make>
BoundCall with_stored_type(const GpuBinding& b, DType dtype, Make make) {
  if (dtype == DType::f32) return make(float{});
  if (dtype == DType::bf16) return make(gpu::bf16{});
  refuse_on_gpu(b, "values of " + std::string(to_string(dtype)));
}
// The same for activations: f16 too.
template <class Make>
BoundCall with_gpu_type(const GpuBinding& b, DType dtype, Make make) {
  if (dtype == DType::f16) return make(gpu::f16{});
  return with_stored_type(b, dtype, make);
}

// make(T{}, G{}) for activations or a weight T and a gradient G: f32 with f32, bf16 with f32 or bf16, f16
// with f32, as its gradients are scaled and summed.
template <class Make>
BoundCall with_gpu_types(const GpuBinding& b, DType dtype, DType gradient, Make make) {
  if (dtype == DType::f32 && gradient == DType::f32) return make(float{}, float{});
  if (dtype == DType::bf16 && gradient == DType::f32) return make(gpu::bf16{}, float{});
  if (dtype == DType::bf16 && gradient == DType::bf16) return make(gpu::bf16{}, gpu::bf16{});
  if (dtype == DType::f16 && gradient == DType::f32) return make(gpu::f16{}, float{});
  refuse_on_gpu(b, std::string(to_string(dtype)) + " with " + std::string(to_string(gradient)));
}

// make(T{}, W{}) for activations T and a weight W: f16 with f16 too.
template <class Make>
BoundCall with_weight_types(const GpuBinding& b, DType dtype, DType weight, Make make) {
  if (dtype == DType::f16 && weight == DType::f16) return make(gpu::f16{}, gpu::f16{});
  return with_gpu_types(b, dtype, weight, make);
}

// For kernels: whether a gradient is overwritten, by the first writer of the first micro-step of an effective
// batch, or of each micro-step.
PL_BOTH bool overwrites_gradient(int64_t accumulate, const double* step) {
  return accumulate == kOverwritesEach ||
         (accumulate == kOverwritesFirst && step_value(step, StepValue::first_micro_step) == 1.0);
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
