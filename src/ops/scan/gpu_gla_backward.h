// The gradient of gated linear attention on the GPU, after a recomputed forward (gla_prepare, gla_scores,
// gla_walk) and a walk back. gla_grad_scores: gradients of the scores. gla_grad_values: d_v. gla_grad_states:
// what d_q and d_k have from the states. gla_grad_keys: d_q, d_k and d_gate, of 32 keys. Include it only in
// gla_gpu.cu.
#pragma once

#include "ops/scan/gpu_gla_forward.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

// d_o v^T of a chunk and a query head.
template <class T>
__global__ void __launch_bounds__(kGlaThreads) gla_grad_scores(GlaGrad<T> g) {
  using Product = GlaProduct<T, false, true, kGlaTile>;
  PL_SHARED(gpu::Pack<T>, packs, Product::kRingValues / kGlaPack<T>);
  const Gla<T>& a = g.a;
  const GlaChunk chunk(a, blockIdx.x);
  if (chunk.rows == 0) return;
  const int head = static_cast<int>(blockIdx.y);
  float sums[kGlaTile / 8][4] = {};
  Product::add(
      sums, reinterpret_cast<T*>(packs), (a.value_dim + kGlaDepth - 1) / kGlaDepth, [&](int step, T* stage) {
        Product::fetch(stage, rows_of_values(a, g.d_o, chunk, a.heads, head, 0),
                       rows_of_values(a, a.v, chunk, a.kv_heads, head / a.group(), 0), step * kGlaDepth);
      });
  put_sums(sums, g.d_scores + a.scores_at(chunk.token, head), a.scores_stride(), gpu::warp_of_block() * 16,
           chunk.rows, kGlaRows, true);
}

// 64 columns of a chunk's rows: from the state's gradient behind it, and from its own queries.
template <class T>
__global__ void __launch_bounds__(kGlaThreads) gla_grad_values(GlaGrad<T> g) {
  using OfState = GlaProduct<T, false, false, kGlaTile>;
  using OfRows = GlaProduct<T, true, false, kGlaTile>;
  constexpr int kMostValues =
      OfState::kRingValues > OfRows::kRingValues ? OfState::kRingValues : OfRows::kRingValues;
  PL_SHARED(gpu::Pack<T>, packs, kMostValues / kGlaPack<T>);
  T* const ring = reinterpret_cast<T*>(packs);
  const Gla<T>& a = g.a;
  const GlaChunk chunk(a, blockIdx.x);
  if (chunk.rows == 0) return;
  const int kv_head = static_cast<int>(blockIdx.y), column0 = static_cast<int>(blockIdx.z) * kGlaTile;
  float sums[kGlaTile / 8][4] = {};
  if (!chunk.last)
    OfState::add(sums, ring, (a.keys + kGlaDepth - 1) / kGlaDepth, [&](int step, T* stage) {
      OfState::fetch(stage, kept_rows_of_keys(a, a.keys_to_end, chunk, a.kv_heads, kv_head, 0),
                     part_of_state(a, g.d_states, chunk.behind, kv_head, 0, column0), step * kGlaDepth);
    });
  const int steps = (chunk.rows + kGlaDepth - 1) / kGlaDepth;
  OfRows::add(sums, ring, a.group() * steps, [&](int step, T* stage) {
    const int head = kv_head * a.group() + step / steps;
    OfRows::fetch(stage, all_scores(a, chunk, head), rows_of_values(a, g.d_o, chunk, a.heads, head, column0),
                  step % steps * kGlaDepth);
  });
  put_sums(sums, g.d_v + (chunk.token * a.kv_heads + kv_head) * a.value_dim + column0,
           int64_t{a.kv_heads} * a.value_dim, gpu::warp_of_block() * 16, chunk.rows, a.value_dim - column0,
           a.values_in_packs);
}

