// Raw kernels of a sigmoid gate: x, gate, y [rows, width].
#pragma once

#include <cstdint>

namespace plimsoll {

template <class T>
struct SigmoidGate {
  const T* x = nullptr;
  const T* gate = nullptr;
  T* y = nullptr;
  int64_t rows = 0, width = 0;
  int threads = 1;
};

template <class T>
struct SigmoidGateGrad {
  const T* x = nullptr;
  const T* gate = nullptr;
  const T* d_y = nullptr;
  T* d_x = nullptr;
  T* d_gate = nullptr;
  int64_t rows = 0, width = 0;
  int threads = 1;
};

#define PLIMSOLL_SIGMOID_GATE_KERNELS(isa)                  \
  namespace isa {                                           \
  void sigmoid_gate(const SigmoidGate<float>&);             \
  void sigmoid_gate(const SigmoidGate<uint16_t>&);          \
  void sigmoid_gate_grad(const SigmoidGateGrad<float>&);    \
  void sigmoid_gate_grad(const SigmoidGateGrad<uint16_t>&); \
  }
PLIMSOLL_SIGMOID_GATE_KERNELS(avx2)
PLIMSOLL_SIGMOID_GATE_KERNELS(avx512)
PLIMSOLL_SIGMOID_GATE_KERNELS(avx512_bf16)
PLIMSOLL_SIGMOID_GATE_KERNELS(avx2_f16)
#undef PLIMSOLL_SIGMOID_GATE_KERNELS

}  // namespace plimsoll
