// Helpers that the kernels of the gated delta rule share: the decays of a chunk, its triangle of equations,
// and the step of a state over a chunk. Include it only in *_simd.cc files.
#pragma once

#include "ops/delta/delta_rule_kernels.h"
#include "ops/scan/gla_blocks.h"

namespace plimsoll::PLIMSOLL_ISA {

static_assert(kDeltaChunk == kGlaChunk && kDeltaSub == kGlaSub);  // Chunk is the one of gla_blocks.h

// matmul, once per file.
[[gnu::noinline]] static void product(int64_t m, int64_t n, int64_t k, Broadcast a, const float* b,
                                      int64_t ldb, float* c, int64_t ldc, bool accumulate) {
  matmul(m, n, k, a, b, ldb, c, ldc, accumulate);
}

// Hands out parts of a worker's floats.
struct Floats {
  float* next;
  float* take(int64_t count) {
    float* const at = next;
    next += count;
    return at;
  }
  template <int kCount>
  void take_all(int64_t count, float** const (&to)[kCount]) {
    for (float** const one : to) *one = take(count);
  }
};

// e^x for x <= 0, and 0 where that is below the smallest normal number.
inline Vec decay(Vec x) {
  const Vec y = exp(x);
#if defined(PLIMSOLL_ISA_avx512)
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, set1(-87.0F).v, _CMP_NLT_UQ), y.v)};
#else
  return {_mm256_and_ps(_mm256_cmp_ps(x.v, set1(-87.0F).v, _CMP_NLT_UQ), y.v)};
#endif
}

// The decays and strengths of a chunk's rows. The sums of g within it are kept in two parts, so that differences
// of large ones are exact; rows beyond the chunk's have g = 0 and beta = 0.
struct Gates {
  alignas(64) float beta[kDeltaChunk];
  alignas(64) float high[kDeltaChunk];
  alignas(64) float low[kDeltaChunk];
  alignas(64) float from_start[kDeltaChunk];  // e^(b_i)
  alignas(64) float to_end[kDeltaChunk];      // e^(b_C - b_i)
  float whole;                                // e^(b_C)
};

inline void load_gates(const DeltaShape& s, const float* g, const float* beta, const Chunk& chunk,
                       int64_t head, Gates& to) {
  constexpr float kForgotten = -1e4F;  // whose e^g is 0; sums of such keep their digits
  double sum = 0;
  for (int64_t r = 0; r < kDeltaChunk; ++r) {
    const int64_t at = (chunk.token + r) * s.heads + head;
    const bool live = r < chunk.rows;
    to.beta[r] = live ? beta[at] : 0.0F;
    if (live) sum += static_cast<double>(g[at] < kForgotten ? kForgotten : g[at]);
    to.high[r] = static_cast<float>(sum);
    to.low[r] = static_cast<float>(sum - static_cast<double>(to.high[r]));
  }
  const Vec high = set1(to.high[kDeltaChunk - 1]), low = set1(to.low[kDeltaChunk - 1]);
  for (int64_t r = 0; r < kDeltaChunk; r += Vec::kWidth) {
    store(to.from_start + r, decay(load(to.high + r)));
    store(to.to_end + r, decay((high - load(to.high + r)) + (low - load(to.low + r))));
  }
  to.whole = to.from_start[kDeltaChunk - 1];
}

// [rows][kDeltaChunk]: e^(b_i - b_j) for i >= j. Blocks above the diagonal are not written, elements above it
// within a block are zero.
inline void decays_between(const Gates& gates, int64_t rows, float* to) {
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t end = i / kDeltaSub * kDeltaSub + kDeltaSub;
    float* const row = to + i * kDeltaChunk;
    for (int64_t j = 0; j < end; j += Vec::kWidth)
      store(row + j, decay(min(zero(), (set1(gates.high[i]) - load(gates.high + j)) +
                                           (set1(gates.low[i]) - load(gates.low + j)))));
    for (int64_t j = i + 1; j < end; ++j) row[j] = 0.0F;
  }
}

