// Operands, sites, and the keys that a query sees, for all attention kernels on the GPU. Shapes and what is
// computed: ops/attention/attention_kernels.h.
#pragma once

#include <cstdint>
#include <string>

#include "ops/attention/attention_bias.h"
#include "ops/attention/gpu_attention_slots.h"
#include "ops/philox.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

// A bias over the distance to a key: a bucket begins at its border and ends at the next one.
template <class T>
struct GpuBias {
  static constexpr int kMostBuckets = 64;  // of a side
  const T* table = nullptr;                // [buckets, N]; null: there is no bias
  int32_t borders[kMostBuckets] = {};
  int32_t buckets = 0;  // of a side; without `causal` as many follow for keys behind the query
  int32_t last = 0;     // where the last one of a side begins
  bool causal = true;

  [[nodiscard]] PL_BOTH int all_buckets() const { return causal ? buckets : 2 * buckets; }
  // Distances from -last to last.
  [[nodiscard]] PL_BOTH int span() const { return 2 * last + 1; }

  // `distance`: key - query.
  [[nodiscard]] PL_DEV int bucket(int distance) const {
    const int away = distance < 0 ? -distance : distance;
    int at = 0;
    while (at + 1 < buckets && borders[at + 1] <= away) ++at;
    return !causal && distance > 0 ? buckets + at : at;
  }
};

// The bias's buckets by where they begin: attention_bucket() grows with the distance.
template <class T>
GpuBias<T> gpu_bias_of(const GpuBinding& b, const AttentionShape& shape, size_t table_input) {
  GpuBias<T> bias{.table = b.input<T>(table_input), .causal = shape.causal};
  if (bias.table == nullptr) return bias;
  const int64_t side = shape.causal ? shape.buckets : shape.buckets / 2;
  if (side > GpuBias<T>::kMostBuckets)
    refuse_on_gpu(b, "a bias of more than " + std::to_string(GpuBias<T>::kMostBuckets) + " buckets a side");
  bias.buckets = static_cast<int32_t>(side);
  int64_t away = 0;
  for (int64_t bucket = 0; bucket < side; ++bucket) {
    while (away < shape.max_distance && attention_bucket(shape, -away) < bucket) ++away;
    bias.borders[bucket] = bias.last = static_cast<int32_t>(away);
  }
  return bias;
}

struct GpuAttentionDropout {
  const int32_t* samples = nullptr;  // [T]; null: nothing is dropped
  const int32_t* positions = nullptr;
  uint64_t scope_hash = 0;
  uint32_t threshold = 0;  // a probability whose bits are below is dropped
  float factor = 1.0F;     // of those that are kept
};

// Tables of sequences that are segments of trees (ops/attention/gpu_attention_trees.h).
struct GpuTrees {
  const int32_t* parents = nullptr;  // null: they are not
  int32_t* numbers = nullptr;        // of the backward in a window: each token's on its path
};

template <class T>
struct GpuAttention {
  const T* q;
  const T* k;
  const T* v;
  GpuSequences queries, keys;
  const double* step;
  StepValue sequences;  // how many are live
  int heads, kv_heads, head_dim, window;
  bool causal;
  float scale;
  float softcap = 0;  // 0: there is none
  GpuBias<T> bias = {};
  GpuAttentionDropout dropout = {};
  GpuTrees trees = {};

  [[nodiscard]] PL_DEV int live_sequences() const { return static_cast<int>(step_value(step, sequences)); }
  [[nodiscard]] PL_DEV bool sees(int query, int key) const {
    if (causal ? key > query : window > 0 && key >= query + window) return false;
    return window == 0 || key > query - window;
  }
  // The first key that a query, or any behind it, sees; and the end of those that it, or any before it, does.
  [[nodiscard]] PL_DEV int first_key(int query) const {
    return window > 0 && query >= window ? query - window + 1 : 0;
  }
  [[nodiscard]] PL_DEV int end_of_keys(int query, int keys_there) const {
    const int end = causal ? query + 1 : window > 0 ? query + window : keys_there;
    return end < keys_there ? end : keys_there;
  }
  // The same of the queries that see a key.
  [[nodiscard]] PL_DEV int first_query(int key) const {
    if (causal) return key;
    return window > 0 && key >= window ? key - window + 1 : 0;
  }
  [[nodiscard]] PL_DEV int end_of_queries(int key, int queries_there) const {
    return window > 0 && key + window < queries_there ? key + window : queries_there;
  }
  // The term that is added to a logit's product.
  [[nodiscard]] PL_DEV float bias_of(int head, int distance) const {
    return bias.table == nullptr ? 0.0F : gpu::to_float(bias.table[bias.bucket(distance) * heads + head]);
  }
  // The factor of a probability: 0, or 1 / (1 - p). `row`: the query's, of all.
  [[nodiscard]] PL_DEV float kept(int64_t row, int head, int key) const {
    if (dropout.samples == nullptr) return 1.0F;
    const PhiloxStream stream =
        philox_stream(step_seed(step), dropout.scope_hash, static_cast<uint32_t>(dropout.positions[row]),
                      static_cast<uint32_t>(dropout.samples[row]),
                      static_cast<uint32_t>(step_value(step, StepValue::optimizer_step)));
    // Heads are 2^23 keys apart, as on the CPU (ops/attention/attention_extras.h).
    const uint32_t bits = philox_bits32(stream, (int64_t{head} << 23) + key);
    return bits >= dropout.threshold ? dropout.factor : 0.0F;
  }
};

