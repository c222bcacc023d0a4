// Raw CPU kernels of AdamW as PyTorch defines it.
#pragma once

#include <cstdint>

namespace plimsoll {

// Numbers of one step, the same for all weights but the weight decay.
struct AdamWStep {
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  double clip_factor = 1;  // multiplied into the gradient
  int64_t step = 1;        // counts from 1; bias corrections and random bits follow from it
  uint64_t seed = 0;       // of the random bits
};

// P: weight, f32 or bf16. G: gradient. S: states m and v. bf16 weights and states are rounded stochastically,
// their bits keyed by (seed, step, name, element).
template <class P, class G, class S>
struct AdamW {
  AdamWStep step;
  uint64_t name_hash = 0;
  P* weight = nullptr;
  uint16_t* copy = nullptr;  // bf16 copy of an f32 weight, rounded to nearest; may be null
  const G* gradient = nullptr;
  S* m = nullptr;
  S* v = nullptr;
  int64_t count = 0;
  int64_t first_element = 0;  // index of weight[0] in the whole tensor, a multiple of 128
  int threads = 1;
};

#define PLIMSOLL_ADAMW_KERNELS(isa)                       \
  namespace isa {                                         \
  void adamw(const AdamW<float, float, float>&);          \
  void adamw(const AdamW<float, uint16_t, float>&);       \
  void adamw(const AdamW<float, float, uint16_t>&);       \
  void adamw(const AdamW<float, uint16_t, uint16_t>&);    \
  void adamw(const AdamW<uint16_t, float, float>&);       \
  void adamw(const AdamW<uint16_t, uint16_t, float>&);    \
  void adamw(const AdamW<uint16_t, float, uint16_t>&);    \
  void adamw(const AdamW<uint16_t, uint16_t, uint16_t>&); \
  }
PLIMSOLL_ADAMW_KERNELS(avx2)
PLIMSOLL_ADAMW_KERNELS(avx512)
PLIMSOLL_ADAMW_KERNELS(avx512_bf16)
PLIMSOLL_ADAMW_KERNELS(avx2_f16)
#undef PLIMSOLL_ADAMW_KERNELS

}  // namespace plimsoll
