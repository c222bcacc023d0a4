// relu, geglu, gelu, tanh and their gradients: one kernel for whatever works value by value. Formulas and
// bits are the CPU's (activations_simd.cc).
#include "ops/pointwise/gpu_halves.h"
#include "ops/pointwise/gpu_tanh.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr unsigned kActivationsThreads = 256;
constexpr int64_t kActivationsPerBlock = int64_t{kActivationsThreads} * gpu::kEight;

template <class T, int kIn, int kOut>
struct Operands {
  const T* in[kIn] = {};
  T* out[kOut] = {};
};

// Outputs may be inputs: a thread reads all of its eight before it writes.
template <class T, class Function>
__global__ void __launch_bounds__(kActivationsThreads)
    map_values(Operands<T, Function::kIn, Function::kOut> operands, int64_t count) {
  const gpu::OwnEight own(count);
  if (own.count == 0) return;
  float in[Function::kIn][gpu::kEight], out[Function::kOut][gpu::kEight];
  PL_UNROLL
  for (int k = 0; k < Function::kIn; ++k) gpu::load8(in[k], operands.in[k] + own.at, own.count, own.whole());
  PL_UNROLL
  for (int i = 0; i < gpu::kEight; ++i) {
    float x[Function::kIn], y[Function::kOut];
    PL_UNROLL
    for (int k = 0; k < Function::kIn; ++k) x[k] = in[k][i];
    Function::of(x, y);
    PL_UNROLL
    for (int k = 0; k < Function::kOut; ++k) out[k][i] = y[k];
  }
  PL_UNROLL
  for (int k = 0; k < Function::kOut; ++k)
    gpu::store8(operands.out[k] + own.at, out[k], own.count, own.whole());
}

template <class Function>
BoundCall bind_map(const GpuBinding& b) {
  const Tensor& first = b.graph().tensor(b.op().outputs.front());
  return with_gpu_type(b, first.dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    Operands<T, Function::kIn, Function::kOut> operands;
    for (size_t i = 0; i < Function::kIn; ++i) operands.in[i] = b.input<T>(i);
    for (size_t i = 0; i < Function::kOut; ++i) operands.out[i] = b.output<T>(i);
    return [operands, &stream = b.stream(), count = first.shape.elements()] {
      gpu::launch(stream, {gpu::blocks_of(count, kActivationsPerBlock)}, {kActivationsThreads},
                  map_values<T, Function>, operands, count);
    };
  });
}

struct Curve {
  float value, derivative;
};

PL_DEV Curve gelu_by_tanh(float x) {
  const float square = x * x;
  const float t = kGeluSlope * x * gpu::fma(kGeluCube, square, 1.0F);
  const float half = gpu::sigmoid(t);
  const float slope = kGeluSlope * gpu::fma(0.134145F, square, 1.0F);
  return {x * half, gpu::fma(x * half * (1.0F - half), slope, half)};
}

PL_DEV Curve gelu_by_normal(float x) {
  if (!(x == x)) return {x, x};
  const float size = x < 0 ? -x : x;
  const float a = size < kNormalEnd ? size : kNormalEnd;
  const float density = gpu::exp(-0.5F * a * a);
  const float t = 1.0F / gpu::fma(kNormalTailScale, a, 1.0F);
  constexpr NormalTail kTail;
  const float tail = density * t * polynomial(kTail.c, t);
  const float sign = x > 0 ? 1.0F : x < 0 ? -1.0F : 0.0F;
  const float side = gpu::fma(0.5F, sign, 0.5F);
  const float apart = gpu::fma(a * kNormalAtZero, density, 0.0F - tail);
  return {gpu::fma(-a, tail, gpu::max(0.0F, x)), gpu::fma(sign, apart, side)};
}