// 64 keys of what d_q has by way of the state that a chunk starts from, or d_k by way of the one behind it:
// d_o S^T and v d_S^T, without what decays in the chunk.
template <class T>
__global__ void __launch_bounds__(kGlaThreads) gla_grad_states(GlaGrad<T> g) {
  using Product = GlaProduct<T, false, true, kGlaTile>;
  PL_SHARED(gpu::Pack<T>, packs, Product::kRingValues / kGlaPack<T>);
  const Gla<T>& a = g.a;
  const GlaChunk chunk(a, blockIdx.x);
  const bool of_queries = static_cast<int>(blockIdx.y) < a.heads;
  if (chunk.rows == 0 || (of_queries ? chunk.first : chunk.last)) return;
  const int heads = of_queries ? a.heads : a.kv_heads;
  const int head = static_cast<int>(blockIdx.y) - (of_queries ? 0 : a.heads);
  const int key0 = static_cast<int>(blockIdx.z) * kGlaTile;
  const GlaMatrix<T> left = rows_of_values(a, of_queries ? g.d_o : a.v, chunk, heads, head, 0);
  const GlaMatrix<T> right =
      part_of_state(a, of_queries ? a.states : g.d_states, of_queries ? chunk.before : chunk.behind,
                    of_queries ? head / a.group() : head, key0, 0);
  float sums[kGlaTile / 8][4] = {};
  Product::add(sums, reinterpret_cast<T*>(packs), (a.value_dim + kGlaDepth - 1) / kGlaDepth,
               [&](int step, T* stage) { Product::fetch(stage, left, right, step * kGlaDepth); });
  put_sums(sums,
           (of_queries ? g.d_q_of_states : g.d_k_of_states) + (chunk.token * heads + head) * a.keys + key0,
           int64_t{heads} * a.keys, gpu::warp_of_block() * 16, chunk.rows, a.keys - key0, true);
}

// A block's shared memory in gla_grad_keys. Columns lie as [64 rows][32 keys].
template <class T>
struct GlaKeySpace {
  static constexpr int kBlock = kGlaSubRows * kGlaSubRows, kBlocks = kGlaSubs * (kGlaSubs + 1) / 2;
  // 16 rows of 32 keys: with spread rows of T, or in f32.
  static constexpr int kTile =
      sizeof(T) == 2 ? 2 * kGlaSubRows * gpu::kWarpSize : kGlaSubRows * kGlaKeyRow<T>;
  static constexpr int kColumns = kGlaRows * gpu::kWarpSize;
  static constexpr int kSums = gpu::kWarpSize * (3 * kGlaSubs + kBlocks - kGlaSubs + 1);
  static constexpr int kFloats = 3 * kColumns + kBlocks * kBlock + kSums;
  static_assert(kTile >= kGlaSubRows * kGlaKeyRow<T> &&
                kTile * sizeof(T) >= kGlaSubRows * gpu::kWarpSize * sizeof(float));

  float* q;
  float* k;
  float* decays;
  float* d_scores;  // the blocks on and below the diagonal, [16][16] each
  // [sub-chunk][32]: products of its decays; what d_q and d_k by way of the states make of the gate's
  // gradient
  float* products;
  float* of_queries;
  float* of_keys;
  float* of_pairs;   // [pair of sub-chunks][32]: the same by way of the scores between the two
  float* of_states;  // [32]: of the states before and behind the chunk
  T* tile;           // of each warp

  PL_DEV GlaKeySpace(gpu::Pack<float>* floats, gpu::Pack<T>* tiles, int sub)
      : q(reinterpret_cast<float*>(floats)),
        k(q + kColumns),
        decays(k + kColumns),
        d_scores(decays + kColumns),
        products(d_scores + kBlocks * kBlock),
        of_queries(products + kGlaThreads),
        of_keys(of_queries + kGlaThreads),
        of_pairs(of_keys + kGlaThreads),
        of_states(of_pairs + (kBlocks - kGlaSubs) * gpu::kWarpSize),
        tile(reinterpret_cast<T*>(tiles) + sub * kTile) {}
  [[nodiscard]] PL_DEV float* block(int queries, int keys) const {
    return d_scores + (queries * (queries + 1) / 2 + keys) * kBlock;
  }
  [[nodiscard]] PL_DEV float& of_pair(int queries, int keys, int lane) const {
    return of_pairs[(queries * (queries - 1) / 2 + keys) * gpu::kWarpSize + lane];
  }
};

PL_DEV void put_rows_of_key(float* rows, const GlaColumn& column, int sub) {
  PL_UNROLL
  for (int r = 0; r < kGlaSubRows; ++r)
    rows[(sub * kGlaSubRows + r) * gpu::kWarpSize + static_cast<int>(threadIdx.x) % gpu::kWarpSize] =
        column[r];
}
PL_DEV void get_rows_of_key(const float* rows, GlaColumn& column, int sub) {
  PL_UNROLL
  for (int r = 0; r < kGlaSubRows; ++r)
    column[r] =
        rows[(sub * kGlaSubRows + r) * gpu::kWarpSize + static_cast<int>(threadIdx.x) % gpu::kWarpSize];
}

