// Functions that losses over whole sequences share, for CPU and GPU alike. Sequences are few: sums are f64,
// in order, by one thread.
#pragma once

#include <cmath>

#ifdef __CUDACC__
#define PLIMSOLL_BOTH __host__ __device__
#else
#define PLIMSOLL_BOTH
#endif

namespace plimsoll {

// log(1 + exp(x)) without overflow.
PLIMSOLL_BOTH inline double softplus(double x) {
  return (x < 0 ? 0.0 : x) + std::log1p(std::exp(-std::fabs(x)));
}
PLIMSOLL_BOTH inline double sigmoid(double x) {
  return x >= 0 ? 1.0 / (1.0 + std::exp(-x)) : std::exp(x) / (1.0 + std::exp(x));
}

}  // namespace plimsoll
