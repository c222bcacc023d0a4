// Philox over the lanes of registers, and stochastic rounding to bf16. Include it only in *_simd.cc files.
#pragma once

#include "cpu/simd.h"
#include "ops/philox.h"

namespace plimsoll::PLIMSOLL_ISA {

#if defined(PLIMSOLL_ISA_avx512)

struct Words {
  static constexpr int kWidth = 16;
  __m512i v;
};
inline Words words(uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
inline Words lane_numbers() {
  return {_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
}
inline Words load_words(const uint32_t* p) { return {_mm512_loadu_si512(p)}; }
inline void store_words(uint32_t* p, Words a) { _mm512_storeu_si512(p, a.v); }
inline Words operator+(Words a, Words b) { return {_mm512_add_epi32(a.v, b.v)}; }
// The lower word of each 64-bit lane counts, the upper one is anything.
struct WordPairs {
  __m512i v;
};
inline WordPairs word_pairs(uint32_t x) { return {_mm512_set1_epi64(x)}; }
inline Words interleave(WordPairs even, WordPairs odd) {
  // 0xA0 copies the lower word of each pair onto both.
  return {_mm512_mask_shuffle_epi32(even.v, 0xAAAA, odd.v, static_cast<_MM_PERM_ENUM>(0xA0))};
}
inline WordPairs product(WordPairs a, WordPairs b) { return {_mm512_mul_epu32(a.v, b.v)}; }
inline WordPairs upper_word(WordPairs a) { return {_mm512_srli_epi64(a.v, 32)}; }
inline WordPairs xor3(WordPairs a, WordPairs b, WordPairs c) {
  return {_mm512_ternarylogic_epi64(a.v, b.v, c.v, 0x96)};
}
// Lanes of x where bits >= threshold, else zero.
inline Vec keep_where_at_least(Vec x, Words bits, Words threshold) {
  return {_mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(bits.v, threshold.v), x.v)};
}
// x with 16 random bits added below bf16's last place: rounds up as often as the part cut off is large.
inline Vec with_random_tail(Vec x, Words sixteen_bits) {
  const __m512i bits = _mm512_castps_si512(x.v);
  const __m512i sum = _mm512_and_si512(_mm512_add_epi32(bits, sixteen_bits.v), _mm512_set1_epi32(~0xFFFF));
  const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  return {_mm512_castsi512_ps(_mm512_mask_mov_epi32(sum, nan, bits))};
}
inline Words upper_half(Words a) { return {_mm512_srli_epi32(a.v, 16)}; }
inline Words lower_half(Words a) { return {_mm512_and_si512(a.v, _mm512_set1_epi32(0xFFFF))}; }

#elif defined(PLIMSOLL_ISA_avx2)

struct Words {
  static constexpr int kWidth = 8;
  __m256i v;
};
inline Words words(uint32_t x) { return {_mm256_set1_epi32(static_cast<int>(x))}; }
inline Words lane_numbers() { return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)}; }
inline Words load_words(const uint32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
inline void store_words(uint32_t* p, Words a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v); }
inline Words operator+(Words a, Words b) { return {_mm256_add_epi32(a.v, b.v)}; }
struct WordPairs {
  __m256i v;
};
inline WordPairs word_pairs(uint32_t x) { return {_mm256_set1_epi64x(x)}; }
inline Words interleave(WordPairs even, WordPairs odd) {
  return {_mm256_blend_epi32(even.v, _mm256_shuffle_epi32(odd.v, 0xA0), 0xAA)};
}
inline WordPairs product(WordPairs a, WordPairs b) { return {_mm256_mul_epu32(a.v, b.v)}; }
inline WordPairs upper_word(WordPairs a) { return {_mm256_srli_epi64(a.v, 32)}; }
inline WordPairs xor3(WordPairs a, WordPairs b, WordPairs c) {
  return {_mm256_xor_si256(_mm256_xor_si256(a.v, b.v), c.v)};
}
// Lanes of x where bits >= threshold, else zero.
inline Vec keep_where_at_least(Vec x, Words bits, Words threshold) {
  const __m256i keep = _mm256_cmpeq_epi32(_mm256_max_epu32(bits.v, threshold.v), bits.v);
  return {_mm256_and_ps(x.v, _mm256_castsi256_ps(keep))};
}
// x with 16 random bits added below bf16's last place: rounds up as often as the part cut off is large.
inline Vec with_random_tail(Vec x, Words sixteen_bits) {
  const __m256i bits = _mm256_castps_si256(x.v);
  const __m256i sum = _mm256_and_si256(_mm256_add_epi32(bits, sixteen_bits.v), _mm256_set1_epi32(~0xFFFF));
  return {_mm256_blendv_ps(_mm256_castsi256_ps(sum), x.v, _mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q))};
}
inline Words upper_half(Words a) { return {_mm256_srli_epi32(a.v, 16)}; }
inline Words lower_half(Words a) { return {_mm256_and_si256(a.v, _mm256_set1_epi32(0xFFFF))}; }

