// Raw CPU kernels of NF4: quantising while loading, dequantising before each product. Both are bound by
// memory.
#pragma once

#include <cstdint>

namespace plimsoll {

// Weights that share a scale; they lie one after another in the row-major weight.
inline constexpr int64_t kNf4Block = 64;
// Scales that share a scale of their own, with double quantisation.
inline constexpr int64_t kNf4NestedBlock = 256;

inline constexpr float kNf4Levels[16] = {-1.0F,
                                         -0.6961928009986877F,
                                         -0.5250730514526367F,
                                         -0.39491748809814453F,
                                         -0.28444138169288635F,
                                         -0.18477343022823334F,
                                         -0.09105003625154495F,
                                         0.0F,
                                         0.07958029955625534F,
                                         0.16093020141124725F,
                                         0.24611230194568634F,
                                         0.33791524171829224F,
                                         0.44070982933044434F,
                                         0.5626170039176941F,
                                         0.7229568362236023F,
                                         1.0F};

// Number of blocks of `count` weights.
static constexpr int64_t nf4_blocks(int64_t count) { return (count + kNf4Block - 1) / kNf4Block; }
static constexpr int64_t nf4_nested_blocks(int64_t blocks) {
  return (blocks + kNf4NestedBlock - 1) / kNf4NestedBlock;
}

// Weights from `values` on, which is the start of a block. Blocks are scaled by the reciprocal of their
// largest magnitude, as bitsandbytes does, a last partial block by a division.
struct Nf4Quantize {
  const float* values = nullptr;
  int64_t count = 0;         // even
  uint8_t* codes = nullptr;  // [count / 2]
  float* absmax = nullptr;   // [nf4_blocks(count)]
};

template <class T>
struct Nf4Dequantize {
  const uint8_t* codes = nullptr;
  const float* absmax = nullptr;  // nullptr with double quantisation: the next four
  const uint8_t* absmax_codes = nullptr;
  const float* nested_absmax = nullptr;
  const float* nested_map = nullptr;
  const float* nested_offset = nullptr;
  T* weight = nullptr;
  int64_t count = 0;  // even
  int threads = 1;
};

#define PLIMSOLL_NF4_KERNELS(isa)                      \
  namespace isa {                                      \
  void nf4_quantize(const Nf4Quantize&);               \
  void nf4_dequantize(const Nf4Dequantize<float>&);    \
  void nf4_dequantize(const Nf4Dequantize<uint16_t>&); \
  }
PLIMSOLL_NF4_KERNELS(avx2)
PLIMSOLL_NF4_KERNELS(avx512)
PLIMSOLL_NF4_KERNELS(avx2_f16)
#undef PLIMSOLL_NF4_KERNELS

}  // namespace plimsoll
