// Attention without tensor cores, for f32 and for what the tiles (ops/gpu_attention_tiles.h) do not do: a
// warp for a row, its lanes side by side over 32 keys or queries, then over the head's values. Include it
// only in attention_gpu.cu.
#pragma once

#include "gpu/math.h"
#include "ops/gpu_attention.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

inline constexpr int kAttentionWarps = 4;       // of a block, a row each
inline constexpr int kAttentionMostDims = 256;  // of a head
inline constexpr int kAttentionLaneDims = kAttentionMostDims / 32;
inline constexpr float kAttentionLowest = -1e30F;

PL_DEV int lane_number() { return static_cast<int>(threadIdx.x) % 32; }
PL_DEV int warp_number() { return static_cast<int>(threadIdx.x) / 32; }

// 16 bytes at a time where they lie so: lanes read rows of their own, which takes as many transactions for a
// value as for a pack. Summed in order either way.
template <class T>
PL_DEV float dot(const T* a, const T* b, int dim) {
  constexpr int kCount = gpu::Pack<T>::kCount;
  const auto begins = reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b);
  float sum = 0;
  int d = 0;
  if (begins % sizeof(gpu::Pack<T>) == 0) {
    for (; d + kCount <= dim; d += kCount) {
      const gpu::Pack<T> x = gpu::load_pack(a + d), y = gpu::load_pack(b + d);
      PL_UNROLL
      for (int i = 0; i < kCount; ++i) sum = gpu::fma(gpu::to_float(x.v[i]), gpu::to_float(y.v[i]), sum);
    }
  }
  for (; d < dim; ++d) sum = gpu::fma(gpu::to_float(a[d]), gpu::to_float(b[d]), sum);
  return sum;
}
// sums += the rows of `from`, each times its weight; a lane has the values lane, lane + 32, ...
template <class T>
PL_DEV void add_rows(float (&sums)[kAttentionLaneDims], const float* weights, int rows, const T* from,
                     int64_t stride, int dim) {
  PL_UNROLL
  for (int i = 0; i < kAttentionLaneDims; ++i) {
    const int d = i * 32 + lane_number();
    if (d >= dim) continue;
    for (int r = 0; r < rows; ++r)
      sums[i] = gpu::fma(weights[r], gpu::to_float(from[r * stride + d]), sums[i]);
  }
}
template <class T>
PL_DEV void put_row(T* to, const float (&sums)[kAttentionLaneDims], float factor, int dim) {
  PL_UNROLL
  for (int i = 0; i < kAttentionLaneDims; ++i) {
    const int d = i * 32 + lane_number();
    if (d < dim) to[d] = gpu::rounded<T>(sums[i] * factor);
  }
}

template <class T>
__global__ void __launch_bounds__(kAttentionWarps * 32) attention_rows(GpuAttentionForward<T> f) {
  const GpuAttention<T>& a = f.a;
  PL_SHARED(float, shared_weights, kAttentionWarps * 32);
  float* const weights = shared_weights + warp_number() * 32;
  const GpuAttentionSite<T> at(a, static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y));
  const int query = static_cast<int>(blockIdx.x) * kAttentionWarps + warp_number();
  if (query >= at.length) return;
  const T* const q = a.q + at.q_at(query, a.head_dim);
  const int end = a.end_of_keys(query, at.key_length);
  float o[kAttentionLaneDims] = {};
  float top = kAttentionLowest, sum = 0;
  for (int k0 = a.first_key(query); k0 < end; k0 += 32) {
    const int key = k0 + lane_number();
    float s = kAttentionLowest;
    if (key < end)
      s = gpu::fma(dot(q, a.k + at.kv_at(key, a.head_dim), a.head_dim), a.scale,
                   a.bias_of(at.head, key - query));
    const float new_top = gpu::max(top, gpu::warp_max(s));
    const float shrink = gpu::exp(top - new_top);
    const float p = key < end ? gpu::exp(s - new_top) : 0.0F;
    top = new_top;
    sum = gpu::fma(sum, shrink, gpu::warp_sum(p));
    weights[lane_number()] = key < end ? p * a.kept(at.begin + query, at.head, key) : 0.0F;
    __syncwarp();
    PL_UNROLL
    for (float& value : o) value *= shrink;
    add_rows(o, weights, end - k0 < 32 ? end - k0 : 32, a.v + at.kv_at(k0, a.head_dim), at.kv_stride,
             a.head_dim);
    __syncwarp();
  }
  put_row(f.o + at.q_at(query, a.head_dim), o, sum > 0 ? 1.0F / sum : 0.0F, a.head_dim);
  if (lane_number() == 0)
    f.lse[at.row_at(query, a.heads)] = sum > 0 ? top + gpu::log(sum) : 0.0F;  // no key: zero, as the output
}

// delta [T, N] = sum of d_o * o over a head's values: a warp for each.
template <class T>
__global__ void __launch_bounds__(kAttentionWarps * 32)
    attention_delta(const T* o, const T* d_o, float* delta, int64_t rows, int dim) {
  const int64_t row = int64_t{blockIdx.x} * kAttentionWarps + warp_number();
  if (row >= rows) return;
  float sum = 0;
  for (int d = lane_number(); d < dim; d += 32)
    sum = gpu::fma(gpu::to_float(o[row * dim + d]), gpu::to_float(d_o[row * dim + d]), sum);
  sum = gpu::warp_sum(sum);
  if (lane_number() == 0) delta[row] = sum;
}