#endif

inline WordPairs even_words(Words a) { return {a.v}; }
inline WordPairs odd_words(Words a) { return upper_word({a.v}); }

// The four words of one counter value per lane.
struct PhiloxWords {
  Words w[4];
};
struct PhiloxPairs {
  WordPairs w[4];
};
inline PhiloxPairs philox_round(const PhiloxPairs& c, WordPairs key0, WordPairs key1) {
  const WordPairs a = product(c.w[0], word_pairs(kPhiloxMultiplier0));
  const WordPairs b = product(c.w[2], word_pairs(kPhiloxMultiplier1));
  return {{xor3(upper_word(b), c.w[1], key0), b, xor3(upper_word(a), c.w[3], key1), a}};
}
// Even and odd lanes go through the rounds apart, a 64-bit lane each: a product is where its two halves are
// needed, and nothing has to be shuffled between rounds.
inline PhiloxWords philox_lanes(const PhiloxStream& stream, Words counter0) {
  PhiloxPairs even{{even_words(counter0), word_pairs(stream.counter1), word_pairs(stream.counter2),
                    word_pairs(stream.counter3)}};
  PhiloxPairs odd = even;
  odd.w[0] = odd_words(counter0);
  uint32_t key0 = stream.key0;
  uint32_t key1 = stream.key1;
  for (int round = 0; round < kPhiloxRounds; ++round) {
    even = philox_round(even, word_pairs(key0), word_pairs(key1));
    odd = philox_round(odd, word_pairs(key0), word_pairs(key1));
    key0 += kPhiloxKeyStep0;
    key1 += kPhiloxKeyStep1;
  }
  PhiloxWords words;
  for (int i = 0; i < 4; ++i) words.w[i] = interleave(even.w[i], odd.w[i]);
  return words;
}

// philox_bits32 of the elements [64 * chunk, 64 * chunk + 64).
inline void philox_chunk32(const PhiloxStream& stream, int64_t chunk, uint32_t (&out)[64]) {
  for (int lane = 0; lane < 16; lane += Words::kWidth) {
    const auto counter = static_cast<uint32_t>(chunk * 16 + lane);
    const PhiloxWords p = philox_lanes(stream, lane_numbers() + words(counter));
    for (int w = 0; w < 4; ++w) store_words(out + w * 16 + lane, p.w[w]);
  }
}
// philox_bits16 of the elements [128 * chunk, 128 * chunk + 128).
inline void philox_chunk16(const PhiloxStream& stream, int64_t chunk, uint32_t (&out)[128]) {
  for (int lane = 0; lane < 16; lane += Words::kWidth) {
    const auto counter = static_cast<uint32_t>(chunk * 16 + lane);
    const PhiloxWords p = philox_lanes(stream, lane_numbers() + words(counter));
    for (int w = 0; w < 4; ++w) {
      store_words(out + w * 16 + lane, lower_half(p.w[w]));
      store_words(out + 64 + w * 16 + lane, upper_half(p.w[w]));
    }
  }
}

}  // namespace plimsoll::PLIMSOLL_ISA
