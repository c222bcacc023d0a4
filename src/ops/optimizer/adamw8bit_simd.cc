#include "ops/optimizer/adamw8bit_kernels.h"

#include <cstring>

#include "ops/optimizer/optimizer_simd.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

static_assert(kStateBlock % kRandomChunk == 0);

#if defined(PLIMSOLL_ISA_avx512)
Words load_codes(const uint8_t* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
void store_codes(uint8_t* p, Words codes) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(codes.v));
}
Vec gather(const float* table, Words index) { return {_mm512_i32gather_ps(index.v, table, 4)}; }
Words gather_bytes(const uint8_t* table, Words index) {
  return {_mm512_and_si512(_mm512_i32gather_epi32(index.v, table, 1), _mm512_set1_epi32(0xFF))};
}
// count + 1 in the lanes where x > bound.
Words count_if_above(Words count, Vec x, Vec bound) {
  const __mmask16 above = _mm512_cmp_ps_mask(x.v, bound.v, _CMP_GT_OQ);
  return {_mm512_mask_add_epi32(count.v, above, count.v, _mm512_set1_epi32(1))};
}
Words bits_of(Vec x) { return {_mm512_castps_si512(x.v)}; }
Vec magnitude(Vec x) { return {_mm512_abs_ps(x.v)}; }
#else
Words load_codes(const uint8_t* p) {
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
}
void store_codes(uint8_t* p, Words codes) {
  const __m128i halves =
      _mm_packus_epi32(_mm256_castsi256_si128(codes.v), _mm256_extracti128_si256(codes.v, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(halves, halves));
}
Vec gather(const float* table, Words index) { return {_mm256_i32gather_ps(table, index.v, 4)}; }
Words gather_bytes(const uint8_t* table, Words index) {
  const __m256i read = _mm256_i32gather_epi32(reinterpret_cast<const int*>(table), index.v, 1);
  return {_mm256_and_si256(read, _mm256_set1_epi32(0xFF))};
}
// count + 1 in the lanes where x > bound.
Words count_if_above(Words count, Vec x, Vec bound) {
  const __m256i above = _mm256_castps_si256(_mm256_cmp_ps(x.v, bound.v, _CMP_GT_OQ));
  return {_mm256_sub_epi32(count.v, above)};
}
Words bits_of(Vec x) { return {_mm256_castps_si256(x.v)}; }
Vec magnitude(Vec x) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0F), x.v)}; }
#endif

// A block's values while they are f32. Elements beyond the tensor's end stay zero.
struct Block {
  alignas(64) uint8_t codes[kStateBlock] = {};
  alignas(64) float values[kStateBlock] = {};

  void decode(const CodedState& state, int64_t block, int64_t count) {
    std::memcpy(codes, state.codes + block * kStateBlock, static_cast<size_t>(count));
    const Vec scale = set1(state.scales[block]);
    for_lanes(count, [&](int64_t i, auto lanes) {
      lanes.put(values + i, gather(state.map->value.data(), load_codes(codes + i)) * scale);
    });
  }
  // The scale's floor keeps its reciprocal finite where a whole block is zero.
  void encode(const CodedState& state, int64_t block, int64_t count) {
    Vec largest = zero();
    for (int64_t i = 0; i < kStateBlock; i += Vec::kWidth)
      largest = max(largest, magnitude(load(values + i)));
    const float scale = reduce_max(largest);
    const Vec inverse = set1(1.0F / (scale < 1e-38F ? 1e-38F : scale));
    for (int64_t i = 0; i < kStateBlock; i += Vec::kWidth) {
      const Vec x = min(set1(1.0F), max(set1(-1.0F), load(values + i) * inverse));
      const Words below = gather_bytes(state.map->below.data(), upper_half(bits_of(x)));
      store_codes(codes + i, count_if_above(below, x, gather(state.map->bound.data(), below)));
    }
    state.scales[block] = scale;
    std::memcpy(state.codes + block * kStateBlock, codes, static_cast<size_t>(count));
  }
};

struct Coefficients {
  Vec clip, decay, beta1, beta2, rest1, rest2, correction2, eps, step_size;
};

template <class P, class G>
Coefficients coefficients_of(const AdamW8bit<P, G>& a) {
  const UpdateStep& s = a.update.step;
  const auto step = static_cast<double>(s.step);
  const double correction1 = 1.0 - __builtin_pow(a.beta1, step);
  return {broadcast(s.clip_factor),
          broadcast(1.0 - s.learning_rate * s.weight_decay),
          broadcast(a.beta1),
          broadcast(a.beta2),
          broadcast(1.0 - a.beta1),
          broadcast(1.0 - a.beta2),
          broadcast(__builtin_sqrt(1.0 - __builtin_pow(a.beta2, step))),
          broadcast(a.eps),
          broadcast(-s.learning_rate / correction1)};
}

// Operation by operation and rounding by rounding as bitsandbytes' CPU path, so that codes and scales come
// out bit for bit.
template <class P, class G>
void update_block(const AdamW8bit<P, G>& a, const Coefficients& k, int64_t begin, int64_t count) {
  const WeightUpdate<P, G>& u = a.update;
  Block m;
  Block v;
  m.decode(a.m, begin / kStateBlock, count);
  v.decode(a.v, begin / kStateBlock, count);
  for (int64_t part = 0; part < count; part += kRandomChunk) {
    const int64_t first = begin + part;
    const Rounder<P> round(random_stream(u, Stream::weight), (u.first_element + first) / kRandomChunk);
    for_lanes(count - part < kRandomChunk ? count - part : kRandomChunk, [&](int64_t i, auto lanes) {
      const Vec g = lanes.get(u.gradient + first + i) * k.clip;
      const Vec mean = fma(g, k.rest1, lanes.get(m.values + part + i) * k.beta1);
      const Vec square = fma(k.rest2 * g, g, lanes.get(v.values + part + i) * k.beta2);
      const Vec denominator = sqrt(square) / k.correction2 + k.eps;
      const Vec weight = lanes.get(u.weight + first + i) * k.decay + k.step_size * mean / denominator;
      put_weight(u, round, lanes, first + i, i, weight);
      lanes.put(m.values + part + i, mean);
      lanes.put(v.values + part + i, square);
    });
  }
  m.encode(a.m, begin / kStateBlock, count);
  v.encode(a.v, begin / kStateBlock, count);
}

template <class P, class G>
void update(const AdamW8bit<P, G>& a) {
  const Coefficients k = coefficients_of(a);
  for_chunks(a.update.count, kStateBlock, a.update.threads,
             [&](int64_t begin, int64_t count) { update_block(a, k, begin, count); });
}

}  // namespace

void adamw8bit(const AdamW8bit<float, float>& a) { update(a); }
void adamw8bit(const AdamW8bit<float, uint16_t>& a) { update(a); }
void adamw8bit(const AdamW8bit<uint16_t, float>& a) { update(a); }
void adamw8bit(const AdamW8bit<uint16_t, uint16_t>& a) { update(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
