#include "ops/delta/delta_gate_kernels.h"
#include "ops/scan/gla_blocks.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

// log(1 + e^x).
inline Vec softplus(Vec x) { return zero() - log_sigmoid(zero() - x); }

template <class T, class W>
void forward(const DeltaGate<T, W>& a) {
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t row = 0; row < a.rows; ++row) {
    const int64_t at = row * a.heads;
    for_lanes(a.heads, [&](int64_t i, auto lanes) {
      const Vec x = lanes.get(a.a + at + i) + lanes.get(a.dt_bias + i);
      lanes.put(a.g + at + i, zero() - exp(lanes.get(a.a_log + i)) * softplus(x));
      lanes.put(a.beta + at + i, rounded_as(sigmoid(lanes.get(a.b + at + i)), a.b));
    });
  }
}

// One row's gradients of logits; adds to `sums`, where there are any: of a_log, then of dt_bias.
template <class T, class W, class G>
void row_backward(const DeltaGateGrad<T, W, G>& a, int64_t row, float* of_a_log, float* of_dt_bias) {
  const int64_t at = row * a.heads;
  for_lanes(a.heads, [&](int64_t i, auto lanes) {
    const Vec x = lanes.get(a.a + at + i) + lanes.get(a.dt_bias + i);
    const Vec rate = zero() - exp(lanes.get(a.a_log + i));
    const Vec d_g = lanes.get(a.d_g + at + i);
    const Vec d_x = rate * sigmoid(x) * d_g;
    const Vec beta = sigmoid(lanes.get(a.b + at + i));
    if (a.d_a != nullptr) lanes.put(a.d_a + at + i, d_x);
    if (a.d_b != nullptr)
      lanes.put(a.d_b + at + i, lanes.get(a.d_beta + at + i) * beta * (set1(1.0F) - beta));
    if (of_a_log == nullptr) return;
    lanes.put(of_a_log + i, fma(d_g, rate * softplus(x), lanes.get(of_a_log + i)));
    lanes.put(of_dt_bias + i, d_x + lanes.get(of_dt_bias + i));
  });
}

template <class G>
void sum_partials(const float* partials, int64_t blocks, int64_t heads, bool accumulates, G* to) {
  for_lanes(heads, [&](int64_t i, auto lanes) {
    Vec sum = zero();
    for (int64_t b = 0; b < blocks; ++b) sum = sum + lanes.get(partials + b * heads + i);
    if (accumulates) sum = sum + lanes.get(to + i);
    lanes.put(to + i, sum);
  });
}

template <class T, class W, class G>
void backward(const DeltaGateGrad<T, W, G>& a) {
  const int64_t blocks = delta_gate_blocks(a.rows);
  const auto sums_of = [&](int64_t weight, int64_t block) -> float* {
    return a.partials == nullptr ? nullptr : a.partials + (weight * blocks + block) * a.heads;
  };
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t block = 0; block < blocks; ++block) {
    float* const of_a_log = sums_of(0, block);
    float* const of_dt_bias = sums_of(1, block);
    for (int64_t i = 0; i < a.heads && of_a_log != nullptr; ++i) of_a_log[i] = of_dt_bias[i] = 0.0F;
    const int64_t end = smaller((block + 1) * kDeltaGateRows, a.rows);
    // Rows of padding hold nothing and would disturb the weights' gradients.
    for (int64_t row = block * kDeltaGateRows; row < end; ++row) {
      const bool live = row < a.live;
      row_backward(a, row, live ? of_a_log : nullptr, live ? of_dt_bias : nullptr);
    }
  }
  if (a.d_a_log != nullptr) sum_partials(sums_of(0, 0), blocks, a.heads, a.accumulates_a_log, a.d_a_log);
  if (a.d_dt_bias != nullptr)
    sum_partials(sums_of(1, 0), blocks, a.heads, a.accumulates_dt_bias, a.d_dt_bias);
}

}  // namespace

void delta_gate(const DeltaGate<float, float>& a) { forward(a); }
void delta_gate(const DeltaGate<uint16_t, float>& a) { forward(a); }
void delta_gate(const DeltaGate<uint16_t, uint16_t>& a) { forward(a); }
void delta_gate_grad(const DeltaGateGrad<float, float, float>& a) { backward(a); }
void delta_gate_grad(const DeltaGateGrad<uint16_t, float, float>& a) { backward(a); }
void delta_gate_grad(const DeltaGateGrad<uint16_t, uint16_t, float>& a) { backward(a); }
void delta_gate_grad(const DeltaGateGrad<uint16_t, uint16_t, uint16_t>& a) { backward(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
