// Loads blocks of q, k, v and d_o for the products of the attention kernels: as f32 values, or, where the
// processor multiplies bf16, as words of two bf16 neighbours along the axis that is summed over. Include it
// only in *_simd.cc files.
#pragma once

#include "ops/attention/attention_blocks.h"

namespace plimsoll::PLIMSOLL_ISA {

// Rows of a backward tile in both roles: as A of a product that sums over the head's values, and as B of one
// that sums over the rows.
struct TileRows {
  Broadcast along_dim;
  const float* along_rows;  // [depth(rows)][padded]
};

// P and dS of a backward tile as A: transposed, summed over the rows; and dS, summed over the keys.
struct TileScores {
  Broadcast p_transposed, ds_transposed, ds;
};

template <class T>
struct SingleOperands {
  using Elements = Singles;
  // Elements that `n` values of a summed axis take.
  static int64_t depth(int64_t n) { return n; }
  // One row as A, summed over its values.
  static void pack_row(const T* from, float* to, int64_t dim) { widen_row(from, to, dim); }
  static int64_t row_stride(int64_t padded) { return padded; }
  // B [depth(dim)][key block].
  static void pack_keys(const T* from, int64_t stride, int64_t count, int64_t dim, float* to) {
    pack_transposed(from, stride, count, dim, to);
  }
  // B [depth(key block)][padded].
  static void pack_values(const T* from, int64_t stride, int64_t count, int64_t dim, int64_t padded,
                          float* to) {
    pack_rows(from, stride, count, dim, padded, to);
  }
  // Probabilities of a row, in place, to A.
  static void pack_probabilities(float*, int64_t) {}

  // `row(r)` is where row r of the tile lies; `to` has room for [tile][padded].
  template <class Row>
  static TileRows pack_tile(int64_t rows, int64_t dim, int64_t padded, Row row, float* to) {
    for (int64_t r = 0; r < rows; ++r) widen_row(row(r), to + r * padded, dim);
    return {{to, padded, 1}, to};
  }
  // In place.
  static TileScores pack_scores(float* p, float* ds, int64_t, int64_t) {
    return {{p, 1, kAttentionKeyBlock}, {ds, 1, kAttentionKeyBlock}, {ds, kAttentionKeyBlock, 1}};
  }
};

#if defined(PLIMSOLL_ISA_avx512_bf16)

// Lane i: the pair (low_i, high_i).
inline __m512i pair_words(__m256i low, __m256i high) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

// Two rows of `dim` bf16 values to words of both, zero up to `padded`; the second may be null: zeros.
inline void pair_rows(const uint16_t* low, const uint16_t* high, int64_t dim, int64_t padded, float* to) {
  for (int64_t c = 0; c < padded; c += Vec::kWidth) {
    const Mask rest = first(static_cast<int>(larger(0, smaller(Vec::kWidth, dim - c))));
    const __m256i a = _mm256_maskz_loadu_epi16(rest.m, low + c);
    const __m256i b = high == nullptr ? _mm256_setzero_si256() : _mm256_maskz_loadu_epi16(rest.m, high + c);
    _mm512_storeu_si512(to + c, pair_words(a, b));
  }
}

struct PairOperands {
  using Elements = Pairs;
  static int64_t depth(int64_t n) { return (n + 1) / 2; }
  static void pack_row(const uint16_t* from, float* to, int64_t dim) {
    __builtin_memcpy(to, from, static_cast<size_t>(dim) * sizeof(uint16_t));
  }
  static int64_t row_stride(int64_t padded) { return padded / 2; }
  static void pack_keys(const uint16_t* from, int64_t stride, int64_t count, int64_t dim, float* to) {
    for (int64_t r = 0; r < kAttentionKeyBlock; r += 8)
      for (int64_t c = 0; c < dim; c += 16) {
        const auto rest = static_cast<__mmask16>(dim - c >= 16 ? 0xFFFF : 0xFF);  // dim is a multiple of 8
        __m256 row[8];
        for (int64_t i = 0; i < 8; ++i)
          row[i] = r + i < count
                       ? _mm256_castsi256_ps(_mm256_maskz_loadu_epi16(rest, from + (r + i) * stride + c))
                       : _mm256_setzero_ps();
        store_transposed(row, to + c / 2 * kAttentionKeyBlock + r);
      }
  }
  static void pack_values(const uint16_t* from, int64_t stride, int64_t count, int64_t dim, int64_t padded,
                          float* to) {
    for (int64_t r = 0; r < kAttentionKeyBlock; r += 2, to += padded) {
      const uint16_t* low = from + r * stride;
      if (r < count)
        pair_rows(low, r + 1 < count ? low + stride : nullptr, dim, padded, to);
      else
        for (int64_t c = 0; c < padded; c += Vec::kWidth) store(to + c, zero());
    }
  }
  static void pack_probabilities(float* row, int64_t columns) {
    for (int64_t c = 0; c < columns; c += Vec::kWidth)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + c / 2), to_half_bits(load(row + c)));
  }
  template <class Row>
  static TileRows pack_tile(int64_t rows, int64_t dim, int64_t padded, Row row, float* to) {
    float* const pairs = to + kAttentionBackwardTile * padded / 2;
    for (int64_t r = 0; r < rows; ++r) pack_row(row(r), to + r * padded / 2, dim);
    for (int64_t r = 0; r < rows; r += 2)
      pair_rows(row(r), r + 1 < rows ? row(r + 1) : nullptr, dim, padded, pairs + r / 2 * padded);
    return {{to, padded / 2, 1}, pairs};
  }
  // Pairs of rows need half the room: the second half of P's takes the rows of dS.
  static TileScores pack_scores(float* p, float* ds, int64_t rows, int64_t columns) {
    constexpr int64_t kHalf = kAttentionKeyBlock / 2;
    float* const ds_rows = p + kAttentionBackwardTile * kHalf;
    pair_tile_rows(p, rows, columns);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; c += Vec::kWidth)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(ds_rows + r * kHalf + c / 2),
                            to_half_bits(load(ds + r * kAttentionKeyBlock + c)));
    pair_tile_rows(ds, rows, columns);
    return {{p, 1, kAttentionKeyBlock}, {ds, 1, kAttentionKeyBlock}, {ds_rows, kHalf, 1}};
  }

 private:
  // Rows 2 i and 2 i + 1 become row i of words, in place; a missing last row is zero.
  static void pair_tile_rows(float* tile, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; r += 2)
      for (int64_t c = 0; c < columns; c += Vec::kWidth) {
        const float* low = tile + r * kAttentionKeyBlock + c;
        const Vec high = r + 1 < rows ? load(low + kAttentionKeyBlock) : zero();
        _mm512_storeu_si512(tile + r / 2 * kAttentionKeyBlock + c,
                            pair_words(to_half_bits(load(low)), to_half_bits(high)));
      }
  }
};

#endif

template <class T>
struct OperandsOf {
  using type = SingleOperands<T>;
};
#if defined(PLIMSOLL_ISA_avx512_bf16)
template <>
struct OperandsOf<uint16_t> {
  using type = PairOperands;
};
#endif
template <class T>
using Operands = typename OperandsOf<T>::type;

}  // namespace plimsoll::PLIMSOLL_ISA