// Rows of one head to f32, each divided by its length and times `factor`; zero up to `padded` rows.
// `inverse`, where given, gets the lengths' inverses.
template <class T>
inline void load_unit_rows(const DeltaProblem& p, const T* from, const Chunk& chunk, int64_t head,
                           float factor, float* inverse, float* to) {
  const DeltaShape& s = p.shape;
  const int64_t keys = delta_keys(s), stride = s.key_heads * s.key_dim;
  load_head(from + chunk.token * stride + head * s.key_dim, stride, chunk.rows, chunk.padded(), s.key_dim,
            1.0F, to);
  for (int64_t r = 0; r < chunk.rows; ++r) {
    float* const row = to + r * keys;
    const float scale = 1.0F / __builtin_sqrtf(dot(row, row, keys) + p.eps);
    if (inverse != nullptr) inverse[r] = scale;
    const Vec f = set1(scale * factor);
    for (int64_t c = 0; c < keys; c += Vec::kWidth) store(row + c, load(row + c) * f);
  }
}
inline float query_factor(const DeltaShape& s) {
  return 1.0F / __builtin_sqrtf(static_cast<float>(s.key_dim));
}

// Row r times factors[r].
inline void scale_rows(const float* from, const float* factors, int64_t rows, int64_t width, float* to) {
  for (int64_t r = 0; r < rows; ++r) {
    const Vec f = set1(factors[r]);
    for (int64_t c = r * width; c < (r + 1) * width; c += Vec::kWidth) store(to + c, load(from + c) * f);
  }
}

inline void clear(float* to, int64_t count) {
  for (int64_t c = 0; c < count; c += Vec::kWidth) store(to + c, zero());
}
inline void copy(const float* from, int64_t count, float* to) {
  for (int64_t c = 0; c < count; c += Vec::kWidth) store(to + c, load(from + c));
}
inline void add(const float* from, int64_t count, float* to) {
  for (int64_t c = 0; c < count; c += Vec::kWidth) store(to + c, load(to + c) + load(from + c));
}

// The lower triangle of x y^T by blocks of kDeltaSub rows, [rows][kDeltaChunk]; y by columns
// [width][kDeltaChunk].
inline void lower_products(const float* x, const float* y_columns, int64_t rows, int64_t width, float* to) {
  for (int64_t first = 0; first < rows; first += kDeltaSub)
    product(kDeltaSub, first + kDeltaSub, width, {x + first * width, width, 1}, y_columns, kDeltaChunk,
            to + first * kDeltaChunk, kDeltaChunk, false);
}

// The triangle of a chunk's equations: `minus` [rows][kDeltaChunk] is -L, strictly lower, and `inverses` are
// those of I + L's blocks on the diagonal, [kDeltaSub][kDeltaSub] each.
struct Triangle {
  float* minus;
  float* inverses;
};

// From k k^T and the decays: L_ij = beta_i e^(b_i - b_j) k_i k_j.
inline void make_triangle(const Gates& gates, const float* of_keys, const float* decays, int64_t rows,
                          const Triangle& to) {
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t first = i / kDeltaSub * kDeltaSub;
    const Vec factor = set1(-gates.beta[i]);
    for (int64_t j = 0; j < first + kDeltaSub; j += Vec::kWidth) {
      const int64_t at = i * kDeltaChunk + j;
      store(to.minus + at, factor * load(decays + at) * load(of_keys + at));
    }
    for (int64_t j = i; j < first + kDeltaSub; ++j) to.minus[i * kDeltaChunk + j] = 0.0F;
    float* const inverse = to.inverses + first * kDeltaSub;
    for (int64_t c = 0; c < kDeltaSub; c += Vec::kWidth) {
      Vec sum = zero();
      for (int64_t j = first; j < i; ++j)
        sum = fma(set1(to.minus[i * kDeltaChunk + j]), load(inverse + (j - first) * kDeltaSub + c), sum);
      store(inverse + (i - first) * kDeltaSub + c, sum);
    }
    inverse[(i - first) * kDeltaSub + (i - first)] = 1.0F;
  }
}

// (I + L)^-1 x in place; `space`: kDeltaSub rows.
inline void solve(const Triangle& t, int64_t rows, int64_t width, float* space, float* x) {
  for (int64_t first = 0; first < rows; first += kDeltaSub) {
    float* const block = x + first * width;
    if (first > 0)
      product(kDeltaSub, width, first, {t.minus + first * kDeltaChunk, kDeltaChunk, 1}, x, width, block,
              width, true);
    product(kDeltaSub, width, kDeltaSub, {t.inverses + first * kDeltaSub, kDeltaSub, 1}, block, width, space,
            width, false);
    copy(space, kDeltaSub * width, block);
  }
}
// (I + L)^-T x in place.
inline void solve_transposed(const Triangle& t, int64_t rows, int64_t width, float* space, float* x) {
  for (int64_t first = rows - kDeltaSub; first >= 0; first -= kDeltaSub) {
    float* const block = x + first * width;
    const int64_t behind = first + kDeltaSub;
    if (behind < rows)
      product(kDeltaSub, width, rows - behind, {t.minus + behind * kDeltaChunk + first, 1, kDeltaChunk},
              x + behind * width, width, block, width, true);
    product(kDeltaSub, width, kDeltaSub, {t.inverses + first * kDeltaSub, 1, kDeltaSub}, block, width, space,
            width, false);
    copy(space, kDeltaSub * width, block);
  }
}

