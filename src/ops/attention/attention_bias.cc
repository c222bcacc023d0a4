#include "ops/attention/attention_bias.h"

#include <algorithm>
#include <cmath>

namespace plimsoll {

int64_t attention_bucket(const AttentionShape& shape, int64_t distance) {
  const int64_t buckets = shape.causal ? shape.buckets : shape.buckets / 2;
  const int64_t side = !shape.causal && distance > 0 ? buckets : 0;
  const int64_t away = shape.causal ? std::max<int64_t>(-distance, 0) : std::abs(distance);
  const int64_t exact = buckets / 2;
  if (away < exact) return side + away;
  if (away >= shape.max_distance) return side + buckets - 1;
  const float grown = std::log(static_cast<float>(away) / static_cast<float>(exact));
  const auto whole =
      static_cast<float>(std::log(static_cast<double>(shape.max_distance) / static_cast<double>(exact)));
  const auto step = static_cast<int64_t>(grown / whole * static_cast<float>(buckets - exact));
  return side + std::min(exact + step, buckets - 1);
}

}  // namespace plimsoll
