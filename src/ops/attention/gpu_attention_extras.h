// Optional steps of the tiles of attention (ops/attention/gpu_attention_tiles.h) in addition to their
// products: a bias over the distance from a query to a key, its gradient, and dropout of the probabilities.
// Include it only in attention_gpu.cu and attention_trees_gpu.cu.
#pragma once

#include <type_traits>

#include "gpu/math.h"
#include "ops/attention/attention_shape.h"
#include "ops/attention/gpu_attention.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

inline constexpr int kExtrasThreads = 128;  // of a block

// The rows and columns of the thread's four values of eight columns: rows lane / 4 and that + 8, columns lane
// % 4 * 2 and + 1.
PL_DEV int own_row() { return static_cast<int>(threadIdx.x) % 32 / 4; }
PL_DEV int own_column() { return static_cast<int>(threadIdx.x) % 32 % 4 * 2; }

// The bias of a head by distance, in shared memory. From `last` on all distances have the same.
struct TileBias {
  const float* by_distance = nullptr;  // [2 last + 1], of logits before they are scaled; null: there is none
  int last = 0;

  [[nodiscard]] PL_DEV float of(int distance) const {
    const int near = distance < -last ? -last : distance > last ? last : distance;
    return by_distance[near + last];
  }
};
PL_BOTH int in_packs(int bytes) { return (bytes + 15) / 16 * 16; }
// Bytes of shared memory for the biases of so many heads.
template <class T>
PL_BOTH int bias_bytes(const GpuAttention<T>& a, int heads) {
  return a.bias.table == nullptr ? 0 : in_packs(heads * a.bias.span() * int{sizeof(float)});
}
// Fills [heads][2 last + 1] by all threads of a block, which wait for each other before they read it.
template <int kThreads, class T>
PL_DEV void fill_bias(const GpuAttention<T>& a, int first_head, int heads, float* to) {
  if (a.bias.table == nullptr) return;
  const int span = a.bias.span();
  for (int i = static_cast<int>(threadIdx.x); i < heads * span; i += kThreads)
    to[i] = a.bias_of(first_head + i / span, i % span - a.bias.last) / a.scale;
}
template <class T>
PL_DEV TileBias tile_bias(const GpuAttention<T>& a, const float* filled, int head_of_group) {
  if (a.bias.table == nullptr) return {};
  return {filled + head_of_group * a.bias.span(), a.bias.last};
}

// The side of a pair that the rows of a tile are.
enum class TileRowsAre : uint8_t { queries, keys };

// Logits of 16 rows before their products are added. `distance0`: from the first query to the first key.
template <int kCount, TileRowsAre kRows>
PL_DEV void begin_logits(float (&s)[kCount / 8][4], const TileBias& bias, int distance0) {
  if (bias.by_distance == nullptr) return;
  constexpr int kSign = kRows == TileRowsAre::queries ? 1 : -1;
  const int own = distance0 + kSign * (own_column() - own_row());
  PL_UNROLL
  for (int j = 0; j < kCount / 8; ++j) {
    PL_UNROLL
    for (int r = 0; r < 4; ++r) s[j][r] = bias.of(own + kSign * (j * 8 + r % 2 - r / 2 * 8));
  }
}

// Factors of the probabilities of a thread's part of a tile: nothing is dropped ...
struct AllKept {
  [[nodiscard]] PL_DEV float of(int, int) const { return 1.0F; }
};
// ... or a bit for each says whether it is kept.
struct DrawnKept {
  uint32_t bits = 0xFFFFFFFFU;
  float factor = 1.0F;  // of those that are

  PL_DEV void keep(int j, int r) { bits |= 1U << (j * 4 + r); }
  [[nodiscard]] PL_DEV float of(int j, int r) const {
    return (bits >> (j * 4 + r) & 1U) != 0 ? factor : 0.0F;
  }
};

// A counter of Philox serves the keys k, k + 16, k + 32 and k + 48 of 64 (philox_bits32); heads are 2^23 keys
// apart. The counters of a head's 64 keys from `k0` on, a multiple of 64, begin here.
PL_DEV uint32_t first_counter(int head, int k0) {
  return (static_cast<uint32_t>(head) << 21) + static_cast<uint32_t>(k0 / 64) * 16;
}
template <class T>
PL_DEV PhiloxStream stream_of(const GpuAttention<T>& a, int64_t row) {
  return philox_stream(step_seed(a.step), a.dropout.scope_hash,
                       static_cast<uint32_t>(a.dropout.positions[row]),
                       static_cast<uint32_t>(a.dropout.samples[row]),
                       static_cast<uint32_t>(step_value(a.step, StepValue::optimizer_step)));
}

// Draws for the two queries of 16 that are the thread's.
template <class T>
struct QueryDraws {
  const GpuAttention<T>& a;
  int head;
  PhiloxStream streams[2] = {};

