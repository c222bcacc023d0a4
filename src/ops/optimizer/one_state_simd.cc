#include "ops/optimizer/one_state_kernels.h"

#include "ops/optimizer/optimizer_simd.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

// -1, 0 or 1; NaN stays NaN.
Vec sign(Vec x) {
#if defined(PLIMSOLL_ISA_avx512)
  const __m512 one = _mm512_or_ps(_mm512_and_ps(x.v, _mm512_set1_ps(-0.0F)), _mm512_set1_ps(1.0F));
  const __mmask16 is_signed = _mm512_cmp_ps_mask(x.v, _mm512_setzero_ps(), _CMP_NEQ_OQ);
  return {_mm512_mask_mov_ps(x.v, is_signed, one)};
#else
  const __m256 one = _mm256_or_ps(_mm256_and_ps(x.v, _mm256_set1_ps(-0.0F)), _mm256_set1_ps(1.0F));
  return {_mm256_blendv_ps(x.v, one, _mm256_cmp_ps(x.v, _mm256_setzero_ps(), _CMP_NEQ_OQ))};
#endif
}

// w *= 1 - lr * wd;  w -= lr * sign(beta1 * m + (1 - beta1) * g);  m = beta2 * m + (1 - beta2) * g.
template <class P, class G, class S>
void update(const Lion<P, G, S>& a) {
  const WeightUpdate<P, G>& u = a.update;
  const Vec clip = broadcast(u.step.clip_factor);
  const Vec rate = broadcast(u.step.learning_rate);
  const Vec decay = broadcast(1.0 - u.step.learning_rate * u.step.weight_decay);
  const Vec beta1 = broadcast(a.beta1);
  const Vec beta2 = broadcast(a.beta2);
  const Vec rest1 = broadcast(1.0 - a.beta1);
  const Vec rest2 = broadcast(1.0 - a.beta2);
  for_chunks(u.count, kRandomChunk, u.threads, [&](int64_t begin, int64_t count) {
    const int64_t chunk = (u.first_element + begin) / kRandomChunk;
    const Rounder<P> round_weight(random_stream(u, Stream::weight), chunk);
    const Rounder<S> round_m(random_stream(u, Stream::m), chunk);
    for_lanes(count, [&](int64_t i, auto lanes) {
      const int64_t at = begin + i;
      const Vec g = lanes.get(u.gradient + at) * clip;
      const Vec m = lanes.get(a.m + at);
      const Vec direction = sign(fma(g, rest1, m * beta1));
      put_weight(u, round_weight, lanes, at, i, fnma(rate, direction, lanes.get(u.weight + at) * decay));
      lanes.put(a.m + at, round_m(fma(g, rest2, m * beta2), i));
    });
  });
}

// d = g + wd * w;  b = momentum * b + d;  w -= lr * b. The first step's b is d, since b is zero before it.
template <class P, class G, class S>
void update(const Sgd<P, G, S>& a) {
  const WeightUpdate<P, G>& u = a.update;
  const Vec clip = broadcast(u.step.clip_factor);
  const Vec rate = broadcast(u.step.learning_rate);
  const Vec decay = broadcast(u.step.weight_decay);
  const Vec momentum = broadcast(a.momentum);
  for_chunks(u.count, kRandomChunk, u.threads, [&](int64_t begin, int64_t count) {
    const int64_t chunk = (u.first_element + begin) / kRandomChunk;
    const Rounder<P> round_weight(random_stream(u, Stream::weight), chunk);
    const Rounder<S> round_buffer(random_stream(u, Stream::m), chunk);
    for_lanes(count, [&](int64_t i, auto lanes) {
      const int64_t at = begin + i;
      const Vec weight = lanes.get(u.weight + at);
      Vec d = fma(weight, decay, lanes.get(u.gradient + at) * clip);
      if (a.buffer != nullptr) {
        d = lanes.get(a.buffer + at) * momentum + d;
        lanes.put(a.buffer + at, round_buffer(d, i));
      }
      put_weight(u, round_weight, lanes, at, i, fnma(rate, d, weight));
    });
  });
}

}  // namespace

#define PLIMSOLL_ONE_STATE_KERNELS(name, Args)                       \
  void name(const Args<float, float, float>& a) { update(a); }       \
  void name(const Args<float, uint16_t, float>& a) { update(a); }    \
  void name(const Args<float, float, uint16_t>& a) { update(a); }    \
  void name(const Args<float, uint16_t, uint16_t>& a) { update(a); } \
  void name(const Args<uint16_t, float, float>& a) { update(a); }    \
  void name(const Args<uint16_t, uint16_t, float>& a) { update(a); } \
  void name(const Args<uint16_t, float, uint16_t>& a) { update(a); } \
  void name(const Args<uint16_t, uint16_t, uint16_t>& a) { update(a); }
PLIMSOLL_ONE_STATE_KERNELS(lion, Lion)
PLIMSOLL_ONE_STATE_KERNELS(sgd, Sgd)
#undef PLIMSOLL_ONE_STATE_KERNELS

}  // namespace plimsoll::PLIMSOLL_ISA
