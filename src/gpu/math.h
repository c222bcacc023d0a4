// Mathematical functions that only some kernels need.
#pragma once

#ifndef __CUDACC__
#include <cmath>
#endif

#include "gpu/device.h"

namespace plimsoll::gpu {
inline namespace PLIMSOLL_GPU {

// Natural logarithm of a positive, normal number, by IEEE operations alone: the card's bits are the
// emulator's. Wrong by 1.2e-7 of the result, or of 1 where that is smaller.
PL_BOTH float log(float x) {
  // x = m * 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m - 1) / (m + 1), whose series is
  // short.
  const uint32_t bits = as_bits(x) - 0x3F3504F3U;
  const auto e = static_cast<float>(static_cast<int32_t>(bits) >> 23);
  const float m = as_float((bits & 0x007FFFFFU) + 0x3F3504F3U);
  const float s = (m - 1.0F) / (m + 1.0F);
  const float s2 = s * s;
  float p = 0.2222222F;
  p = fma(p, s2, 0.2857143F);
  p = fma(p, s2, 0.4F);
  p = fma(p, s2, 0.6666667F);
  // 2 s + p s^3 + e log 2, small parts first.
  const float small = fma(e, 1.42860677e-6F, p * s2 * s);
  return fma(e, 0.693145752F, fma(2.0F, s, small));
}

// The larger one, or the one that is a number.
PL_DEV float larger(float a, float b) {
#ifdef __CUDACC__
  return fmaxf(a, b);
#else
  return std::fmax(a, b);
#endif
}

// 2^x by the card's own instruction (2 units in the last place); the emulator's is exact, so that bits
// differ.
PL_DEV float exp2_fast(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#elif defined(__CUDACC__)
  return x;  // nvcc's pass for the host, where no kernel runs
#else
  return std::exp2(x);
#endif
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll::gpu
