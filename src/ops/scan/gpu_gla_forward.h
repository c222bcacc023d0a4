// Gated linear attention on the GPU, chunk by chunk. gla_prepare: what a chunk's rows decay by. gla_scores:
// what its queries see of its own keys. gla_walk: the states that chunks start from, each part of a head's on
// its own. gla_outputs: rows, from both. Include it only in gla_gpu.cu.
//
// Decays are products of factors that are at most 1, from the row of a key to that of a query: no gate
// overflows, and none loses digits. Within a sub-chunk of 16 rows every pair has its own, in f32; between two
// the products are of what has decayed up to the border, and from there on.
#pragma once

#include "ops/scan/gpu_gla.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

template <class T>
__global__ void __launch_bounds__(kGlaThreads) gla_prepare(Gla<T> a) {
  PL_SHARED(float, products, kGlaThreads);
  const GlaChunk chunk(a, blockIdx.x);
  if (chunk.rows == 0) return;
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpSize, sub = gpu::warp_of_block();
  const int kv_head = static_cast<int>(blockIdx.y), first = sub * kGlaSubRows;
  const GlaKey<T> at{a, chunk, kv_head, static_cast<int>(blockIdx.z) * gpu::kWarpSize + lane};
  GlaColumn decays;
  at.load(decays, a.gate, a.kv_heads, kv_head, a.key_dim, sub, 0.0F);
  PL_UNROLL
  for (int r = 0; r < kGlaSubRows; ++r)
    decays[r] = first + r < chunk.rows ? gla_decay(decays[r], a.normalizer, a.clamp_min) : 1.0F;
  const float product = product_of(decays);
  products[threadIdx.x] = product;
  __syncthreads();
  if (at.key >= a.keys) return;
  const GlaBeside beside(products, sub);
  const auto place = [&](int r, int heads, int head) {
    return ((chunk.token + first + r) * heads + head) * a.keys + at.key;
  };
  for (int head = kv_head * a.group(); head < (kv_head + 1) * a.group(); ++head) {
    GlaColumn q;
    at.load_q(q, head, sub);
    float decay = beside.before;
    PL_UNROLL
    for (int r = 0; r < kGlaSubRows; ++r) {
      decay *= decays[r];
      if (first + r < chunk.rows)
        a.queries_from_start[place(r, a.heads, head)] = gpu::rounded<T>(q[r] * decay);
    }
  }
  GlaColumn k;
  at.load_k(k, sub);
  float decay = beside.behind;
  PL_UNROLL
  for (int r = kGlaSubRows - 1; r >= 0; --r) {
    if (first + r < chunk.rows) {
      a.keys_to_end[place(r, a.kv_heads, kv_head)] = gpu::rounded<T>(k[r] * decay);
      a.decays[place(r, a.kv_heads, kv_head)] = decays[r];
    }
    decay *= decays[r];
  }
  if (sub == 0)
    a.chunk_decays[(chunk.slot * a.kv_heads + kv_head) * a.keys + at.key] = product * beside.behind;
}

// Columns of all keys, [32][kGlaColumnRow] for each sub-chunk: of a key, or of four rows at once.
inline constexpr int kGlaColumnRow = kGlaSubRows + 4;
inline constexpr int kGlaColumns = gpu::kWarpSize * kGlaColumnRow;
PL_DEV void put_column(float* columns, const GlaColumn& column) {
  float* const to = columns + static_cast<int>(threadIdx.x) % gpu::kWarpSize * kGlaColumnRow;
  PL_UNROLL
  for (int r = 0; r < kGlaSubRows; r += 4)
    gpu::store_pack(to + r, gpu::Pack<float>{{column[r], column[r + 1], column[r + 2], column[r + 3]}});
}
PL_DEV void get_column(const float* columns, GlaColumn& column) {
  const float* const from = columns + static_cast<int>(threadIdx.x) % gpu::kWarpSize * kGlaColumnRow;
  PL_UNROLL
  for (int r = 0; r < kGlaSubRows; r += 4) {
    const gpu::Pack<float> rows = gpu::load_pack(from + r);
    PL_UNROLL
    for (int c = 0; c < 4; ++c) column[r + c] = rows.v[c];
  }
}

