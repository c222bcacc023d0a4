// Packing for the matmul kernels: `lanes` neighbouring rows of A (or columns of B) become a strip
// [k steps][vector], zero where the operand ends. Include it only in *_simd.cc files.
#pragma once

#include "cpu/simd.h"

namespace plimsoll::PLIMSOLL_ISA {

#if defined(PLIMSOLL_ISA_avx512_bf16)
inline constexpr int kPerStep = 2;
#else
inline constexpr int kPerStep = 1;
#endif

// Settings for AVX2 alone, until they are measured elsewhere: packing takes whole lines of the cache, tiles
// prefetch what follows them, and whole tiles go from registers into C.
#if defined(PLIMSOLL_ISA_avx512)
inline constexpr bool kFetches = false;
#else
inline constexpr bool kFetches = true;
#endif
inline constexpr int64_t kShort = 64;  // steps of k in which little of what is prefetched would arrive in
                                       // time

// One operand seen as lanes x k. Lanes contiguous: element (lane, k) at k * stride + lane, else transposed.
template <class In>
struct Strip {
  const In* data;
  int64_t stride;
  bool lanes_contiguous;
  int lanes;  // valid ones, 1 .. kWidth
  int64_t k;
};

// A panel of A, whose strips are `strip` floats apart, and one of B, as packed.
struct Panels {
  const float* a;
  int64_t strip;
  const float* b;
};

// Addresses to prefetch while a tile is computed: `step` bytes further with each step.
struct Ahead {
  const char* line;
  int64_t step;
};

#if defined(PLIMSOLL_ISA_avx512)

inline void transpose(Vec (&r)[16]) {
  __m512 t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i].v, r[i + 1].v);
    t[i + 1] = _mm512_unpackhi_ps(r[i].v, r[i + 1].v);
  }
  __m512 u[16];
  for (int i = 0; i < 16; i += 4) {
    for (int half = 0; half < 2; ++half) {
      const __m512d x = _mm512_castps_pd(t[i + half]);
      const __m512d y = _mm512_castps_pd(t[i + half + 2]);
      u[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
      u[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
    }
  }
  // u[4 g + c] holds, per 128-bit quarter q, column 4 q + c of rows 4 g .. 4 g + 3.
  for (int c = 0; c < 4; ++c) {
    const __m512 x = _mm512_shuffle_f32x4(u[c], u[c + 4], 0x88);
    const __m512 y = _mm512_shuffle_f32x4(u[c], u[c + 4], 0xDD);
    const __m512 z = _mm512_shuffle_f32x4(u[c + 8], u[c + 12], 0x88);
    const __m512 w = _mm512_shuffle_f32x4(u[c + 8], u[c + 12], 0xDD);
    r[c].v = _mm512_shuffle_f32x4(x, z, 0x88);
    r[c + 4].v = _mm512_shuffle_f32x4(y, w, 0x88);
    r[c + 8].v = _mm512_shuffle_f32x4(x, z, 0xDD);
    r[c + 12].v = _mm512_shuffle_f32x4(y, w, 0xDD);
  }
}

#else

inline void transpose(Vec (&r)[8]) {
  __m256 t[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i].v, r[i + 1].v);
    t[i + 1] = _mm256_unpackhi_ps(r[i].v, r[i + 1].v);
  }
  __m256 u[8];
  for (int i = 0; i < 8; i += 4) {
    for (int half = 0; half < 2; ++half) {
      const __m256d x = _mm256_castps_pd(t[i + half]);
      const __m256d y = _mm256_castps_pd(t[i + half + 2]);
      u[i + 2 * half] = _mm256_castpd_ps(_mm256_unpacklo_pd(x, y));
      u[i + 2 * half + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(x, y));
    }
  }
  for (int c = 0; c < 4; ++c) {
    r[c].v = _mm256_permute2f128_ps(u[c], u[c + 4], 0x20);
    r[c + 4].v = _mm256_permute2f128_ps(u[c], u[c + 4], 0x31);
  }
}

#endif

