// Attention by tensor cores, flash style: logits never leave registers. For 16-bit values, heads of up to 128
// values, without bias and dropout. A block has four warps, each with 16 rows of a tile of 64. The backward
// is two kernels, one walks queries for a tile of keys, the other keys for a tile of queries: seven products
// instead of five, but nothing is added by several blocks, so that bits do not depend on time. Include it
// only in attention_gpu.cu.
//
// Template parameter D: values of a head as the tiles have them, 64 or 128; those beyond head_dim are zeros.
#pragma once

#include "gpu/math.h"
#include "gpu/tensor_core.h"
#include "ops/gpu_attention.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

inline constexpr int kAttentionTile = 64;  // rows of a block
inline constexpr int kAttentionStep = 32;  // of the other side, in the backward
inline constexpr int kAttentionThreads = 128;
inline constexpr float kLog2OfE = 1.44269504F;
inline constexpr float kAttentionMasked = -1e30F;

// A tile holds rows of D values, their chunks of 8 rotated by the row, so that eight rows touch all banks
// once.
template <int D>
PL_DEV int tile_place(int row, int chunk) {
  return row * D + (chunk ^ (row & 7)) * 8;
}
// Rows beyond `rows`, and values beyond `dim`, become zeros.
template <int kCount, int D, class T>
PL_DEV void fetch_rows(T* to, const T* from, int64_t stride, int rows, int dim) {
  constexpr int kChunks = D / 8;
  PL_UNROLL
  for (int i = 0; i < kCount * kChunks / kAttentionThreads; ++i) {
    const int at = i * kAttentionThreads + static_cast<int>(threadIdx.x), r = at / kChunks, c = at % kChunks;
    const bool live = r < rows && c * 8 < dim;
    gpu::copy_async(to + tile_place<D>(r, c), live ? from + r * stride + c * 8 : from, live);
  }
}
// sums [16, kCount] += rows [row, row + 16) of `left` times all rows of `right`, transposed.
template <class T, int D, int kCount>
PL_DEV void multiply_rows(float (&sums)[kCount / 8][4], const T* left, int row, const T* right) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  PL_UNROLL
  for (int d = 0; d < D / 16; ++d) {
    uint32_t a[4];
    gpu::load_matrix(a, left + tile_place<D>(row + lane % 16, d * 2 + lane / 16));
    PL_UNROLL
    for (int j = 0; j < kCount / 16; ++j) {
      uint32_t b[4];
      gpu::load_matrix(b, right + tile_place<D>(j * 16 + lane % 8 + lane / 16 * 8, d * 2 + lane / 8 % 2));
      const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
      gpu::mma<T>(sums[j * 2], a, first);
      gpu::mma<T>(sums[j * 2 + 1], a, second);
    }
  }
}
// sums [16, D] += p [16, kCount] times `right` [kCount, D]; p is what multiply_rows left in registers.
template <class T, int D, int kCount>
PL_DEV void multiply_scores(float (&sums)[D / 8][4], const float (&p)[kCount / 8][4], const T* right) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  PL_UNROLL
  for (int j = 0; j < kCount / 16; ++j) {
    const uint32_t a[4] = {gpu::packed<T>(p[2 * j][0], p[2 * j][1]), gpu::packed<T>(p[2 * j][2], p[2 * j][3]),
                           gpu::packed<T>(p[2 * j + 1][0], p[2 * j + 1][1]),
                           gpu::packed<T>(p[2 * j + 1][2], p[2 * j + 1][3])};
    PL_UNROLL
    for (int d = 0; d < D / 16; ++d) {
      uint32_t b[4];
      gpu::load_matrix_transposed(b, right + tile_place<D>(j * 16 + lane % 16, d * 2 + lane / 16));
      const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
      gpu::mma<T>(sums[d * 2], a, first);
      gpu::mma<T>(sums[d * 2 + 1], a, second);
    }
  }
}
// Writes the warp's 16 rows of sums, each times factor[half], two values at a time.
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

// The running maximum and sum of the two rows that a thread has a part of.
struct SoftmaxRows {
  float top[2] = {kAttentionMasked, kAttentionMasked}, sum[2] = {};
};

