// T5's bias of attention: a value per head for a bucket of distances, fine near the query and coarse far
// away.
#pragma once

#include <cstdint>

#include "ops/attention/attention_scratch.h"

namespace plimsoll {

// Bucket of the key that lies `distance` (key - query) away. Causal: all buckets are for keys before the
// query. Else one half is for them, the other for those behind. The first half of a side's buckets hold one
// distance each; the others are spaced by the logarithm, in f32 as PyTorch computes it, so that borders fall
// alike.
int64_t attention_bucket(const AttentionShape& shape, int64_t distance);

}  // namespace plimsoll
