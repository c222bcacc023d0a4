// Raw CPU kernels of the rotary position embedding, rotate-half convention: the pair (i, i + D/2) of a head
// is turned by position * inv_freq[i].
#pragma once

#include <cstdint>

namespace plimsoll {

// The factor of a table by position: 1 + beta ln(1 + floor(position / length)).
struct PositionFactor {
  double beta = 0;
  int64_t length = 1;
};

// table f32 [tokens, D]: D/2 cosines, then D/2 sines, both times attention_factor (yarn) and the factor of the token's
// position. Computed in double, since an angle of 1e5 has lost its fraction in f32. One table serves all layers of a step.
void rope_table(const int32_t* positions, int64_t tokens, const float* inv_freq, int64_t half_dim,
                float attention_factor, const PositionFactor& factor, float* table, int threads);

// x, y: [tokens, heads, head_dim]; y may be x. Of each head the first `rotary` values are turned, an even number; the
// others stay.
template <class T>
struct Rope {
  const T* x = nullptr;
  const float* table = nullptr;
  T* y = nullptr;
  int64_t tokens = 0, heads = 0, head_dim = 0, rotary = 0;
  bool inverse = false;  // the rotation back, which is the gradient
  int threads = 1;
};

#define PLIMSOLL_ROPE_KERNELS(isa)  \
  namespace isa {                   \
  void rope(const Rope<float>&);    \
  void rope(const Rope<uint16_t>&); \
  }
PLIMSOLL_ROPE_KERNELS(avx2)
PLIMSOLL_ROPE_KERNELS(avx512)
PLIMSOLL_ROPE_KERNELS(avx512_bf16)
PLIMSOLL_ROPE_KERNELS(avx2_f16)
#undef PLIMSOLL_ROPE_KERNELS

}  // namespace plimsoll