// Logits of a tile, in units of log 2, to probabilities over the maximum so far; `o` shrinks as that grows.
template <class T, int D>
PL_DEV void soften(const GpuAttention<T>& a, const GpuAttentionSite<T>& at, int query0, int k0,
                   float (&s)[kAttentionTile / 8][4], SoftmaxRows& rows, float (&o)[D / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float new_top[2] = {rows.top[0], rows.top[1]};
  PL_UNROLL
  for (int j = 0; j < kAttentionTile / 8; ++j) {
    PL_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int query = query0 + lane / 4 + r / 2 * 8, key = k0 + j * 8 + lane % 4 * 2 + r % 2;
      const bool seen = key < at.key_length && a.sees(query, key);
      s[j][r] = seen ? s[j][r] * (a.scale * kLog2OfE) : kAttentionMasked;
      new_top[r / 2] = gpu::max(new_top[r / 2], s[j][r]);
    }
  }
  PL_UNROLL
  for (int h = 0; h < 2; ++h) {
    new_top[h] = gpu::max(new_top[h], __shfl_xor_sync(gpu::kAll, new_top[h], 1));
    new_top[h] = gpu::max(new_top[h], __shfl_xor_sync(gpu::kAll, new_top[h], 2));
    const float shrink = gpu::exp2_fast(rows.top[h] - new_top[h]);
    rows.top[h] = new_top[h];
    rows.sum[h] *= shrink;
    PL_UNROLL
    for (int d = 0; d < D / 8; ++d) {
      o[d][h * 2] *= shrink;
      o[d][h * 2 + 1] *= shrink;
    }
  }
  PL_UNROLL
  for (int j = 0; j < kAttentionTile / 8; ++j) {
    PL_UNROLL
    for (int r = 0; r < 4; ++r) {
      s[j][r] = s[j][r] <= kAttentionMasked ? 0.0F : gpu::exp2_fast(s[j][r] - rows.top[r / 2]);
      rows.sum[r / 2] += s[j][r];
    }
  }
}

template <class T, int D>
__global__ void __launch_bounds__(kAttentionThreads) attention_tiles(GpuAttentionForward<T> f) {
  const GpuAttention<T>& a = f.a;
  PL_SHARED(gpu::Pack<T>, tiles, 3 * kAttentionTile * D / 8);
  T* const q_tile = reinterpret_cast<T*>(tiles);
  T* const k_tile = q_tile + kAttentionTile * D;
  T* const v_tile = k_tile + kAttentionTile * D;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const GpuAttentionSite<T> at(a, static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y));
  const int q0 = static_cast<int>(blockIdx.x) * kAttentionTile, dim = a.head_dim;
  if (q0 >= at.length) return;
  const int end = a.end_of_keys(q0 + kAttentionTile - 1, at.key_length);
  const auto fetch_keys = [&](T* tile, const T* from, int k0) {
    if (k0 < end)
      fetch_rows<kAttentionTile, D>(tile, from + at.kv_at(k0, dim), at.kv_stride, at.key_length - k0, dim);
    gpu::commit_copies();
  };
  int k0 = a.first_key(q0) / kAttentionTile * kAttentionTile;
  fetch_rows<kAttentionTile, D>(q_tile, a.q + at.q_at(q0, dim), at.q_stride, at.length - q0, dim);
  fetch_keys(k_tile, a.k, k0);
  float o[D / 8][4] = {};
  SoftmaxRows rows;
  for (; k0 < end; k0 += kAttentionTile) {
    fetch_keys(v_tile, a.v, k0);
    gpu::wait_copies<1>();  // q and k are there
    __syncthreads();
    float s[kAttentionTile / 8][4] = {};
    multiply_rows<T, D, kAttentionTile>(s, q_tile, warp * 16, k_tile);
    soften<T, D>(a, at, q0 + warp * 16, k0, s, rows, o);
    __syncthreads();  // everybody has read the keys
    fetch_keys(k_tile, a.k, k0 + kAttentionTile);
    gpu::wait_copies<1>();  // the values are there
    __syncthreads();
    multiply_scores<T, D, kAttentionTile>(o, s, v_tile);
    __syncthreads();  // everybody has read the values
  }
  gpu::wait_copies<0>();
  float factor[2];
  PL_UNROLL
  for (int h = 0; h < 2; ++h) {
    float sum = rows.sum[h];
    sum += __shfl_xor_sync(gpu::kAll, sum, 1);
    sum += __shfl_xor_sync(gpu::kAll, sum, 2);
    factor[h] = sum > 0 ? 1.0F / sum : 0.0F;
    const int row = q0 + warp * 16 + lane / 4 + h * 8;
    if (row < at.length && lane % 4 == 0)
      f.lse[at.row_at(row, a.heads)] = sum > 0 ? rows.top[h] / kLog2OfE + gpu::log(sum) : 0.0F;
  }
  put_rows<T, D>(f.o + at.q_at(q0 + warp * 16, dim), at.q_stride, at.length - q0 - warp * 16, dim, o, factor);
}

