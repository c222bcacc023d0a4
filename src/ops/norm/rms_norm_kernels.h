// Raw CPU kernels of RMSNorm over rows of H values (a whole token, or one head: rows = T * heads).
// y = x * rstd * (weight + added), rstd = 1 / sqrt(mean(x^2) + eps). For bf16 x the normalised value is rounded to
// bf16 before the product where `rounds_first`, as transformers does for most families.
#pragma once

#include <cstdint>

namespace plimsoll {

// The weight's gradient is summed over blocks of that many rows, then over the blocks in order: the sum does
// not depend on the number of threads. The rule's scratch follows from it.
inline constexpr int64_t kRmsNormRowsPerBlock = 64;

// T: type of x and y. W: type of the weight.
template <class T, class W>
struct RmsNorm {
  const T* x = nullptr;  // [rows, width]
  const W* weight = nullptr;
  T* y = nullptr;         // may be x
  float* rstd = nullptr;  // [rows]
  int64_t rows = 0, width = 0;
  float eps = 1e-6F;
  int threads = 1;
  bool rounds_first = true;
  float added = 0.0F;  // 0 or 1
};

// G: type of the weight's gradient.
template <class T, class W, class G>
struct RmsNormGrad {
  const T* d_y = nullptr;
  const T* x = nullptr;
  const W* weight = nullptr;
  const float* rstd = nullptr;
  const T* d_x_in = nullptr;  // added to d_x; may be null, may be d_x
  T* d_x = nullptr;           // null: not wanted
  G* d_weight = nullptr;      // null: not wanted
  bool accumulate = false;    // d_weight is added to instead of overwritten
  float* partials = nullptr;  // [ceil(rows / kRmsNormRowsPerBlock), width] where d_weight is wanted
  int64_t rows = 0, width = 0;
  int threads = 1;
  bool rounds_first = true;
  float added = 0.0F;
};

#define PLIMSOLL_RMS_NORM_KERNELS(isa)                                  \
  namespace isa {                                                       \
  void rms_norm(const RmsNorm<float, float>&);                          \
  void rms_norm(const RmsNorm<uint16_t, float>&);                       \
  void rms_norm(const RmsNorm<uint16_t, uint16_t>&);                    \
  void rms_norm_grad(const RmsNormGrad<float, float, float>&);          \
  void rms_norm_grad(const RmsNormGrad<uint16_t, float, float>&);       \
  void rms_norm_grad(const RmsNormGrad<uint16_t, uint16_t, float>&);    \
  void rms_norm_grad(const RmsNormGrad<uint16_t, uint16_t, uint16_t>&); \
  }
PLIMSOLL_RMS_NORM_KERNELS(avx2)
PLIMSOLL_RMS_NORM_KERNELS(avx512)
PLIMSOLL_RMS_NORM_KERNELS(avx512_bf16)
PLIMSOLL_RMS_NORM_KERNELS(avx2_f16)
#undef PLIMSOLL_RMS_NORM_KERNELS

}  // namespace plimsoll
