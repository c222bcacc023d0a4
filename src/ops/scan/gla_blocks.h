// Helpers that the kernels of gated linear attention share: chunks, their decays, and the walk of the states.
// Include it only in *_simd.cc files.
#pragma once

#include "ops/attention/attention_blocks.h"
#include "ops/scan/gla_kernels.h"
#include "ops/segments.h"
#include "ops/simd_rows.h"

namespace plimsoll::PLIMSOLL_ISA {

// log(sigmoid(x)) = min(x, 0) - log(1 + e^-|x|); the logarithm as 2 atanh(u / (2 + u)), u = e^-|x|, whose
// argument is at most 1/3. Relative error about 2e-7.
inline Vec log_sigmoid(Vec x) {
  const Vec u = exp(min(x, zero() - x));
  const Vec z = u / (u + set1(2.0F));
  const Vec z2 = z * z;
  Vec p = set1(1.0F / 15.0F);
  p = fma(p, z2, set1(1.0F / 13.0F));
  p = fma(p, z2, set1(1.0F / 11.0F));
  p = fma(p, z2, set1(1.0F / 9.0F));
  p = fma(p, z2, set1(1.0F / 7.0F));
  p = fma(p, z2, set1(1.0F / 5.0F));
  p = fma(p, z2, set1(1.0F / 3.0F));
  p = fma(p, z2, set1(1.0F));
  return min(x, zero()) - (p + p) * z;
}
inline Vec log_decay(const GlaProblem& p, Vec gate) {
  return max(set1(p.clamp_min), log_sigmoid(gate) / set1(p.normalizer));
}

// Up to kGlaChunk tokens in a row of one sequence.
struct Chunk {
  int64_t token = 0, rows = 0;
  int64_t segment = 0;
  bool begins = false, ends = false;  // its segment
  bool first = false, last = false;   // nothing stands before it; nothing goes on from it
  // Rows that products take, the ones beyond `rows` being zero.
  [[nodiscard]] int64_t padded() const { return (rows + kGlaSub - 1) / kGlaSub * kGlaSub; }
};

inline int64_t chunks_of(const SequenceTable& sequences, int64_t s) {
  return (sequences.starts[s + 1] - sequences.starts[s] + kGlaChunk - 1) / kGlaChunk;
}
inline int64_t count_chunks(const SequenceTable& sequences) {
  int64_t count = 0;
  for (int64_t s = 0; s < sequences.count; ++s) count += chunks_of(sequences, s);
  return count;
}
// Chunk `index` of those from sequence s on, sequence by sequence.
inline Chunk chunk_at(const SequenceTable& sequences, int64_t index, int64_t s = 0) {
  for (; index >= chunks_of(sequences, s); ++s) index -= chunks_of(sequences, s);
  const int64_t token = sequences.starts[s] + index * kGlaChunk;
  const int64_t left = sequences.starts[s + 1] - token;
  const bool begins = index == 0, ends = left <= kGlaChunk;
  return {token,
          smaller(kGlaChunk, left),
          s,
          begins,
          ends,
          begins && parent_of(sequences, s) < 0,
          ends && !goes_on(sequences, s)};
}

// Rows of one head to f32, times `factor`; zero up to `padded` rows.
template <class T>
inline void load_head(const T* from, int64_t stride, int64_t rows, int64_t padded, int64_t dim, float factor,
                      float* to) {
  const int64_t width = (dim + 15) / 16 * 16;
  const Vec f = set1(factor);
  for (int64_t r = 0; r < rows; ++r, to += width) {
    widen_row(from + r * stride, to, dim);
    if (factor != 1.0F)
      for (int64_t c = 0; c < width; c += Vec::kWidth) store(to + c, load(to + c) * f);
  }
  for (int64_t c = 0; c < (padded - rows) * width; c += Vec::kWidth) store(to + c, zero());
}

// exp(g) of each row and key; 1 in rows beyond `rows`.
template <class T>
inline void load_decays(const GlaProblem& p, const T* gate, int64_t stride, int64_t rows, int64_t padded,
                        float* to) {
  const int64_t width = gla_keys(p.shape);
  for (int64_t r = 0; r < rows; ++r, to += width) {
    widen_row(gate + r * stride, to, p.shape.key_dim);
    for (int64_t c = 0; c < width; c += Vec::kWidth) store(to + c, exp(log_decay(p, load(to + c))));
  }
  for (int64_t c = 0; c < (padded - rows) * width; c += Vec::kWidth) store(to + c, set1(1.0F));
}

// Row i: the product of the decays of rows `begin` to i.
inline void products_up_to(const float* decays, int64_t begin, int64_t end, int64_t width, float* to) {
  for (int64_t c = 0; c < width; c += Vec::kWidth) {
    Vec w = set1(1.0F);
    for (int64_t i = begin; i < end; ++i) {
      w = w * load(decays + i * width + c);
      store(to + i * width + c, w);
    }
  }
}
// Row j: the product of the decays of rows j + 1 to `last`.
inline void products_behind(const float* decays, int64_t last, int64_t width, float* to) {
  for (int64_t c = 0; c < width; c += Vec::kWidth) {
    Vec w = set1(1.0F);
    for (int64_t j = last; j >= 0; --j) {
      store(to + j * width + c, w);
      w = w * load(decays + j * width + c);
    }
  }
}

// to = a * b, element by element; may be in place.
inline void multiply(const float* a, const float* b, int64_t count, float* to) {
  for (int64_t c = 0; c < count; c += Vec::kWidth) store(to + c, load(a + c) * load(b + c));
}

// Columns of `from` [rows, cols] to rows of `to`; both counts are multiples of 8.
inline void transpose(const float* from, int64_t ld_from, int64_t rows, int64_t cols, float* to,
                      int64_t ld_to) {
  for (int64_t r = 0; r < rows; r += 8)
    for (int64_t c = 0; c < cols; c += 8) {
      __m256 row[8];
      float block[8 * kAttentionKeyBlock];
      for (int64_t i = 0; i < 8; ++i) row[i] = _mm256_loadu_ps(from + (r + i) * ld_from + c);
      store_transposed(row, block);
      for (int64_t i = 0; i < 8; ++i)
        _mm256_storeu_ps(to + (c + i) * ld_to + r, _mm256_loadu_ps(block + i * kAttentionKeyBlock));
    }
}

inline float dot(const float* a, const float* b, int64_t count) {
  Vec sum = zero();
  for (int64_t c = 0; c < count; c += Vec::kWidth) sum = fma(load(a + c), load(b + c), sum);
  return reduce_add(sum);
}

// Decays between a block of kGlaSub rows, which begins at row `first`, and the rows before it, by way of row
// `first`: row i of `within` to it, and row j of `before` from it.
inline void reference_decays(const float* decays, int64_t first, int64_t width, float* within,
                             float* before) {
  for (int64_t c = 0; c < width; c += Vec::kWidth) store(within + first * width + c, set1(1.0F));
  products_up_to(decays, first + 1, first + kGlaSub, width, within);
  for (int64_t c = 0; c < width; c += Vec::kWidth) {
    Vec w = load(decays + first * width + c);
    for (int64_t j = first - 1; j >= 0; --j) {
      store(before + j * width + c, w);
      w = w * load(decays + j * width + c);
    }
  }
}

// Workspace of scores_of: three of [kGlaChunk][keys].
struct ScoreSpace {
  float* within;
  float* before;
  float* transposed;  // [keys][kGlaChunk]
};

// Scores of a chunk's lower triangle, [rows][kGlaChunk]: sum over keys of q_i k_j and the decays of rows j +
// 1 to i. Blocks above the diagonal are not written, elements above it within a block are zero.
inline void scores_of(const float* q, const float* k, const float* decays, int64_t rows, int64_t width,
                      const ScoreSpace& space, float* scores) {
  for (int64_t first = 0; first < rows; first += kGlaSub) {
    if (first > 0) {
      reference_decays(decays, first, width, space.within, space.before);
      float* const q_block = space.within + first * width;
      multiply(q_block, q + first * width, kGlaSub * width, q_block);
      multiply(space.before, k, first * width, space.before);
      transpose(space.before, width, first, width, space.transposed, kGlaChunk);
      matmul(kGlaSub, first, width, {q_block, width, 1}, space.transposed, kGlaChunk,
             scores + first * kGlaChunk, kGlaChunk, false);
    }
    float* const q_row = space.transposed;
    for (int64_t i = first; i < first + kGlaSub; ++i) {
      for (int64_t c = 0; c < width; c += Vec::kWidth) store(q_row + c, load(q + i * width + c));
      for (int64_t j = i; j >= first; --j) {
        scores[i * kGlaChunk + j] = dot(q_row, k + j * width, width);
        if (j > first) multiply(q_row, decays + j * width, width, q_row);
      }
      for (int64_t j = i + 1; j < first + kGlaSub; ++j) scores[i * kGlaChunk + j] = 0.0F;
    }
  }
}

// Columns of a head's state that one thread carries: index over all heads to head and first column.
struct Columns {
  int64_t head, first, count;
};
inline int64_t column_items(const GlaShape& s) {
  return s.kv_heads * ((gla_values(s) + kGlaColumns - 1) / kGlaColumns);
}
inline Columns columns_of(const GlaShape& s, int64_t item) {
  const int64_t first = item / s.kv_heads * kGlaColumns;
  return {item % s.kv_heads, first, smaller(kGlaColumns, gla_values(s) - first)};
}

// `to` [keys][count of columns] of row length gla_values: times a factor per key, then the sum over rows of
// a_i^T b_i is added.
inline void decay_and_add(const GlaShape& s, const float* factors, const float* a, const float* b,
                          int64_t rows, int64_t columns, float* to) {
  const int64_t keys = gla_keys(s);
  const int64_t values = gla_values(s);
  if (factors != nullptr)
    for (int64_t r = 0; r < keys; ++r) {
      const Vec f = set1(factors[r]);
      for (int64_t c = 0; c < columns; c += Vec::kWidth)
        store(to + r * values + c, load(to + r * values + c) * f);
    }
  matmul(keys, columns, rows, {a, 1, keys}, b, (columns + 15) / 16 * 16, to, values, true);
}

inline void copy_columns(const GlaShape& s, const float* from, int64_t columns, float* to) {
  for (int64_t r = 0; r < gla_keys(s); ++r)
    for (int64_t c = 0; c < columns; c += Vec::kWidth)
      store(to + r * gla_values(s) + c, load(from + r * gla_values(s) + c));
}
inline void clear_columns(const GlaShape& s, int64_t columns, float* to) {
  for (int64_t r = 0; r < gla_keys(s); ++r)
    for (int64_t c = 0; c < columns; c += Vec::kWidth) store(to + r * gla_values(s) + c, zero());
}

inline void add_columns(const GlaShape& s, const float* from, int64_t columns, float* to) {
  for (int64_t r = 0; r < gla_keys(s); ++r)
    for (int64_t c = 0; c < columns; c += Vec::kWidth) {
      float* const at = to + r * gla_values(s) + c;
      store(at, load(at) + load(from + r * gla_values(s) + c));
    }
}

// The state of `segment` at a fork, or its gradient: some of its columns.
inline float* at_fork(const GlaShape& s, const SequenceTable& sequences, int64_t segment,
                      const Columns& columns, float* forks) {
  return forks + (fork_number(sequences, segment) * s.kv_heads + columns.head) * gla_state(s) + columns.first;
}
// Makes `state`, which is that behind the chunk before, the one that a chunk starts from.
inline void begin_state(const GlaShape& s, const SequenceTable& sequences, const Chunk& chunk,
                        const Columns& columns, float* forks, float* state) {
  if (chunk.first) return clear_columns(s, columns.count, state);
  if (!chunk.begins) return;
  const int64_t parent = parent_of(sequences, chunk.segment);
  if (parent + 1 < chunk.segment)
    copy_columns(s, at_fork(s, sequences, parent, columns, forks), columns.count, state);
}
// Keeps `state`, that behind a chunk, for segments that come back to it.
inline void end_state(const GlaShape& s, const SequenceTable& sequences, const Chunk& chunk,
                      const Columns& columns, const float* state, float* forks) {
  if (chunk.ends && plimsoll::forks(sequences, chunk.segment))
    copy_columns(s, state, columns.count, at_fork(s, sequences, chunk.segment, columns, forks));
}

// The state behind a chunk from the one before it, in place, for some columns. `space`: 3 [kGlaChunk][keys]
// and [kGlaChunk][kGlaColumns].
template <class T>
inline void advance_state(const GlaProblem& p, const Columns& columns, const Chunk& chunk, const T* k,
                          const T* v, const T* gate, float* space, float* state) {
  const GlaShape& s = p.shape;
  const int64_t keys = gla_keys(s);
  const int64_t rows = chunk.padded();
  float* const decays = space;
  float* const behind = decays + kGlaChunk * keys;
  float* const k_rows = behind + kGlaChunk * keys;
  float* const v_rows = k_rows + kGlaChunk * keys;
  const int64_t key_stride = s.kv_heads * s.key_dim;
  const int64_t value_stride = s.kv_heads * s.value_dim;
  const int64_t key_at = chunk.token * key_stride + columns.head * s.key_dim;
  load_decays(p, gate + key_at, key_stride, chunk.rows, rows, decays);
  load_head(k + key_at, key_stride, chunk.rows, rows, s.key_dim, 1.0F, k_rows);
  products_behind(decays, rows - 1, keys, behind);
  multiply(k_rows, behind, rows * keys, k_rows);
  multiply(behind, decays, keys, decays);  // row 0: the whole chunk's decay
  const int64_t live = smaller(columns.count, s.value_dim - columns.first);
  load_head(v + chunk.token * value_stride + columns.head * s.value_dim + columns.first, value_stride,
            chunk.rows, rows, live, 1.0F, v_rows);
  decay_and_add(s, decays, k_rows, v_rows, rows, columns.count, state);
}

}  // namespace plimsoll::PLIMSOLL_ISA
