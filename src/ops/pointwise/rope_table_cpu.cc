#include <cmath>

#include "ops/pointwise/rope_kernels.h"

namespace plimsoll {

void rope_table(const int32_t* positions, int64_t tokens, const float* inv_freq, int64_t half_dim,
                float attention_factor, float* table, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t t = 0; t < tokens; ++t) {
    float* cosines = table + t * 2 * half_dim;
    for (int64_t i = 0; i < half_dim; ++i) {
      const double angle = static_cast<double>(positions[t]) * static_cast<double>(inv_freq[i]);
      cosines[i] = static_cast<float>(std::cos(angle) * static_cast<double>(attention_factor));
      cosines[half_dim + i] = static_cast<float>(std::sin(angle) * static_cast<double>(attention_factor));
    }
  }
}

}  // namespace plimsoll
