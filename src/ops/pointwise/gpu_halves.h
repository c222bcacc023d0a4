// Kernels of swiglu and geglu whose gates and values are halves of one tensor [rows, 2 * width]: eight columns of a row a
// thread. `Curve` says what becomes of a gate.
#pragma once

#include "ops/gpu_dispatch.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

constexpr unsigned kHalvesThreads = 256;

struct HalvesShape {
  int64_t rows, width, eights;  // eights of a row of `width`
};

struct OwnHalves {
  int64_t gate, up, dense;  // where the thread's eight begin; up is as far from gate as a row is wide
  int count;                // 0: the thread has none
  bool packed;

  PL_DEV explicit OwnHalves(const HalvesShape& a) : gate(0), up(0), dense(0), count(0), packed(false) {
    const int64_t number = int64_t{blockIdx.x} * kHalvesThreads + threadIdx.x;
    if (number >= a.rows * a.eights) return;
    const int64_t row = number / a.eights, column = number % a.eights * gpu::kEight;
    gate = row * 2 * a.width + column;
    up = gate + a.width;
    dense = row * a.width + column;
    count = a.width - column >= gpu::kEight ? gpu::kEight : static_cast<int>(a.width - column);
    packed = a.width % gpu::kEight == 0;
  }
};

template <class T, class Function>
__global__ void __launch_bounds__(kHalvesThreads) gate_halves(const T* x, T* s, HalvesShape shape) {
  const OwnHalves own(shape);
  if (own.count == 0) return;
  float gate[gpu::kEight], up[gpu::kEight];
  gpu::load8(gate, x + own.gate, own.count, own.packed);
  gpu::load8(up, x + own.up, own.count, own.packed);
  PL_UNROLL
  for (int i = 0; i < gpu::kEight; ++i) gate[i] = Function::of(gate[i], up[i]);
  gpu::store8(s + own.dense, gate, own.count, own.packed);
}

// d_x may be x: a thread reads all of its values before it writes.
template <class T, class Function>
__global__ void __launch_bounds__(kHalvesThreads)
    gate_halves_grad(const T* x, const T* d_s, T* d_x, HalvesShape shape) {
  const OwnHalves own(shape);
  if (own.count == 0) return;
  float gate[gpu::kEight], up[gpu::kEight], d[gpu::kEight];
  gpu::load8(gate, x + own.gate, own.count, own.packed);
  gpu::load8(up, x + own.up, own.count, own.packed);
  gpu::load8(d, d_s + own.dense, own.count, own.packed);
  PL_UNROLL
  for (int i = 0; i < gpu::kEight; ++i) Function::turn(gate[i], up[i], d[i]);
  gpu::store8(d_x + own.gate, gate, own.count, own.packed);
  gpu::store8(d_x + own.up, up, own.count, own.packed);
}

inline HalvesShape halves_shape(const Tensor& s) {
  const int64_t width = s.shape.last();
  return {s.shape.rows(), width, (width + gpu::kEight - 1) / gpu::kEight};
}

// `at`: operand::swiglu, operand::geglu, or that of its gradient.
template <class at, class Function>
BoundCall bind_halves(const GpuBinding& b) {
  return with_gpu_type(b, b.input_tensor(at::gate).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const HalvesShape shape = halves_shape(b.output_tensor(at::s));
    return [=, &stream = b.stream(), x = b.input<T>(at::gate), s = b.output<T>(at::s)] {
      gpu::launch(stream, {gpu::blocks_of(shape.rows * shape.eights, kHalvesThreads)}, {kHalvesThreads},
                  gate_halves<T, Function>, x, s, shape);
    };
  });
}
template <class at, class Function>
BoundCall bind_halves_grad(const GpuBinding& b) {
  return with_gpu_type(b, b.input_tensor(at::gate).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const HalvesShape shape = halves_shape(b.input_tensor(at::d_s));
    return [=, &stream = b.stream(), x = b.input<T>(at::gate), d_s = b.input<T>(at::d_s),
            d_x = b.output<T>(at::d_gate)] {
      gpu::launch(stream, {gpu::blocks_of(shape.rows * shape.eights, kHalvesThreads)}, {kHalvesThreads},
                  gate_halves_grad<T, Function>, x, d_s, d_x, shape);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