// A block's shared memory in gla_scores: columns of all sub-chunks, and of each warp two tiles.
template <class T>
struct GlaScoreSpace {
  static constexpr int kTile = kGlaSubRows * kGlaKeyRow<T>;
  static constexpr int kTilePacks = 2 * kGlaSubs * kTile / kGlaPack<T>;
  static constexpr int kColumnPacks = 3 * kGlaSubs * kGlaColumns / 4;

  float* q;
  float* k;
  float* decays;
  T* q_tile;
  T* k_tile;

  PL_DEV GlaScoreSpace(gpu::Pack<float>* columns, gpu::Pack<T>* tiles, int sub)
      : q(reinterpret_cast<float*>(columns)),
        k(q + kGlaSubs * kGlaColumns),
        decays(k + kGlaSubs * kGlaColumns),
        q_tile(reinterpret_cast<T*>(tiles) + 2 * sub * kTile),
        k_tile(q_tile + kTile) {}
};

// Adds to a sub-chunk's scores what 32 keys give: in sums[i] the one of query i and key lane % 16, of the
// half of them that is lane / 16.
template <class T>
PL_DEV void add_own_scores(GlaColumn& sums, const GlaScoreSpace<T>& space, int sub) {
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpSize, row = lane % kGlaSubRows;
  const int at = sub * kGlaColumns + lane / kGlaSubRows * kGlaSubRows * kGlaColumnRow;
  for (int key = 0; key < kGlaSubRows; ++key) {
    const int column = at + key * kGlaColumnRow;
    const float k_row = space.k[column + row];
    float decayed = 0;
    PL_UNROLL
    for (int i = 0; i < kGlaSubRows; i += 4) {
      const gpu::Pack<float> q = gpu::load_pack(space.q + column + i);
      const gpu::Pack<float> decay = gpu::load_pack(space.decays + column + i);
      PL_UNROLL
      for (int c = 0; c < 4; ++c) {
        decayed = i + c == row ? k_row : decayed * decay.v[c];
        sums[i + c] = gpu::fma(q.v[c], decayed, sums[i + c]);
      }
    }
  }
}

using GlaScores = float[kGlaSubs - 1][kGlaSubRows / 8][4];

// Adds to the scores of a warp's queries, with the keys of the sub-chunks before theirs, what 32 keys give.
template <class T>
PL_DEV void add_scores_before(GlaScores& sums, const GlaScoreSpace<T>& space, int sub) {
  constexpr int kRow = kGlaKeyRow<T>;
  GlaColumn rows, decays;
  get_column(space.q + sub * kGlaColumns, rows);
  get_column(space.decays + sub * kGlaColumns, decays);
  float decay = 1;
  put_queries(space.q_tile, rows, decays, decay);
  decay = 1;
  PL_UNROLL
  for (int s = kGlaSubs - 2; s >= 0; --s) {
    if (s >= sub) continue;
    get_column(space.k + s * kGlaColumns, rows);
    get_column(space.decays + s * kGlaColumns, decays);
    put_keys(space.k_tile, rows, decays, decay);
    __syncwarp();
    multiply_part<T, gpu::kWarpSize>(sums[s], GlaLeft<T, false, kRow>{space.q_tile, 0},
                                     GlaRight<T, true, kRow>{space.k_tile});
    __syncwarp();
  }
}

