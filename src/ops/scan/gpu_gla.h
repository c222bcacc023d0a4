// Helpers that the kernels of gated linear attention on the GPU share: operands, chunks, and their decays.
// Include it only in gla_gpu.cu and delta_rule_gpu.cu.
#pragma once

#include "ops/gpu_step.h"
#include "ops/scan/gla_gpu_scratch.h"
#include "ops/scan/gpu_gla_decay.h"
#include "ops/scan/gpu_gla_products.h"
#include "ops/segments.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

inline constexpr int kGlaRows = static_cast<int>(kGlaChunk);
inline constexpr int kGlaSubRows = static_cast<int>(kGlaSub);
inline constexpr int kGlaSubs = kGlaRows / kGlaSubRows;
static_assert(kGlaRows == kGlaTile && kGlaSubs * gpu::kWarpSize == kGlaThreads);  // a warp has a sub-chunk

// The live sequences, or segments of trees (ops/segments.h).
struct GlaSequences {
  const int32_t* starts;
  const int32_t* parents;
  int count;

  [[nodiscard]] PL_DEV int chunks(int segment) const {
    return (starts[segment + 1] - starts[segment] + kGlaRows - 1) / kGlaRows;
  }
};

template <class T>
struct Gla {
  const T* q;
  const T* k;
  const T* v;
  const T* gate;
  GpuSequences where;
  const int32_t* parents;  // of segments of trees; null: sequences are apart
  const double* step;
  StepValue sequences;  // how many are live
  int heads, kv_heads, key_dim, value_dim;
  int keys, values;      // row lengths in the workspace
  bool values_in_packs;  // of v, o and d_o
  float scale, normalizer, clamp_min;
  // The workspace (ops/scan/gla_gpu_scratch.h).
  float* decays;
  float* chunk_decays;
  T* queries_from_start;
  T* keys_to_end;
  T* scores;
  T* states;
  float* forks;

  [[nodiscard]] PL_DEV GlaSequences live() const {
    return {where.starts, parents, static_cast<int>(step_value(step, sequences))};
  }
  [[nodiscard]] PL_DEV int group() const { return heads / kv_heads; }
  [[nodiscard]] PL_DEV int64_t state_at(int64_t place, int kv_head) const {
    return (place * kv_heads + kv_head) * keys * values;
  }
  // The scores of a token, with the keys of its chunk.
  [[nodiscard]] PL_DEV int64_t scores_at(int64_t token, int head) const {
    return (token * heads + head) * kGlaRows;
  }
  [[nodiscard]] PL_DEV int64_t scores_stride() const { return int64_t{heads} * kGlaRows; }
};
template <class T>
struct GlaGrad {
  Gla<T> a;
  const T* d_o;
  T* d_q;
  T* d_k;
  T* d_v;
  T* d_gate;
  float* d_scores;
  float* d_q_of_states;
  float* d_k_of_states;
  T* d_states;
};

// A sequence's chunks have slots of their own wherever it begins: from starts[s] / 64 + s on.
PL_DEV int64_t first_slot(const int32_t* starts, int sequence) {
  return starts[sequence] / kGlaRows + sequence;
}

struct GlaChunk {
  int64_t slot = 0, token = 0;
  int64_t before = 0,
          behind = 0;  // places of the state that it starts from, and of the gradient of that behind it
  int rows = 0;        // 0: the slot has no chunk
  bool first = false, last = false;  // nothing stands before it; nothing goes on from it

  // Chunk `index` of a sequence.
  PL_DEV GlaChunk(const GlaSequences& in, int sequence, int index) {
    slot = first_slot(in.starts, sequence) + index;
    token = int64_t{in.starts[sequence]} + int64_t{index} * kGlaRows;
    const int64_t left = in.starts[sequence + 1] - token;
    rows = left > kGlaRows ? kGlaRows : left > 0 ? static_cast<int>(left) : 0;
    first = index == 0 && parent_of(in, sequence) < 0;
    last = left <= kGlaRows && !goes_on(in, sequence);
    // Without trees a chunk that is not last has the place that the next one starts from (gla_gpu_places).
    before = in.parents == nullptr ? slot - sequence - 1 : slot;
    behind = in.parents == nullptr ? slot - sequence : slot;
  }
  // The one that has the slot, if any.
  template <class T>
  PL_DEV GlaChunk(const Gla<T>& a, int64_t slot_) : GlaChunk(a.live(), slot_) {}
  PL_DEV GlaChunk(const GlaSequences& in, int64_t slot_) {
    const int32_t* const starts = in.starts;
    if (in.count == 0 || slot_ < first_slot(starts, 0)) return;
    int low = 0, high = in.count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (slot_ >= first_slot(starts, middle) ? low : high) = middle;
    }
    *this = GlaChunk(in, low, static_cast<int>(slot_ - first_slot(starts, low)));
  }
};

