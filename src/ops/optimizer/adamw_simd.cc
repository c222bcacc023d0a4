#include "ops/optimizer/adamw_kernels.h"

#include "ops/optimizer/optimizer_simd.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

struct Coefficients {
  Vec decay, beta1, beta2, one_minus_beta1, one_minus_beta2, step_size, inverse_correction, eps, clip;
};

// p *= 1 - lr * wd;  m, v averages;  p -= lr / c1 * m / (sqrt(v) / sqrt(c2) + eps),  c = 1 - beta^step.
Coefficients coefficients_of(const AdamWStep& s) {
  const auto step = static_cast<double>(s.step);
  const double correction1 = 1.0 - __builtin_pow(s.beta1, step);
  const double correction2 = 1.0 - __builtin_pow(s.beta2, step);
  return {broadcast(1.0 - s.learning_rate * s.weight_decay),
          broadcast(s.beta1),
          broadcast(s.beta2),
          broadcast(1.0 - s.beta1),
          broadcast(1.0 - s.beta2),
          broadcast(s.learning_rate / correction1),
          broadcast(1.0 / __builtin_sqrt(correction2)),
          broadcast(s.eps),
          broadcast(s.clip_factor)};
}

template <class P, class G, class S>
PhiloxStream stream_of(const AdamW<P, G, S>& a, Stream which) {
  return random_stream(a.step.seed, a.name_hash, a.step.step, which);
}

template <class P, class G, class S>
void update_chunk(const AdamW<P, G, S>& a, const Coefficients& k, int64_t begin, int64_t count) {
  const int64_t chunk = (a.first_element + begin) / kRandomChunk;
  const Rounder<P> round_weight(stream_of(a, Stream::weight), chunk);
  const Rounder<S> round_m(stream_of(a, Stream::m), chunk);
  const Rounder<S> round_v(stream_of(a, Stream::v), chunk);
  for_lanes(count, [&](int64_t i, auto lanes) {
    const int64_t at = begin + i;
    const Vec g = lanes.get(a.gradient + at) * k.clip;
    const Vec m = fma(lanes.get(a.m + at), k.beta1, g * k.one_minus_beta1);
    const Vec v = fma(lanes.get(a.v + at), k.beta2, g * g * k.one_minus_beta2);
    const Vec denominator = fma(sqrt(v), k.inverse_correction, k.eps);
    const Vec weight = fnma(k.step_size, m / denominator, lanes.get(a.weight + at) * k.decay);
    lanes.put(a.m + at, round_m(m, i));
    lanes.put(a.v + at, round_v(v, i));
    lanes.put(a.weight + at, round_weight(weight, i));
    if (a.copy != nullptr) lanes.put(a.copy + at, weight);
  });
}

template <class P, class G, class S>
void update(const AdamW<P, G, S>& a) {
  const Coefficients k = coefficients_of(a.step);
  for_chunks(a.count, kRandomChunk, a.threads,
             [&](int64_t begin, int64_t count) { update_chunk(a, k, begin, count); });
}

}  // namespace

void adamw(const AdamW<float, float, float>& a) { update(a); }
void adamw(const AdamW<float, uint16_t, float>& a) { update(a); }
void adamw(const AdamW<float, float, uint16_t>& a) { update(a); }
void adamw(const AdamW<float, uint16_t, uint16_t>& a) { update(a); }
void adamw(const AdamW<uint16_t, float, float>& a) { update(a); }
void adamw(const AdamW<uint16_t, uint16_t, float>& a) { update(a); }
void adamw(const AdamW<uint16_t, float, uint16_t>& a) { update(a); }
void adamw(const AdamW<uint16_t, uint16_t, uint16_t>& a) { update(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
