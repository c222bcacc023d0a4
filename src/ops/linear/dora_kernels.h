// Raw CPU kernels of DoRA: the lengths of the rows of an adapted weight, and outputs scaled by them. T: type
// of weights and activations; magnitudes and lengths are f32. None depends on the number of threads in its
// bits.
#pragma once

#include <cstdint>

namespace plimsoll {

// lengths[o] = |weight[o] + scale * B[o] A|
template <class T>
struct DoraNorm {
  const T* a = nullptr;       // [r, in]
  const T* weight = nullptr;  // [out, in]
  const T* b = nullptr;       // [out, r]
  float* lengths = nullptr;   // [out]
  int64_t r = 0, in = 0, out = 0;
  float scale = 1.0F;
  int threads = 1;
};

// y = magnitude / lengths * u (+ bias) (- minus) (+ addend)
template <class T>
struct DoraScale {
  const T* u = nullptr;  // [rows, width]
  const float* magnitude = nullptr;
  const float* lengths = nullptr;
  const T* bias = nullptr;    // [width]; may be null
  const T* minus = nullptr;   // [rows, width]; may be null
  const T* addend = nullptr;  // likewise
  T* y = nullptr;             // may be u, minus or addend
  int64_t rows = 0, width = 0;
  int threads = 1;
};

// Rows are summed over blocks of that many, then over the blocks in order. The rule's scratch follows from
// it.
inline constexpr int64_t kDoraRowsPerBlock = 64;
static constexpr int64_t dora_blocks(int64_t rows) {
  return (rows + kDoraRowsPerBlock - 1) / kDoraRowsPerBlock;
}

template <class T>
struct DoraScaleGrad {
  const T* u = nullptr;
  const float* magnitude = nullptr;
  const float* lengths = nullptr;
  const T* d_y = nullptr;
  T* d_u = nullptr;              // may be u or d_y; null: not wanted
  float* d_magnitude = nullptr;  // [width]; null: not wanted
  float* partials = nullptr;     // [dora_blocks(rows), width]
  bool accumulate = false;       // d_magnitude is added to instead of overwritten
  int64_t rows = 0, width = 0;
  int threads = 1;
};

#define PLIMSOLL_DORA_KERNELS(isa)                      \
  namespace isa {                                       \
  void dora_norm(const DoraNorm<float>&);               \
  void dora_norm(const DoraNorm<uint16_t>&);            \
  void dora_scale(const DoraScale<float>&);             \
  void dora_scale(const DoraScale<uint16_t>&);          \
  void dora_scale_grad(const DoraScaleGrad<float>&);    \
  void dora_scale_grad(const DoraScaleGrad<uint16_t>&); \
  }
PLIMSOLL_DORA_KERNELS(avx2)
PLIMSOLL_DORA_KERNELS(avx512)
PLIMSOLL_DORA_KERNELS(avx512_bf16)
PLIMSOLL_DORA_KERNELS(avx2_f16)
#undef PLIMSOLL_DORA_KERNELS

}  // namespace plimsoll