template <class T>
PL_DEV GlaMatrix<T> rows_of_values(const Gla<T>& a, const T* from, const GlaChunk& chunk, int heads, int head,
                                   int column0) {
  return {from + (chunk.token * heads + head) * a.value_dim + column0, int64_t{heads} * a.value_dim,
          chunk.rows, a.value_dim - column0, a.values_in_packs};
}
template <class T>
PL_DEV GlaMatrix<T> kept_rows_of_keys(const Gla<T>& a, const T* from, const GlaChunk& chunk, int heads,
                                      int head, int column0) {
  return {from + (chunk.token * heads + head) * a.keys + column0, int64_t{heads} * a.keys, chunk.rows,
          a.keys - column0, true};
}
// A state from a key and a column on.
template <class T>
PL_DEV GlaMatrix<T> part_of_state(const Gla<T>& a, const T* states, int64_t place, int kv_head, int key0,
                                  int column0) {
  return {states + a.state_at(place, kv_head) + int64_t{key0} * a.values + column0, a.values, a.keys - key0,
          a.values - column0, true};
}
// Scores, of which row i is that of a query.
template <class T>
PL_DEV GlaMatrix<T> all_scores(const Gla<T>& a, const GlaChunk& chunk, int head) {
  return {a.scores + a.scores_at(chunk.token, head), a.scores_stride(), chunk.rows, kGlaRows, true};
}

using GlaColumn = float[kGlaSubRows];

// A key of a chunk: what a lane of a warp has of the rows of a sub-chunk.
template <class T>
struct GlaKey {
  const Gla<T>& a;
  const GlaChunk& chunk;
  int kv_head, key;

  // `otherwise`: beyond the chunk's rows and the head's keys.
  template <class V>
  PL_DEV void load(GlaColumn& to, const V* rows, int heads, int head, int length, int sub,
                   float otherwise) const {
    const int64_t stride = int64_t{heads} * length;
    const int rows_left = key < a.key_dim ? chunk.rows - sub * kGlaSubRows : 0;
    const V* from = rows + (chunk.token + sub * kGlaSubRows) * stride + int64_t{head} * length + key;
    PL_UNROLL
    for (int r = 0; r < kGlaSubRows; ++r, from += stride)
      to[r] = r < rows_left ? gpu::to_float(*from) : otherwise;
  }
  PL_DEV void load_k(GlaColumn& to, int sub) const {
    load(to, a.k, a.kv_heads, kv_head, a.key_dim, sub, 0.0F);
  }
  PL_DEV void load_decays(GlaColumn& to, int sub) const {
    load(to, a.decays, a.kv_heads, kv_head, a.keys, sub, 1.0F);
  }
  PL_DEV void load_q(GlaColumn& to, int head, int sub) const {
    load(to, a.q, a.heads, head, a.key_dim, sub, 0.0F);
    PL_UNROLL
    for (int r = 0; r < kGlaSubRows; ++r) to[r] *= a.scale;
  }
};

PL_DEV float product_of(const GlaColumn& decays) {
  float product = 1;
  PL_UNROLL
  for (int r = 0; r < kGlaSubRows; ++r) product *= decays[r];
  return product;
}
// Products over the sub-chunks by key, one below the other: the product of those before a sub-chunk, and of
// those behind it.
struct GlaBeside {
  float before = 1, behind = 1;

  PL_DEV GlaBeside(const float* products, int sub) {
    PL_UNROLL
    for (int s = 0; s < kGlaSubs; ++s) {
      const float product = products[s * gpu::kWarpSize + static_cast<int>(threadIdx.x) % gpu::kWarpSize];
      if (s < sub) before *= product;
      if (s > sub) behind *= product;
    }
  }
};

// Tiles of a warp: 16 rows of 32 keys, a lane's key each.
template <class T>
inline constexpr int kGlaKeyRow = kGlaRow<T, gpu::kWarpSize>;

// A sub-chunk's keys to a tile, with the decays from their rows to those that `decay` has already passed; the
// sub-chunk's are passed when it returns.
template <class T>
PL_DEV void put_keys(T* tile, const GlaColumn& k, const GlaColumn& decays, float& decay) {
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpSize;
  PL_UNROLL
  for (int r = kGlaSubRows - 1; r >= 0; --r) {
    tile[r * kGlaKeyRow<T> + lane] = gpu::rounded<T>(k[r] * decay);
    decay *= decays[r];
  }
}
// The same of queries, with the decays up to their rows.
template <class T>
PL_DEV void put_queries(T* tile, const GlaColumn& q, const GlaColumn& decays, float& decay) {
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpSize;
  PL_UNROLL
  for (int r = 0; r < kGlaSubRows; ++r) {
    decay *= decays[r];
    tile[r * kGlaKeyRow<T> + lane] = gpu::rounded<T>(q[r] * decay);
  }
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
