// The register tile of the matmul kernels in vector registers: strips of A and B go through it in steps of k.
// Include it only in *_simd.cc files. matmul_tile_amx.h does the same with tile registers.
#pragma once

#include "cpu/matmul_kernel.h"
#include "cpu/matmul_pack.h"

namespace plimsoll::PLIMSOLL_ISA {

#if defined(PLIMSOLL_ISA_avx512_bf16)
inline constexpr MatmulTile kTile = kTileAvx512Bf16;
// Each lane adds the products of two bf16 pairs.
inline Vec multiply_add(Vec a, Vec b, Vec sum) {
  return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
}
#else
#if defined(PLIMSOLL_ISA_avx512)
inline constexpr MatmulTile kTile = kTileAvx512;
#else
inline constexpr MatmulTile kTile = kTileAvx2;
#endif
inline Vec multiply_add(Vec a, Vec b, Vec sum) { return fma(a, b, sum); }
#endif

inline constexpr int kLanes = Vec::kWidth;
inline constexpr int kColumns = 2 * kLanes;
inline constexpr int kStrips = 1;                   // of A, in a panel
inline constexpr int kUnrolled = kFetches ? 2 : 1;  // steps: more were slower
static_assert(kTile.lanes == kLanes && kTile.rows <= kLanes && kTile.k_per_step == kPerStep);

// Strides by which the tile finds element (row, step) of A and the columns of a step of B, in floats from the
// first ones. These are the packed ones, and so the only ones for bf16: a row of A is 1 further, a step of it
// kLanes (AVX2: as many as there are rows, for a smaller share of L1), one of B kColumns.
struct Packed {
  static constexpr int64_t a_row = 1, a_step = kFetches ? kTile.rows : kLanes, b_step = kColumns;
};
inline constexpr int64_t kStepOfA = Packed::a_step;
// As the operands lie in memory, where packing would cost as much as it saves.
struct Strides {
  int64_t a_row, a_step, b_step;
};

#if !defined(PLIMSOLL_ISA_avx512)
// Step `kStep` of a whole packed tile. In assembly: of several steps in a row g++ keeps sums in memory or
// moves them about, and where another thread shares the core it is instructions that run out, not
// multiply-adds.
template <int kStep>
[[gnu::always_inline]] inline void add_packed_step(const float* a, const float* b, Vec (&sum)[6][2]) {
  asm volatile(
      "vmovups %c[b_at](%[b]), %%ymm0\n"
      "vmovups %c[b_at]+32(%[b]), %%ymm1\n"
      "vbroadcastss %c[a_at](%[a]), %%ymm2\n"
      "vfmadd231ps %%ymm0, %%ymm2, %0\n"
      "vfmadd231ps %%ymm1, %%ymm2, %1\n"
      "vbroadcastss %c[a_at]+4(%[a]), %%ymm3\n"
      "vfmadd231ps %%ymm0, %%ymm3, %2\n"
      "vfmadd231ps %%ymm1, %%ymm3, %3\n"
      "vbroadcastss %c[a_at]+8(%[a]), %%ymm2\n"
      "vfmadd231ps %%ymm0, %%ymm2, %4\n"
      "vfmadd231ps %%ymm1, %%ymm2, %5\n"
      "vbroadcastss %c[a_at]+12(%[a]), %%ymm3\n"
      "vfmadd231ps %%ymm0, %%ymm3, %6\n"
      "vfmadd231ps %%ymm1, %%ymm3, %7\n"
      "vbroadcastss %c[a_at]+16(%[a]), %%ymm2\n"
      "vfmadd231ps %%ymm0, %%ymm2, %8\n"
      "vfmadd231ps %%ymm1, %%ymm2, %9\n"
      "vbroadcastss %c[a_at]+20(%[a]), %%ymm3\n"
      "vfmadd231ps %%ymm0, %%ymm3, %10\n"
      "vfmadd231ps %%ymm1, %%ymm3, %11\n"
      : "+x"(sum[0][0].v), "+x"(sum[0][1].v), "+x"(sum[1][0].v), "+x"(sum[1][1].v), "+x"(sum[2][0].v),
        "+x"(sum[2][1].v), "+x"(sum[3][0].v), "+x"(sum[3][1].v), "+x"(sum[4][0].v), "+x"(sum[4][1].v),
        "+x"(sum[5][0].v), "+x"(sum[5][1].v)
      : [a] "r"(a), [b] "r"(b), [a_at] "i"(kStep * Packed::a_step * 4), [b_at] "i"(kStep * Packed::b_step * 4)
      : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
}
#endif

// A strip x b strips over `steps`; `take` gets the sums, [kRows][kVectors] in registers, and its fetch() is
// called half way to prefetch the part of C for them. Every element is one chain of additions in k, so its
// bits do not depend on kRows, kVectors or its place in the tile.
template <int kRows, int kVectors, class Place, class Take>
void multiply_tile(int64_t steps, const float* a, const float* b, Place place, [[maybe_unused]] Ahead ahead,
                   const Take& take) {
  // Unrolled by order: left to itself g++ keeps the sums in memory.
  Vec sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) sum[i][j] = zero();
  int64_t step = 0;
  const auto add_up_to = [&](int64_t end) __attribute__((always_inline)) {
#if !defined(PLIMSOLL_ISA_avx512)
    if constexpr (__is_same(Place, Packed) && kRows == kTile.rows && kVectors == 2) {
      for (; step + 4 <= end; step += 4, a += 4 * place.a_step, b += 4 * place.b_step) {
        __builtin_prefetch(ahead.line, 0, 2);
        ahead.line += 4 * ahead.step;
        add_packed_step<0>(a, b, sum);
        add_packed_step<1>(a, b, sum);
        add_packed_step<2>(a, b, sum);
        add_packed_step<3>(a, b, sum);
      }
    }
#endif
#pragma GCC unroll kUnrolled
    for (; step < end; ++step, a += place.a_step, b += place.b_step) {
      if constexpr (kFetches) {
        __builtin_prefetch(ahead.line, 0, 2);
        ahead.line += ahead.step;
      }
      Vec column[kVectors];
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) column[j] = load(b + j * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const Vec value = set1(a[i * place.a_row]);
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; ++j) sum[i][j] = multiply_add(value, column[j], sum[i][j]);
      }
    }
  };
  if constexpr (kFetches) {
    if (steps > kShort) add_up_to(steps / 2);
    take.fetch();
  }
  add_up_to(steps);
  take(sum);
}

