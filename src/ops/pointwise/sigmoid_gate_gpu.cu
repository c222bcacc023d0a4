// sigmoid_gate and its gradient. What is computed: ops/pointwise/sigmoid_gate_kernels.h.
#include "ops/gpu_dispatch.h"
#include "ops/pointwise/sigmoid_gate_kernels.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr int kSigmoidGateThreads = 256;

// A thread an element; the output may be x.
template <class T>
__global__ void __launch_bounds__(kSigmoidGateThreads) sigmoid_gate(SigmoidGate<T> a) {
  const int64_t at = int64_t{blockIdx.x} * kSigmoidGateThreads + threadIdx.x;
  if (at >= a.rows * a.width) return;
  const float gate = gpu::to_float(a.gate[at]);
  const float sigma = gpu::to_float(gpu::rounded<T>(gpu::sigmoid(gate)));
  a.y[at] = gpu::rounded<T>(gpu::to_float(a.x[at]) * sigma);
}

// By element; d_x may be d_y, and d_gate the gate.
template <class T>
__global__ void __launch_bounds__(kSigmoidGateThreads) sigmoid_gate_grad(SigmoidGateGrad<T> a) {
  const int64_t at = int64_t{blockIdx.x} * kSigmoidGateThreads + threadIdx.x;
  if (at >= a.rows * a.width) return;
  const float sigma = gpu::sigmoid(gpu::to_float(a.gate[at])), d_y = gpu::to_float(a.d_y[at]);
  const float d_gate = d_y * gpu::to_float(a.x[at]) * sigma * (1.0F - sigma);
  if (a.d_x != nullptr) a.d_x[at] = gpu::rounded<T>(d_y * gpu::to_float(gpu::rounded<T>(sigma)));
  if (a.d_gate != nullptr) a.d_gate[at] = gpu::rounded<T>(d_gate);
}

}  // namespace

BoundCall bind_gpu_sigmoid_gate(const GpuBinding& b) {
  using at = operand::sigmoid_gate;
  const Tensor& x = b.input_tensor(at::x);
  return with_gpu_type(b, x.dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const SigmoidGate<T> a{.x = b.input<T>(at::x),
                           .gate = b.input<T>(at::gate),
                           .y = b.output<T>(at::y),
                           .rows = x.shape.rows(),
                           .width = x.shape.last()};
    return [a, &stream = b.stream()] {
      gpu::launch(stream, {gpu::blocks_of(a.rows * a.width, kSigmoidGateThreads)}, {kSigmoidGateThreads},
                  sigmoid_gate<T>, a);
    };
  });
}

BoundCall bind_gpu_sigmoid_gate_grad(const GpuBinding& b) {
  using at = operand::sigmoid_gate_grad;
  const Tensor& x = b.input_tensor(at::x);
  return with_gpu_type(b, x.dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const SigmoidGateGrad<T> a{.x = b.input<T>(at::x),
                               .gate = b.input<T>(at::gate),
                               .d_y = b.input<T>(at::d_y),
                               .d_x = b.output<T>(at::d_x),
                               .d_gate = b.output<T>(at::d_gate),
                               .rows = x.shape.rows(),
                               .width = x.shape.last()};
    return [a, &stream = b.stream()] {
      gpu::launch(stream, {gpu::blocks_of(a.rows * a.width, kSigmoidGateThreads)}, {kSigmoidGateThreads},
                  sigmoid_gate_grad<T>, a);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