struct Relu {
  using at = operand::relu;
  static constexpr int kIn = 1, kOut = 1;
  PL_DEV static void of(const float (&x)[kIn], float (&y)[kOut]) { y[at::s] = x[at::x] < 0 ? 0 : x[at::x]; }
};
struct ReluGrad {
  using at = operand::relu_grad;
  static constexpr int kIn = 2, kOut = 1;
  PL_DEV static void of(const float (&x)[kIn], float (&y)[kOut]) {
    y[at::d_x] = x[at::d_s] * (x[at::s] > 0 ? 1.0F : 0.0F);
  }
};
template <Curve (*kCurve)(float)>
struct Geglu {
  using at = operand::geglu;
  static constexpr int kIn = 2, kOut = 1;
  PL_DEV static void of(const float (&x)[kIn], float (&y)[kOut]) { y[at::s] = of(x[at::gate], x[at::up]); }
  PL_DEV static float of(float gate, float up) { return kCurve(gate).value * up; }
};
template <Curve (*kCurve)(float)>
struct GegluGrad {
  using at = operand::geglu_grad;
  static constexpr int kIn = 3, kOut = 2;
  PL_DEV static void of(const float (&x)[kIn], float (&y)[kOut]) {
    y[at::d_gate] = x[at::gate];
    y[at::d_up] = x[at::up];
    turn(y[at::d_gate], y[at::d_up], x[at::d_s]);
  }
  // Makes gate and up their gradients.
  PL_DEV static void turn(float& gate, float& up, float d) {
    const Curve curve = kCurve(gate);
    gate = d * up * curve.derivative;
    up = d * curve.value;
  }
};
template <Curve (*kCurve)(float)>
struct Gelu {
  using at = operand::gelu;
  static constexpr int kIn = 1, kOut = 1;
  PL_DEV static void of(const float (&x)[kIn], float (&y)[kOut]) { y[at::s] = kCurve(x[at::x]).value; }
};
template <Curve (*kCurve)(float)>
struct GeluGrad {
  using at = operand::gelu_grad;
  static constexpr int kIn = 2, kOut = 1;
  PL_DEV static void of(const float (&x)[kIn], float (&y)[kOut]) {
    y[at::d_x] = x[at::d_s] * kCurve(x[at::x]).derivative;
  }
};
struct Tanh {
  using at = operand::tanh;
  static constexpr int kIn = 1, kOut = 1;
  PL_DEV static void of(const float (&x)[kIn], float (&y)[kOut]) { y[at::y] = tanh_of(x[at::x]); }
};
struct TanhGrad {
  using at = operand::tanh_grad;
  static constexpr int kIn = 2, kOut = 1;
  PL_DEV static void of(const float (&x)[kIn], float (&y)[kOut]) {
    y[at::d_x] = x[at::d_y] * gpu::fma(-x[at::y], x[at::y], 1.0F);
  }
};

bool by_tanh(const GpuBinding& b) { return b.op().attr_text("approximate") == "tanh"; }
bool gated_by_tanh(const GpuBinding& b) { return !b.op().attrs.contains("approximate") || by_tanh(b); }

}  // namespace

BoundCall bind_gpu_relu(const GpuBinding& b) { return bind_map<Relu>(b); }
BoundCall bind_gpu_relu_grad(const GpuBinding& b) { return bind_map<ReluGrad>(b); }
BoundCall bind_gpu_geglu(const GpuBinding& b) {
  using at = operand::geglu;
  const auto bind = [&](auto function) {
    using Function = decltype(function);
    return b.has_input(at::up) ? bind_map<Function>(b) : bind_halves<at, Function>(b);
  };
  return gated_by_tanh(b) ? bind(Geglu<gelu_by_tanh>()) : bind(Geglu<gelu_by_normal>());
}
BoundCall bind_gpu_geglu_grad(const GpuBinding& b) {
  using at = operand::geglu_grad;
  const auto bind = [&](auto function) {
    using Function = decltype(function);
    return b.has_input(at::up) ? bind_map<Function>(b) : bind_halves_grad<at, Function>(b);
  };
  return gated_by_tanh(b) ? bind(GegluGrad<gelu_by_tanh>()) : bind(GegluGrad<gelu_by_normal>());
}
BoundCall bind_gpu_gelu(const GpuBinding& b) {
  return by_tanh(b) ? bind_map<Gelu<gelu_by_tanh>>(b) : bind_map<Gelu<gelu_by_normal>>(b);
}
BoundCall bind_gpu_gelu_grad(const GpuBinding& b) {
  return by_tanh(b) ? bind_map<GeluGrad<gelu_by_tanh>>(b) : bind_map<GeluGrad<gelu_by_normal>>(b);
}
BoundCall bind_gpu_tanh(const GpuBinding& b) { return bind_map<Tanh>(b); }
BoundCall bind_gpu_tanh_grad(const GpuBinding& b) { return bind_map<TanhGrad>(b); }

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
