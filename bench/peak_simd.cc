#include "bench/peak.h"
#include "cpu/simd.h"
#if defined(PLIMSOLL_ISA_amx)
#include "cpu/matmul_tile_amx.h"
#endif

namespace plimsoll::PLIMSOLL_ISA {

#if defined(PLIMSOLL_ISA_amx)

int64_t multiply_registers(int64_t rounds) {
  const TileRegisters registers;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  // Of ones: zeros are multiplied faster.
  alignas(64) uint16_t ones[kPiece * kPerStep];
  for (uint16_t& one : ones) one = 0x3F80;
  write_before(ones);
  _tile_loadd(4, ones, 64);
  _tile_loadd(5, ones, 64);
  for (int64_t r = 0; r < rounds; ++r) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  return rounds * 4 * kLanes * kPiece * kPerStep * 2;
}

#else

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

#endif

}  // namespace plimsoll::PLIMSOLL_ISA
