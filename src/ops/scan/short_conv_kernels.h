// Raw CPU kernels of the short causal convolution with a swish behind it, over sequences of any lengths.
// x and y [T, D], weight [D, W]; dense, row-major, bf16 (uint16_t) or f32, with f32 arithmetic inside.
//
// Sequences may be the segments of trees. Threads share the channels. Bits of y and d_x depend on nothing but
// a sequence's own data, what stands before it and what continues it; those of the weight's gradient on
// the order of the tokens too, and on no number of threads.
#pragma once

#include <cstdint>

#include "ops/attention/attention_kernels.h"

namespace plimsoll {

inline constexpr int64_t kMostConvTaps = 16;
// On GPUs: rows whose products are summed up in one go for the weight's gradient.
inline constexpr int64_t kConvRowsPerBlock = 64;

template <class T, class W>
struct ShortConv {
  SequenceTable sequences;
  const T* x = nullptr;
  const W* weight = nullptr;
  T* y = nullptr;
  int64_t tokens = 0;  // rows; those of no sequence become zeros
  int64_t width = 0;   // D
  int taps = 0;        // W
  int threads = 1;
};

template <class T, class W, class G>
struct ShortConvGrad {
  SequenceTable sequences;
  const T* x = nullptr;
  const W* weight = nullptr;
  const T* d_y = nullptr;
  T* d_x = nullptr;       // or null
  G* d_weight = nullptr;  // or null
  bool accumulate = false;
  int64_t tokens = 0, width = 0;
  int taps = 0;
  int threads = 1;
};

// Generation: the next `live` tokens of one sequence, behind the rows of x that are kept.
template <class T, class W>
struct ShortConvCached {
  int64_t live = 0;
  bool fresh = false;  // the kept rows count as zeros: the sequence begins
  const T* x = nullptr;
  const W* weight = nullptr;
  T* y = nullptr;
  T* rows = nullptr;  // [W - 1, D], the oldest first
  int64_t width = 0;
  int taps = 0;
  int threads = 1;
};

#define PLIMSOLL_SHORT_CONV_KERNELS(isa)                                    \
  namespace isa {                                                           \
  void short_conv(const ShortConv<float, float>&);                          \
  void short_conv(const ShortConv<uint16_t, float>&);                       \
  void short_conv(const ShortConv<uint16_t, uint16_t>&);                    \
  void short_conv_grad(const ShortConvGrad<float, float, float>&);          \
  void short_conv_grad(const ShortConvGrad<uint16_t, float, float>&);       \
  void short_conv_grad(const ShortConvGrad<uint16_t, uint16_t, float>&);    \
  void short_conv_grad(const ShortConvGrad<uint16_t, uint16_t, uint16_t>&); \
  void short_conv_cached(const ShortConvCached<float, float>&);             \
  void short_conv_cached(const ShortConvCached<uint16_t, float>&);          \
  void short_conv_cached(const ShortConvCached<uint16_t, uint16_t>&);       \
  }
PLIMSOLL_SHORT_CONV_KERNELS(avx2)
PLIMSOLL_SHORT_CONV_KERNELS(avx512)
PLIMSOLL_SHORT_CONV_KERNELS(avx512_bf16)
PLIMSOLL_SHORT_CONV_KERNELS(avx2_f16)
#undef PLIMSOLL_SHORT_CONV_KERNELS

}  // namespace plimsoll
