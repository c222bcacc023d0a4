// Attention of trees of segments (rows that begin with the same tokens;
// docs/decisions/17-shared-prefixes.md), by the kernels of ops/attention/gpu_attention_tiles.h and
// ops/attention/gpu_attention_plain.h. A segment's keys are those of its ancestors from the root on, then its
// own, numbered as though they lay behind one another: what is taken at a time is that of a row by itself.
// The queries that see a segment's keys are its own and, right behind them, those of all that descend from
// it: one range. Include it only in attention_trees_gpu.cu.
#pragma once

#include "ops/attention/gpu_attention_panels.h"
#include "ops/attention/gpu_attention_tiles.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

// A head of a segment, the block's, that looks for its keys. Keys are counted on the segment's path.
template <class T>
struct TreeQueries : GpuAttentionSite<T> {
  const GpuAttention<T>& a;
  int before = 0;  // keys of its ancestors

  PL_DEV TreeQueries(const GpuAttention<T>& all, int segment, int head)
      : GpuAttentionSite<T>(all, segment, head), a(all) {
    if (!this->live) return;
    for (int up = a.trees.parents[segment]; up >= 0; up = a.trees.parents[up]) before += length_of(up);
    this->key_length += before;
  }
  [[nodiscard]] PL_DEV int number(int query) const { return before + query; }
  // The row, among all, of a key of the path. Keys that are asked for one after another mostly lie in one
  // segment.
  [[nodiscard]] PL_DEV int row_of(int key) const {
    if (key < near_begin || key >= near_end) find(key);
    return key + near_offset;
  }

 private:
  mutable int near_begin = 0, near_end = 0, near_offset = 0;

  [[nodiscard]] PL_DEV int length_of(int segment) const {
    return a.queries.starts[segment + 1] - a.queries.starts[segment];
  }
  PL_DEV void find(int key) const {
    int at = this->sequence, begin = before;
    while (key < begin) {
      at = a.trees.parents[at];
      begin -= length_of(at);
    }
    near_begin = begin;
    near_end = begin + length_of(at);
    near_offset = a.queries.starts[at] - begin;
  }
};

// A head of a segment whose keys are looked for: as though the queries of all that descend from it were its
// own.
template <class T>
struct TreeKeys : GpuAttentionSite<T> {
  const int32_t* numbers;  // of the queries on their paths; null: nobody asks

  PL_DEV TreeKeys(const GpuAttention<T>& a, int segment, int head)
      : GpuAttentionSite<T>(a, segment, head), numbers(a.trees.numbers) {
    if (this->live) this->length = a.queries.starts[end_of_branches(a, segment)] - this->begin;
  }
  [[nodiscard]] PL_DEV int end_of_queries(const GpuAttention<T>&, int) const { return this->length; }
  // A query, as counted from the segment's first key.
  [[nodiscard]] PL_DEV int number(int query) const {
    return numbers[this->begin + query] - numbers[this->begin];
  }

 private:
  // The segment behind all that descend from this one; a warp's lanes ask together.
  static PL_DEV int end_of_branches(const GpuAttention<T>& a, int segment) {
    const int live = a.live_sequences();
    for (int first = segment + 1;; first += gpu::kWarpSize) {
      const int own = first + static_cast<int>(threadIdx.x) % gpu::kWarpSize;
      const uint32_t going_on = __ballot_sync(gpu::kAll, own < live && a.trees.parents[own] >= segment);
      if (going_on != gpu::kAll) return first + gpu::lowest_bit(~going_on);
    }
  }
};

// In a window queries of one branch may see a key where those before them in another do not.
template <class T>
struct QueriesInReach {
  Columns rows;
  const TreeKeys<T>& at;
  int end;  // number of the first that does not reach back to the key; 0: there is no window

  [[nodiscard]] PL_DEV bool has(int query) const {
    return rows.has(query) && (end == 0 || at.number(query) < end);
  }
  // A warp's lanes ask together; of kWarpSize queries at most.
  [[nodiscard]] PL_DEV bool hold_none(int first, int count) const {
    if (rows.hold_none(first, count)) return true;
    const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpSize;
    return end > 0 && __ballot_sync(gpu::kAll, lane < count && has(first + lane)) == 0;
  }
};
template <class T>
PL_DEV QueriesInReach<T> queries_that_see_any(const GpuAttention<T>& a, const TreeKeys<T>& at, int key,
                                              int last) {
  return {{key, at.length}, at, a.window == 0 ? 0 : last + a.window};
}
template <class T>
PL_DEV QueriesInReach<T> queries_that_see(const GpuAttention<T>& a, const TreeKeys<T>& at, int key) {
  return queries_that_see_any(a, at, key, key);
}

// As those of sequences, of rows that lie apart.
template <int kCount, int D, class T>
PL_DEV void fetch_key_rows(T* to, const T* keys, const TreeQueries<T>& at, int k0, int dim) {
  constexpr int kChunks = D / 8, kAtOnce = kAttentionThreads / kChunks;
  const int first = static_cast<int>(threadIdx.x) / kChunks, c = static_cast<int>(threadIdx.x) % kChunks;
  keys += at.kv_head * dim + c * 8;
  PL_UNROLL
  for (int i = 0; i < kCount / kAtOnce; ++i) {
    const int r = i * kAtOnce + first;
    const bool there = c * 8 < dim && k0 + r < at.key_length;
    gpu::copy_async(to + tile_place<D>(r, c), there ? keys + at.row_of(k0 + r) * at.kv_stride : keys, there);
  }
}

// Rows behind one another, or of keys.
template <class T>
struct TreeRows {
  const T* from;
  int64_t stride;
  int count;
  const TreeQueries<T>* at;
  int key;  // the first; negative: they are rows

  [[nodiscard]] PL_DEV const T* row(int i) const {
    return from + (key < 0 ? i : at->row_of(key + i)) * stride;
  }
};
template <class T>
PL_DEV TreeRows<T> query_rows(const GpuAttention<T>& a, const TreeQueries<T>& at, const T* q, int row) {
  return {q + at.q_at(row, a.head_dim), at.q_stride, at.length - row, &at, -1};
}
template <class T>
PL_DEV TreeRows<T> key_rows(const GpuAttention<T>& a, const TreeQueries<T>& at, const T* k, int key) {
  return {k + at.kv_head * a.head_dim, at.kv_stride, at.key_length - key, &at, key};
}

// Writes which token of its path each is.
inline constexpr unsigned kNumberThreads = 128;
template <class T>
__global__ void __launch_bounds__(kNumberThreads) number_tokens(GpuAttention<T> a) {
  const int64_t token = int64_t{blockIdx.x} * kNumberThreads + threadIdx.x;
  if (token >= a.queries.tokens) return;
  const int32_t* const starts = a.queries.starts;
  const int64_t segment = sequence_of(starts, a.live_sequences(), token);
  if (segment < 0) return;
  int number = static_cast<int>(token) - starts[segment];
  for (int up = a.trees.parents[segment]; up >= 0; up = a.trees.parents[up])
    number += starts[up + 1] - starts[up];
  a.trees.numbers[token] = number;
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
