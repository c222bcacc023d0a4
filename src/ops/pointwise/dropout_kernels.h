// Raw CPU kernel of dropout, its own gradient: y = x / (1 - p) where the element is kept, 0 elsewhere.
#pragma once

#include <cstdint>

namespace plimsoll {

// The mask is keyed by what an element is, not where it lies: packing, splits and recomputation see the same.
template <class T>
struct Dropout {
  const T* x = nullptr;  // [tokens, width]
  T* y = nullptr;        // may be x
  int64_t tokens = 0, width = 0;
  const int32_t* samples = nullptr;    // [tokens], index of the token's sample in the effective batch
  const int32_t* positions = nullptr;  // [tokens], within the sample
  double probability = 0;              // of being dropped, 0 <= p < 1
  uint64_t seed = 0, scope_hash = 0;
  uint32_t step = 0;
  int threads = 1;
};

#define PLIMSOLL_DROPOUT_KERNELS(isa)     \
  namespace isa {                         \
  void dropout(const Dropout<float>&);    \
  void dropout(const Dropout<uint16_t>&); \
  }
PLIMSOLL_DROPOUT_KERNELS(avx2)
PLIMSOLL_DROPOUT_KERNELS(avx512)
PLIMSOLL_DROPOUT_KERNELS(avx512_bf16)
PLIMSOLL_DROPOUT_KERNELS(avx2_f16)
#undef PLIMSOLL_DROPOUT_KERNELS

}  // namespace plimsoll
