// Attention by tensor cores, flash style: logits never leave registers. For 16-bit values and heads of up to
// 256 values (attention_fits_tiles). A block has four warps, each with 16 or 32 rows of a tile. The backward
// is two kernels, one walks queries for a tile of keys, the other keys for a tile of queries: seven products
// instead of five, but nothing is added by several blocks, so that bits do not depend on time. Include it
// only in attention_gpu.cu and attention_trees_gpu.cu.
//
// Template parameters: D, values of a head as the tiles have them, 64, 128 or 256; those beyond head_dim are
// zeros. Of 256 no operand is held in registers, which sums fill, and d_k and d_v are made one after the other.
// kCapped: logits have a cap. kGroups, groups of 16 rows that a warp has. kCount, rows of the other side that are taken at a time.
// kExtras: there may be a bias or dropout (ops/attention/gpu_attention_extras.h). Site: what a block works
// on, a head of a sequence or of a segment of a tree (ops/attention/gpu_attention_trees.h).
#pragma once

#include <limits>
#include <type_traits>

#include "gpu/math.h"
#include "gpu/tensor_core.h"
#include "ops/attention/attention_shape.h"
#include "ops/attention/gpu_attention.h"
#include "ops/attention/gpu_attention_extras.h"
#include "ops/pointwise/gpu_tanh.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

inline constexpr int kAttentionTile = static_cast<int>(kGpuAttentionTile);  // rows of a block of the backward
inline constexpr int kAttentionStep = 32;  // of the other side, in the backward
template <int D>
inline constexpr int kAttentionStepOf = D > 128 ? 16 : kAttentionStep;
inline constexpr int kAttentionThreads = 128;
inline constexpr float kLog2OfE = 1.44269504F;
inline constexpr float kUnseen = -std::numeric_limits<float>::infinity();  // a logit

// A tile holds rows of D values, their chunks of 8 rotated by the row, so that eight rows touch all banks
// once.
template <int D>
PL_DEV int tile_place(int row, int chunk) {
  return row * D + (chunk ^ (row & 7)) * 8;
}
// The same for a lane that loads 16 rows and 16 of their values: those that begin at value 16 d are at
// `lane_place ^ 16 d`.
template <int D>
PL_DEV int left_place(int row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return gpu::opaque(tile_place<D>(row + lane % 16, lane / 16));
}
template <int D>
PL_DEV int right_place() {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return gpu::opaque(tile_place<D>(lane % 8 + lane / 16 * 8, lane / 8 % 2));
}
// Rows beyond `rows`, and values beyond `dim`, become zeros.
template <int kCount, int D, class T>
PL_DEV void fetch_rows(T* to, const T* from, int64_t stride, int rows, int dim) {
  constexpr int kChunks = D / 8, kAtOnce = kAttentionThreads / kChunks;
  const int first = static_cast<int>(threadIdx.x) / kChunks, c = static_cast<int>(threadIdx.x) % kChunks;
  from += first * stride + c * 8;
  if (c * 8 >= dim) rows = 0;
  PL_UNROLL
  for (int i = 0; i < kCount / kAtOnce; ++i) {
    const int r = i * kAtOnce + first;
    gpu::copy_async(to + tile_place<D>(r, c), from, r < rows);
    from += kAtOnce * stride;
  }
}
// The keys, or what is like them, from `k0` on.
template <int kCount, int D, class T>
PL_DEV void fetch_key_rows(T* to, const T* keys, const GpuAttentionSite<T>& at, int k0, int dim) {
  fetch_rows<kCount, D>(to, keys + at.kv_at(k0, dim), at.kv_stride, at.key_length - k0, dim);
}

// All that the block's threads copied is there for each of them.
PL_DEV void have_copies() {
  gpu::commit_copies();
  gpu::wait_copies<0>();
  __syncthreads();
}

// The left operand of a product: 16 rows and 16 of their values at a time, from a tile ...
template <class T, int D>
struct TileRows {
  const T* tile;
  int row;

  PL_DEV void hold(const TileRows& rows) { *this = rows; }
  [[nodiscard]] PL_DEV int place() const { return left_place<D>(row); }
  PL_DEV void get(uint32_t (&a)[4], int place, int group, int d) const {
    gpu::load_matrix(a, tile + (place ^ d * 16) + group * 16 * D);
  }
};
// ... or from registers, which a tile that is read again and again is worth where they suffice.
template <class T, int D, int kGroups>
struct HeldRows {
  uint32_t parts[kGroups][D / 16][4];