// Writes the scores of a chunk's `rows`.
template <class T>
PL_DEV void write_scores(T* to, int64_t stride, int rows, int sub, const GlaScores& before,
                         const GlaColumn& own) {
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpSize, row = sub * kGlaSubRows;
  const float zeros[kGlaSubRows / 8][4] = {};
  PL_UNROLL
  for (int s = 0; s < kGlaSubs - 1; ++s) {
    if (s < sub) put_sums(before[s], to + s * kGlaSubRows, stride, row, rows, kGlaSubRows, true);
    if (s + 1 > sub) put_sums(zeros, to + (s + 1) * kGlaSubRows, stride, row, rows, kGlaSubRows, true);
  }
  PL_UNROLL
  for (int i = 0; i < kGlaSubRows; ++i) {
    const float sum = own[i] + __shfl_xor_sync(gpu::kAll, own[i], kGlaSubRows);
    if (lane / kGlaSubRows == i % 2 && row + i < rows)
      to[(row + i) * stride + row + lane % kGlaSubRows] = gpu::rounded<T>(sum);
  }
}

// Scores of a chunk and a query head, zeros above the diagonal.
template <class T>
__global__ void __launch_bounds__(kGlaThreads, 3) gla_scores(Gla<T> a) {
  using Space = GlaScoreSpace<T>;
  PL_SHARED(gpu::Pack<float>, columns, Space::kColumnPacks);
  PL_SHARED(gpu::Pack<T>, tiles, Space::kTilePacks);
  const GlaChunk chunk(a, blockIdx.x);
  if (chunk.rows == 0) return;
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpSize, sub = gpu::warp_of_block();
  const int head = static_cast<int>(blockIdx.y);
  const Space space(columns, tiles, sub);
  GlaScores before = {};
  GlaColumn own = {};
  for (int key0 = 0; key0 < a.key_dim; key0 += gpu::kWarpSize) {
    const GlaKey<T> at{a, chunk, head / a.group(), key0 + lane};
    GlaColumn column;
    at.load_q(column, head, sub);
    put_column(space.q + sub * kGlaColumns, column);
    at.load_k(column, sub);
    put_column(space.k + sub * kGlaColumns, column);
    at.load_decays(column, sub);
    put_column(space.decays + sub * kGlaColumns, column);
    __syncthreads();
    if (sub > 0) add_scores_before(before, space, sub);
    add_own_scores(own, space, sub);
    __syncthreads();
  }
  write_scores(a.scores + a.scores_at(chunk.token, head), a.scores_stride(), chunk.rows, sub, before, own);
}

// Adds a chunk of a walk over a sequence to the state: forward k^T v, backward q^T d_o of each query head of
// the group.
template <class T, bool kBack>
struct GlaWalk {
  const T* values;  // v, d_o
  T* states;        // states, d_states
};

// The part of a head's state that a block of a walk has: 64 keys and 64 columns.
using GlaStateTile = float[kGlaTile / 8][4];
PL_DEV void scale_keys(GlaStateTile& state, const float (&decays)[2]) {
  PL_UNROLL
  for (int j = 0; j < kGlaTile / 8; ++j) {
    PL_UNROLL
    for (int r = 0; r < 4; ++r) state[j][r] *= decays[r / 2];
  }
}

// A block's part of a walk over chunks.
template <class T, bool kBack>
struct GlaWalker {
  using Product = GlaProduct<T, true, false, kGlaTile>;
  static constexpr int kHalves = kGlaRows / kGlaDepth;

  const Gla<T>& a;
  const GlaWalk<T, kBack>& walk;
  int kv_head = static_cast<int>(blockIdx.x) % a.kv_heads;
  int key0 = static_cast<int>(blockIdx.y) * kGlaTile, column0 = static_cast<int>(blockIdx.z) * kGlaTile;
  int row = gpu::warp_of_block() * 16;
  int heads = kBack ? a.group() : 1, all_heads = kBack ? a.heads : a.kv_heads;
  int steps_of_chunk = heads * kHalves;

