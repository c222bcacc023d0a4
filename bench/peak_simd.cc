#include "bench/peak.h"
#include "cpu/simd.h"

namespace plimsoll::PLIMSOLL_ISA {

int64_t multiply_registers(int64_t rounds) {
  constexpr int kChains = 12;  // at least latency x units, and all fit into 16 registers
  Vec sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = set1(static_cast<float>(i));
  Vec x = set1(0.5F);
  for (int64_t r = 0; r < rounds; ++r) {
    asm volatile("" : "+x"(x.v));  // or the loop would be folded
#pragma GCC unroll 12
    for (Vec& s : sum) {
#if defined(PLIMSOLL_ISA_avx512_bf16)
      s.v = _mm512_dpbf16_ps(s.v, reinterpret_cast<__m512bh>(x.v), reinterpret_cast<__m512bh>(x.v));
#else
      s = fma(x, x, s);
#endif
    }
  }
  for (int i = 1; i < kChains; ++i) sum[0] = sum[0] + sum[i];
  asm volatile("" : : "x"(sum[0].v));
#if defined(PLIMSOLL_ISA_avx512_bf16)
  constexpr int kProducts = 2;
#else
  constexpr int kProducts = 1;
#endif
  return rounds * kChains * Vec::kWidth * kProducts * 2;
}

}  // namespace plimsoll::PLIMSOLL_ISA
