// Workspace of the attention kernels, a fact that rule and kernel share.
#pragma once

#include <cstdint>

namespace plimsoll {

struct AttentionShape {
  int64_t length;  // longest sequence of queries, or capacity of the cache
  int64_t heads, kv_heads, head_dim;
  bool causal = true;        // else a query sees all keys of its sequence
  int64_t buckets = 0;       // of the bias over the distance to a key; 0: there is none
  int64_t max_distance = 0;  // from which on all distances share a bucket
  int64_t sequences = 0;     // of a batch at most; asked for the gradient of a bias only
  int64_t tree_tokens = 0;   // that a tree of segments may have; 0: there are none
  bool bias_trains = false;  // the backward makes the gradient of the bias
};

// From a query to a key of its sequence, of those that it may see.
static constexpr int64_t attention_distances(const AttentionShape& shape) {
  return shape.causal ? shape.length : 2 * shape.length - 1;
}

int64_t attention_forward_scratch_bytes(const AttentionShape& shape, int threads);
int64_t attention_backward_scratch_bytes(const AttentionShape& shape, int threads);

}  // namespace plimsoll