  PL_DEV void store(const GlaStateTile& state, const GlaChunk& chunk) const {
    put_sums(state,
             walk.states + a.state_at(kBack ? chunk.behind : chunk.before, kv_head) +
                 int64_t{key0} * a.values + column0,
             a.values, row, a.keys - key0, a.values - column0, true);
  }
  PL_DEV void bring(const GlaChunk& chunk, int step, T* stage) const {
    const int head = kv_head * heads + step % steps_of_chunk / kHalves;
    Product::fetch(
        stage,
        kept_rows_of_keys(a, kBack ? a.queries_from_start : a.keys_to_end, chunk, all_heads, head, key0),
        rows_of_values(a, walk.values, chunk, all_heads, head, column0), step % kHalves * kGlaDepth);
  }
  PL_DEV void load_decays(float (&decays)[2], const GlaChunk& chunk) const {
    const float* const from = a.chunk_decays + (chunk.slot * a.kv_heads + kv_head) * a.keys + key0;
    PL_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int key = row + static_cast<int>(threadIdx.x) % gpu::kWarpSize / 4 + h * 8;
      decays[h] = key0 + key < a.keys ? from[key] : 1.0F;
    }
  }
};

// The states that chunks start from, or the gradients of those behind them, but the zeros of the first or
// last: for 64 keys and 64 columns of a head.
template <class T, bool kBack>
__global__ void __launch_bounds__(kGlaThreads) gla_walk(Gla<T> a, GlaWalk<T, kBack> walk) {
  using Product = typename GlaWalker<T, kBack>::Product;
  PL_SHARED(gpu::Pack<T>, packs, Product::kRingValues / kGlaPack<T>);
  const GlaSequences in = a.live();
  const int sequence = static_cast<int>(blockIdx.x) / a.kv_heads;
  if (sequence >= in.count) return;
  const int chunks = in.chunks(sequence);
  if (chunks < 2) return;
  const GlaWalker<T, kBack> part{a, walk};
  const auto chunk_at = [&](int index) { return GlaChunk(in, sequence, kBack ? chunks - 1 - index : index); };
  GlaStateTile state = {};
  float decays[2];  // of the chunk that comes next
  const auto bring = [&](int step, T* stage) {
    part.bring(chunk_at(step / part.steps_of_chunk), step, stage);
  };
  const auto before = [&](int step) {
    if (step % part.steps_of_chunk != 0) return;
    const int index = step / part.steps_of_chunk;
    if (index > 0) {
      part.store(state, chunk_at(index));
      scale_keys(state, decays);
    }
    if (index + 1 < chunks - 1) part.load_decays(decays, chunk_at(index + 1));
  };
  Product::add(state, reinterpret_cast<T*>(packs), (chunks - 1) * part.steps_of_chunk, bring, before);
  part.store(state, chunk_at(chunks - 1));
}

// 64 columns of a chunk's rows and a query head.
template <class T>
__global__ void __launch_bounds__(kGlaThreads) gla_outputs(Gla<T> a, T* o) {
  using Product = GlaProduct<T, false, false, kGlaTile>;
  PL_SHARED(gpu::Pack<T>, packs, Product::kRingValues / kGlaPack<T>);
  const GlaChunk chunk(a, blockIdx.x);
  if (chunk.rows == 0) return;
  const int head = static_cast<int>(blockIdx.y), kv_head = head / a.group();
  const int column0 = static_cast<int>(blockIdx.z) * kGlaTile;
  const int of_state = chunk.first ? 0 : (a.keys + kGlaDepth - 1) / kGlaDepth;
  const int of_rows = (chunk.rows + kGlaDepth - 1) / kGlaDepth;
  float sums[kGlaTile / 8][4] = {};
  Product::add(sums, reinterpret_cast<T*>(packs), of_state + of_rows, [&](int step, T* stage) {
    if (step < of_state)
      Product::fetch(stage, kept_rows_of_keys(a, a.queries_from_start, chunk, a.heads, head, 0),
                     part_of_state(a, a.states, chunk.before, kv_head, 0, column0), step * kGlaDepth);
    else
      Product::fetch(stage, all_scores(a, chunk, head),
                     rows_of_values(a, a.v, chunk, a.kv_heads, kv_head, column0),
                     (step - of_state) * kGlaDepth);
  });
  put_sums(sums, o + (chunk.token * a.heads + head) * a.value_dim + column0, int64_t{a.heads} * a.value_dim,
           gpu::warp_of_block() * 16, chunk.rows, a.value_dim - column0, a.values_in_packs);
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