  PL_DEV void hold(const TileRows<T, D>& rows) {
    const int place = rows.place();
    PL_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      PL_UNROLL
      for (int d = 0; d < D / 16; ++d) rows.get(parts[g][d], place, g, d);
    }
  }
  [[nodiscard]] PL_DEV int place() const { return 0; }
  PL_DEV void get(uint32_t (&a)[4], int, int group, int d) const {
    PL_UNROLL
    for (int r = 0; r < 4; ++r) a[r] = parts[group][d][r];
  }
};

// sums [16 kGroups, kCount] += rows of `left` times all rows of `right`, transposed.
template <class T, int D, int kCount, int kGroups, class Left>
PL_DEV void multiply_rows(float (&sums)[kGroups][kCount / 8][4], const Left& left, const T* right) {
  const int left_at = left.place(), right_at = right_place<D>();
  PL_UNROLL
  for (int d = 0; d < D / 16; ++d) {
    uint32_t a[kGroups][4];
    PL_UNROLL
    for (int g = 0; g < kGroups; ++g) left.get(a[g], left_at, g, d);
    PL_UNROLL
    for (int j = 0; j < kCount / 16; ++j) {
      uint32_t b[4];
      gpu::load_matrix(b, right + (right_at ^ d * 16) + j * 16 * D);
      const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
      PL_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        gpu::mma<T>(sums[g][j * 2], a[g], first);
        gpu::mma<T>(sums[g][j * 2 + 1], a[g], second);
      }
    }
  }
}
// sums [16 kGroups, D] += p [16 kGroups, kCount] times `right` [kCount, D]; p is what multiply_rows left in
// registers.
template <class T, int D, int kCount, int kGroups>
PL_DEV void multiply_scores(float (&sums)[kGroups][D / 8][4], const float (&p)[kGroups][kCount / 8][4],
                            const T* right) {
  const int right_at = left_place<D>(0);
  PL_UNROLL
  for (int j = 0; j < kCount / 16; ++j) {
    uint32_t a[kGroups][4];
    PL_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      PL_UNROLL
      for (int r = 0; r < 4; ++r)
        a[g][r] = gpu::packed<T>(p[g][2 * j + r / 2][r % 2 * 2], p[g][2 * j + r / 2][r % 2 * 2 + 1]);
    }
    PL_UNROLL
    for (int d = 0; d < D / 16; ++d) {
      uint32_t b[4];
      gpu::load_matrix_transposed(b, right + (right_at ^ d * 16) + j * 16 * D);
      const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
      PL_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        gpu::mma<T>(sums[g][d * 2], a[g], first);
        gpu::mma<T>(sums[g][d * 2 + 1], a[g], second);
      }
    }
  }
}
// Writes 16 rows of sums, each times factor[half], two values at a time.
template <class T, int D>
PL_DEV void put_rows(T* to, int64_t stride, int rows, int dim, const float (&sums)[D / 8][4],
                     const float (&factor)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  PL_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int row = lane / 4 + h * 8;
    if (row >= rows) continue;
    PL_UNROLL
    for (int d = 0; d < D / 8; ++d)
      if (d * 8 < dim)
        *reinterpret_cast<uint32_t*>(to + row * stride + d * 8 + lane % 4 * 2) =
            gpu::packed<T>(sums[d][h * 2] * factor[h], sums[d][h * 2 + 1] * factor[h]);
  }
}

// Hides what is not seen of 16 rows of logits, whose first column is `column0`; seen[half] is what the
// thread's rows see.
template <int kCount, class Seen>
PL_DEV void hide_unseen(float (&s)[kCount / 8][4], int column0, const Seen (&seen)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  PL_UNROLL
  for (int j = 0; j < kCount / 8; ++j) {
    PL_UNROLL
    for (int r = 0; r < 4; ++r)
      if (!seen[r / 2].has(column0 + j * 8 + lane % 4 * 2 + r % 2)) s[j][r] = kUnseen;
  }
}
template <int kCount, int kGroups, class T, class Site>
PL_DEV void hide_unseen_keys(const GpuAttention<T>& a, const Site& at, int query0, int k0,
                             float (&s)[kGroups][kCount / 8][4]) {
  PL_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    const int query = query0 + g * 16 + gpu::opaque(static_cast<int>(threadIdx.x)) % 32 / 4;
    const Columns seen[2] = {keys_of(a, at, query, query), keys_of(a, at, query + 8, query + 8)};
    hide_unseen<kCount>(s[g], k0, seen);
  }
}

// A cap on logits, and its slope. `unit` brings capped values to logits.
template <bool kCapped>
struct LogitCap {
  float unit;

