// Raw CPU kernel of softmax cross entropy over rows of logits.
#pragma once

#include <cstdint>

namespace plimsoll {

// The output head makes logits of products: factor * z, or below a cap, cap * tanh(factor * z / cap).
struct LogitMap {
  float factor = 1.0F;
  float cap = 0.0F;  // 0: none

  // True if products are the logits.
  [[nodiscard]] constexpr bool is_identity() const { return factor == 1.0F && cap == 0.0F; }
};

template <class T>
struct CrossEntropyRows {
  T* logits = nullptr;              // [rows, vocab]; products, of which `map` makes logits
  const int32_t* labels = nullptr;  // [rows], each in [0, vocab)
  double* losses = nullptr;         // [rows]: log(sum(exp(logits))) - logits[label]
  int64_t rows = 0, vocab = 0;
  bool gradient = false;  // logits become (softmax - onehot(label)) * scale
  float scale = 1.0F;
  const float* scales = nullptr;  // [rows]; of each row, in place of `scale`
  LogitMap map = {};              // gradients are of the products
  int threads = 1;
};

#define PLIMSOLL_CROSS_ENTROPY_KERNELS(isa)                   \
  namespace isa {                                             \
  void cross_entropy_rows(const CrossEntropyRows<float>&);    \
  void cross_entropy_rows(const CrossEntropyRows<uint16_t>&); \
  }
PLIMSOLL_CROSS_ENTROPY_KERNELS(avx2)
PLIMSOLL_CROSS_ENTROPY_KERNELS(avx512)
PLIMSOLL_CROSS_ENTROPY_KERNELS(avx512_bf16)
PLIMSOLL_CROSS_ENTROPY_KERNELS(avx2_f16)
#undef PLIMSOLL_CROSS_ENTROPY_KERNELS

}  // namespace plimsoll
