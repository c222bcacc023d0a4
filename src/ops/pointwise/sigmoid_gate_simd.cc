#include "ops/pointwise/sigmoid_gate_kernels.h"
#include "ops/simd_rows.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

template <class T>
void forward(const SigmoidGate<T>& a) {
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t row = 0; row < a.rows; ++row)
    for_lanes(a.width, [&](int64_t i, auto lanes) {
      const int64_t at = row * a.width + i;
      lanes.put(a.y + at, lanes.get(a.x + at) * rounded_as(sigmoid(lanes.get(a.gate + at)), a.x));
    });
}

// d_x = d_y sigma, d_gate = d_y x sigma (1 - sigma).
template <class T>
void backward(const SigmoidGateGrad<T>& a) {
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t row = 0; row < a.rows; ++row)
    for_lanes(a.width, [&](int64_t i, auto lanes) {
      const int64_t at = row * a.width + i;
      const Vec sigma = sigmoid(lanes.get(a.gate + at));
      const Vec d_y = lanes.get(a.d_y + at);
      const Vec d_gate = d_y * lanes.get(a.x + at) * sigma * (set1(1.0F) - sigma);
      if (a.d_x != nullptr) lanes.put(a.d_x + at, d_y * rounded_as(sigma, a.x));
      if (a.d_gate != nullptr) lanes.put(a.d_gate + at, d_gate);
    });
}

}  // namespace

void sigmoid_gate(const SigmoidGate<float>& a) { forward(a); }
void sigmoid_gate(const SigmoidGate<uint16_t>& a) { forward(a); }
void sigmoid_gate_grad(const SigmoidGateGrad<float>& a) { backward(a); }
void sigmoid_gate_grad(const SigmoidGateGrad<uint16_t>& a) { backward(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