// products [kTile.rows][kColumns] = the sums.
struct ToProducts {
  float* products;
  void fetch() const {}
  template <int kRows, int kVectors>
  void operator()(const Vec (&sum)[kRows][kVectors]) const {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) store(products + i * kColumns + j * kLanes, sum[i][j]);
  }
};

template <int kVectors>
void multiply_rows(int64_t rows, int64_t steps, const float* a, const float* b, float* products) {
  const Ahead none{reinterpret_cast<const char*>(b), 0};
  const ToProducts to{products};
  if (rows <= 2) return multiply_tile<2, kVectors>(steps, a, b, Packed{}, none, to);
  if (rows <= 4) return multiply_tile<4, kVectors>(steps, a, b, Packed{}, none, to);
  if constexpr (kTile.rows > 8)
    if (rows <= 8) return multiply_tile<8, kVectors>(steps, a, b, Packed{}, none, to);
  multiply_tile<kTile.rows, kVectors>(steps, a, b, Packed{}, none, to);
}

template <class In>
void pack_rows(const Strip<In>& s, float* out) {
  pack(s, Packed::a_step, out);
}
template <class In>
void pack_columns(const Strip<In>& s, float* out) {
  pack(s, kColumns, out);
}

inline void multiply_panel(int64_t rows, int64_t columns, int64_t steps, const Panels& p, float* products) {
  if (columns > kLanes)
    multiply_rows<2>(rows, steps, p.a, p.b, products);
  else
    multiply_rows<1>(rows, steps, p.a, p.b, products);
}

}  // namespace plimsoll::PLIMSOLL_ISA
