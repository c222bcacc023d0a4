#include "ops/attention/attention_scratch.h"

#include "ops/attention/attention_blocking.h"

namespace plimsoll {

int64_t attention_forward_scratch_bytes(const AttentionShape& shape, int threads) {
  return 4 * (threads * attention_forward_thread_floats(shape) + attention_bias_floats(shape));
}

int64_t attention_backward_scratch_bytes(const AttentionShape& shape, int threads) {
  return 4 * (threads * (attention_backward_thread_floats(shape) + attention_backward_part_floats(shape)) +
              attention_bias_floats(shape) + attention_bias_gradient_floats(shape, threads));
}

}  // namespace plimsoll
