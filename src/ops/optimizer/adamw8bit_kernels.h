// Raw CPU kernels of AdamW with 8-bit states, block by block, as bitsandbytes has it.
#pragma once

#include "ops/dynamic_map.h"
#include "ops/optimizer/optimizer_kernels.h"

namespace plimsoll {

// Elements that share a scale.
inline constexpr int64_t kStateBlock = 256;

// A state of which only codes and the largest magnitude of each block are kept.
struct CodedState {
  const DynamicMap* map = nullptr;
  uint8_t* codes = nullptr;
  float* scales = nullptr;  // [ceil(count / kStateBlock)]
};

template <class P, class G>
struct AdamW8bit {
  WeightUpdate<P, G> update;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  CodedState m, v;
};

#define PLIMSOLL_ADAMW8BIT_KERNELS(isa)                 \
  namespace isa {                                       \
  void adamw8bit(const AdamW8bit<float, float>&);       \
  void adamw8bit(const AdamW8bit<float, uint16_t>&);    \
  void adamw8bit(const AdamW8bit<uint16_t, float>&);    \
  void adamw8bit(const AdamW8bit<uint16_t, uint16_t>&); \
  }
PLIMSOLL_ADAMW8BIT_KERNELS(avx2)
PLIMSOLL_ADAMW8BIT_KERNELS(avx512)
PLIMSOLL_ADAMW8BIT_KERNELS(avx2_f16)
#undef PLIMSOLL_ADAMW8BIT_KERNELS

}  // namespace plimsoll