// Of one query and key: what its value was multiplied by, and the gradient of its logit.
struct PairGradient {
  float weight, d_logit;
};
template <class T>
PL_DEV PairGradient pair_gradient(const GpuAttentionGrad<T>& g, const GpuAttentionSite<T>& at, int query,
                                  int key) {
  const GpuAttention<T>& a = g.a;
  const int64_t row = at.row_at(query, a.heads);
  const int64_t q = at.q_at(query, a.head_dim), kv = at.kv_at(key, a.head_dim);
  const float s = gpu::fma(dot(a.q + q, a.k + kv, a.head_dim), a.scale, a.bias_of(at.head, key - query));
  const float p = gpu::exp(s - g.lse[row]);
  const float kept = a.kept(at.begin + query, at.head, key);
  return {p * kept, p * (kept * dot(g.d_o + q, a.v + kv, a.head_dim) - g.delta[row])};
}

template <class T>
__global__ void __launch_bounds__(kAttentionWarps * 32) attention_grad_query_rows(GpuAttentionGrad<T> g) {
  const GpuAttention<T>& a = g.a;
  PL_SHARED(float, shared_weights, kAttentionWarps * 32);
  float* const weights = shared_weights + warp_number() * 32;
  const GpuAttentionSite<T> at(a, static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y));
  const int query = static_cast<int>(blockIdx.x) * kAttentionWarps + warp_number();
  if (query >= at.length) return;
  const int end = a.end_of_keys(query, at.key_length);
  float d_q[kAttentionLaneDims] = {};
  for (int k0 = a.first_key(query); k0 < end; k0 += 32) {
    const int key = k0 + lane_number();
    weights[lane_number()] = key < end ? pair_gradient(g, at, query, key).d_logit : 0.0F;
    __syncwarp();
    add_rows(d_q, weights, end - k0 < 32 ? end - k0 : 32, a.k + at.kv_at(k0, a.head_dim), at.kv_stride,
             a.head_dim);
    __syncwarp();
  }
  put_row(g.d_q + at.q_at(query, a.head_dim), d_q, a.scale, a.head_dim);
}

// d_k and d_v of a key, over the queries of all heads of its group.
template <class T>
__global__ void __launch_bounds__(kAttentionWarps * 32) attention_grad_key_rows(GpuAttentionGrad<T> g) {
  const GpuAttention<T>& a = g.a;
  PL_SHARED(float, shared_weights, kAttentionWarps * 32);
  PL_SHARED(float, shared_d_logits, kAttentionWarps * 32);
  float* const weights = shared_weights + warp_number() * 32;
  float* const d_logits = shared_d_logits + warp_number() * 32;
  const int group = a.heads / a.kv_heads, first_head = static_cast<int>(blockIdx.y) * group;
  const GpuAttentionSite<T> keys(a, static_cast<int>(blockIdx.z), first_head);
  const int key = static_cast<int>(blockIdx.x) * kAttentionWarps + warp_number();
  if (key >= keys.key_length) return;
  const int end = a.end_of_queries(key, keys.length);
  float d_k[kAttentionLaneDims] = {}, d_v[kAttentionLaneDims] = {};
  for (int head = first_head; head < first_head + group; ++head) {
    const GpuAttentionSite<T> at(a, static_cast<int>(blockIdx.z), head);
    for (int q0 = a.first_query(key); q0 < end; q0 += 32) {
      const int query = q0 + lane_number();
      const PairGradient pair = query < end ? pair_gradient(g, at, query, key) : PairGradient{0.0F, 0.0F};
      weights[lane_number()] = pair.weight;
      d_logits[lane_number()] = pair.d_logit;
      __syncwarp();
      const int rows = end - q0 < 32 ? end - q0 : 32;
      const int64_t q_at = at.q_at(q0, a.head_dim);
      add_rows(d_k, d_logits, rows, a.q + q_at, at.q_stride, a.head_dim);
      add_rows(d_v, weights, rows, g.d_o + q_at, at.q_stride, a.head_dim);
      __syncwarp();
    }
  }
  put_row(g.d_k + keys.kv_at(key, a.head_dim), d_k, a.scale, a.head_dim);
  put_row(g.d_v + keys.kv_at(key, a.head_dim), d_v, 1.0F, a.head_dim);
}

// sums [N, distances]: the gradient of the logits of all pairs that are one distance apart, a warp for each.
// The first distance is that of the longest sequence's first key to its last query.
template <class T>
__global__ void __launch_bounds__(32)
    attention_grad_distances(GpuAttentionGrad<T> g, int longest, int distances, float* sums) {
  const GpuAttention<T>& a = g.a;
  const int distance = static_cast<int>(blockIdx.x) - (longest - 1), head = static_cast<int>(blockIdx.y);
  float sum = 0;
  for (int sequence = 0; sequence < a.live_sequences(); ++sequence) {
    const GpuAttentionSite<T> at(a, sequence, head);
    for (int query = lane_number(); query < at.length; query += 32) {
      const int key = query + distance;
      if (key >= 0 && key < at.key_length && a.sees(query, key))
        sum += pair_gradient(g, at, query, key).d_logit;
    }
  }
  sum = gpu::warp_sum(sum);
  if (lane_number() == 0) sums[head * distances + static_cast<int>(blockIdx.x)] = sum;
}
// The gradient of the table [buckets, N]: a thread for each value sums its distances in order.
template <class T, class G>
__global__ void attention_grad_table(GpuAttention<T> a, int longest, int distances, const float* sums,
                                     Accumulation accumulation, G* gradient) {
  const int bucket = static_cast<int>(blockIdx.x), head = static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int i = 0; i < distances; ++i)
    if (a.bias.bucket(i - (longest - 1)) == bucket) sum += sums[head * distances + i];
  G& at = gradient[bucket * a.heads + head];
  at = gpu::rounded<G>(sum + (accumulation.adds() ? gpu::to_float(at) : 0.0F));
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