// A warp's sums [16, 32] to a column for each lane.
PL_DEV void hand_over(const float (&sums)[gpu::kWarpSize / 8][4], float* space, GlaColumn& column) {
  put_sums(sums, space, gpu::kWarpSize, 0, kGlaSubRows, gpu::kWarpSize, true);
  __syncwarp();
  get_rows_of_key(space, column, 0);
  __syncwarp();
}

template <class T>
PL_DEV void bring_d_scores(const GlaGrad<T>& g, const GlaChunk& chunk, int head,
                           const GlaKeySpace<T>& space) {
  constexpr int kPacks = GlaKeySpace<T>::kBlock / 4;  // of a block
  const float* const from = g.d_scores + g.a.scores_at(chunk.token, head);
  const int half = static_cast<int>(threadIdx.x) / kPacks, pack = static_cast<int>(threadIdx.x) % kPacks;
  const int row = pack / (kGlaSubRows / 4), column = pack % (kGlaSubRows / 4) * 4;
  PL_UNROLL
  for (int i = 0; i < kGlaSubs; ++i) {
    const float* const row_of = from + (i * kGlaSubRows + row) * g.a.scores_stride() + column;
    const bool live = i * kGlaSubRows + row < chunk.rows;
    for (int j = half; j <= i; j += kGlaThreads / kPacks)
      gpu::store_pack(space.block(i, j) + pack * 4,
                      live ? gpu::load_pack(row_of + j * kGlaSubRows) : gpu::Pack<float>{});
  }
}

// d_q of a warp's rows: `part` is what they have by way of keys up to a border, from which on they decay by
// `decay` and their own decays. Returns its share of the gate's gradient there.
PL_DEV float add_query_part(GlaColumn& d_q, const GlaColumn& q, const GlaColumn& part,
                            const GlaColumn& decays, float decay) {
  float sum = 0;
  PL_UNROLL
  for (int r = 0; r < kGlaSubRows; ++r) {
    decay *= decays[r];
    const float d = part[r] * decay;
    d_q[r] += d;
    sum = gpu::fma(q[r], d, sum);
  }
  return sum;
}
// By way of the state that the chunk starts from, and of the sub-chunks before the warp's.
template <class T>
PL_DEV void add_queries_across(const GlaGrad<T>& g, const GlaKey<T>& at, int head, int sub,
                               const GlaKeySpace<T>& space, const GlaColumn& q, GlaColumn& d_q) {
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpSize;
  GlaColumn part, decays;
  get_rows_of_key(space.decays, decays, sub);
  if (!at.chunk.first) {
    at.load(part, g.d_q_of_states, at.a.heads, head, at.a.keys, sub, 0.0F);
    const GlaBeside beside(space.products, sub);
    space.of_queries[threadIdx.x] += add_query_part(d_q, q, part, decays, beside.before);
  }
  float decay = 1;
  for (int s = sub - 1; s >= 0; --s) {
    GlaColumn k, decays_there;
    get_rows_of_key(space.k, k, s);
    get_rows_of_key(space.decays, decays_there, s);
    put_keys(space.tile, k, decays_there, decay);
    __syncwarp();
    float sums[gpu::kWarpSize / 8][4] = {};
    multiply_part<T, kGlaSubRows>(sums, GlaRoundedLeft<T, false, kGlaSubRows>{space.block(sub, s)},
                                  GlaRight<T, false, kGlaKeyRow<T>>{space.tile});
    __syncwarp();
    hand_over(sums, reinterpret_cast<float*>(space.tile), part);
    space.of_pair(sub, s, lane) += add_query_part(d_q, q, part, decays, 1.0F);
  }
}
// d_k of a warp's rows by way of the sub-chunks behind it, without what decays in its own.
template <class T>
PL_DEV void add_keys_across(float (&d_k)[gpu::kWarpSize / 8][4], int sub, const GlaKeySpace<T>& space) {
  float decay = 1;
  for (int s = sub + 1; s < kGlaSubs; ++s) {
    GlaColumn q, decays;
    get_rows_of_key(space.q, q, s);
    get_rows_of_key(space.decays, decays, s);
    put_queries(space.tile, q, decays, decay);
    __syncwarp();
    multiply_part<T, kGlaSubRows>(d_k, GlaRoundedLeft<T, true, kGlaSubRows>{space.block(s, sub)},
                                  GlaRight<T, false, kGlaKeyRow<T>>{space.tile});
    __syncwarp();
  }
}
// Both within the warp's sub-chunk: every pair by its own decay.
PL_DEV void add_grads_within(GlaColumn& d_q, GlaColumn& d_k, const GlaColumn& q, const GlaColumn& k,
                             const GlaColumn& decays, const float* d_scores) {
  PL_UNROLL
  for (int i = 0; i < kGlaSubRows; ++i) {
    float decay = 1;
    PL_UNROLL
    for (int j0 = i / 4 * 4; j0 >= 0; j0 -= 4) {
      const gpu::Pack<float> four = gpu::load_pack(d_scores + i * kGlaSubRows + j0);
      PL_UNROLL
      for (int c = 3; c >= 0; --c) {
        const int j = j0 + c;
        if (j > i) continue;
        const float d = four.v[c] * decay;
        d_q[i] = gpu::fma(d, k[j], d_q[i]);
        d_k[j] = gpu::fma(d, q[i], d_k[j]);
        decay *= decays[j];
      }
    }
  }
}