// p: products q k to probabilities; d_p: products d_o v to gradients of the logits.
PL_DEV void soften_gradient(float& p, float& d_p, bool seen, float scale, float lse, float delta) {
  p = seen ? gpu::exp2_fast(gpu::fma(p, scale * kLog2OfE, -lse * kLog2OfE)) : 0.0F;
  d_p = p * (d_p - delta);
}

// d_k and d_v of 64 keys, over all queries of all heads of the group.
template <class T, int D>
__global__ void __launch_bounds__(kAttentionThreads) attention_grad_key_tiles(GpuAttentionGrad<T> g) {
  constexpr int kQueries = kAttentionStep;
  const GpuAttention<T>& a = g.a;
  PL_SHARED(gpu::Pack<T>, tiles, 2 * (kAttentionTile + kQueries) * D / 8);
  T* const k_tile = reinterpret_cast<T*>(tiles);
  T* const v_tile = k_tile + kAttentionTile * D;
  T* const q_tile = v_tile + kAttentionTile * D;
  T* const d_o_tile = q_tile + kQueries * D;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int group = a.heads / a.kv_heads, k0 = static_cast<int>(blockIdx.x) * kAttentionTile;
  const int dim = a.head_dim, sequence = static_cast<int>(blockIdx.z);
  const GpuAttentionSite<T> keys(a, sequence, static_cast<int>(blockIdx.y) * group);
  if (k0 >= keys.key_length) return;
  const int left = keys.key_length - k0;
  fetch_rows<kAttentionTile, D>(k_tile, a.k + keys.kv_at(k0, dim), keys.kv_stride, left, dim);
  fetch_rows<kAttentionTile, D>(v_tile, a.v + keys.kv_at(k0, dim), keys.kv_stride, left, dim);
  gpu::commit_copies();
  const int begin = a.first_query(k0) / kQueries * kQueries;
  const int end = a.end_of_queries(k0 + kAttentionTile - 1, keys.length);
  float d_k[D / 8][4] = {}, d_v[D / 8][4] = {};
  for (int head = keys.head; head < keys.head + group; ++head) {
    const GpuAttentionSite<T> at(a, sequence, head);
    for (int q0 = begin; q0 < end; q0 += kQueries) {
      fetch_rows<kQueries, D>(q_tile, a.q + at.q_at(q0, dim), at.q_stride, at.length - q0, dim);
      fetch_rows<kQueries, D>(d_o_tile, g.d_o + at.q_at(q0, dim), at.q_stride, at.length - q0, dim);
      gpu::commit_copies();
      gpu::wait_copies<0>();
      __syncthreads();
      float p[kQueries / 8][4] = {}, d_p[kQueries / 8][4] = {};  // [keys, queries]
      multiply_rows<T, D, kQueries>(p, k_tile, warp * 16, q_tile);
      multiply_rows<T, D, kQueries>(d_p, v_tile, warp * 16, d_o_tile);
      PL_UNROLL
      for (int j = 0; j < kQueries / 8; ++j) {
        PL_UNROLL
        for (int c = 0; c < 2; ++c) {
          const int query = q0 + j * 8 + lane % 4 * 2 + c;
          const bool live = query < at.length;
          const int64_t row = at.row_at(query, a.heads);
          const float lse = live ? g.lse[row] : 0.0F, delta = live ? g.delta[row] : 0.0F;
          PL_UNROLL
          for (int r = c; r < 4; r += 2) {
            const int key = k0 + warp * 16 + lane / 4 + r / 2 * 8;
            soften_gradient(p[j][r], d_p[j][r], live && a.sees(query, key), a.scale, lse, delta);
          }
        }
      }
      multiply_scores<T, D, kQueries>(d_v, p, d_o_tile);
      multiply_scores<T, D, kQueries>(d_k, d_p, q_tile);
      __syncthreads();  // everybody has read the queries
    }
  }
  gpu::wait_copies<0>();
  const int row = warp * 16;
  put_rows<T, D>(g.d_v + keys.kv_at(k0 + row, dim), keys.kv_stride, left - row, dim, d_v, {1.0F, 1.0F});
  put_rows<T, D>(g.d_k + keys.kv_at(k0 + row, dim), keys.kv_stride, left - row, dim, d_k, {a.scale, a.scale});
}

