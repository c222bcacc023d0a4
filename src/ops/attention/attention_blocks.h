// Helpers that the attention kernels share: packing of blocks into f32 and the visible range of a row.
// Include it only in *_simd.cc files.
#pragma once

#include "ops/attention/attention_blocking.h"
#include "ops/attention/attention_kernels.h"
#include "ops/simd_matmul.h"

namespace plimsoll::PLIMSOLL_ISA {

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// One row of `dim` values to f32, zero up to a multiple of 16.
template <class T>
inline void widen_row(const T* from, float* to, int64_t dim) {
  int64_t c = 0;
  for (; c + Vec::kWidth <= dim; c += Vec::kWidth) store(to + c, load(from + c));
  for (; c < (dim + 15) / 16 * 16; c += Vec::kWidth)
    store(to + c, load(from + c, first(static_cast<int>(larger(dim - c, 0)))));
}

// factor * row, rounded to T.
template <class T>
inline void narrow_row(const float* from, T* to, int64_t dim, float factor) {
  const Vec f = set1(factor);
  int64_t c = 0;
  for (; c + Vec::kWidth <= dim; c += Vec::kWidth) store(to + c, load(from + c) * f);
  if (c < dim) {
    const Mask rest = first(static_cast<int>(dim - c));
    store(to + c, load(from + c, rest) * f, rest);
  }
}

// Columns of eight rows become rows: to[c * kAttentionKeyBlock + r] = row[r][c].
inline void store_transposed(const __m256 (&row)[8], float* to) {
  __m256 a[8];
  __m256 b[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
    a[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
    b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xEE);
    b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * kAttentionKeyBlock, _mm256_permute2f128_ps(b[i], b[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * kAttentionKeyBlock, _mm256_permute2f128_ps(b[i], b[i + 4], 0x31));
  }
}

// Rows [0, count) of `from` to the columns of `to` [dim][kAttentionKeyBlock]; the other columns are zero.
// `dim` is a multiple of 8.
template <class T>
inline void pack_transposed(const T* from, int64_t stride, int64_t count, int64_t dim, float* to) {
  for (int64_t r = 0; r < kAttentionKeyBlock; r += 8)
    for (int64_t c = 0; c < dim; c += 8) {
      __m256 row[8];
      for (int64_t i = 0; i < 8; ++i)
        row[i] = r + i < count ? widen_eight(from + (r + i) * stride + c) : _mm256_setzero_ps();
      store_transposed(row, to + c * kAttentionKeyBlock + r);
    }
}

// Rows [0, count) of `from` to f32 rows of `padded` floats; rows up to kAttentionKeyBlock are zero.
template <class T>
inline void pack_rows(const T* from, int64_t stride, int64_t count, int64_t dim, int64_t padded, float* to) {
  for (int64_t r = 0; r < count; ++r) widen_row(from + r * stride, to + r * padded, dim);
  for (int64_t i = count * padded; i < kAttentionKeyBlock * padded; i += Vec::kWidth) store(to + i, zero());
}

// The last key that a query sees: itself, or the last of `keys`, or of those in a window of both sides.
inline int64_t last_seen(const AttentionProblem& problem, int64_t query, int64_t keys) {
  if (problem.shape.causal) return query;
  return problem.window > 0 ? smaller(keys, query + problem.window) - 1 : keys - 1;
}
// Columns [begin, end) of a block of keys that one query sees, of which `last` is the last.
struct Visible {
  int64_t begin;
  int64_t end;
};
inline Visible visible(int64_t query, int64_t last, int64_t key0, int64_t columns, int64_t window) {
  const int64_t end = larger(0, smaller(columns, last - key0 + 1));
  const int64_t begin = window > 0 ? smaller(end, larger(0, query - window + 1 - key0)) : 0;
  return {begin, end};
}
// Sets the columns of a row outside `keep` to `value`.
inline void fill_outside(float* row, int64_t columns, Visible keep, float value) {
  for (int64_t c = 0; c < keep.begin; ++c) row[c] = value;
  for (int64_t c = keep.end; c < columns; ++c) row[c] = value;
}
// Columns a tile has to compute, in whole registers, when the last key that it sees is `query`.
inline int64_t columns_up_to(int64_t query, int64_t key0) {
  return (smaller(kAttentionKeyBlock, query - key0 + 1) + 15) / 16 * 16;
}

// The table of the sequences of keys.
template <class Call>
inline const SequenceTable& keys_of(const Call& call) {
  return call.keys.starts == nullptr ? call.sequences : call.keys;
}
template <class Call>
inline int64_t key_tokens_of(const Call& call) {
  return call.keys.starts == nullptr ? call.problem.tokens : call.problem.key_tokens;
}

// Zero to the rows of no sequence of a [tokens, width] tensor, shared out over the threads of a parallel
// region.
template <class T>
inline void zero_padding(const SequenceTable& sequences, int64_t tokens, T* data, int64_t width) {
  const int64_t live_begin = sequences.count > 0 ? sequences.starts[0] : 0;
  const int64_t live_end = sequences.count > 0 ? sequences.starts[sequences.count] : 0;
#pragma omp for schedule(static) nowait
  for (int64_t r = 0; r < tokens - (live_end - live_begin); ++r) {
    T* row = data + (r < live_begin ? r : r - live_begin + live_end) * width;
    for (int64_t c = 0; c < width; ++c) row[c] = T{0};
  }
}

}  // namespace plimsoll::PLIMSOLL_ISA