  PL_DEV QueryDraws(const GpuAttention<T>& all, const GpuAttentionSite<T>& at, int query0)
      : a(all), head(at.head) {
    if (a.dropout.samples == nullptr) return;
    PL_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int query = query0 + own_row() + h * 8;
      streams[h] = stream_of(a, at.begin + (query < at.length ? query : at.length - 1));
    }
  }
  // For kCount keys from `k0` on, a multiple of it.
  template <int kCount>
  [[nodiscard]] PL_DEV DrawnKept draw(int k0) const {
    static_assert(kCount == 64 || kCount == 32);
    DrawnKept kept;
    if (a.dropout.samples == nullptr) return kept;
    kept = {0, a.dropout.factor};
    const uint32_t first = first_counter(head, k0);
    const bool upper = k0 % 64 != 0;
    PL_UNROLL
    for (int h = 0; h < 2; ++h) {
      PL_UNROLL
      for (int i = 0; i < 4; ++i) {
        uint32_t words[4];
        philox(streams[h], first + static_cast<uint32_t>(i / 2 * 8 + own_column() + i % 2), words);
        PL_UNROLL
        for (int w = 0; w < kCount / 16; ++w) {
          const uint32_t word = kCount == 32 && upper ? words[w + 2] : words[w];
          if (word >= a.dropout.threshold) kept.keep(w * 2 + i / 2, h * 2 + i % 2);
        }
      }
    }
    return kept;
  }
};

inline constexpr int kDrawnQueries = 32;
inline constexpr int kDrawnBytes = kDrawnQueries * 16;
// Draws for a tile of 64 keys from `k0` on and kDrawnQueries queries, by all threads of a block: of a query
// and k % 16 a byte, whose bit i is of key 16 i + k % 16.
template <int kThreads, class T>
PL_DEV void draw_for_keys(const GpuAttention<T>& a, const GpuAttentionSite<T>& at, int head, int query0,
                          int k0, uint8_t* to) {
  if (a.dropout.samples == nullptr) return;
  for (int i = static_cast<int>(threadIdx.x); i < kDrawnBytes; i += kThreads) {
    const int query = query0 + i / 16;
    uint32_t bits = 0;
    if (query < at.length) {
      uint32_t words[4];
      philox(stream_of(a, at.begin + query), first_counter(head, k0) + static_cast<uint32_t>(i % 16), words);
      PL_UNROLL
      for (int w = 0; w < 4; ++w) bits |= words[w] >= a.dropout.threshold ? 1U << w : 0U;
    }
    to[i] = static_cast<uint8_t>(bits);
  }
}
// Draws for a warp whose rows are keys 16 `warp` to that + 15 of the tile.
template <class T>
PL_DEV DrawnKept kept_for_keys(const GpuAttention<T>& a, const uint8_t* drawn, int warp) {
  DrawnKept kept;
  if (a.dropout.samples == nullptr) return kept;
  kept = {0, a.dropout.factor};
  PL_UNROLL
  for (int j = 0; j < kDrawnQueries / 8; ++j) {
    PL_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int query = j * 8 + own_column() + r % 2, key = own_row() + r / 2 * 8;
      if ((drawn[query * 16 + key] >> warp & 1) != 0) kept.keep(j, r);
    }
  }
  return kept;
}

// Work in addition to the products, for a block that walks queries for a tile of keys ...
template <class T>
struct KeyExtras {
  const GpuAttention<T>& a;
  const GpuAttentionSite<T>& at;
  int k0;
  uint8_t* drawn;  // two buffers, then the biases of the group's heads

  [[nodiscard]] static PL_BOTH int bytes(const GpuAttention<T>& a) {
    return 2 * kDrawnBytes + bias_bytes(a, a.heads / a.kv_heads);
  }
  [[nodiscard]] PL_DEV float* biases() const { return reinterpret_cast<float*>(drawn + 2 * kDrawnBytes); }
  // All threads wait for each other behind it, and behind draw().
  PL_DEV void begin() const { fill_bias<kExtrasThreads>(a, at.head, a.heads / a.kv_heads, biases()); }
  PL_DEV void draw(int head, int query0, int buffer) const {
    draw_for_keys<kExtrasThreads>(a, at, at.head + head, query0, k0, drawn + buffer * kDrawnBytes);
  }
  PL_DEV void begin_logits(float (&s)[kDrawnQueries / 8][4], int head, int distance0) const {
    plimsoll::begin_logits<kDrawnQueries, TileRowsAre::keys>(s, tile_bias(a, biases(), head), distance0);
  }
  [[nodiscard]] PL_DEV DrawnKept kept(int buffer, int warp) const {
    return kept_for_keys(a, drawn + buffer * kDrawnBytes, warp);
  }
};
// ... where there is nothing of it.
template <class T>
struct NoKeyExtras {
  const GpuAttention<T>& a;
  const GpuAttentionSite<T>& at;
  int k0;
  uint8_t* drawn;

