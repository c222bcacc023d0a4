// Raw CPU kernels of the rotary position embedding, rotate-half convention: the pair (i, i + R/2) of the first R values
// of a head is turned by position * inv_freq[i]; mostly R is D, all of them.
#pragma once

#include <cstdint>

namespace plimsoll {

struct PositionFactor;

// table f32 [tokens, R]: R/2 cosines, then R/2 sines, both times attention_factor (yarn) and what `factor` says of a
// position. Computed in double,
// since an angle of 1e5 has lost its fraction in f32. One table serves all layers of a step.
void rope_table(const int32_t* positions, int64_t tokens, const float* inv_freq, int64_t half_dim,
                float attention_factor, const PositionFactor& factor, float* table, int threads);

// x, y: [tokens, heads, head_dim]; y may be x. `turned`, R, is even.
template <class T>
struct Rope {
  const T* x = nullptr;
  const float* table = nullptr;
  T* y = nullptr;
  int64_t tokens = 0, heads = 0, head_dim = 0, turned = 0;
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
