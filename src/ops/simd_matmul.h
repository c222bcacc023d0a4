// Small matrix products on packed blocks that sit in L1 or L2, for kernels that fuse several of them. Include
// it only in *_simd.cc files.
//
// C [m, n] (+)= A [m, k] * B [k, n]. A is read one element at a time (broadcast), so any strides are free:
// a transposed A costs nothing. B and C are row-major; n and their row lengths are multiples of 16. C is f32;
// an element of A and B is 32 bits wide and one value, or two bf16 values that are neighbours in k.
#pragma once

#include "cpu/simd.h"

namespace plimsoll::PLIMSOLL_ISA {

struct Broadcast {
  const float* data;
  int64_t row;   // elements from one row of A to the next
  int64_t step;  // elements from one k to the next
};

// The ways in which elements are multiplied and added: one by one, or in pairs.
struct Singles {
  static Vec add_product(Vec a, Vec b, Vec sum) { return fma(a, b, sum); }
};
#if defined(PLIMSOLL_ISA_avx512_bf16)
struct Pairs {
  static Vec add_product(Vec a, Vec b, Vec sum) {
    return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
  }
};
#endif

// Always inlined: how much else a file has must not decide whether its products are.
#define PLIMSOLL_MATMUL [[gnu::always_inline]] inline

// Registers: 6 x 4 accumulators, 4 of B (AVX-512, 32 registers); 6 x 2, 2 of B and one broadcast (AVX2, 16).
inline constexpr int kMatmulRows = 6;
inline constexpr int kMatmulVecs = Vec::kWidth == 16 ? 4 : 2;

template <class Elements, int kRows, int kVecs>
PLIMSOLL_MATMUL void matmul_block(int64_t k, Broadcast a, const float* b, int64_t ldb, float* c, int64_t ldc,
                                  bool accumulate) {
  Vec acc[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j) acc[r][j] = accumulate ? load(c + r * ldc + j * Vec::kWidth) : zero();
  for (int64_t p = 0; p < k; ++p) {
    Vec row[kVecs];
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j) row[j] = load(b + p * ldb + j * Vec::kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec x = set1(a.data[r * a.row + p * a.step]);
#pragma GCC unroll 4
      for (int j = 0; j < kVecs; ++j) acc[r][j] = Elements::add_product(x, row[j], acc[r][j]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j) store(c + r * ldc + j * Vec::kWidth, acc[r][j]);
}

// All rows against one panel of kVecs registers.
template <class Elements, int kVecs>
PLIMSOLL_MATMUL void matmul_panel(int64_t m, int64_t k, Broadcast a, const float* b, int64_t ldb, float* c,
                                  int64_t ldc, bool accumulate) {
  for (; m >= kMatmulRows; m -= kMatmulRows) {
    matmul_block<Elements, kMatmulRows, kVecs>(k, a, b, ldb, c, ldc, accumulate);
    a.data += kMatmulRows * a.row;
    c += kMatmulRows * ldc;
  }
  switch (m) {
    case 1:
      return matmul_block<Elements, 1, kVecs>(k, a, b, ldb, c, ldc, accumulate);
    case 2:
      return matmul_block<Elements, 2, kVecs>(k, a, b, ldb, c, ldc, accumulate);
    case 3:
      return matmul_block<Elements, 3, kVecs>(k, a, b, ldb, c, ldc, accumulate);
    case 4:
      return matmul_block<Elements, 4, kVecs>(k, a, b, ldb, c, ldc, accumulate);
    case 5:
      return matmul_block<Elements, 5, kVecs>(k, a, b, ldb, c, ldc, accumulate);
    default:
      return;
  }
}

template <class Elements = Singles>
PLIMSOLL_MATMUL void matmul(int64_t m, int64_t n, int64_t k, Broadcast a, const float* b, int64_t ldb,
                            float* c, int64_t ldc, bool accumulate) {
  constexpr int64_t kPanel = kMatmulVecs * Vec::kWidth;
  int64_t j = 0;
  for (; j + kPanel <= n; j += kPanel)
    matmul_panel<Elements, kMatmulVecs>(m, k, a, b + j, ldb, c + j, ldc, accumulate);
  // Rest of 16 to 48 columns: whole registers of AVX-512, none for AVX2, whose panel is 16 wide.
  if constexpr (Vec::kWidth == 16) {
    switch ((n - j) / Vec::kWidth) {
      case 1:
        return matmul_panel<Elements, 1>(m, k, a, b + j, ldb, c + j, ldc, accumulate);
      case 2:
        return matmul_panel<Elements, 2>(m, k, a, b + j, ldb, c + j, ldc, accumulate);
      case 3:
        return matmul_panel<Elements, 3>(m, k, a, b + j, ldb, c + j, ldc, accumulate);
      default:
        return;
    }
  }
}

#undef PLIMSOLL_MATMUL

}  // namespace plimsoll::PLIMSOLL_ISA