template <class T>
PL_DEV void write_keys(T* to, const GlaKey<T>& at, int heads, int head, int sub, const GlaColumn& values,
                       float factor) {
  const int64_t stride = int64_t{heads} * at.a.key_dim;
  const int rows_left = at.key < at.a.key_dim ? at.chunk.rows - sub * kGlaSubRows : 0;
  to += (at.chunk.token + sub * kGlaSubRows) * stride + int64_t{head} * at.a.key_dim + at.key;
  PL_UNROLL
  for (int r = 0; r < kGlaSubRows; ++r, to += stride)
    if (r < rows_left) *to = gpu::rounded<T>(values[r] * factor);
}

// The share of the gate's gradient, in all rows of a chunk, of queries behind it and keys before it: the
// product of the state there and its gradient here.
template <class T>
PL_DEV void sum_states(const GlaGrad<T>& g, const GlaKey<T>& at, const GlaKeySpace<T>& space) {
  const Gla<T>& a = g.a;
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpSize, warp = gpu::warp_of_block();
  constexpr int kOfWarp = gpu::kWarpSize / kGlaSubs;
  for (int i = warp * kOfWarp; i < (warp + 1) * kOfWarp; ++i) {
    const int key = at.key - lane + i;
    float sum = 0;
    if (!at.chunk.first && !at.chunk.last && key < a.keys) {
      const T* const state = a.states + a.state_at(at.chunk.before, at.kv_head) + int64_t{key} * a.values;
      const T* const d_state = g.d_states + a.state_at(at.chunk.behind, at.kv_head) + int64_t{key} * a.values;
      for (int c = lane; c < a.values; c += gpu::kWarpSize)
        sum = gpu::fma(gpu::to_float(state[c]), gpu::to_float(d_state[c]), sum);
      sum *= a.chunk_decays[(at.chunk.slot * a.kv_heads + at.kv_head) * a.keys + key];
    }
    sum = gpu::warp_sum(sum);
    if (lane == 0) space.of_states[i] = sum;
  }
}

// Adds a query head of the group to d_k and to the gate's sums; writes its d_q.
template <class T>
PL_DEV void add_query_head(const GlaGrad<T>& g, const GlaKey<T>& at, int head, int sub,
                           const GlaKeySpace<T>& space, float (&d_k_across)[gpu::kWarpSize / 8][4],
                           GlaColumn& d_k, GlaColumn& gate) {
  GlaColumn q, d_q = {};
  at.load_q(q, head, sub);
  put_rows_of_key(space.q, q, sub);
  bring_d_scores(g, at.chunk, head, space);
  __syncthreads();
  add_queries_across(g, at, head, sub, space, q, d_q);
  add_keys_across(d_k_across, sub, space);
  GlaColumn k, decays;
  get_rows_of_key(space.k, k, sub);
  get_rows_of_key(space.decays, decays, sub);
  add_grads_within(d_q, d_k, q, k, decays, space.block(sub, sub));
  PL_UNROLL
  for (int r = 0; r < kGlaSubRows; ++r) gate[r] = gpu::fma(q[r], d_q[r], gate[r]);
  write_keys(g.d_q, at, at.a.heads, head, sub, d_q, at.a.scale);
  __syncthreads();  // everybody is done with q and d_scores
}