  template <class T>
  PL_DEV explicit LogitCap(const GpuAttention<T>& a) : unit(a.scale) {}
  template <int kGroups, int kCount>
  PL_DEV void bend(float (&)[kGroups][kCount][4]) const {}
  [[nodiscard]] PL_DEV float slope(float) const { return 1.0F; }
};
template <>
struct LogitCap<true> {
  float unit = 1.0F, inner, outer;

  template <class T>
  PL_DEV explicit LogitCap(const GpuAttention<T>& a) : inner(a.scale / a.softcap), outer(a.softcap) {}
  template <int kGroups, int kCount>
  PL_DEV void bend(float (&s)[kGroups][kCount][4]) const {
    PL_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      PL_UNROLL
      for (int j = 0; j < kCount; ++j) {
        PL_UNROLL
        for (int r = 0; r < 4; ++r) s[g][j][r] = outer * tanh_of(s[g][j][r] * inner);
      }
    }
  }
  [[nodiscard]] PL_DEV float slope(float logit) const {
    const float part = logit / outer;
    return logit == kUnseen ? 0.0F : gpu::fma(-part, part, 1.0F);
  }
};

// The softmax of the two rows of a group that a thread has a part of: their largest logit, or one that is not
// much smaller, and the thread's part of the sum of exp(logit - top).
struct SoftmaxRows {
  float top[2] = {kUnseen, kUnseen}, sum[2] = {};
};

// Takes the largest logits into `rows`; `o` shrinks as they grow. Most of the time they grow by little: the
// probabilities may then be as large as 2^8, and nothing has to shrink.
template <int D, int kCount, int kGroups>
PL_DEV void raise_tops(const float (&s)[kGroups][kCount / 8][4], float scale, SoftmaxRows (&rows)[kGroups],
                       float (&o)[kGroups][D / 8][4]) {
  constexpr float kMostGrowth = 8;  // in units of log 2
  float tops[kGroups][2];
  bool grown = false;
  PL_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    PL_UNROLL
    for (int h = 0; h < 2; ++h) {
      float top = rows[g].top[h];
      PL_UNROLL
      for (int j = 0; j < kCount / 8; ++j)
        top = gpu::larger(top, gpu::larger(s[g][j][h * 2], s[g][j][h * 2 + 1]));
      top = gpu::larger(top, __shfl_xor_sync(gpu::kAll, top, 1));
      tops[g][h] = top = gpu::larger(top, __shfl_xor_sync(gpu::kAll, top, 2));
      grown = grown || (top - rows[g].top[h]) * scale > kMostGrowth;
    }
  }
  if (__ballot_sync(gpu::kAll, grown) == 0) return;
  PL_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    PL_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float shrink =
          tops[g][h] == rows[g].top[h] ? 1.0F : gpu::exp2_fast((rows[g].top[h] - tops[g][h]) * scale);
      rows[g].top[h] = tops[g][h];
      rows[g].sum[h] *= shrink;
      PL_UNROLL
      for (int d = 0; d < D / 8; ++d) {
        o[g][d][h * 2] *= shrink;
        o[g][d][h * 2 + 1] *= shrink;
      }
    }
  }
}
// Logits to probabilities, times e^(what the top is below the largest). `scale` brings logits to units of
// log 2.
template <int kCount>
PL_DEV void soften(float (&s)[kCount / 8][4], float scale, SoftmaxRows& rows) {
  float base[2];
  PL_UNROLL
  for (int h = 0; h < 2; ++h) base[h] = rows.top[h] == kUnseen ? 0.0F : rows.top[h] * scale;
  PL_UNROLL
  for (int j = 0; j < kCount / 8; ++j) {
    PL_UNROLL
    for (int r = 0; r < 4; ++r) {
      s[j][r] = gpu::exp2_fast(gpu::fma(s[j][r], scale, -base[r / 2]));
      rows.sum[r / 2] += s[j][r];
    }
  }
}

template <int kCount, class Kept>
PL_DEV void drop(float (&p)[kCount / 8][4], const Kept& kept) {
  PL_UNROLL
  for (int j = 0; j < kCount / 8; ++j) {
    PL_UNROLL
    for (int r = 0; r < 4; ++r) p[j][r] *= kept.of(j, r);
  }
}

// The same of all groups, and the tops before.
template <int D, int kCount, int kGroups>
PL_DEV void soften(float (&s)[kGroups][kCount / 8][4], float scale, SoftmaxRows (&rows)[kGroups],
                   float (&o)[kGroups][D / 8][4]) {
  raise_tops<D, kCount>(s, scale, rows, o);
  PL_UNROLL
  for (int g = 0; g < kGroups; ++g) soften<kCount>(s[g], scale, rows[g]);
}