  [[nodiscard]] static PL_BOTH int bytes(const GpuAttention<T>&) { return 0; }
  PL_DEV void begin() const {}
  PL_DEV void draw(int, int, int) const {}
  PL_DEV void begin_logits(float (&)[kDrawnQueries / 8][4], int, int) const {}
  [[nodiscard]] PL_DEV AllKept kept(int, int) const { return {}; }
};
template <class T, bool kExtras>
using KeyExtrasOf = std::conditional_t<kExtras, KeyExtras<T>, NoKeyExtras<T>>;

// The gradient of a bias: a warp sums those of its logits by distance, in shared memory of its own ...
template <int kCount>
struct DistanceSums {
  static constexpr int kStride = kCount + 1;
  static constexpr int kFragment = 16 * kStride;  // floats

  float* fragment;  // [16][kStride]
  float* sums;      // [2 last + 1]
  int last;

  // Adds 16 queries' gradients.
  PL_DEV void add(const float (&d)[kCount / 8][4], int distance0) const {
    if (distance0 + kCount - 1 <= -last || distance0 - 15 >= last) return add_far(d, distance0 < 0);
    PL_UNROLL
    for (int j = 0; j < kCount / 8; ++j) {
      PL_UNROLL
      for (int r = 0; r < 4; ++r)
        fragment[(own_row() + r / 2 * 8) * kStride + j * 8 + own_column() + r % 2] = d[j][r];
    }
    __syncwarp();
    float ends[2] = {};
    for (int i = static_cast<int>(threadIdx.x) % 32; i < kCount + 15; i += 32) {
      const float sum = diagonal(i - 15);
      const int distance = distance0 + i - 15;
      if (distance <= -last)
        ends[0] += sum;
      else if (distance >= last)
        ends[1] += sum;
      else
        sums[distance + last] += sum;
    }
    add_ends(ends[0], ends[1]);
  }

 private:
  // `offset`: column - row.
  [[nodiscard]] PL_DEV float diagonal(int offset) const {
    float sum = 0;
    PL_UNROLL
    for (int row = 0; row < 16; ++row) {
      const int column = row + offset;
      if (column >= 0 && column < kCount) sum += fragment[row * kStride + column];
    }
    return sum;
  }
  // All of them lie where distances have one bias.
  PL_DEV void add_far(const float (&d)[kCount / 8][4], bool behind) const {
    float sum = 0;
    PL_UNROLL
    for (int j = 0; j < kCount / 8; ++j) {
      PL_UNROLL
      for (int r = 0; r < 4; ++r) sum += d[j][r];
    }
    add_ends(behind ? sum : 0.0F, behind ? 0.0F : sum);
  }
  PL_DEV void add_ends(float behind, float before) const {
    behind = gpu::warp_sum(behind);
    before = gpu::warp_sum(before);
    if (threadIdx.x % 32 == 0) {
      sums[0] += behind;
      sums[2 * last] += before;
    }
    __syncwarp();  // the fragment may be overwritten
  }
};
// ... and a block those of its warps by bucket: a thread for each. `sums`: [kWarps][2 last + 1].
template <int kWarps, class T>
PL_DEV void put_bucket_sums(const GpuBias<T>& bias, const float* sums, float* to) {
  const auto bucket = static_cast<int>(threadIdx.x);
  if (bucket >= bias.all_buckets()) return;
  const bool behind = bucket < bias.buckets;
  const int side = behind ? bucket : bucket - bias.buckets;
  const int end = side + 1 < bias.buckets ? bias.borders[side + 1] : bias.last + 1;
  float sum = 0;
  for (int away = behind || side > 0 ? bias.borders[side] : 1; away < end; ++away) {
    PL_UNROLL
    for (int w = 0; w < kWarps; ++w) sum += sums[w * bias.span() + bias.last + (behind ? -away : away)];
  }
  to[bucket] = sum;
}

// Work in addition to the products, for a block that walks kKeys keys at a time for a tile of queries, 16 of
// them a warp's ...
template <class T, int kKeys>
struct QueryExtras {
  const GpuAttention<T>& a;
  const GpuAttentionSite<T>& at;
  int query0;  // the warp's first
  float* biases;
  QueryDraws<T> draws;

