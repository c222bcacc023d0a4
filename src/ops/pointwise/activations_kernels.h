// Raw CPU kernels of relu, geglu, gelu, tanh and scale, value by value. Outputs may be inputs. No bit depends
// on threads.
#pragma once

#include <cstdint>

namespace plimsoll {

// y = max(x, 0)
template <class T>
struct Relu {
  const T* x = nullptr;
  T* y = nullptr;
  int64_t count = 0;
  int threads = 1;
};

// d_x = d_y where y is positive, else 0
template <class T>
struct ReluGrad {
  const T* y = nullptr;
  const T* d_y = nullptr;
  T* d_x = nullptr;
  int64_t count = 0;
  int threads = 1;
};

// s = gelu(gate) * up, gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), or with the normal distribution
// where not `by_tanh`. Rows of `width` values; those of gate and up, and of their gradients, are `stride` apart.
template <class T>
struct Geglu {
  const T* gate = nullptr;
  const T* up = nullptr;
  T* s = nullptr;  // dense
  int64_t stride = 0, rows = 0, width = 0;
  bool by_tanh = true;
  int threads = 1;
};

template <class T>
struct GegluGrad {
  const T* d_s = nullptr;  // dense
  const T* gate = nullptr;
  const T* up = nullptr;
  T* d_gate = nullptr;
  T* d_up = nullptr;
  int64_t stride = 0, rows = 0, width = 0;
  bool by_tanh = true;
  int threads = 1;
};

// s = x * Phi(x), Phi the normal distribution; or the form of geglu, where `by_tanh`
template <class T>
struct Gelu {
  const T* x = nullptr;
  T* s = nullptr;
  bool by_tanh = false;
  int64_t count = 0;
  int threads = 1;
};

template <class T>
struct GeluGrad {
  const T* x = nullptr;
  const T* d_s = nullptr;
  T* d_x = nullptr;
  bool by_tanh = false;
  int64_t count = 0;
  int threads = 1;
};

template <class T>
struct Tanh {
  const T* x = nullptr;
  T* y = nullptr;
  int64_t count = 0;
  int threads = 1;
};

// d_x = d_y * (1 - y^2)
template <class T>
struct TanhGrad {
  const T* y = nullptr;
  const T* d_y = nullptr;
  T* d_x = nullptr;
  int64_t count = 0;
  int threads = 1;
};

// y = factor * x
template <class T>
struct Scale {
  const T* x = nullptr;
  T* y = nullptr;
  float factor = 1.0F;
  int64_t count = 0;
  int threads = 1;
};

#define PLIMSOLL_ACTIVATION_KERNELS(isa)       \
  namespace isa {                              \
  void relu(const Relu<float>&);               \
  void relu(const Relu<uint16_t>&);            \
  void relu_grad(const ReluGrad<float>&);      \
  void relu_grad(const ReluGrad<uint16_t>&);   \
  void geglu(const Geglu<float>&);             \
  void geglu(const Geglu<uint16_t>&);          \
  void geglu_grad(const GegluGrad<float>&);    \
  void geglu_grad(const GegluGrad<uint16_t>&); \
  void gelu(const Gelu<float>&);               \
  void gelu(const Gelu<uint16_t>&);            \
  void gelu_grad(const GeluGrad<float>&);      \
  void gelu_grad(const GeluGrad<uint16_t>&);   \
  void tanh(const Tanh<float>&);               \
  void tanh(const Tanh<uint16_t>&);            \
  void tanh_grad(const TanhGrad<float>&);      \
  void tanh_grad(const TanhGrad<uint16_t>&);   \
  void scale(const Scale<float>&);             \
  void scale(const Scale<uint16_t>&);          \
  }
PLIMSOLL_ACTIVATION_KERNELS(avx2)
PLIMSOLL_ACTIVATION_KERNELS(avx512)
PLIMSOLL_ACTIVATION_KERNELS(avx512_bf16)
PLIMSOLL_ACTIVATION_KERNELS(avx2_f16)
#undef PLIMSOLL_ACTIVATION_KERNELS

}  // namespace plimsoll