// Writes a warp's 16 rows from `query0` on.
template <class T, int D>
PL_DEV void put_attention(const GpuAttentionForward<T>& f, const GpuAttentionSite<T>& at, int query0,
                          const SoftmaxRows& rows, float unit, const float (&o)[D / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, dim = f.a.head_dim;
  float factor[2];
  PL_UNROLL
  for (int h = 0; h < 2; ++h) {
    float sum = rows.sum[h];
    sum += __shfl_xor_sync(gpu::kAll, sum, 1);
    sum += __shfl_xor_sync(gpu::kAll, sum, 2);
    factor[h] = sum > 0 ? 1.0F / sum : 0.0F;
    const int row = query0 + lane / 4 + h * 8;
    if (row < at.length && lane % 4 == 0)
      f.lse[at.row_at(row, f.a.heads)] = sum > 0 ? gpu::fma(rows.top[h], unit, gpu::log(sum)) : 0.0F;
  }
  put_rows<T, D>(f.o + at.q_at(query0, dim), at.q_stride, at.length - query0, dim, o, factor);
}

template <int D, int kGroups, int kKeys>
inline constexpr int kAttentionSharedBytes = (kGroups * 64 + 2 * kKeys) * D * 2;
template <int D, int kGroups, int kKeys, bool kExtras, class T>
PL_BOTH int attention_shared_bytes(const GpuAttention<T>& a) {
  return kAttentionSharedBytes<D, kGroups, kKeys> + QueryExtrasOf<T, kKeys, kExtras>::bytes(a);
}

// Blocks that a multiprocessor's registers are shared by.
template <int D, int kGroups, bool kExtras>
inline constexpr int kAttentionBlocks = D == 256       ? 1
                                        : kGroups == 2 ? 2
                                                       : (D == 128 ? 3 : 4) - (kExtras ? 1 : 0);

template <class T, int D, int kGroups, int kKeys, bool kExtras, class Site = GpuAttentionSite<T>,
          bool kCapped = false>
__global__ void __launch_bounds__(kAttentionThreads, (kAttentionBlocks<D, kGroups, kExtras>))
    attention_tiles(GpuAttentionForward<T> f) {
  static_assert(!kExtras || (kGroups == 1 && !kCapped));
  constexpr int kRows = kGroups * 16, kQueries = 4 * kRows;
  const GpuAttention<T>& a = f.a;
  PL_LAUNCHED_SHARED(gpu::Pack<T>, tiles, (attention_shared_bytes<D, kGroups, kKeys, kExtras>(a)) / 16);
  T* const q_tile = reinterpret_cast<T*>(tiles);
  T* const k_tile = q_tile + kQueries * D;
  T* const v_tile = k_tile + kKeys * D;
  const int warp = gpu::warp_of_block();
  const GpuTile tile = tile_of_block<kQueries>(a.queries.starts, a.live_sequences(), tiles);
  const Site at(a, tile.sequence, static_cast<int>(blockIdx.y));
  // The last queries see the most keys: they begin first.
  const int q0 = tile.behind * kQueries, dim = a.head_dim;
  if (q0 >= at.length) return;
  const int query0 = q0 + warp * kRows;
  const LogitCap<kCapped> cap(a);
  const Columns seen_by_all = keys_of(a, at, query0, query0 + kRows - 1);
  const Columns seen_by_any = keys_of(a, at, query0 + kRows - 1, query0);
  const int end = a.end_of_keys(at.number(q0 + kQueries - 1), at.key_length);
  const auto fetch_keys = [&](T* tile, const T* from, int k0) {
    if (k0 < end) fetch_key_rows<kKeys, D>(tile, from, at, k0, dim);
    gpu::commit_copies();
  };
  int k0 = a.first_key(at.number(q0)) / kKeys * kKeys;
  fetch_rows<kQueries, D>(q_tile, a.q + at.q_at(q0, dim), at.q_stride, at.length - q0, dim);
  fetch_keys(k_tile, a.k, k0);
  const QueryExtrasOf<T, kKeys, kExtras> extras(a, at, query0, reinterpret_cast<float*>(v_tile + kKeys * D));
  extras.begin();
  gpu::wait_copies<0>();
  __syncthreads();
  using Queries = std::conditional_t<(kGroups * D <= 128), HeldRows<T, D, kGroups>, TileRows<T, D>>;
  Queries queries;
  queries.hold({q_tile, warp * kRows});
  float o[kGroups][D / 8][4] = {};
  SoftmaxRows rows[kGroups];
  for (; k0 < end; k0 += kKeys) {
    gpu::wait_copies<0>();
    __syncthreads();  // the keys are there, and everybody has read the values before
    fetch_keys(v_tile, a.v, k0);
    const bool busy = !seen_by_any.hold_none(k0, kKeys);
    float s[kGroups][kKeys / 8][4] = {};
    if (busy) {
      extras.begin_logits(s[0], k0);
      multiply_rows<T, D, kKeys>(s, queries, k_tile);
    }
    gpu::wait_copies<0>();
    __syncthreads();  // the values are there, and everybody has read the keys
    fetch_keys(k_tile, a.k, k0 + kKeys);
    if (!busy) continue;
    cap.bend(s);
    if (!seen_by_all.hold_all(k0, kKeys)) hide_unseen_keys<kKeys>(a, at, query0, k0, s);
    soften<D, kKeys>(s, cap.unit * kLog2OfE, rows, o);
    drop<kKeys>(s[0], extras.kept(k0));
    multiply_scores<T, D, kKeys>(o, s, v_tile);
  }
  gpu::wait_copies<0>();
  PL_UNROLL
  for (int g = 0; g < kGroups; ++g) put_attention<T, D>(f, at, query0 + g * 16, rows[g], cap.unit, o[g]);
}

// p: logits to probabilities, those that are dropped to 0; d_p: products d_o v to gradients of the logits.
// lse is negated and in units of log 2.
template <class Cap>
PL_DEV void soften_gradient(float& p, float& d_p, const Cap& cap, float minus_lse, float delta, float kept) {
  const float slope = cap.slope(p);
  p = gpu::exp2_fast(gpu::fma(p, cap.unit * kLog2OfE, minus_lse));
  d_p = p * (kept * d_p - delta) * slope;
  p *= kept;
}

// The values of a query for each lane.
struct RowStatistics {
  float lse = 0, delta = 0;
};
// The same of 16 rows of a tile: of queries, of which a thread knows lse and delta of its two ...
template <int kCount, class Cap, class Kept>
PL_DEV void soften_rows(float (&p)[kCount / 8][4], float (&d_p)[kCount / 8][4], const Cap& cap,
                        const float (&minus_lse)[2], const float (&delta)[2], const Kept& kept) {
  PL_UNROLL
  for (int j = 0; j < kCount / 8; ++j) {
    PL_UNROLL
    for (int r = 0; r < 4; ++r)
      soften_gradient(p[j][r], d_p[j][r], cap, minus_lse[r / 2], delta[r / 2], kept.of(j, r));
  }
}
// ... or of keys, where a lane knows them of the query that its column is.
template <int kCount, class Cap, class Kept>
PL_DEV void soften_columns(float (&p)[kCount / 8][4], float (&d_p)[kCount / 8][4], const Cap& cap,
                           const RowStatistics& of, const Kept& kept) {
  static_assert(kCount <= gpu::kWarpSize);
  PL_UNROLL
  for (int j = 0; j < kCount / 8; ++j) {
    PL_UNROLL
    for (int c = 0; c < 2; ++c) {
      const int query = j * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + c;
      const float of_lse = __shfl_sync(gpu::kAll, of.lse * -kLog2OfE, query);
      const float of_delta = __shfl_sync(gpu::kAll, of.delta, query);
      soften_gradient(p[j][c], d_p[j][c], cap, of_lse, of_delta, kept.of(j, c));
      soften_gradient(p[j][c + 2], d_p[j][c + 2], cap, of_lse, of_delta, kept.of(j, c + 2));
    }
  }
}

template <int kCount, class T, class Site>
PL_DEV void hide_unseen_queries(const GpuAttention<T>& a, const Site& at, int key0, int q0,
                                float (&p)[kCount / 8][4]) {
  const int key = key0 + gpu::opaque(static_cast<int>(threadIdx.x)) % 32 / 4;
  using Seen = decltype(queries_that_see(a, at, key));
  const Seen seen[2] = {queries_that_see(a, at, key), queries_that_see(a, at, key + 8)};
  hide_unseen<kCount>(p, q0, seen);
}
// Brings q and d_o of a step, behind one another.
template <int D, class T>
PL_DEV void fetch_queries(const GpuAttentionGrad<T>& g, const GpuAttentionSite<T>& at, QueryStep step, T* to,
                          RowStatistics& statistics) {
  constexpr int kQueries = kAttentionStepOf<D>;
  const int dim = g.a.head_dim, rows = at.length - step.query;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t from = at.q_at(step.query, dim) + step.head * dim;
  fetch_rows<kQueries, D>(to, g.a.q + from, at.q_stride, rows, dim);
  fetch_rows<kQueries, D>(to + kQueries * D, g.d_o + from, at.q_stride, rows, dim);
  const int64_t own = at.row_at(step.query + lane, g.a.heads) + step.head;
  statistics = {lane < rows ? g.lse[own] : 0.0F, lane < rows ? g.delta[own] : 0.0F};
}

// Blocks that a multiprocessor's registers are shared by.
template <int D>
inline constexpr int kGradBlocks = D == 256   ? 1
                                   : D == 128 ? 2
                                              : 3;
// Rows of a tile that stay in shared memory next to the steps: those that are not held in registers.
template <int D>
inline constexpr int kGradTileRows = D == 256 ? 2 * kAttentionTile : kAttentionTile;
template <int D, bool kExtras, class T>
PL_BOTH int grad_key_shared_bytes(const GpuAttention<T>& a) {
  return (kGradTileRows<D> + 4 * kAttentionStepOf<D>)*D * 2 + KeyExtrasOf<T, kExtras>::bytes(a);
}
template <int D, bool kExtras, class T>
PL_BOTH int grad_query_shared_bytes(const GpuAttentionGrad<T>& g) {
  constexpr int kHeld = D == 256 ? kGradTileRows<D> : 0;
  return (kHeld + 4 * kAttentionStepOf<D>)*D * 2 + QueryExtrasOf<T, kAttentionStep, kExtras>::bytes(g.a) +
         BiasSumsOf<T, kExtras>::bytes(g);
}

// The gradients that one walk over the queries makes.
enum class KeyGradients : uint8_t { both, values, keys };

// d_k and d_v of a block's 64 keys, a warp 16 of them.
template <class T, int D, bool kExtras, class Site, bool kCapped>
struct KeyTiles {
  static constexpr int kQueries = kAttentionStepOf<D>;
  using Sums = float[1][D / 8][4];

  const GpuAttentionGrad<T>& g;
  const Site& at;
  const KeyExtrasOf<T, kExtras>& extras;
  const T* k_tile;
  T* steps;  // two buffers of kQueries of q, and as many of d_o
  int k0, row;

  // Over all queries of all heads of the group. `values`: rows of v.
  template <KeyGradients kWhich, class Values>
  PL_DEV void walk(const Values& values, Sums& d_k, Sums& d_v) const {
    const GpuAttention<T>& a = g.a;
    const int group = a.heads / a.kv_heads, key0 = k0 + row;
    const int begin = a.first_query(k0) / kQueries * kQueries;
    const int end = at.end_of_queries(a, k0 + kAttentionTile - 1);
    const LogitCap<kCapped> cap(a);
    const Columns seen_by_all = queries_of(a, at, key0, key0 + 15);
    const auto seen_by_any = queries_that_see_any(a, at, key0, key0 + 15);
    RowStatistics next;
    const auto fetch = [&](QueryStep step, int buffer) {
      if (step.head < group) {
        fetch_queries<D>(g, at, step, steps + buffer * 2 * kQueries * D, next);
        extras.draw(step.head, step.query, buffer);
      }
      gpu::commit_copies();
    };
    QueryStep step{begin < end ? 0 : group, begin};
    int buffer = 0;
    fetch(step, buffer);
    while (step.head < group) {
      const int q0 = step.query, head = step.head, now = buffer;
      const RowStatistics rows = next;
      const T* const q_tile = steps + now * 2 * kQueries * D;
      step.go_on(begin, end, kQueries);
      buffer = 1 - now;
      gpu::wait_copies<0>();
      __syncthreads();  // the queries are there, and everybody has read those before
      fetch(step, buffer);
      if (seen_by_any.hold_none(q0, kQueries)) continue;
      float p[1][kQueries / 8][4] = {}, d_p[1][kQueries / 8][4] = {};  // [keys, queries]
      if constexpr (kExtras) extras.begin_logits(p[0], head, key0 - q0);
      multiply_rows<T, D, kQueries>(p, TileRows<T, D>{k_tile, row}, q_tile);
      if constexpr (kWhich != KeyGradients::values)
        multiply_rows<T, D, kQueries>(d_p, values, q_tile + kQueries * D);
      cap.bend(p);
      if (!seen_by_all.hold_all(q0, kQueries)) hide_unseen_queries<kQueries>(a, at, key0, q0, p[0]);
      soften_columns<kQueries>(p[0], d_p[0], cap, rows, extras.kept(now, row / 16));
      if constexpr (kWhich != KeyGradients::keys)
        multiply_scores<T, D, kQueries>(d_v, p, q_tile + kQueries * D);
      if constexpr (kWhich != KeyGradients::values) multiply_scores<T, D, kQueries>(d_k, d_p, q_tile);
    }
    gpu::wait_copies<0>();
  }

  PL_DEV void put(T* to, const Sums& sums, float factor) const {
    const int key0 = k0 + row, dim = g.a.head_dim;
    put_rows<T, D>(to + at.kv_at(key0, dim), at.kv_stride, at.key_length - key0, dim, sums[0],
                   {factor, factor});
  }
};

// The keys' values are held in registers; of 256 values a head stays in shared memory, and the gradients come one after
// the other.
template <class T, int D, bool kExtras, class Site = GpuAttentionSite<T>, bool kCapped = false>
__global__ void __launch_bounds__(kAttentionThreads, (kGradBlocks<D>))
    attention_grad_key_tiles(GpuAttentionGrad<T> g) {
  const GpuAttention<T>& a = g.a;
  PL_LAUNCHED_SHARED(gpu::Pack<T>, tiles, (grad_key_shared_bytes<D, kExtras>(a)) / 16);
  T* const k_tile = reinterpret_cast<T*>(tiles);
  T* const steps = k_tile + kGradTileRows<D> * D;
  T* const v_tile = D == 256 ? k_tile + kAttentionTile * D : steps;
  const int row = gpu::warp_of_block() * 16;
  const GpuTile tile = tile_of_block<kAttentionTile>(a.keys.starts, a.live_sequences(), tiles);
  const int k0 = tile.index * kAttentionTile;
  const int group = a.heads / a.kv_heads, dim = a.head_dim;
  const Site at(a, tile.sequence, static_cast<int>(blockIdx.y) * group);
  if (k0 >= at.key_length) return;
  const KeyExtrasOf<T, kExtras> extras{a, at, k0,
                                       reinterpret_cast<uint8_t*>(steps + 4 * kAttentionStepOf<D> * D)};
  fetch_rows<kAttentionTile, D>(k_tile, a.k + at.kv_at(k0, dim), at.kv_stride, at.key_length - k0, dim);
  fetch_rows<kAttentionTile, D>(v_tile, a.v + at.kv_at(k0, dim), at.kv_stride, at.key_length - k0, dim);
  have_copies();
  extras.begin();
  using Tiles = KeyTiles<T, D, kExtras, Site, kCapped>;
  const Tiles keys{g, at, extras, k_tile, steps, k0, row};
  typename Tiles::Sums sums = {};
  if constexpr (D == 256) {
    const TileRows<T, D> values{v_tile, row};
    keys.template walk<KeyGradients::values>(values, sums, sums);
    keys.put(g.d_v, sums, 1.0F);
    __syncthreads();  // everybody has read the last queries
    PL_UNROLL
    for (int d = 0; d < D / 8; ++d) {
      PL_UNROLL
      for (int r = 0; r < 4; ++r) sums[0][d][r] = 0;
    }
    keys.template walk<KeyGradients::keys>(values, sums, sums);
  } else {
    HeldRows<T, D, 1> values;
    values.hold({v_tile, row});
    __syncthreads();  // everybody has the values
    typename Tiles::Sums d_v = {};
    keys.template walk<KeyGradients::both>(values, sums, d_v);
    keys.put(g.d_v, d_v, 1.0F);
  }
  keys.put(g.d_k, sums, a.scale);
}

// The values of the two rows of 16 that a thread has a part of; lse negated and in units of log 2.
template <class T>
PL_DEV void load_statistics(const GpuAttentionGrad<T>& g, const GpuAttentionSite<T>& at, int query0,
                            float (&minus_lse)[2], float (&delta)[2]) {
  PL_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int query = query0 + static_cast<int>(threadIdx.x) % 32 / 4 + h * 8;
    const int64_t own = at.row_at(query, g.a.heads);
    minus_lse[h] = query < at.length ? g.lse[own] * -kLog2OfE : 0.0F;
    delta[h] = query < at.length ? g.delta[own] : 0.0F;
  }
}

