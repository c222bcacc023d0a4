#include "ops/attention_scratch.h"

namespace plimsoll {

int64_t attention_forward_scratch_bytes(const AttentionShape& shape, int threads) {
  return threads * (2 * shape.length * shape.head_dim * 4 + 64 * shape.head_dim * 8 + 64 * 128 * 4);
}

int64_t attention_backward_scratch_bytes(const AttentionShape& shape, int threads) {
  return threads * (8 * shape.length * shape.head_dim * 4 + 3 * 64 * 128 * 4);
}

}  // namespace plimsoll
