#include "ops/pointwise/gpu_halves.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr unsigned kSwigluThreads = 256;
constexpr int64_t kSwigluPerBlock = int64_t{kSwigluThreads} * gpu::kEight;

struct Swish {
  static PL_DEV float of(float gate, float up) { return gate * gpu::sigmoid(gate) * up; }
  // Makes gate and up their gradients.
  static PL_DEV void turn(float& g, float& u, float d) {
    const float sigmoid = gpu::sigmoid(g);
    const float d_value = d * g * sigmoid;
    g = d * u * sigmoid * gpu::fma(g, 1.0F - sigmoid, 1.0F);
    u = d_value;
  }
};

// The output may be an input.
template <class T>
__global__ void __launch_bounds__(kSwigluThreads) swiglu(const T* gate, const T* up, T* s, int64_t count) {
  const gpu::OwnEight own(count);
  if (own.count == 0) return;
  float g[gpu::kEight], u[gpu::kEight];
  gpu::load8(g, gate + own.at, own.count, own.whole());
  gpu::load8(u, up + own.at, own.count, own.whole());
  PL_UNROLL
  for (int i = 0; i < gpu::kEight; ++i) g[i] = Swish::of(g[i], u[i]);
  gpu::store8(s + own.at, g, own.count, own.whole());
}

// d_up = d_s * silu(gate); d_gate = d_s * up * sigmoid * (1 + gate * (1 - sigmoid)). Outputs may be inputs.
template <class T>
__global__ void __launch_bounds__(kSwigluThreads)
    swiglu_grad(const T* gate, const T* up, const T* d_s, T* d_gate, T* d_up, int64_t count) {
  const gpu::OwnEight own(count);
  if (own.count == 0) return;
  float g[gpu::kEight], u[gpu::kEight], d[gpu::kEight];
  gpu::load8(g, gate + own.at, own.count, own.whole());
  gpu::load8(u, up + own.at, own.count, own.whole());
  gpu::load8(d, d_s + own.at, own.count, own.whole());
  PL_UNROLL
  for (int i = 0; i < gpu::kEight; ++i) Swish::turn(g[i], u[i], d[i]);
  gpu::store8(d_up + own.at, u, own.count, own.whole());
  gpu::store8(d_gate + own.at, g, own.count, own.whole());
}

}  // namespace

BoundCall bind_gpu_swiglu(const GpuBinding& b) {
  using at = operand::swiglu;
  if (!b.has_input(at::up)) return bind_halves<at, Swish>(b);
  return with_gpu_type(b, b.input_tensor(at::gate).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    return [&stream = b.stream(), gate = b.input<T>(at::gate), up = b.input<T>(at::up),
            s = b.output<T>(at::s), count = b.input_tensor(at::gate).shape.elements()] {
      gpu::launch(stream, {gpu::blocks_of(count, kSwigluPerBlock)}, {kSwigluThreads}, swiglu<T>, gate, up, s,
                  count);
    };
  });
}

BoundCall bind_gpu_swiglu_grad(const GpuBinding& b) {
  using at = operand::swiglu_grad;
  if (!b.has_input(at::up)) return bind_halves_grad<at, Swish>(b);
  return with_gpu_type(b, b.input_tensor(at::gate).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    return [&stream = b.stream(), gate = b.input<T>(at::gate), up = b.input<T>(at::up),
            d_s = b.input<T>(at::d_s), d_gate = b.output<T>(at::d_gate), d_up = b.output<T>(at::d_up),
            count = b.input_tensor(at::gate).shape.elements()] {
      gpu::launch(stream, {gpu::blocks_of(count, kSwigluPerBlock)}, {kSwigluThreads}, swiglu_grad<T>, gate,
                  up, d_s, d_gate, d_up, count);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
