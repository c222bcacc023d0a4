// tanh of one value on GPUs, with the CPU's formula and bits (ops/pointwise/simd_tanh.h).
#pragma once

#include "gpu/device.h"
#include "ops/pointwise/activation_curves.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

template <int kCount>
PL_DEV float polynomial(const float (&c)[kCount], float x) {
  float p = c[kCount - 1];
  PL_UNROLL
  for (int i = kCount - 2; i >= 0; --i) p = gpu::fma(p, x, c[i]);
  return p;
}

PL_DEV float tanh_of(float of) {
  const float x = of > kTanhEnd ? kTanhEnd : of < -kTanhEnd ? -kTanhEnd : of;
  const float square = x * x;
  constexpr TanhOver kOver;
  constexpr TanhUnder kUnder;
  const float wide = x * polynomial(kOver.c, square) / polynomial(kUnder.c, square);
  return wide > 1.0F ? 1.0F : wide < -1.0F ? -1.0F : wide;
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
