// tanh in registers. Include it only in *_simd.cc files.
#pragma once

#include "ops/pointwise/activation_curves.h"
#include "ops/simd_rows.h"

namespace plimsoll::PLIMSOLL_ISA {

// c[0] + c[1] x + ... of `n` coefficients.
template <int n>
inline Vec polynomial(const float (&c)[n], Vec x) {
  Vec p = set1(c[n - 1]);
  for (int i = n - 2; i >= 0; --i) p = fma(p, x, set1(c[i]));
  return p;
}

inline Vec tanh_of(Vec of) {
  const Vec x = max(set1(-kTanhEnd), min(set1(kTanhEnd), of));
  const Vec square = x * x;
  const Vec y = x * polynomial(TanhOver{}.c, square) / polynomial(TanhUnder{}.c, square);
  return max(set1(-1.0F), min(set1(1.0F), y));
}

}  // namespace plimsoll::PLIMSOLL_ISA
