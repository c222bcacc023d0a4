#include "ops/pointwise/activations_kernels.h"
#include "ops/pointwise/simd_tanh.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

// The piece that one thread takes at a time: a multiple of every vector width.
constexpr int64_t kPiece = 16384;

// body(i, lanes) for all values, in pieces of a multiple of every vector width.
template <class Body>
void for_all(int64_t count, int threads, Body body) {
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t p = 0; p < (count + kPiece - 1) / kPiece; ++p) {
    const int64_t begin = p * kPiece;
    const int64_t left = count - begin;
    for_lanes(left < kPiece ? left : kPiece, [&](int64_t i, auto lanes) { body(begin + i, lanes); });
  }
}

template <class T>
void relu_of(const Relu<T>& a) {
  // max gives its second operand where one is NaN: a NaN stays one.
  for_all(a.count, a.threads,
          [&](int64_t i, auto lanes) { lanes.put(a.y + i, max(zero(), lanes.get(a.x + i))); });
}

// y * huge * huge is 0 or infinite, with the sign of y: 1 for every positive value that is not denormal.
template <class T>
void relu_grad_of(const ReluGrad<T>& a) {
  for_all(a.count, a.threads, [&](int64_t i, auto lanes) {
    const Vec huge = set1(1e38F);
    const Vec passes = max(zero(), min(set1(1.0F), lanes.get(a.y + i) * huge * huge));
    lanes.put(a.d_x + i, lanes.get(a.d_y + i) * passes);
  });
}

struct Curve {
  Vec value;       // gelu(x)
  Vec derivative;  // of it at x
};
// With t = 2 u, u = sqrt(2/pi) (x + 0.044715 x^3): (1 + tanh u) / 2 = sigmoid(t).
inline Curve gelu_by_tanh(Vec x) {
  const Vec square = x * x;
  const Vec t = set1(kGeluSlope) * x * fma(set1(kGeluCube), square, set1(1.0F));
  const Vec half = sigmoid(t);
  const Vec slope = set1(kGeluSlope) * fma(set1(0.134145F), square, set1(1.0F));
  return {x * half, fma(x * half * (set1(1.0F) - half), slope, half)};
}

// x Phi(x) = max(x, 0) - |x| tail(|x|), which keeps the digits of small results where x is negative.
inline Curve gelu_by_normal(Vec x) {
  // The constant stands first: NaN stays one. Beyond 40 there is nothing, and infinity would make NaN.
  const Vec a = min(set1(kNormalEnd), max(zero() - x, x));
  const Vec density = exp(set1(-0.5F) * a * a);
  const Vec t = set1(1.0F) / fma(set1(kNormalTailScale), a, set1(1.0F));
  const Vec tail = density * t * polynomial(NormalTail{}.c, t);
  // -1, 0 or 1; values that are nearly denormal may be in between.
  const Vec huge = set1(1e38F);
  const Vec sign = max(set1(-1.0F), min(set1(1.0F), x * huge * huge));
  const Vec side = fma(set1(0.5F), sign, set1(0.5F));
  const Vec apart = fma(a * set1(kNormalAtZero), density, zero() - tail);
  return {fnma(a, tail, max(zero(), x)), fma(sign, apart, side)};
}

template <class T>
void gelu_of(const Gelu<T>& a) {
  for_all(a.count, a.threads, [&](int64_t i, auto lanes) {
    const Vec x = lanes.get(a.x + i);
    lanes.put(a.s + i, (a.by_tanh ? gelu_by_tanh(x) : gelu_by_normal(x)).value);
  });
}

template <class T>
void gelu_grad_of(const GeluGrad<T>& a) {
  for_all(a.count, a.threads, [&](int64_t i, auto lanes) {
    const Vec x = lanes.get(a.x + i);
    lanes.put(a.d_x + i, lanes.get(a.d_s + i) * (a.by_tanh ? gelu_by_tanh(x) : gelu_by_normal(x)).derivative);
  });
}

template <class T>
void all_tanh(const Tanh<T>& a) {
  for_all(a.count, a.threads,
          [&](int64_t i, auto lanes) { lanes.put(a.y + i, tanh_of(lanes.get(a.x + i))); });
}

template <class T>
void tanh_grad_of(const TanhGrad<T>& a) {
  for_all(a.count, a.threads, [&](int64_t i, auto lanes) {
    const Vec y = lanes.get(a.y + i);
    lanes.put(a.d_x + i, lanes.get(a.d_y + i) * fnma(y, y, set1(1.0F)));
  });
}

// body(in, dense, lanes) for all values of rows: their places in the tensors of gate and up, and in dense ones.
template <class Body>
void for_gated(int64_t rows, int64_t width, int64_t stride, int threads, Body body) {
  if (stride == width)
    return for_all(rows * width, threads, [&](int64_t i, auto lanes) { body(i, i, lanes); });
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t row = 0; row < rows; ++row)
    for_lanes(width, [&](int64_t i, auto lanes) { body(row * stride + i, row * width + i, lanes); });
}

inline Curve gelu_by(bool tanh, Vec x) { return tanh ? gelu_by_tanh(x) : gelu_by_normal(x); }

template <class T>
void geglu_of(const Geglu<T>& a) {
  for_gated(a.rows, a.width, a.stride, a.threads, [&](int64_t in, int64_t out, auto lanes) {
    lanes.put(a.s + out, gelu_by(a.by_tanh, lanes.get(a.gate + in)).value * lanes.get(a.up + in));
  });
}

template <class T>
void geglu_grad_of(const GegluGrad<T>& a) {
  for_gated(a.rows, a.width, a.stride, a.threads, [&](int64_t in, int64_t out, auto lanes) {
    const Curve g = gelu_by(a.by_tanh, lanes.get(a.gate + in));
    const Vec up = lanes.get(a.up + in);
    const Vec d = lanes.get(a.d_s + out);
    lanes.put(a.d_up + in, d * g.value);
    lanes.put(a.d_gate + in, d * up * g.derivative);
  });
}

template <class T>
void scale_of(const Scale<T>& a) {
  for_all(a.count, a.threads,
          [&](int64_t i, auto lanes) { lanes.put(a.y + i, set1(a.factor) * lanes.get(a.x + i)); });
}

}  // namespace

void relu(const Relu<float>& a) { relu_of(a); }
void relu(const Relu<uint16_t>& a) { relu_of(a); }
void relu_grad(const ReluGrad<float>& a) { relu_grad_of(a); }
void relu_grad(const ReluGrad<uint16_t>& a) { relu_grad_of(a); }
void geglu(const Geglu<float>& a) { geglu_of(a); }
void geglu(const Geglu<uint16_t>& a) { geglu_of(a); }
void geglu_grad(const GegluGrad<float>& a) { geglu_grad_of(a); }
void geglu_grad(const GegluGrad<uint16_t>& a) { geglu_grad_of(a); }
void gelu(const Gelu<float>& a) { gelu_of(a); }
void gelu(const Gelu<uint16_t>& a) { gelu_of(a); }
void gelu_grad(const GeluGrad<float>& a) { gelu_grad_of(a); }
void gelu_grad(const GeluGrad<uint16_t>& a) { gelu_grad_of(a); }
void tanh(const Tanh<float>& a) { all_tanh(a); }
void tanh(const Tanh<uint16_t>& a) { all_tanh(a); }
void tanh_grad(const TanhGrad<float>& a) { tanh_grad_of(a); }
void tanh_grad(const TanhGrad<uint16_t>& a) { tanh_grad_of(a); }
void scale(const Scale<float>& a) { scale_of(a); }
void scale(const Scale<uint16_t>& a) { scale_of(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
