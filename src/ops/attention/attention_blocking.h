// Blocking of the attention kernels, from which their scratch follows. Functions are static: a kernel file's
// copy, compiled for one instruction set, must never be the one the linker keeps for everybody.
#pragma once

#include <cstdint>

#include "ops/attention/attention_scratch.h"

namespace plimsoll {

// The rows a kernel multiplies are (query, head of the group) pairs, query outermost: they share one packed
// block of keys, and the causal edge cuts through few of them.
inline constexpr int64_t kAttentionKeyBlock = 64;      // four AVX-512 registers of logits
inline constexpr int64_t kAttentionForwardTile = 24;   // rows whose logits (6 KiB) are live at once
inline constexpr int64_t kAttentionForwardRows = 168;  // rows that share one packing of a key block
inline constexpr int64_t kAttentionBackwardTile = 48;  // deeper: it is the depth of the d_k, d_v products
// Key blocks that a backward tile meets for one packing of its rows and one visit of its d_q; they stay in
// L2.
inline constexpr int64_t kAttentionBackwardKeys = 4;

static inline constexpr int64_t attention_group(const AttentionShape& s) { return s.heads / s.kv_heads; }
// Row length of f32 buffers: whole registers of either instruction set.
static inline constexpr int64_t attention_padded_dim(const AttentionShape& s) {
  return (s.head_dim + 15) / 16 * 16;
}
// Queries of one work item of the forward.
static inline constexpr int64_t attention_query_block(const AttentionShape& s) {
  const int64_t queries = kAttentionForwardRows / attention_group(s);
  return queries > 0 ? queries : 1;
}

// Per thread, in floats: K transposed and V of a key block, q and o of all rows, their running maximum and
// sum, the logits of a tile; with trees the rows of a key block that lie in several segments.
static inline constexpr int64_t attention_forward_thread_floats(const AttentionShape& s) {
  const int64_t dim = attention_padded_dim(s);
  const int64_t rows = attention_query_block(s) * attention_group(s);
  return 2 * kAttentionKeyBlock * dim + 2 * rows * dim + (2 * rows + 15) / 16 * 16 +
         kAttentionForwardTile * kAttentionKeyBlock + (s.tree_tokens > 0 ? kAttentionKeyBlock * dim : 0);
}

// Parts a (sequence, key-value head) pair is split into by key blocks, so that one sequence alone keeps all
// threads busy; a function of nothing else, or a sequence's bits would depend on the batch around it.
// It divides the number of threads.
static inline constexpr int64_t attention_backward_parts(const AttentionShape& s, int threads) {
  if (s.kv_heads >= 4 * threads) return 1;
  int64_t a = threads;
  int64_t b = s.kv_heads;
  while (b != 0) {
    const int64_t r = a % b;
    a = b;
    b = r;
  }
  return threads / a;
}
// Per thread, in floats: K, K transposed, V transposed, d_k, d_v of some key blocks; q and d_o of a tile; P
// and dS of a tile and a key block.
static inline constexpr int64_t attention_backward_thread_floats(const AttentionShape& s) {
  const int64_t dim = attention_padded_dim(s);
  return 5 * kAttentionBackwardKeys * kAttentionKeyBlock * dim + 2 * kAttentionBackwardTile * dim +
         2 * kAttentionBackwardTile * kAttentionKeyBlock;
}
// Per part in flight, of which there are as many as threads: d_q of all rows of a pair (of a sequence, or of
// a tree), their lse, their sums of o * d_o; of a tree its tokens' numbers on their paths.
static inline constexpr int64_t attention_backward_rows(const AttentionShape& s) {
  return (s.tree_tokens > 0 ? s.tree_tokens : s.length) * attention_group(s);
}
static inline constexpr int64_t attention_backward_part_floats(const AttentionShape& s) {
  const int64_t rows = attention_backward_rows(s);
  return rows * attention_padded_dim(s) + (2 * rows + s.tree_tokens + 15) / 16 * 16;
}

// A vector over the distances from a query to a key (key - query), from the farthest key before it on; behind
// the last distance the registers of a block of keys still read.
static inline constexpr int64_t attention_distance_floats(const AttentionShape& s) {
  if (s.buckets == 0) return 0;
  return (attention_distances(s) + kAttentionKeyBlock + 15) / 16 * 16;
}
// The bucket of every distance, and the bias of every head over them.
static inline constexpr int64_t attention_bias_floats(const AttentionShape& s) {
  return (1 + s.heads) * attention_distance_floats(s);
}
// Sums of dS: per part in flight over the distances, for the heads of its pair; and per bucket, of every
// sequence, part and head.
static inline constexpr int64_t attention_bias_gradient_floats(const AttentionShape& s, int threads) {
  if (!s.bias_trains) return 0;
  const int64_t sums = s.sequences * attention_backward_parts(s, threads) * s.heads * s.buckets;
  return threads * attention_group(s) * attention_distance_floats(s) + (sums + 15) / 16 * 16;
}

}  // namespace plimsoll