// A chunk as a value head's step over it reads it.
struct DeltaStep {
  const Gates* gates;
  const float* k;         // [rows][keys]
  const float* k_to_end;  // the same times e^(b_C - b_i)
  Triangle triangle;
};

// u [rows][values] from v there and the state before the chunk; null: it is zero. `missed`, where given, gets
// v - e^b (k S). `space`: [rows][values].
inline void values_of_step(const DeltaShape& s, const DeltaStep& step, int64_t rows, const float* state,
                           float* space, float* missed, float* u) {
  const int64_t keys = delta_keys(s), values = delta_values(s);
  if (state != nullptr) {
    product(rows, values, keys, {step.k, keys, 1}, state, values, space, values, false);
    for (int64_t r = 0; r < rows; ++r) {
      const Vec f = set1(step.gates->from_start[r]);
      for (int64_t c = r * values; c < (r + 1) * values; c += Vec::kWidth)
        store(u + c, fnma(f, load(space + c), load(u + c)));
    }
  }
  if (missed != nullptr) copy(u, rows * values, missed);
  scale_rows(u, step.gates->beta, rows, values, u);
  solve(step.triangle, rows, values, space, u);
}

// The state behind a chunk from the one before it, in place; `was_zero`: what stands there does not count.
inline void advance(const DeltaShape& s, const DeltaStep& step, int64_t rows, const float* u, bool was_zero,
                    float* state) {
  const int64_t keys = delta_keys(s), values = delta_values(s);
  const Vec whole = set1(step.gates->whole);
  if (!was_zero)
    for (int64_t c = 0; c < keys * values; c += Vec::kWidth) store(state + c, whole * load(state + c));
  product(keys, values, rows, {step.k_to_end, 1, keys}, u, values, state, values, !was_zero);
}

// Rows of a value head to f32; zero up to the chunk's padded ones.
template <class T>
inline void load_values(const DeltaShape& s, const T* from, const Chunk& chunk, int64_t head, float* to) {
  load_head(from + (chunk.token * s.heads + head) * s.value_dim, s.heads * s.value_dim, chunk.rows,
            chunk.padded(), s.value_dim, 1.0F, to);
}
template <class T>
inline void store_values(const DeltaShape& s, const float* from, const Chunk& chunk, int64_t head, T* to) {
  for (int64_t r = 0; r < chunk.rows; ++r)
    narrow_row(from + r * delta_values(s), to + ((chunk.token + r) * s.heads + head) * s.value_dim,
               s.value_dim, 1.0F);
}

// The segments of a tree; without trees, of one sequence.
struct Tree {
  int64_t begin, end;
};
inline int64_t count_trees(const SequenceTable& t) {
  int64_t count = 0;
  for (int64_t s = 0; s < t.count; ++s) count += parent_of(t, s) < 0 ? 1 : 0;
  return count;
}
inline Tree tree_at(const SequenceTable& t, int64_t index) {
  int64_t s = 0;
  for (;; ++s)
    if (parent_of(t, s) < 0 && index-- == 0) break;
  return {s, subtree_end(t, s)};
}

// Makes `state`, which is that behind the chunk before, the one that a chunk starts from. The place of a
// segment's state among `forks` lies `stride` floats behind the one before.
inline void begin_state(const DeltaShape& s, const SequenceTable& sequences, const Chunk& chunk,
                        const float* forks, int64_t stride, float* state) {
  if (!chunk.begins || chunk.first) return;
  const int64_t parent = parent_of(sequences, chunk.segment);
  if (parent + 1 < chunk.segment)
    copy(forks + fork_number(sequences, parent) * stride, delta_state(s), state);
}
// Keeps `state`, that behind a chunk, for segments that come back to it.
inline void end_state(const DeltaShape& s, const SequenceTable& sequences, const Chunk& chunk,
                      const float* state, int64_t stride, float* forks) {
  if (chunk.ends && plimsoll::forks(sequences, chunk.segment))
    copy(state, delta_state(s), forks + fork_number(sequences, chunk.segment) * stride);
}

}  // namespace plimsoll::PLIMSOLL_ISA
