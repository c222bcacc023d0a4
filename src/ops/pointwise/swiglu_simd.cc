#include "ops/pointwise/swiglu_kernels.h"
#include "ops/simd_rows.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

template <class T>
void forward(const Swiglu<T>& a) {
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t row = 0; row < a.rows; ++row) {
    const T* gate = a.gate + row * a.gate_stride;
    const T* up = a.up + row * a.gate_stride;
    T* s = a.s + row * a.width;
    for_lanes(a.width, [&](int64_t i, auto lanes) {
      const Vec g = lanes.get(gate + i);
      lanes.put(s + i, g * sigmoid(g) * lanes.get(up + i));
    });
  }
}

// d_up = d_s * silu(gate); d_gate = d_s * up * sigmoid * (1 + gate * (1 - sigmoid)).
template <class T>
void backward(const SwigluGrad<T>& a) {
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t row = 0; row < a.rows; ++row) {
    const T* d_s = a.d_s + row * a.width;
    const T* gate = a.gate + row * a.gate_stride;
    const T* up = a.up + row * a.gate_stride;
    T* d_gate = a.d_gate + row * a.d_gate_stride;
    T* d_up = a.d_up + row * a.d_gate_stride;
    for_lanes(a.width, [&](int64_t i, auto lanes) {
      const Vec g = lanes.get(gate + i);
      const Vec u = lanes.get(up + i);
      const Vec d = lanes.get(d_s + i);
      const Vec sig = sigmoid(g);
      lanes.put(d_up + i, d * g * sig);
      lanes.put(d_gate + i, d * u * sig * fma(g, set1(1.0F) - sig, set1(1.0F)));
    });
  }
}

}  // namespace

void swiglu(const Swiglu<float>& a) { forward(a); }
void swiglu(const Swiglu<uint16_t>& a) { forward(a); }
void swiglu_grad(const SwigluGrad<float>& a) { backward(a); }
void swiglu_grad(const SwigluGrad<uint16_t>& a) { backward(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
