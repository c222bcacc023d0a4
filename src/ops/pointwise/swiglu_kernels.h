// Raw CPU kernels of SwiGLU: s = silu(gate) * up, silu(x) = x * sigmoid(x). Rows of `width` values, each with
// its own distance to the next row, so that gate and up may be halves of one [rows, 2 * width] tensor.
#pragma once

#include <cstdint>

namespace plimsoll {

template <class T>
struct Swiglu {
  const T* gate = nullptr;
  const T* up = nullptr;
  int64_t gate_stride = 0;  // of gate and of up
  T* s = nullptr;           // dense
  int64_t rows = 0, width = 0;
  int threads = 1;
};

template <class T>
struct SwigluGrad {
  const T* d_s = nullptr;  // dense
  const T* gate = nullptr;
  const T* up = nullptr;
  T* d_gate = nullptr;        // may be gate
  T* d_up = nullptr;          // may be up
  int64_t gate_stride = 0;    // of gate and of up
  int64_t d_gate_stride = 0;  // of d_gate and of d_up
  int64_t rows = 0, width = 0;
  int threads = 1;
};

#define PLIMSOLL_SWIGLU_KERNELS(isa)             \
  namespace isa {                                \
  void swiglu(const Swiglu<float>&);             \
  void swiglu(const Swiglu<uint16_t>&);          \
  void swiglu_grad(const SwigluGrad<float>&);    \
  void swiglu_grad(const SwigluGrad<uint16_t>&); \
  }
PLIMSOLL_SWIGLU_KERNELS(avx2)
PLIMSOLL_SWIGLU_KERNELS(avx512)
PLIMSOLL_SWIGLU_KERNELS(avx512_bf16)
PLIMSOLL_SWIGLU_KERNELS(avx2_f16)
#undef PLIMSOLL_SWIGLU_KERNELS

}  // namespace plimsoll