// d_k, which has what it has within the warp's rows. Takes that from the gate's sums; `passing` becomes what
// the other rows' part makes of the gate's gradient in the rows behind each.
template <class T>
PL_DEV void finish_keys(const GlaGrad<T>& g, const GlaKey<T>& at, int sub, const GlaKeySpace<T>& space,
                        GlaColumn& d_k, GlaColumn& gate, GlaColumn& passing) {
  GlaColumn k, decays, of_states = {};
  get_rows_of_key(space.k, k, sub);
  get_rows_of_key(space.decays, decays, sub);
  if (!at.chunk.last) at.load(of_states, g.d_k_of_states, at.a.kv_heads, at.kv_head, at.a.keys, sub, 0.0F);
  const GlaBeside beside(space.products, sub);
  float decay = 1, sum = 0;
  PL_UNROLL
  for (int r = kGlaSubRows - 1; r >= 0; --r) {
    gate[r] -= k[r] * d_k[r];
    const float of_state = of_states[r] * (decay * beside.behind);
    sum = gpu::fma(k[r], of_state, sum);
    const float across = gpu::fma(passing[r], decay, of_state);
    passing[r] = k[r] * across;
    d_k[r] += across;
    decay *= decays[r];
  }
  space.of_keys[threadIdx.x] = sum;
  write_keys(g.d_k, at, at.a.kv_heads, at.kv_head, sub, d_k, 1.0F);
}

// The gradient by a key's logarithmic decay in a row: the sum over all queries from the row on and all keys
// before it. The sum of q d_q - k d_k from the row on is the same, but most of it cancels, and what tensor
// cores round does not. So here it cancels within a sub-chunk alone, in f32; pairs of others are added up by
// where they are. Nothing where clamp_min holds.
template <class T>
PL_DEV void write_gate_gradient(const GlaGrad<T>& g, const GlaKey<T>& at, int sub, GlaColumn& gate,
                                const GlaColumn& passing, const GlaKeySpace<T>& space) {
  const Gla<T>& a = g.a;
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpSize;
  float sum = space.of_states[lane];
  for (int i = 0; i < sub; ++i) sum += space.of_keys[i * gpu::kWarpSize + lane];
  for (int i = sub + 1; i < kGlaSubs; ++i) {
    sum += space.of_queries[i * gpu::kWarpSize + lane];
    for (int j = 0; j < sub; ++j) sum += space.of_pair(i, j, lane);
  }
  float from_row = 0;
  PL_UNROLL
  for (int r = kGlaSubRows - 1; r >= 0; --r) gate[r] = from_row += gate[r];
  GlaColumn x;
  at.load(x, a.gate, a.kv_heads, at.kv_head, a.key_dim, sub, 0.0F);
  PL_UNROLL
  for (int r = 0; r < kGlaSubRows; ++r) {
    const bool free = log_sigmoid(x[r]) / a.normalizer >= a.clamp_min;
    gate[r] = free ? (gate[r] + sum) * (gpu::sigmoid(0.0F - x[r]) / a.normalizer) : 0.0F;
    sum += passing[r];
  }
  write_keys(g.d_gate, at, a.kv_heads, at.kv_head, sub, gate, 1.0F);
}

template <class T>
__global__ void __launch_bounds__(kGlaThreads, sizeof(T) == 2 ? 3 : 2) gla_grad_keys(GlaGrad<T> g) {
  using Space = GlaKeySpace<T>;
  PL_SHARED(gpu::Pack<float>, floats, Space::kFloats / 4);
  PL_SHARED(gpu::Pack<T>, tiles, kGlaSubs * Space::kTile / kGlaPack<T>);
  const Gla<T>& a = g.a;
  const GlaChunk chunk(a, blockIdx.x);
  if (chunk.rows == 0) return;
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpSize, sub = gpu::warp_of_block();
  const int kv_head = static_cast<int>(blockIdx.y);
  const Space space(floats, tiles, sub);
  const GlaKey<T> at{a, chunk, kv_head, static_cast<int>(blockIdx.z) * gpu::kWarpSize + lane};
  GlaColumn column;
  at.load_k(column, sub);
  put_rows_of_key(space.k, column, sub);
  at.load_decays(column, sub);
  put_rows_of_key(space.decays, column, sub);
  space.products[threadIdx.x] = product_of(column);
  space.of_queries[threadIdx.x] = 0.0F;
  for (int s = 0; s < sub; ++s) space.of_pair(sub, s, lane) = 0.0F;
  sum_states(g, at, space);
  GlaColumn d_k = {}, gate = {}, passing;
  float d_k_across[gpu::kWarpSize / 8][4] = {};
  for (int head = kv_head * a.group(); head < (kv_head + 1) * a.group(); ++head)
    add_query_head(g, at, head, sub, space, d_k_across, d_k, gate);
  hand_over(d_k_across, reinterpret_cast<float*>(space.tile), passing);
  finish_keys(g, at, sub, space, d_k, gate, passing);
  __syncthreads();
  write_gate_gradient(g, at, sub, gate, passing, space);
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
