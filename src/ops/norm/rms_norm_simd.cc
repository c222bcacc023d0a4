#include "ops/norm/rms_norm_kernels.h"
#include "ops/simd_rows.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

template <class T, class W>
void norm_row(const RmsNorm<T, W>& a, int64_t row) {
  const T* x = a.x + row * a.width;
  T* y = a.y + row * a.width;
  Vec squares = zero();
  for_lanes(a.width, [&](int64_t i, auto lanes) {
    const Vec v = lanes.get(x + i);
    squares = fma(v, v, squares);
  });
  const float rstd = 1.0F / __builtin_sqrtf(reduce_add(squares) / static_cast<float>(a.width) + a.eps);
  a.rstd[row] = rstd;
  const Vec scale = set1(rstd), added = set1(a.added);
  if (a.rounds_first)
    for_lanes(a.width, [&](int64_t i, auto lanes) {
      lanes.put(y + i, rounded_as(lanes.get(x + i) * scale, x) * lanes.get(a.weight + i));
    });
  else
    for_lanes(a.width, [&](int64_t i, auto lanes) {
      lanes.put(y + i, lanes.get(x + i) * scale * (lanes.get(a.weight + i) + added));
    });
}

template <class T, class W>
void norm(const RmsNorm<T, W>& a) {
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t row = 0; row < a.rows; ++row) norm_row(a, row);
}

// d_x = rstd * (g - n * mean(g * n)), g = d_y * (weight + added), n = x * rstd.
template <class T, class W, class G>
void d_x_row(const RmsNormGrad<T, W, G>& a, int64_t row) {
  const T* x = a.x + row * a.width;
  const T* d_y = a.d_y + row * a.width;
  const Vec rstd = set1(a.rstd[row]), added = set1(a.added);
  Vec products = zero();
  for_lanes(a.width, [&](int64_t i, auto lanes) {
    const Vec g = lanes.get(d_y + i) * (lanes.get(a.weight + i) + added);
    products = fma(g, lanes.get(x + i) * rstd, products);
  });
  const Vec mean = set1(reduce_add(products) / static_cast<float>(a.width));
  T* d_x = a.d_x + row * a.width;
  for_lanes(a.width, [&](int64_t i, auto lanes) {
    const Vec g = lanes.get(d_y + i) * (lanes.get(a.weight + i) + added);
    Vec d = fnma(lanes.get(x + i) * rstd, mean, g) * rstd;
    if (a.d_x_in != nullptr) d = d + lanes.get(a.d_x_in + row * a.width + i);
    lanes.put(d_x + i, d);
  });
}

// Adds d_y * n of one row; n is rounded as the forward rounded it.
template <class T, class W, class G>
void add_d_weight_row(const RmsNormGrad<T, W, G>& a, int64_t row, float* sum) {
  const T* x = a.x + row * a.width;
  const T* d_y = a.d_y + row * a.width;
  const Vec rstd = set1(a.rstd[row]);
  for_lanes(a.width, [&](int64_t i, auto lanes) {
    const Vec n = lanes.get(x + i) * rstd;
    lanes.put(sum + i, fma(lanes.get(d_y + i), a.rounds_first ? rounded_as(n, x) : n, lanes.get(sum + i)));
  });
}

template <class T, class W, class G>
void grad_block(const RmsNormGrad<T, W, G>& a, int64_t block) {
  const int64_t begin = block * kRmsNormRowsPerBlock;
  const int64_t end = begin + kRmsNormRowsPerBlock < a.rows ? begin + kRmsNormRowsPerBlock : a.rows;
  float* sum = a.d_weight != nullptr ? a.partials + block * a.width : nullptr;
  if (sum != nullptr) for_lanes(a.width, [&](int64_t i, auto lanes) { lanes.put(sum + i, zero()); });
  for (int64_t row = begin; row < end; ++row) {
    if (sum != nullptr) add_d_weight_row(a, row, sum);
    if (a.d_x != nullptr) d_x_row(a, row);
  }
}

template <class T, class W, class G>
void sum_partials(const RmsNormGrad<T, W, G>& a, int64_t blocks) {
  for_lanes(a.width, [&](int64_t i, auto lanes) {
    Vec sum = zero();
    for (int64_t b = 0; b < blocks; ++b) sum = sum + lanes.get(a.partials + b * a.width + i);
    if (a.accumulate) sum = sum + lanes.get(a.d_weight + i);
    lanes.put(a.d_weight + i, sum);
  });
}

template <class T, class W, class G>
void grad(const RmsNormGrad<T, W, G>& a) {
  const int64_t blocks = (a.rows + kRmsNormRowsPerBlock - 1) / kRmsNormRowsPerBlock;
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t block = 0; block < blocks; ++block) grad_block(a, block);
  if (a.d_weight != nullptr) sum_partials(a, blocks);
}

}  // namespace

void rms_norm(const RmsNorm<float, float>& a) { norm(a); }
void rms_norm(const RmsNorm<uint16_t, float>& a) { norm(a); }
void rms_norm(const RmsNorm<uint16_t, uint16_t>& a) { norm(a); }
void rms_norm_grad(const RmsNormGrad<float, float, float>& a) { grad(a); }
void rms_norm_grad(const RmsNormGrad<uint16_t, float, float>& a) { grad(a); }
void rms_norm_grad(const RmsNormGrad<uint16_t, uint16_t, float>& a) { grad(a); }
void rms_norm_grad(const RmsNormGrad<uint16_t, uint16_t, uint16_t>& a) { grad(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
