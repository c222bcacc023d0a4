// Workspace of the attention kernels, a fact that rule and kernel share.
#pragma once

#include <cstdint>

namespace plimsoll {

struct AttentionShape {
  int64_t length;  // longest sequence, or capacity of the cache
  int64_t heads, kv_heads, head_dim;
};

int64_t attention_forward_scratch_bytes(const AttentionShape& shape, int threads);
int64_t attention_backward_scratch_bytes(const AttentionShape& shape, int threads);

}  // namespace plimsoll