template <class T>
struct GpuAttentionForward {
  GpuAttention<T> a;
  T* o;
  float* lse;
};
template <class T>
struct GpuAttentionGrad {
  GpuAttention<T> a;
  const T* o;  // as the forward wrote them
  const float* lse;
  const T* d_o;
  float* delta;  // [T, N]: sum of d_o * o
  T* d_q;
  T* d_k;
  T* d_v;
  float* bias_sums = nullptr;  // [B, N, bias_tiles, buckets], of tiles; null: none are wanted
  int bias_tiles = 0;          // of the longest sequence

  // The start of the sums of a tile's buckets.
  [[nodiscard]] PL_DEV float* bias_sums_of(int sequence, int head, int tile) const {
    return bias_sums +
           ((int64_t{sequence} * a.heads + head) * bias_tiles + tile) * int64_t{a.bias.all_buckets()};
  }
};

// A head of a sequence. `live`: the sequence is there.
template <class T>
struct GpuAttentionSite {
  int sequence, head, kv_head;
  bool live;
  int begin = 0, length = 0, key_begin = 0, key_length = 0;
  int64_t q_stride, kv_stride;  // of rows

  PL_DEV GpuAttentionSite(const GpuAttention<T>& a, int sequence_, int head_)
      : sequence(sequence_),
        head(head_),
        kv_head(head_ / (a.heads / a.kv_heads)),
        live(sequence < a.live_sequences()),
        q_stride(int64_t{a.heads} * a.head_dim),
        kv_stride(int64_t{a.kv_heads} * a.head_dim) {
    if (!live) return;
    begin = a.queries.starts[sequence];
    length = a.queries.starts[sequence + 1] - begin;
    key_begin = a.keys.starts[sequence];
    key_length = a.keys.starts[sequence + 1] - key_begin;
  }
  [[nodiscard]] PL_DEV int64_t q_at(int row, int dim) const { return (begin + row) * q_stride + head * dim; }
  [[nodiscard]] PL_DEV int64_t kv_at(int row, int dim) const {
    return (key_begin + row) * kv_stride + kv_head * dim;
  }
  [[nodiscard]] PL_DEV int64_t row_at(int row, int heads) const {
    return int64_t{begin + row} * heads + head;
  }
  // A query, as counted from the first key.
  [[nodiscard]] PL_DEV int number(int query) const { return query; }
  // Behind the last query that sees a key, or any before it.
  [[nodiscard]] PL_DEV int end_of_queries(const GpuAttention<T>& a, int key) const {
    return a.end_of_queries(key, length);
  }
};

// Columns [begin, end) of a tile, or of a row of one.
struct Columns {
  int begin, end;

  [[nodiscard]] PL_DEV bool has(int column) const { return column >= begin && column < end; }
  [[nodiscard]] PL_DEV bool hold_all(int first, int count) const {
    return first >= begin && first + count <= end;
  }
  [[nodiscard]] PL_DEV bool hold_none(int first, int count) const {
    return first >= end || first + count <= begin;
  }
};
// The keys that a query sees; with `last` those that all from `query` to `last` do.
template <class T, class Site>
PL_DEV Columns keys_of(const GpuAttention<T>& a, const Site& at, int query, int last) {
  return {a.first_key(at.number(last)), a.end_of_keys(at.number(query), at.key_length)};
}
// The same of queries that see a key; with `last` those that see all from `key` to `last`.
template <class T>
PL_DEV Columns queries_of(const GpuAttention<T>& a, const GpuAttentionSite<T>& at, int key, int last) {
  return {a.first_query(last), a.end_of_queries(key, at.length)};
}
// Those that see a key, and those that see any from `key` to `last`; of trees they are no columns.
template <class T>
PL_DEV Columns queries_that_see(const GpuAttention<T>& a, const GpuAttentionSite<T>& at, int key) {
  return queries_of(a, at, key, key);
}
template <class T>
PL_DEV Columns queries_that_see_any(const GpuAttention<T>& a, const GpuAttentionSite<T>& at, int key,
                                    int last) {
  return queries_of(a, at, last, key);
}

// The queries that a block has at a time: the head of its group, and the first row.
struct QueryStep {
  int head, query;

  PL_DEV void go_on(int begin, int end, int count) {
    query += count;
    if (query < end) return;
    query = begin;
    ++head;
  }
};

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
