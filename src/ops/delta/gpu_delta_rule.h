// Helpers that the kernels of the gated delta rule on the GPU share: operands, and products of tiles. All
// arithmetic is f32, by plain products: what 16 bits cut off would grow over a chunk's 64 rows. Include it
// only in delta_rule_gpu.cu.
#pragma once

#include "ops/delta/delta_rule_gpu_scratch.h"
#include "ops/gpu_step.h"
#include "ops/scan/gpu_gla.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

inline constexpr int kDeltaThreads = 128;
inline constexpr int kDeltaRows = static_cast<int>(kDeltaChunk);
inline constexpr int kDeltaColumns = 64;      // of a block's tile, but for those that walk
inline constexpr int kDeltaWalkColumns = 32;  // of a state, that a block carries from chunk to chunk
inline constexpr int kDeltaDepth = 16;        // of what is summed over, that is brought at a time
static_assert(kDeltaRows == kGlaRows);        // chunks and slots are those of gpu_gla.h

// States in their places; of a sequence in stretches, with so many between these.
struct DeltaStates {
  float* values;
  int between;
};
// The workspace that the chunks' kernels hand on (ops/delta/delta_rule_gpu_scratch.h).
struct DeltaMade {
  float* q_factors;
  float* k_factors;
  float* high;
  float* low;
  float* from_start;
  float* to_end;
  float* inverses;
  float* scores;
  float* u;
  DeltaStates states;
};
template <class T>
struct Delta {
  const T* q;
  const T* k;
  const T* v;
  const float* g;
  const float* beta;
  GpuSequences where;
  const int32_t* parents;  // of segments of trees; null: sequences are apart
  const double* step;
  StepValue sequences;  // how many are live
  int heads, key_heads, key_dim, value_dim;
  int slots;
  float eps;
  DeltaMade made;
  int stretch;          // chunks of one, or more than there are
  int first_chunk = 0;  // of the stretch at hand

  [[nodiscard]] PL_DEV GlaSequences live() const {
    return {where.starts, parents, static_cast<int>(step_value(step, sequences))};
  }
  [[nodiscard]] PL_DEV GlaChunk chunk(int64_t slot) const { return {live(), first_chunk + slot}; }
  [[nodiscard]] PL_DEV int key_head(int head) const { return head / (heads / key_heads); }
  [[nodiscard]] PL_DEV int64_t gate_at(int64_t token, int head) const { return token * heads + head; }
  [[nodiscard]] PL_DEV int64_t key_at(int64_t token, int of) const {
    return (token * key_heads + of) * key_dim;
  }
  [[nodiscard]] PL_DEV int64_t value_at(int64_t token, int head) const {
    return (token * heads + head) * value_dim;
  }
  // Places in parts of the workspace that have the rows of a stretch.
  [[nodiscard]] PL_DEV int64_t first_token() const { return int64_t{first_chunk} * kDeltaRows; }
  [[nodiscard]] PL_DEV int64_t made_key_at(int64_t token, int of) const {
    return key_at(token - first_token(), of);
  }
  [[nodiscard]] PL_DEV int64_t made_value_at(int64_t token, int head) const {
    return value_at(token - first_token(), head);
  }
  [[nodiscard]] PL_DEV int64_t row_at(int64_t token, int head) const {
    return ((token - first_token()) * heads + head) * kDeltaRows;
  }
  // Those between stretches stand behind those within one.
  [[nodiscard]] PL_DEV float* state_at(const DeltaStates& states, int64_t place, int head) const {
    const int next = static_cast<int>(place) + 1;  // the chunk that begins with it, but in trees
    int64_t at = place - first_chunk;
    if (next % stretch == 0) at = stretch - 1 + (next / stretch - 1) % states.between;
    return states.values + (at * heads + head) * key_dim * value_dim;
  }
};
template <class T>
struct DeltaGrad {
  Delta<T> a;
  const T* d_o;
  T* d_q;
  T* d_k;
  T* d_v;
  float* d_g;
  float* d_beta_out;
  float* d_r;
  DeltaStates d_states;
  float* d_queries;
  float* d_keys;
  float* d_sums;
  float* d_beta;
  float* row_parts;
  float* state_parts;
  float* d_q_rows;
  float* d_k_rows;
};

// e^x for x <= 0, and 0 where that is below the smallest normal number.
PL_DEV float delta_decay(float x) {
  if (x > 0) x = 0;
  return x < -87.0F ? 0.0F : gpu::exp(x);
}

// A tile's sums: a thread has four rows and an eighth of the columns.
template <int kWidth>
struct DeltaTile {
  static constexpr int kOwn = kWidth / 8;
  static constexpr int kLeftRow = kDeltaRows + 4, kRightRow = kWidth + 4;
  static constexpr int kSpace = kDeltaDepth * (kLeftRow + kRightRow);  // floats of shared memory
  float sums[4][kOwn] = {};

  static PL_DEV int row(int i) { return static_cast<int>(threadIdx.x) / 8 * 4 + i; }
  static PL_DEV int column(int j) { return static_cast<int>(threadIdx.x) % 8 * kOwn + j; }

