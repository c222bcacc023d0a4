#include <cmath>

#include "ops/pointwise/rope_kernels.h"

namespace plimsoll {
namespace {

double factor_at(const PositionFactor& factor, int64_t position) {
  if (factor.beta == 0 || position < factor.length) return 1.0;
  return 1.0 + factor.beta * std::log1p(static_cast<double>(position / factor.length));
}

}  // namespace

void rope_table(const int32_t* positions, int64_t tokens, const float* inv_freq, int64_t half_dim,
                float attention_factor, const PositionFactor& factor, float* table, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t t = 0; t < tokens; ++t) {
    float* cosines = table + t * 2 * half_dim;
    const double all = static_cast<double>(attention_factor) * factor_at(factor, positions[t]);
    for (int64_t i = 0; i < half_dim; ++i) {
      const double angle = static_cast<double>(positions[t]) * static_cast<double>(inv_freq[i]);
      cosines[i] = static_cast<float>(std::cos(angle) * all);
      cosines[half_dim + i] = static_cast<float>(std::sin(angle) * all);
    }
  }
}

}  // namespace plimsoll
