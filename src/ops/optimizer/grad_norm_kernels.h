// Raw CPU kernels of the sum of squares behind gradient clipping.
#pragma once

#include <cstdint>

namespace plimsoll {

// partials[i] = sum of squares of the i-th 65536 elements. Added up in order they give the same bits for any
// number of threads, and for slices that begin at multiples of 65536.
inline constexpr int64_t kSumOfSquaresBlock = 65536;
template <class T>
struct SumOfSquares {
  const T* x = nullptr;
  int64_t count = 0;
  double* partials = nullptr;  // [ceil(count / kSumOfSquaresBlock)]
  int threads = 1;
  double before = 0;  // the sum of the elements that precede x
};

// Squares that one launch adds up on a GPU: as many as it takes as arguments.
inline constexpr int64_t kSquaresOfLaunch = 128;

// Added to the norm before the division, as PyTorch's clip_grad_norm_ does.
inline constexpr double kClipEps = 1e-6;

struct GradNorm {
  double norm;    // of the gradients as they should be
  double factor;  // what they are multiplied by; NaN: they overflowed, and nothing is updated
};
// The norm of gradients that are `scale` times what they should be (0: as they should be). max_norm 0: not
// clipped. constexpr so that kernels of GPUs have it too.
constexpr GradNorm grad_norm_of(double scaled_norm, double max_norm, double scale) {
  const double norm = scale == 0 ? scaled_norm : scaled_norm / scale;
  const double factor = max_norm / (norm + kClipEps);
  // A NaN norm keeps the factor NaN: the run stops on it, nothing is hidden.
  const double clip = max_norm > 0 && !(factor >= 1) ? factor : 1.0;
  if (scale == 0) return {norm, clip};
  const bool finite = norm - norm == 0;
  return {norm, finite ? clip / scale : norm - norm};
}

#define PLIMSOLL_GRAD_NORM_KERNELS(isa)                 \
  namespace isa {                                       \
  double sum_of_squares(const SumOfSquares<float>&);    \
  double sum_of_squares(const SumOfSquares<uint16_t>&); \
  }
PLIMSOLL_GRAD_NORM_KERNELS(avx2)
PLIMSOLL_GRAD_NORM_KERNELS(avx512)
PLIMSOLL_GRAD_NORM_KERNELS(avx2_f16)
#undef PLIMSOLL_GRAD_NORM_KERNELS

}  // namespace plimsoll
