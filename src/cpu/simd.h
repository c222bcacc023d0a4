// A thin layer over the vector registers, so that a kernel is written once and compiled for AVX2 and AVX-512.
//
// Include it only in *_simd.cc files (cmake/plimsoll.cmake, plimsoll_simd): everything here lives in the
// namespace plimsoll::PLIMSOLL_ISA. Arithmetic is f32; halves (uint16_t) are widened on load and rounded to
// nearest even on store: they are bf16, and in the namespace avx2_f16 they are f16. No contraction happens
// behind the source's back: fma is written where it is meant.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace plimsoll::PLIMSOLL_ISA {

#if defined(PLIMSOLL_ISA_avx512)

struct Vec {
  static constexpr int kWidth = 16;
  __m512 v;
};
struct Mask {
  __mmask16 m;
};

#if defined(PLIMSOLL_ISA_avx512_bf16)
// Rounded to nearest even by the BF16 instruction. It reads denormals as zero, which the threads' MXCSR makes
// of them anyway.
inline __m256i to_half_bits(Vec x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x.v)); }
#else
inline __m256i to_half_bits(Vec x) {
  const __m512i bits = _mm512_castps_si512(x.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(
      _mm512_srli_epi32(_mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x00400000)), 16));
}
#endif
inline Vec from_half_bits(__m256i half) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
// The value that a half would hold.
inline Vec round_to_half(Vec x) { return from_half_bits(to_half_bits(x)); }
inline Vec zero() { return {_mm512_setzero_ps()}; }
inline Vec set1(float x) { return {_mm512_set1_ps(x)}; }
inline Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline Vec load(const uint16_t* p) {
  return from_half_bits(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// Mask of the first `n` lanes, 0 <= n <= kWidth.
inline Mask first(int n) { return {static_cast<__mmask16>((1U << n) - 1U)}; }
// Lanes outside the mask read as zero and are not touched in memory.
inline Vec load(const float* p, Mask k) { return {_mm512_maskz_loadu_ps(k.m, p)}; }
inline Vec load(const uint16_t* p, Mask k) { return from_half_bits(_mm256_maskz_loadu_epi16(k.m, p)); }
inline void store(float* p, Vec x) { _mm512_storeu_ps(p, x.v); }
inline void store(uint16_t* p, Vec x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_half_bits(x)); }
inline void store(float* p, Vec x, Mask k) { _mm512_mask_storeu_ps(p, k.m, x.v); }
inline void store(uint16_t* p, Vec x, Mask k) { _mm256_mask_storeu_epi16(p, k.m, to_half_bits(x)); }
inline Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
// a * b + c with one rounding.
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// c - a * b with one rounding.
inline Vec fnma(Vec a, Vec b, Vec c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
inline Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Vec sqrt(Vec a) { return {_mm512_sqrt_ps(a.v)}; }
inline Vec round_to_int(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// a * 2^n for integral n.
inline Vec scale_by_power(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }
inline float reduce_add(Vec a) { return _mm512_reduce_add_ps(a.v); }
inline float reduce_max(Vec a) { return _mm512_reduce_max_ps(a.v); }

#elif defined(PLIMSOLL_ISA_avx2)

struct Vec {
  static constexpr int kWidth = 8;
  __m256 v;
};
struct Mask {
  __m256i m;
  int n;
};

inline Vec zero() { return {_mm256_setzero_ps()}; }
inline Vec set1(float x) { return {_mm256_set1_ps(x)}; }
inline Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
#if defined(PLIMSOLL_ISA_avx2_f16)
inline Vec widen(__m128i half) { return {_mm256_cvtph_ps(half)}; }
inline __m128i to_half_bits(Vec x) { return _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT); }
#else
inline Vec widen(__m128i half) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16))};
}
inline __m128i to_half_bits(Vec x) {
  const __m256i bits = _mm256_castps_si256(x.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
  const __m256i chosen = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1));
}
#endif
inline Vec load(const uint16_t* p) { return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
// Mask of the first `n` lanes, 0 <= n <= kWidth.
inline Mask first(int n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane), n};
}
// Lanes outside the mask read as zero and are not touched in memory.
inline Vec load(const float* p, Mask k) { return {_mm256_maskload_ps(p, k.m)}; }
inline Vec load(const uint16_t* p, Mask k) {
  alignas(16) uint16_t lanes[8] = {};
  for (int i = 0; i < k.n; ++i) lanes[i] = p[i];
  return load(lanes);
}
inline Vec round_to_half(Vec x) { return widen(to_half_bits(x)); }
inline void store(float* p, Vec x) { _mm256_storeu_ps(p, x.v); }
inline void store(uint16_t* p, Vec x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_half_bits(x)); }
inline void store(float* p, Vec x, Mask k) { _mm256_maskstore_ps(p, k.m, x.v); }
inline void store(uint16_t* p, Vec x, Mask k) {
  alignas(16) uint16_t lanes[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(lanes), to_half_bits(x));
  for (int i = 0; i < k.n; ++i) p[i] = lanes[i];
}
inline Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
// a * b + c with one rounding.
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
// c - a * b with one rounding.
inline Vec fnma(Vec a, Vec b, Vec c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
inline Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
inline Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
inline Vec sqrt(Vec a) { return {_mm256_sqrt_ps(a.v)}; }
inline Vec round_to_int(Vec a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// a * 2^n for integral n in [-252, 252]: two factors, so that results down to denormals stay right.
inline Vec scale_by_power(Vec a, Vec n) {
  const __m256i whole = _mm256_cvtps_epi32(n.v);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const auto power = [](__m256i e) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
  };
  return {_mm256_mul_ps(_mm256_mul_ps(a.v, power(half)), power(_mm256_sub_epi32(whole, half)))};
}
inline float reduce_add(Vec a) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
inline float reduce_max(Vec a) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

#else
#error "simd.h: compile this file through plimsoll_simd(), which defines PLIMSOLL_ISA"
#endif

// One value.
inline float widen_value(float x) { return x; }
inline float widen_value(uint16_t x) {
#if defined(PLIMSOLL_ISA_avx2_f16)
  return _cvtsh_ss(x);
#else
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
#endif
}
// Eight, whatever the registers' width.
inline __m256 widen_eight(const float* p) { return _mm256_loadu_ps(p); }
inline __m256 widen_eight(const uint16_t* p) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
#if defined(PLIMSOLL_ISA_avx2_f16)
  return _mm256_cvtph_ps(half);
#else
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
#endif
}

// e^x, relative error about 2e-7; results below e^-87 are flushed to about 1.6e-38, +inf above 88.7.
// Cephes' range reduction (ln 2 in two parts) and a degree 6 polynomial.
inline Vec exp(Vec x) {
  // The constants stand first: where one operand is NaN, max and min return the second.
  const Vec clamped = min(set1(89.0F), max(set1(-87.0F), x));
  const Vec n = round_to_int(clamped * set1(1.44269504F));
  Vec r = fnma(n, set1(0.693145752F), clamped);
  r = fnma(n, set1(1.42860677e-6F), r);
  Vec p = set1(1.3981999e-3F);
  p = fma(p, r, set1(8.3334519e-3F));
  p = fma(p, r, set1(4.1665795e-2F));
  p = fma(p, r, set1(1.6666665e-1F));
  p = fma(p, r, set1(0.5F));
  p = fma(p, r, set1(1.0F));
  p = fma(p, r, set1(1.0F));
  return scale_by_power(p, n);
}

inline Vec sigmoid(Vec x) { return set1(1.0F) / (set1(1.0F) + exp(zero() - x)); }

}  // namespace plimsoll::PLIMSOLL_ISA
