#include "ops/pointwise/sigmoid_gate_kernels.h"
#include "ops/simd_rows.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

// The sigmoid of a gate at element i of a row; by_row: of the row's one.
template <class T>
struct RowGate {
  const T* gate;
  bool by_row;
  Vec of_row = zero();

  RowGate(const T* all, int64_t row, int64_t width, bool one_per_row)
      : gate(all + (one_per_row ? row : row * width)), by_row(one_per_row) {
    if (by_row) of_row = sigmoid(set1(widen_value(*gate)));
  }
  template <class Lanes>
  Vec sigma(int64_t i, const Lanes& lanes) const {
    return by_row ? of_row : sigmoid(lanes.get(gate + i));
  }
};

template <class T>
void forward(const SigmoidGate<T>& a) {
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t row = 0; row < a.rows; ++row) {
    const RowGate<T> gate(a.gate, row, a.width, a.by_row);
    for_lanes(a.width, [&](int64_t i, auto lanes) {
      const int64_t at = row * a.width + i;
      lanes.put(a.y + at, lanes.get(a.x + at) * rounded_as(gate.sigma(i, lanes), a.x));
    });
  }
}

// The gradient of a row's one gate.
template <class T>
void row_gate_gradient(const SigmoidGateGrad<T>& a, int64_t row, const Vec& sigma) {
  Vec sum = zero();
  for_lanes(a.width, [&](int64_t i, auto lanes) {
    const int64_t at = row * a.width + i;
    sum = fma(lanes.get(a.d_y + at), lanes.get(a.x + at), sum);
  });
  Rest{first(1)}.put(a.d_gate + row, set1(reduce_add(sum)) * sigma * (set1(1.0F) - sigma));
}

// d_x = d_y sigma, d_gate = d_y x sigma (1 - sigma).
template <class T>
void backward(const SigmoidGateGrad<T>& a) {
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t row = 0; row < a.rows; ++row) {
    const RowGate<T> gate(a.gate, row, a.width, a.by_row);
    if (a.by_row && a.d_gate != nullptr) row_gate_gradient(a, row, gate.of_row);
    for_lanes(a.width, [&](int64_t i, auto lanes) {
      const int64_t at = row * a.width + i;
      const Vec sigma = gate.sigma(i, lanes);
      const Vec d_y = lanes.get(a.d_y + at);
      const Vec d_gate = d_y * lanes.get(a.x + at) * sigma * (set1(1.0F) - sigma);
      if (a.d_x != nullptr) lanes.put(a.d_x + at, d_y * rounded_as(sigma, a.x));
      if (!a.by_row && a.d_gate != nullptr) lanes.put(a.d_gate + at, d_gate);
    });
  }
}

}  // namespace

void sigmoid_gate(const SigmoidGate<float>& a) { forward(a); }
void sigmoid_gate(const SigmoidGate<uint16_t>& a) { forward(a); }
void sigmoid_gate_grad(const SigmoidGateGrad<float>& a) { backward(a); }
void sigmoid_gate_grad(const SigmoidGateGrad<uint16_t>& a) { backward(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