  PL_DEV QueryExtras(const GpuAttention<T>& all, const GpuAttentionSite<T>& where, int query, float* shared)
      : a(all), at(where), query0(query), biases(shared), draws(all, where, query) {}
  [[nodiscard]] static PL_BOTH int bytes(const GpuAttention<T>& a) { return bias_bytes(a, 1); }
  // All threads wait for each other behind it.
  PL_DEV void begin() const { fill_bias<kExtrasThreads>(a, at.head, 1, biases); }
  PL_DEV void begin_logits(float (&s)[kKeys / 8][4], int k0) const {
    plimsoll::begin_logits<kKeys, TileRowsAre::queries>(s, tile_bias(a, biases, 0), k0 - query0);
  }
  [[nodiscard]] PL_DEV DrawnKept kept(int k0) const { return draws.template draw<kKeys>(k0); }
};
// ... where there is nothing of it.
template <class T, int kKeys>
struct NoQueryExtras {
  PL_DEV NoQueryExtras(const GpuAttention<T>&, const GpuAttentionSite<T>&, int, float*) {}
  [[nodiscard]] static PL_BOTH int bytes(const GpuAttention<T>&) { return 0; }
  PL_DEV void begin() const {}
  PL_DEV void begin_logits(float (&)[kKeys / 8][4], int) const {}
  [[nodiscard]] PL_DEV AllKept kept(int) const { return {}; }
};
template <class T, int kKeys, bool kExtras>
using QueryExtrasOf = std::conditional_t<kExtras, QueryExtras<T, kKeys>, NoQueryExtras<T, kKeys>>;

// The gradient of the bias in such a block, of four warps, where it is wanted ...
template <class T>
struct BiasSums {
  static constexpr int kKeys = 32, kWarps = kExtrasThreads / 32;
  using Sums = DistanceSums<kKeys>;

  const GpuAttentionGrad<T>& g;
  const GpuAttentionSite<T>& at;
  int query0;    // the warp's first
  float* space;  // sums of kWarps, and fragments of as many

  [[nodiscard]] static PL_BOTH int bytes(const GpuAttentionGrad<T>& g) {
    return g.bias_sums == nullptr
               ? 0
               : in_packs(kWarps * (g.a.bias.span() + Sums::kFragment) * int{sizeof(float)});
  }
  // All threads wait for each other behind it.
  PL_DEV void begin() const {
    if (g.bias_sums == nullptr) return;
    for (int i = static_cast<int>(threadIdx.x); i < kWarps * g.a.bias.span(); i += kExtrasThreads)
      space[i] = 0;
  }
  // Gradients of logits.
  PL_DEV void add(const float (&d)[kKeys / 8][4], int k0) const {
    if (g.bias_sums == nullptr) return;
    const int span = g.a.bias.span(), warp = static_cast<int>(threadIdx.x) / 32;
    const Sums sums{space + kWarps * span + warp * Sums::kFragment, space + warp * span, g.a.bias.last};
    sums.add(d, k0 - query0);
  }
  PL_DEV void end() const {
    if (g.bias_sums == nullptr) return;
    __syncthreads();
    const int tile = query0 / static_cast<int>(kGpuAttentionTile);
    put_bucket_sums<kWarps>(g.a.bias, space, g.bias_sums_of(at.sequence, at.head, tile));
  }
};
// ... where nothing has a bias.
template <class T>
struct NoBiasSums {
  const GpuAttentionGrad<T>& g;
  const GpuAttentionSite<T>& at;
  int query0;
  float* space;

  [[nodiscard]] static PL_BOTH int bytes(const GpuAttentionGrad<T>&) { return 0; }
  PL_DEV void begin() const {}
  PL_DEV void add(const float (&)[BiasSums<T>::kKeys / 8][4], int) const {}
  PL_DEV void end() const {}
};
template <class T, bool kExtras>
using BiasSumsOf = std::conditional_t<kExtras, BiasSums<T>, NoBiasSums<T>>;

// The gradient of the table [buckets, N], of the sums [B, N, tiles, buckets] of tiles of kTile queries: a
// warp for each value.
template <int kTile, class T, class G>
__global__ void __launch_bounds__(32)
    attention_grad_table_of_tiles(GpuAttention<T> a, int tiles, const float* sums, Accumulation accumulation,
                                  G* gradient) {
  const int bucket = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int buckets = static_cast<int>(gridDim.x);
  float sum = 0;
  for (int sequence = 0; sequence < a.live_sequences(); ++sequence) {
    const int length = a.queries.starts[sequence + 1] - a.queries.starts[sequence];
    const int64_t first = (int64_t{sequence} * a.heads + head) * tiles;
    for (int tile = static_cast<int>(threadIdx.x); tile * kTile < length; tile += 32)
      sum += sums[(first + tile) * buckets + bucket];
  }
  sum = gpu::warp_sum(sum);
  if (threadIdx.x != 0) return;
  G& at = gradient[bucket * a.heads + head];
  at = gpu::rounded<G>(sum + (accumulation.adds() ? gpu::to_float(at) : 0.0F));
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
