// Raw CPU kernel of NEFTune's noise: y = x + u, u uniform within alpha / sqrt(length * width) of the
// sequence's length.
#pragma once

#include <cstdint>

namespace plimsoll {

// Keyed as dropout is, by what an element is: splits and recomputation draw the same.
template <class T>
struct EmbeddingNoise {
  const T* x = nullptr;  // [tokens, width]
  T* y = nullptr;        // may be x
  int64_t tokens = 0, width = 0;
  const int32_t* samples = nullptr;    // [tokens]
  const int32_t* positions = nullptr;  // [tokens]
  const int32_t* lengths = nullptr;    // [tokens] of each token's sequence; 0: no noise
  double alpha = 0;
  uint64_t seed = 0, scope_hash = 0;
  uint32_t step = 0;
  int threads = 1;
};

#define PLIMSOLL_NOISE_KERNELS(isa)                      \
  namespace isa {                                        \
  void embedding_noise(const EmbeddingNoise<float>&);    \
  void embedding_noise(const EmbeddingNoise<uint16_t>&); \
  }
PLIMSOLL_NOISE_KERNELS(avx2)
PLIMSOLL_NOISE_KERNELS(avx512)
PLIMSOLL_NOISE_KERNELS(avx512_bf16)
PLIMSOLL_NOISE_KERNELS(avx2_f16)
#undef PLIMSOLL_NOISE_KERNELS

}  // namespace plimsoll
