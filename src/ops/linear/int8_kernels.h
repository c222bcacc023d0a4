// Raw CPU kernels of int8 weights: quantising while loading, dequantising before each product. Both are bound
// by memory.
#pragma once

#include <cstdint>

namespace plimsoll {

// The code of a row's largest magnitude; its negative is the least.
inline constexpr float kInt8Most = 127.0F;
// A weight is its code times absmax * kInt8Step: the two roundings of bitsandbytes' gradient.
inline constexpr float kInt8Step = 1.0F / kInt8Most;

// Whole rows. A value is rounded to f16 first, as bitsandbytes does, then times 127 * (1 / absmax), two roundings as on its
// CPUs, to the nearest integer, ties to even. The absmax of a row with a value that f16 does not hold is NaN.
struct Int8Quantize {
  const float* values = nullptr;  // [rows, width]
  int64_t rows = 0;
  int64_t width = 0;
  int8_t* codes = nullptr;  // [rows, width]
  float* absmax = nullptr;  // [rows]
};

template <class T>
struct Int8Dequantize {
  const int8_t* codes = nullptr;
  const float* absmax = nullptr;
  T* weight = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  int threads = 1;
};

#define PLIMSOLL_INT8_KERNELS(isa)                       \
  namespace isa {                                        \
  void int8_quantize(const Int8Quantize&);               \
  void int8_dequantize(const Int8Dequantize<float>&);    \
  void int8_dequantize(const Int8Dequantize<uint16_t>&); \
  }
PLIMSOLL_INT8_KERNELS(avx2)
PLIMSOLL_INT8_KERNELS(avx512)
PLIMSOLL_INT8_KERNELS(avx2_f16)
#undef PLIMSOLL_INT8_KERNELS

}  // namespace plimsoll
