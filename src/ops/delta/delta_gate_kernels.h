// Raw kernels of the delta rule's gates: a, b [T, H] of one type, a_log and dt_bias [H] of another, and g and
// beta f32 [T, H]:
//   g = -e^a_log softplus(a + dt_bias),   beta = sigmoid(b), rounded to b's type.
#pragma once

#include <cstdint>

namespace plimsoll {

inline constexpr int64_t kDeltaGateRows = 256;  // whose part in the weights' gradients is summed up at once

template <class T, class W>
struct DeltaGate {
  const T* a = nullptr;
  const T* b = nullptr;
  const W* a_log = nullptr;
  const W* dt_bias = nullptr;
  float* g = nullptr;
  float* beta = nullptr;
  int64_t rows = 0, heads = 0;
  int threads = 1;
};

// `partials`: [2, blocks of kDeltaGateRows, heads], of a_log and of dt_bias; null where neither's gradient is
// wanted.
template <class T, class W, class G>
struct DeltaGateGrad {
  const T* a = nullptr;
  const T* b = nullptr;
  const W* a_log = nullptr;
  const W* dt_bias = nullptr;
  const float* d_g = nullptr;
  const float* d_beta = nullptr;
  T* d_a = nullptr;
  T* d_b = nullptr;
  G* d_a_log = nullptr;
  G* d_dt_bias = nullptr;
  float* partials = nullptr;
  int64_t rows = 0, heads = 0;
  int64_t live = 0;  // rows that carry tokens
  bool accumulates_a_log = false, accumulates_dt_bias = false;
  int threads = 1;
};

static inline constexpr int64_t delta_gate_blocks(int64_t rows) {
  return (rows + kDeltaGateRows - 1) / kDeltaGateRows;
}

#define PLIMSOLL_DELTA_GATE_KERNELS(isa)                                    \
  namespace isa {                                                           \
  void delta_gate(const DeltaGate<float, float>&);                          \
  void delta_gate(const DeltaGate<uint16_t, float>&);                       \
  void delta_gate(const DeltaGate<uint16_t, uint16_t>&);                    \
  void delta_gate_grad(const DeltaGateGrad<float, float, float>&);          \
  void delta_gate_grad(const DeltaGateGrad<uint16_t, float, float>&);       \
  void delta_gate_grad(const DeltaGateGrad<uint16_t, uint16_t, float>&);    \
  void delta_gate_grad(const DeltaGateGrad<uint16_t, uint16_t, uint16_t>&); \
  }
PLIMSOLL_DELTA_GATE_KERNELS(avx2)
PLIMSOLL_DELTA_GATE_KERNELS(avx512)
PLIMSOLL_DELTA_GATE_KERNELS(avx512_bf16)
PLIMSOLL_DELTA_GATE_KERNELS(avx2_f16)
#undef PLIMSOLL_DELTA_GATE_KERNELS

}  // namespace plimsoll