// d_q of 64 queries, over the keys they see.
template <class T, int D>
__global__ void __launch_bounds__(kAttentionThreads) attention_grad_query_tiles(GpuAttentionGrad<T> g) {
  constexpr int kKeys = kAttentionStep;
  const GpuAttention<T>& a = g.a;
  PL_SHARED(gpu::Pack<T>, tiles, 2 * (kAttentionTile + kKeys) * D / 8);
  T* const q_tile = reinterpret_cast<T*>(tiles);
  T* const d_o_tile = q_tile + kAttentionTile * D;
  T* const k_tile = d_o_tile + kAttentionTile * D;
  T* const v_tile = k_tile + kKeys * D;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const GpuAttentionSite<T> at(a, static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y));
  const int q0 = static_cast<int>(blockIdx.x) * kAttentionTile, dim = a.head_dim;
  if (q0 >= at.length) return;
  const int left = at.length - q0;
  fetch_rows<kAttentionTile, D>(q_tile, a.q + at.q_at(q0, dim), at.q_stride, left, dim);
  fetch_rows<kAttentionTile, D>(d_o_tile, g.d_o + at.q_at(q0, dim), at.q_stride, left, dim);
  gpu::commit_copies();
  float lse[2], delta[2];
  PL_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int query = q0 + warp * 16 + lane / 4 + h * 8;
    const int64_t row = at.row_at(query, a.heads);
    lse[h] = query < at.length ? g.lse[row] : 0.0F;
    delta[h] = query < at.length ? g.delta[row] : 0.0F;
  }
  const int end = a.end_of_keys(q0 + kAttentionTile - 1, at.key_length);
  float d_q[D / 8][4] = {};
  for (int k0 = a.first_key(q0) / kKeys * kKeys; k0 < end; k0 += kKeys) {
    fetch_rows<kKeys, D>(k_tile, a.k + at.kv_at(k0, dim), at.kv_stride, at.key_length - k0, dim);
    fetch_rows<kKeys, D>(v_tile, a.v + at.kv_at(k0, dim), at.kv_stride, at.key_length - k0, dim);
    gpu::commit_copies();
    gpu::wait_copies<0>();
    __syncthreads();
    float p[kKeys / 8][4] = {}, d_p[kKeys / 8][4] = {};
    multiply_rows<T, D, kKeys>(p, q_tile, warp * 16, k_tile);
    multiply_rows<T, D, kKeys>(d_p, d_o_tile, warp * 16, v_tile);
    PL_UNROLL
    for (int j = 0; j < kKeys / 8; ++j) {
      PL_UNROLL
      for (int r = 0; r < 4; ++r) {
        const int query = q0 + warp * 16 + lane / 4 + r / 2 * 8, key = k0 + j * 8 + lane % 4 * 2 + r % 2;
        const bool seen = query < at.length && key < at.key_length && a.sees(query, key);
        soften_gradient(p[j][r], d_p[j][r], seen, a.scale, lse[r / 2], delta[r / 2]);
      }
    }
    multiply_scores<T, D, kKeys>(d_q, d_p, k_tile);
    __syncthreads();  // everybody has read the keys
  }
  gpu::wait_copies<0>();
  put_rows<T, D>(g.d_q + at.q_at(q0 + warp * 16, dim), at.q_stride, left - warp * 16, dim, d_q,
                 {a.scale, a.scale});
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
