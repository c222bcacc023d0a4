#include "ops/loss/cross_entropy_kernels.h"
#include "ops/pointwise/simd_tanh.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

struct Statistics {
  float maximum;
  float sum;  // of exp(x - maximum)
};

template <class T>
float value(const T* x) {
  return reduce_add(load(x, first(1)));
}

// Two passes over a row that lies in the L2 cache; an online maximum would rescale sums instead. Masked lanes
// read as zero, which is no neutral value here, so that the rest is taken one by one.
template <class T>
Statistics statistics(const T* x, int64_t n) {
  const int64_t whole = n - n % Vec::kWidth;
  Vec top = set1(value(x));
  for (int64_t i = 0; i < whole; i += Vec::kWidth) top = max(top, load(x + i));
  for (int64_t i = whole; i < n; ++i) top = max(top, set1(value(x + i)));
  const float maximum = reduce_max(top);
  const Vec m = set1(maximum);
  Vec sums = zero();
  for (int64_t i = 0; i < whole; i += Vec::kWidth) sums = sums + exp(load(x + i) - m);
  float sum = reduce_add(sums);
  for (int64_t i = whole; i < n; ++i) sum += reduce_max(exp(set1(value(x + i)) - m));
  return {maximum, sum};
}

// Products to logits, which are of type T too.
template <class T>
void map_row(T* x, int64_t n, const LogitMap& map) {
  const Vec inner = set1(map.cap > 0 ? map.factor / map.cap : map.factor), cap = set1(map.cap);
  for_lanes(n, [&](int64_t i, auto lanes) {
    const Vec z = lanes.get(x + i) * inner;
    lanes.put(x + i, map.cap > 0 ? tanh_of(z) * cap : z);
  });
}

template <class T>
void row_gradient(T* x, int64_t n, int64_t label, const Statistics& s, float scale) {
  const Mask one = first(1);
  const Vec m = set1(s.maximum);
  const Vec factor = set1(scale / s.sum);
  const Vec at_label = fma(exp(load(x + label, one) - m), factor, set1(-scale));
  for_lanes(n, [&](int64_t i, auto lanes) { lanes.put(x + i, exp(lanes.get(x + i) - m) * factor); });
  store(x + label, at_label, one);
}

// The same where the products were mapped: each value is times the slope factor * (1 - (y / cap)^2) of its logit y.
template <class T>
void mapped_row_gradient(T* x, int64_t n, int64_t label, const Statistics& s, float scale,
                         const LogitMap& map) {
  const Mask one = first(1);
  const Vec m = set1(s.maximum);
  const Vec factor = set1(scale / s.sum);
  const Vec straight = set1(map.factor), bend = set1(map.cap > 0 ? map.factor / (map.cap * map.cap) : 0.0F);
  const auto slope = [&](Vec y) { return fnma(y * y, bend, straight); };
  const Vec y = load(x + label, one);
  const Vec at_label = fma(exp(y - m), factor, set1(-scale)) * slope(y);
  for_lanes(n, [&](int64_t i, auto lanes) {
    const Vec logit = lanes.get(x + i);
    lanes.put(x + i, exp(logit - m) * factor * slope(logit));
  });
  store(x + label, at_label, one);
}

template <class T>
void rows(const CrossEntropyRows<T>& a) {
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t r = 0; r < a.rows; ++r) {
    T* x = a.logits + r * a.vocab;
    if (!a.map.is_identity()) map_row(x, a.vocab, a.map);
    const Statistics s = statistics(x, a.vocab);
    const float at_label = value(x + a.labels[r]);
    a.losses[r] = __builtin_log(static_cast<double>(s.sum)) + static_cast<double>(s.maximum) -
                  static_cast<double>(at_label);
    if (!a.gradient) continue;
    const float scale = a.scales == nullptr ? a.scale : a.scales[r];
    if (a.map.is_identity())
      row_gradient(x, a.vocab, a.labels[r], s, scale);
    else
      mapped_row_gradient(x, a.vocab, a.labels[r], s, scale, a.map);
  }
}

}  // namespace

void cross_entropy_rows(const CrossEntropyRows<float>& a) { rows(a); }
void cross_entropy_rows(const CrossEntropyRows<uint16_t>& a) { rows(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