template <class In>
Vec load_first(const In* p, int n) {
  return n == Vec::kWidth ? load(p) : load(p, first(n));
}

#if defined(PLIMSOLL_ISA_avx512_bf16)

// Lane = the pair (lower, upper) of bf16, whose bits simd.h's load leaves in the upper half.
inline Vec pair(Vec lower, Vec upper) {
  const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(lower.v), 16);
  return {_mm512_castsi512_ps(_mm512_or_si512(low, _mm512_castps_si512(upper.v)))};
}
// One step of all lanes, `left` k remaining.
inline Vec load_step(const Strip<uint16_t>& s, const uint16_t* row, int64_t left) {
  return pair(load_first(row, s.lanes), left > 1 ? load_first(row + s.stride, s.lanes) : zero());
}
// kWidth steps of one lane, `left` k remaining.
inline Vec load_run(const uint16_t* p, int64_t left) {
  constexpr int kElements = 2 * Vec::kWidth;
  if (left >= kElements) return {_mm512_castsi512_ps(_mm512_loadu_si512(p))};
  const auto mask = static_cast<__mmask32>((1U << left) - 1U);
  return {_mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, p))};
}

#else

template <class In>
Vec load_step(const Strip<In>& s, const In* row, int64_t /*left*/) {
  return load_first(row, s.lanes);
}
template <class In>
Vec load_run(const In* p, int64_t left) {
  return left >= Vec::kWidth ? load(p) : load(p, first(static_cast<int>(left)));
}

#endif

// Writes one vector per step, `step` floats apart.
template <class In>
void pack(const Strip<In>& s, int64_t step, float* out) {
  if (s.lanes_contiguous) {
    for (int64_t k = 0; k < s.k; k += kPerStep, out += step)
      store(out, load_step(s, s.data + k * s.stride, s.k - k));
    return;
  }
  constexpr int kWidth = Vec::kWidth;
  for (int64_t k = 0; k < s.k; k += kWidth * kPerStep) {
    Vec block[kWidth];
    for (int i = 0; i < kWidth; ++i)
      block[i] = i < s.lanes ? load_run(s.data + i * s.stride + k, s.k - k) : zero();
    transpose(block);
    const int64_t left = (s.k - k + kPerStep - 1) / kPerStep;
    for (int i = 0; i < kWidth && i < left; ++i, out += step) store(out, block[i]);
  }
}

// Whole panels of B, two vectors wide and `panel` floats apart, whose lanes are contiguous.
template <int kPanels, class In>
void pack_wide(int64_t k, const In* from, int64_t stride, float* to, int64_t panel) {
  constexpr int kWidth = Vec::kWidth, kRowsAhead = 8;
  for (; k > 0; --k, from += stride, to += 2 * kWidth) {
    Vec row[2 * kPanels];
#pragma GCC unroll 8
    for (int i = 0; i < 2 * kPanels; ++i) {
      if (i % 2 == 0) __builtin_prefetch(from + kRowsAhead * stride + i * kWidth);
      row[i] = load(from + i * kWidth);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 2 * kPanels; ++i) store(to + i / 2 * panel + i % 2 * kWidth, row[i]);
  }
}

// A panel whose k is contiguous, while the next one comes into the cache.
template <class In>
void pack_turned(int64_t k, const In* from, int64_t stride, float* to) {
  constexpr int kWidth = Vec::kWidth;
  for (int64_t at = 0; at < k; at += kWidth, to += 2 * kWidth * kWidth) {
    const int64_t left = k - at;
    for (int half = 0; half < 2; ++half) {
      Vec block[kWidth];
      for (int i = 0; i < kWidth; ++i) {
        const In* lane = from + (half * kWidth + i) * stride + at;
        __builtin_prefetch(lane + 2 * kWidth * stride);
        block[i] = load_run(lane, left);
      }
      transpose(block);
      for (int i = 0; i < kWidth && i < left; ++i) store(to + (2 * i + half) * kWidth, block[i]);
    }
  }
}

}  // namespace plimsoll::PLIMSOLL_ISA
