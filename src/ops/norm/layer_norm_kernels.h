// Raw CPU kernels of LayerNorm over rows of H values: y = (x - mean) * rstd * weight + bias, rstd = 1 /
// sqrt(variance + eps). The variance is that of the differences from the mean, which large means do not
// spoil.
#pragma once

#include <cstdint>

namespace plimsoll {

// The weight's gradient is summed over blocks of that many rows, then over the blocks in order: the sum does
// not depend on the number of threads. The rule's scratch follows from it.
inline constexpr int64_t kLayerNormRowsPerBlock = 64;
static constexpr int64_t layer_norm_blocks(int64_t rows) {
  return (rows + kLayerNormRowsPerBlock - 1) / kLayerNormRowsPerBlock;
}

// T: type of x and y. W: type of weight and bias.
template <class T, class W>
struct LayerNorm {
  const T* x = nullptr;  // [rows, width]
  const W* weight = nullptr;
  const W* bias = nullptr;  // null: none
  T* y = nullptr;           // may be x
  float* stats = nullptr;   // [rows, 2] mean and rstd
  int64_t rows = 0, width = 0;
  float eps = 1e-12F;
  int threads = 1;
};

// G: type of the weight's gradient.
template <class T, class W, class G>
struct LayerNormGrad {
  const T* d_y = nullptr;
  const T* x = nullptr;
  const W* weight = nullptr;
  const float* stats = nullptr;
  const T* d_x_in = nullptr;  // added to d_x; may be null, may be d_x
  T* d_x = nullptr;           // null: not wanted
  G* d_weight = nullptr;      // null: not wanted
  bool accumulate = false;    // d_weight is added to instead of overwritten
  float* partials = nullptr;  // [layer_norm_blocks(rows), width] where d_weight is wanted
  int64_t rows = 0, width = 0;
  int threads = 1;
};

#define PLIMSOLL_LAYER_NORM_KERNELS(isa)                                    \
  namespace isa {                                                           \
  void layer_norm(const LayerNorm<float, float>&);                          \
  void layer_norm(const LayerNorm<uint16_t, float>&);                       \
  void layer_norm(const LayerNorm<uint16_t, uint16_t>&);                    \
  void layer_norm_grad(const LayerNormGrad<float, float, float>&);          \
  void layer_norm_grad(const LayerNormGrad<uint16_t, float, float>&);       \
  void layer_norm_grad(const LayerNormGrad<uint16_t, uint16_t, float>&);    \
  void layer_norm_grad(const LayerNormGrad<uint16_t, uint16_t, uint16_t>&); \
  }
PLIMSOLL_LAYER_NORM_KERNELS(avx2)
PLIMSOLL_LAYER_NORM_KERNELS(avx512)
PLIMSOLL_LAYER_NORM_KERNELS(avx512_bf16)
PLIMSOLL_LAYER_NORM_KERNELS(avx2_f16)
#undef PLIMSOLL_LAYER_NORM_KERNELS

}  // namespace plimsoll