  // sums += left right over `depth`: left(row, d) and right(d, column) give values. The order in which
  // neighbouring threads ask: kByDepth, one place of the depth after the other; else rows, or columns.
  template <bool kLeftByDepth, bool kRightByDepth, class Left, class Right>
  PL_DEV void add(float* space, int depth, const Left& left, const Right& right) {
    float* const lefts = space;
    float* const rights = space + kDeltaDepth * kLeftRow;
    const int thread = static_cast<int>(threadIdx.x);
    for (int first = 0; first < depth; first += kDeltaDepth) {
      __syncthreads();  // everybody has done the step before
      PL_UNROLL
      for (int i = 0; i < kDeltaRows * kDeltaDepth / kDeltaThreads; ++i) {
        const int e = i * kDeltaThreads + thread;
        const int d = kLeftByDepth ? e % kDeltaDepth : e / kDeltaRows;
        const int r = kLeftByDepth ? e / kDeltaDepth : e % kDeltaRows;
        lefts[d * kLeftRow + r] = first + d < depth ? left(r, first + d) : 0.0F;
      }
      PL_UNROLL
      for (int i = 0; i < kWidth * kDeltaDepth / kDeltaThreads; ++i) {
        const int e = i * kDeltaThreads + thread;
        const int d = kRightByDepth ? e % kDeltaDepth : e / kWidth;
        const int c = kRightByDepth ? e / kDeltaDepth : e % kWidth;
        rights[d * kRightRow + c] = first + d < depth ? right(first + d, c) : 0.0F;
      }
      __syncthreads();  // the step is there
      PL_UNROLL_TWO
      for (int d = 0; d < kDeltaDepth; ++d) add_step(lefts + d * kLeftRow, rights + d * kRightRow);
    }
  }

  // visit(row, column, sum) for all of a thread's.
  template <class Visit>
  PL_DEV void each(Visit visit) const {
    PL_UNROLL
    for (int i = 0; i < 4; ++i) {
      PL_UNROLL
      for (int j = 0; j < kOwn; ++j) visit(row(i), column(j), sums[i][j]);
    }
  }

 private:
  PL_DEV void add_step(const float* left, const float* right) {
    const gpu::Pack<float> rows = gpu::load_pack(left + row(0));
    float columns[kOwn];
    PL_UNROLL
    for (int j = 0; j < kOwn; j += 4) {
      const gpu::Pack<float> four = gpu::load_pack(right + column(j));
      PL_UNROLL
      for (int c = 0; c < 4; ++c) columns[j + c] = four.v[c];
    }
    PL_UNROLL
    for (int i = 0; i < 4; ++i) {
      PL_UNROLL
      for (int j = 0; j < kOwn; ++j) sums[i][j] = gpu::fma(rows.v[i], columns[j], sums[i][j]);
    }
  }
};
using DeltaSquare = DeltaTile<kDeltaColumns>;
using DeltaWalkTile = DeltaTile<kDeltaWalkColumns>;
// PL_SHARED for what packs are read from.
#define PL_SHARED_TILES(name, floats)                      \
  PL_SHARED(gpu::Pack<float>, name##_packs, (floats) / 4); \
  float* const name = reinterpret_cast<float*>(name##_packs)

// A chunk of a value head, as products ask for it; rows beyond the chunk's are zero.
template <class T>
struct DeltaChunkOf {
  const Delta<T>& a;
  const GlaChunk& chunk;
  int head, key_head = a.key_head(head);

  [[nodiscard]] PL_DEV bool has(int row) const { return row < chunk.rows; }
  // An element of a row of unit length; of q with its other factor.
  [[nodiscard]] PL_DEV float unit(const T* rows, const float* factors, int row, int key) const {
    if (!has(row) || key >= a.key_dim) return 0.0F;
    const int64_t token = chunk.token + row;
    return gpu::to_float(rows[a.key_at(token, key_head) + key]) * factors[token * a.key_heads + key_head];
  }
  [[nodiscard]] PL_DEV float q(int row, int key) const { return unit(a.q, a.made.q_factors, row, key); }
  [[nodiscard]] PL_DEV float k(int row, int key) const { return unit(a.k, a.made.k_factors, row, key); }
  [[nodiscard]] PL_DEV float value(const T* rows, int row, int column) const {
    if (!has(row) || column >= a.value_dim) return 0.0F;
    return gpu::to_float(rows[a.value_at(chunk.token + row, head) + column]);
  }
  // An element of u or of d_r.
  [[nodiscard]] PL_DEV float made_value(const float* rows, int row, int column) const {
    if (!has(row) || column >= a.value_dim) return 0.0F;
    return rows[a.made_value_at(chunk.token + row, head) + column];
  }
  [[nodiscard]] PL_DEV float gate(const float* gates, int row) const {
    return has(row) ? gates[a.gate_at(chunk.token + row, head)] : 0.0F;
  }
  // Element of a matrix of the chunk's rows.
  [[nodiscard]] PL_DEV float element(const float* matrix, int row, int column) const {
    return has(row) ? matrix[a.row_at(chunk.token + row, head) + column] : 0.0F;
  }
  // e^(b_i - b_j) for i >= j of the chunk's rows.
  [[nodiscard]] PL_DEV float between(int i, int j) const {
    const int64_t at = a.gate_at(chunk.token + i, head), from = a.gate_at(chunk.token + j, head);
    return delta_decay((a.made.high[at] - a.made.high[from]) + (a.made.low[at] - a.made.low[from]));
  }
  // The decay over the whole chunk.
  [[nodiscard]] PL_DEV float whole() const { return gate(a.made.from_start, chunk.rows - 1); }
  [[nodiscard]] PL_DEV float state(const DeltaStates& states, int64_t place, int key, int column) const {
    if (key >= a.key_dim || column >= a.value_dim) return 0.0F;
    return a.state_at(states, place, head)[int64_t{key} * a.value_dim + column];
  }
};

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