// Brings the keys of a step, and their values behind them.
template <int D, class T, class Site>
PL_DEV void fetch_keys(const GpuAttention<T>& a, const Site& at, int k0, T* to) {
  constexpr int kStep = kAttentionStepOf<D>;
  fetch_key_rows<kStep, D>(to, a.k, at, k0, a.head_dim);
  fetch_key_rows<kStep, D>(to + kStep * D, a.v, at, k0, a.head_dim);
}

// d_q of 64 queries, over the keys they see, and what the bias of their logits gets. The queries and d_o are
// held in registers; of 256 values a head in shared memory.
template <class T, int D, bool kExtras, class Site = GpuAttentionSite<T>, bool kCapped = false>
__global__ void __launch_bounds__(kAttentionThreads, (kGradBlocks<D>))
    attention_grad_query_tiles(GpuAttentionGrad<T> g) {
  constexpr int kKeys = kAttentionStepOf<D>;
  constexpr bool kHolds = D <= 128;
  const GpuAttention<T>& a = g.a;
  PL_LAUNCHED_SHARED(gpu::Pack<T>, tiles, (grad_query_shared_bytes<D, kExtras>(g)) / 16);
  T* const rows = reinterpret_cast<T*>(tiles);
  // Two buffers of kKeys keys, and as many of their values.
  T* const steps = kHolds ? rows : rows + 2 * kAttentionTile * D;
  const int row = gpu::warp_of_block() * 16;
  const GpuTile tile = tile_of_block<kAttentionTile>(a.queries.starts, a.live_sequences(), tiles);
  const Site at(a, tile.sequence, static_cast<int>(blockIdx.y));
  // The last queries see the most keys: they begin first.
  const int q0 = tile.behind * kAttentionTile, dim = a.head_dim;
  if (q0 >= at.length) return;
  const int left = at.length - q0, query0 = q0 + row;
  fetch_rows<kAttentionTile, D>(rows, a.q + at.q_at(q0, dim), at.q_stride, left, dim);
  fetch_rows<kAttentionTile, D>(rows + kAttentionTile * D, g.d_o + at.q_at(q0, dim), at.q_stride, left, dim);
  have_copies();
  std::conditional_t<kHolds, HeldRows<T, D, 1>, TileRows<T, D>> queries, d_o;
  queries.hold({rows, row});
  d_o.hold({rows + kAttentionTile * D, row});
  const LogitCap<kCapped> cap(a);
  auto* const behind = reinterpret_cast<float*>(steps + 4 * kKeys * D);
  const QueryExtrasOf<T, kKeys, kExtras> extras(a, at, query0, behind);
  const BiasSumsOf<T, kExtras> sums{g, at, query0, behind + extras.bytes(a) / int{sizeof(float)}};
  extras.begin();
  sums.begin();
  __syncthreads();  // everybody has the queries
  float minus_lse[2], delta[2];
  load_statistics(g, at, query0, minus_lse, delta);
  const Columns seen_by_all = keys_of(a, at, query0, query0 + 15),
                seen_by_any = keys_of(a, at, query0 + 15, query0);
  const int end = a.end_of_keys(at.number(q0 + kAttentionTile - 1), at.key_length);
  const auto fetch = [&](int k0, T* to) {
    if (k0 < end) fetch_keys<D>(a, at, k0, to);
    gpu::commit_copies();
  };
  float d_q[1][D / 8][4] = {};
  int k0 = a.first_key(at.number(q0)) / kKeys * kKeys, buffer = 0;
  fetch(k0, steps);
  for (; k0 < end; k0 += kKeys) {
    const T* const k_tile = steps + buffer * 2 * kKeys * D;
    buffer = 1 - buffer;
    gpu::wait_copies<0>();
    __syncthreads();  // the keys are there, and everybody has read those of two steps before
    fetch(k0 + kKeys, steps + buffer * 2 * kKeys * D);
    if (seen_by_any.hold_none(k0, kKeys)) continue;
    float p[1][kKeys / 8][4] = {}, d_p[1][kKeys / 8][4] = {};
    extras.begin_logits(p[0], k0);
    multiply_rows<T, D, kKeys>(p, queries, k_tile);
    multiply_rows<T, D, kKeys>(d_p, d_o, k_tile + kKeys * D);
    cap.bend(p);
    if (!seen_by_all.hold_all(k0, kKeys)) hide_unseen_keys<kKeys>(a, at, query0, k0, p);
    soften_rows<kKeys>(p[0], d_p[0], cap, minus_lse, delta, extras.kept(k0));
    if constexpr (kExtras) sums.add(d_p[0], k0);
    multiply_scores<T, D, kKeys>(d_q, d_p, k_tile);
  }
  gpu::wait_copies<0>();
  sums.end();
  put_rows<T, D>(g.d_q + at.q_at(query0, dim), at.q_stride, left - row, dim, d_q[0], {a.scale, a.scale});
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
