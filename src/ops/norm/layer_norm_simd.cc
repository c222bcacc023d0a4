#include "ops/norm/layer_norm_kernels.h"
#include "ops/simd_rows.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

// (v - mean), and 0 in lanes beyond the row's end.
inline Vec centred(Vec v, Vec mean, const Whole&) { return v - mean; }
inline Vec centred(Vec v, Vec mean, const Rest& rest) {
  alignas(64) float lanes[Vec::kWidth];
  store(lanes, v - mean);
  return load(lanes, rest.mask);
}

template <class T, class W>
void norm_row(const LayerNorm<T, W>& a, int64_t row) {
  const T* x = a.x + row * a.width;
  T* y = a.y + row * a.width;
  const auto width = static_cast<float>(a.width);
  Vec sum = zero();
  for_lanes(a.width, [&](int64_t i, auto lanes) { sum = sum + lanes.get(x + i); });
  const float mean = reduce_add(sum) / width;
  Vec squares = zero();
  for_lanes(a.width, [&](int64_t i, auto lanes) {
    const Vec d = centred(lanes.get(x + i), set1(mean), lanes);
    squares = fma(d, d, squares);
  });
  const float rstd = 1.0F / __builtin_sqrtf(reduce_add(squares) / width + a.eps);
  a.stats[2 * row] = mean;
  a.stats[2 * row + 1] = rstd;
  for_lanes(a.width, [&](int64_t i, auto lanes) {
    const Vec normal = (lanes.get(x + i) - set1(mean)) * set1(rstd);
    const Vec bias = a.bias == nullptr ? zero() : lanes.get(a.bias + i);
    lanes.put(y + i, fma(normal, lanes.get(a.weight + i), bias));
  });
}

template <class T, class W>
void norm(const LayerNorm<T, W>& a) {
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t row = 0; row < a.rows; ++row) norm_row(a, row);
}

// One row of the backward pass: d_y and the normalised x.
template <class T, class W, class G>
struct RowGrad {
  const LayerNormGrad<T, W, G>& a;
  int64_t row;
  Vec mean = set1(a.stats[2 * row]), rstd = set1(a.stats[2 * row + 1]);

  template <class Lanes>
  Vec d_y(int64_t i, const Lanes& lanes) const {
    return lanes.get(a.d_y + row * a.width + i);
  }
  template <class Lanes>
  Vec normal(int64_t i, const Lanes& lanes) const {
    return (lanes.get(a.x + row * a.width + i) - mean) * rstd;
  }

  // d_x = rstd * (g - mean(g) - n * mean(g * n)), g = d_y * weight, n = the normalised x. Lanes of g beyond
  // the row's end are 0.
  void d_x() const {
    Vec sum = zero(), products = zero();
    for_lanes(a.width, [&](int64_t i, auto lanes) {
      const Vec g = d_y(i, lanes) * lanes.get(a.weight + i);
      sum = sum + g;
      products = fma(g, normal(i, lanes), products);
    });
    const auto width = static_cast<float>(a.width);
    const Vec mean_g = set1(reduce_add(sum) / width), mean_gn = set1(reduce_add(products) / width);
    T* to = a.d_x + row * a.width;
    for_lanes(a.width, [&](int64_t i, auto lanes) {
      const Vec g = d_y(i, lanes) * lanes.get(a.weight + i);
      Vec d = fnma(normal(i, lanes), mean_gn, g - mean_g) * rstd;
      if (a.d_x_in != nullptr) d = d + lanes.get(a.d_x_in + row * a.width + i);
      lanes.put(to + i, d);
    });
  }

  void add_d_weight(float* sum) const {
    for_lanes(a.width, [&](int64_t i, auto lanes) {
      lanes.put(sum + i, fma(d_y(i, lanes), normal(i, lanes), lanes.get(sum + i)));
    });
  }
};

template <class T, class W, class G>
void grad_block(const LayerNormGrad<T, W, G>& a, int64_t block) {
  const int64_t begin = block * kLayerNormRowsPerBlock;
  const int64_t end = begin + kLayerNormRowsPerBlock < a.rows ? begin + kLayerNormRowsPerBlock : a.rows;
  float* sum = a.d_weight != nullptr ? a.partials + block * a.width : nullptr;
  if (sum != nullptr) for_lanes(a.width, [&](int64_t i, auto lanes) { lanes.put(sum + i, zero()); });
  for (int64_t row = begin; row < end; ++row) {
    const RowGrad<T, W, G> one{a, row};
    if (sum != nullptr) one.add_d_weight(sum);
    if (a.d_x != nullptr) one.d_x();
  }
}

template <class T, class W, class G>
void sum_partials(const LayerNormGrad<T, W, G>& a, int64_t blocks) {
  for_lanes(a.width, [&](int64_t i, auto lanes) {
    Vec sum = zero();
    for (int64_t b = 0; b < blocks; ++b) sum = sum + lanes.get(a.partials + b * a.width + i);
    if (a.accumulate) sum = sum + lanes.get(a.d_weight + i);
    lanes.put(a.d_weight + i, sum);
  });
}

template <class T, class W, class G>
void grad(const LayerNormGrad<T, W, G>& a) {
  const int64_t blocks = layer_norm_blocks(a.rows);
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t block = 0; block < blocks; ++block) grad_block(a, block);
  if (a.d_weight != nullptr) sum_partials(a, blocks);
}

}  // namespace

void layer_norm(const LayerNorm<float, float>& a) { norm(a); }
void layer_norm(const LayerNorm<uint16_t, float>& a) { norm(a); }
void layer_norm(const LayerNorm<uint16_t, uint16_t>& a) { norm(a); }
void layer_norm_grad(const LayerNormGrad<float, float, float>& a) { grad(a); }
void layer_norm_grad(const LayerNormGrad<uint16_t, float, float>& a) { grad(a); }
void layer_norm_grad(const LayerNormGrad<uint16_t, uint16_t, float>& a) { grad(a); }
void layer_norm_grad(const LayerNormGrad<uint16_t, uint16_t, uint16_t>& a) { grad(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
