#include "ops/adamw_kernels.h"

#include "ops/philox_simd.h"
#include "ops/simd_rows.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

constexpr int64_t kChunk = 128;  // elements of one philox_chunk16

// Which of a weight's three values random bits are for; a word of the counter.
enum class Stream : uint32_t { weight, m, v };

struct Coefficients {
  Vec decay, beta1, beta2, one_minus_beta1, one_minus_beta2, step_size, inverse_correction, eps, clip;
};

// p *= 1 - lr * wd;  m, v averages;  p -= lr / c1 * m / (sqrt(v) / sqrt(c2) + eps),  c = 1 - beta^step.
Coefficients coefficients_of(const AdamWStep& s) {
  const auto broadcast = [](double x) { return set1(static_cast<float>(x)); };
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

// Rounds what is stored as bf16 by random bits; leaves f32 alone.
template <class T>
class Rounder;
template <>
class Rounder<float> {
 public:
  Rounder(const PhiloxStream&, int64_t) {}
  Vec operator()(Vec x, int64_t) const { return x; }
};
template <>
class Rounder<uint16_t> {
 public:
  Rounder(const PhiloxStream& stream, int64_t chunk) { philox_chunk16(stream, chunk, bits_); }
  // `i` counts from the chunk's first element.
  Vec operator()(Vec x, int64_t i) const { return with_random_tail(x, load_words(bits_ + i)); }

 private:
  uint32_t bits_[kChunk];
};

template <class P, class G, class S>
PhiloxStream stream_of(const AdamW<P, G, S>& a, Stream which) {
  const auto step = static_cast<uint64_t>(a.step.step);
  return philox_stream(a.step.seed, a.name_hash, static_cast<uint32_t>(which), static_cast<uint32_t>(step),
                       static_cast<uint32_t>(step >> 32));
}

template <class P, class G, class S>
void update_chunk(const AdamW<P, G, S>& a, const Coefficients& k, int64_t begin, int64_t count) {
  const int64_t chunk = (a.first_element + begin) / kChunk;
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
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t begin = 0; begin < a.count; begin += kChunk)
    update_chunk(a, k, begin, begin + kChunk < a.count ? kChunk : a.count - begin);
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
