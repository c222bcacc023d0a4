#include <cstring>

#include "cpu/simd.h"
#include "ops/linear/int8_kernels.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

#if defined(PLIMSOLL_ISA_avx512)
Vec round_to_f16(Vec x) {
  return {_mm512_cvtph_ps(_mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}
Vec widen_codes(const int8_t* codes) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes))))};
}
void put_integers(int32_t* to, Vec x) { _mm512_storeu_si512(to, _mm512_cvtps_epi32(x.v)); }
#else
Vec round_to_f16(Vec x) { return {_mm256_cvtph_ps(_mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT))}; }
Vec widen_codes(const int8_t* codes) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes))))};
}
void put_integers(int32_t* to, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_cvtps_epi32(x.v));
}
#endif

int lanes_from(int64_t at, int64_t width) {
  return width - at < Vec::kWidth ? static_cast<int>(width - at) : Vec::kWidth;
}

// NaN where a value is not finite in f16.
float largest_magnitude(const float* row, int64_t width) {
  Vec largest = zero();
  Vec poison = zero();
  for (int64_t i = 0; i < width; i += Vec::kWidth) {
    const Vec value = round_to_f16(load(row + i, first(lanes_from(i, width))));
    largest = max(largest, max(value, zero() - value));
    poison = poison + (value - value);
  }
  return reduce_max(largest) + reduce_add(poison);
}

void encode_row(const float* row, int64_t width, float absmax, int8_t* codes) {
  const Vec factor = set1(absmax == 0.0F ? 0.0F : 1.0F / absmax * kInt8Most);
  int32_t whole[Vec::kWidth];
  for (int64_t i = 0; i < width; i += Vec::kWidth) {
    const int lanes = lanes_from(i, width);
    put_integers(whole, round_to_f16(load(row + i, first(lanes))) * factor);
    for (int lane = 0; lane < lanes; ++lane) codes[i + lane] = static_cast<int8_t>(whole[lane]);
  }
}

template <class T>
void decode_row(const int8_t* codes, int64_t width, float absmax, T* weight) {
  const Vec step = set1(absmax * kInt8Step);
  int64_t i = 0;
  for (; i + Vec::kWidth <= width; i += Vec::kWidth) store(weight + i, widen_codes(codes + i) * step);
  if (i == width) return;
  // Through a copy: codes may not be read behind their end.
  int8_t last[Vec::kWidth] = {};
  const int lanes = lanes_from(i, width);
  std::memcpy(last, codes + i, static_cast<size_t>(lanes));
  store(weight + i, widen_codes(last) * step, first(lanes));
}

template <class T>
void dequantize_rows(const Int8Dequantize<T>& a) {
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t row = 0; row < a.rows; ++row)
    decode_row(a.codes + row * a.width, a.width, a.absmax[row], a.weight + row * a.width);
}

}  // namespace

void int8_quantize(const Int8Quantize& a) {
  for (int64_t row = 0; row < a.rows; ++row) {
    const float* values = a.values + row * a.width;
    a.absmax[row] = largest_magnitude(values, a.width);
    encode_row(values, a.width, a.absmax[row], a.codes + row * a.width);
  }
}

void int8_dequantize(const Int8Dequantize<float>& a) { dequantize_rows(a); }
void int8_dequantize(const Int8Dequantize<uint16_t>& a) { dequantize_rows(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
