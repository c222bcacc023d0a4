// The names that kernels are written in, in addition to CUDA C++. nvcc compiles it for GPUs; any other
// compiler, for the emulator. Only *_gpu.cu files include it.
//
// Arithmetic is f32, storage f32, bf16 or f16. No contraction happens behind the source's back (-fmad=false,
// -ffp-contract=off): fma is written where it is meant, so that a GPU gives the bits of a CPU.
#pragma once

#include <cstdint>

#include "gpu/stream.h"

#ifdef __CUDACC__
#define PL_SHARED(T, name, n) __shared__ T name[n]
// The one array whose bytes its launch has to give (gpu/stream.h): what is more than 48 KiB, which only some
// cards have.
#define PL_LAUNCHED_SHARED(T, name, n)        \
  extern __shared__ uint4 pl_launched_part[]; \
  T* const name = reinterpret_cast<T*>(pl_launched_part)
#define PL_UNROLL _Pragma("unroll")
#define PL_UNROLL_TWO _Pragma("unroll 2")
#else
#include <cmath>

#include "gpu/emulator_warp.h"
#define PL_UNROLL
#define PL_UNROLL_TWO
#endif
#define PL_BOTH __host__ __device__ __forceinline__
#define PL_DEV __device__ __forceinline__

namespace plimsoll::gpu {
inline namespace PLIMSOLL_GPU {

constexpr uint32_t kAll = 0xFFFFFFFFU;
constexpr int kWarpSize = 32;

PL_BOTH float as_float(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
#endif
}
PL_BOTH uint32_t as_bits(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
#endif
}

// Storage types: 16 bits, arithmetic is in f32.
struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

PL_BOTH float to_float(float x) { return x; }
PL_BOTH float to_float(bf16 x) { return as_float(uint32_t{x.bits} << 16); }
PL_BOTH float to_float(f16 x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
#else
  _Float16 y;
  __builtin_memcpy(&y, &x, sizeof y);
  return static_cast<float>(y);
#endif
}

// To nearest, ties to even.
template <class T>
PL_BOTH T rounded(float x);
template <>
PL_BOTH float rounded<float>(float x) {
  return x;
}
template <>
PL_BOTH bf16 rounded<bf16>(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return {bits};
#else
  const uint32_t bits = as_bits(x);
  if (!(x == x)) return {0x7FFF};  // as the instruction has it
  return {static_cast<uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16)};
#endif
}
template <>
PL_BOTH f16 rounded<f16>(float x) {
#ifdef __CUDA_ARCH__
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return {bits};
#else
  const auto y = static_cast<_Float16>(x);
  f16 r;
  __builtin_memcpy(&r, &y, sizeof r);
  return r;
#endif
}
// Stochastic rounding by 16 random bits: up as often as the part cut off is large. A NaN stays one.
PL_BOTH bf16 rounded_by(float x, uint32_t random16) {
  const uint32_t bits = as_bits(x);
  if (!(x == x)) return {static_cast<uint16_t>(bits >> 16 | 0x40U)};
  return {static_cast<uint16_t>((bits + random16) >> 16)};
}

// 16 bytes of T, moved at once.
template <class T>
struct alignas(16) Pack {
  static constexpr int kCount = 16 / sizeof(T);
  T v[kCount];
};
template <class T>
PL_DEV Pack<T> load_pack(const T* p) {
  return *reinterpret_cast<const Pack<T>*>(p);
}
template <class T>
PL_DEV void store_pack(T* p, const Pack<T>& x) {
  *reinterpret_cast<Pack<T>*>(p) = x;
}

// Eight neighbouring values, in registers as f32. `packed`: the address is a multiple of 16 bytes, and all
// eight are there; otherwise the first `count` are read one by one, and the rest is 0.
inline constexpr int kEight = 8;
template <class T>
PL_DEV void load8(float (&to)[kEight], const T* from, int count, bool packed) {
  if (packed) {
    constexpr int kCount = Pack<T>::kCount;
    PL_UNROLL
    for (int i = 0; i < kEight; i += kCount) {
      const Pack<T> p = load_pack(from + i);
      PL_UNROLL
      for (int k = 0; k < kCount; ++k) to[i + k] = to_float(p.v[k]);
    }
    return;
  }
  PL_UNROLL
  for (int i = 0; i < kEight; ++i) to[i] = i < count ? to_float(from[i]) : 0.0F;
}
template <class T>
PL_DEV void store8(T* to, const float (&from)[kEight], int count, bool packed) {
  if (packed) {
    constexpr int kCount = Pack<T>::kCount;
    PL_UNROLL
    for (int i = 0; i < kEight; i += kCount) {
      Pack<T> p;
      PL_UNROLL
      for (int k = 0; k < kCount; ++k) p.v[k] = rounded<T>(from[i + k]);
      store_pack(to + i, p);
    }
    return;
  }
  PL_UNROLL
  for (int i = 0; i < kEight; ++i)
    if (i < count) to[i] = rounded<T>(from[i]);
}

// The eight of `count` values that are this thread's, where threads take eight in turn.
struct OwnEight {
  int64_t at;
  int count;  // fewer at the end; 0: none
  PL_DEV explicit OwnEight(int64_t all)
      : at((int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kEight),
        count(all - at >= kEight ? kEight
              : all > at         ? static_cast<int>(all - at)
                                 : 0) {}
  PL_DEV bool whole() const { return count == kEight; }
};

// x, of which the compiler does not know that: what is computed from it in a loop is not kept in registers
// from before.
PL_DEV int opaque(int x) {
#ifdef __CUDA_ARCH__
  asm volatile("" : "+r"(x));
#endif
  return x;
}
// The thread's warp, of which the compiler knows that all its lanes have the same.
PL_DEV int warp_of_block() { return __shfl_sync(kAll, static_cast<int>(threadIdx.x) / kWarpSize, 0); }

// The place of the lowest bit that is set; `bits` is not 0.
PL_DEV int lowest_bit(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __ffs(static_cast<int>(bits)) - 1;
#else
  return __builtin_ctz(bits);
#endif
}

// IEEE operations only, written out.
PL_BOTH float fma(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#elif defined(__CUDACC__)
  return __builtin_fmaf(a, b, c);
#else
  return emulated::fma(a, b, c);
#endif
}
PL_BOTH double fma(double a, double b, double c) {
#ifdef __CUDA_ARCH__
  return __fma_rn(a, b, c);
#elif defined(__CUDACC__)
  return __builtin_fma(a, b, c);
#else
  return emulated::fma(a, b, c);
#endif
}
PL_BOTH float max(float a, float b) { return a > b ? a : b; }

PL_BOTH float power_of_two(int n) { return as_float(static_cast<uint32_t>(n + 127) << 23); }
// e^x, with the bits of the CPU's kernels (cpu/simd.h), where the formula is explained.
PL_BOTH float exp(float x) {
  x = x < -87.0F ? -87.0F : x;
  x = x > 89.0F ? 89.0F : x;
  // Adding and taking away 1.5 * 2^23 leaves the nearest integer.
  const float n = x * 1.44269504F + 12582912.0F - 12582912.0F;
  float r = fma(-n, 0.693145752F, x);
  r = fma(-n, 1.42860677e-6F, r);
  float p = 1.3981999e-3F;
  p = fma(p, r, 8.3334519e-3F);
  p = fma(p, r, 4.1665795e-2F);
  p = fma(p, r, 1.6666665e-1F);
  p = fma(p, r, 0.5F);
  p = fma(p, r, 1.0F);
  p = fma(p, r, 1.0F);
  if (!(x == x)) return x;
  const int whole = static_cast<int>(n);
  const int half = whole >> 1;
  return p * power_of_two(half) * power_of_two(whole - half);
}
PL_BOTH float sigmoid(float x) { return 1.0F / (1.0F + exp(0.0F - x)); }

// For what the program's own rules exclude, such as a token outside the vocabulary. Ends the run: on the card
// without words, on the emulator with `what`.
PL_DEV void require(bool holds, [[maybe_unused]] const char* what) {
  if (holds) return;
#ifdef __CUDACC__
  __trap();
#else
  emulated::block->fail(what);
#endif
}

// Sums and the like over the lanes of a warp or the threads of a block, in an order that does not change; the
// result is in every thread.
template <class T>
PL_DEV T warp_sum(T x) {
  PL_UNROLL
  for (int d = kWarpSize / 2; d > 0; d /= 2) x += __shfl_xor_sync(kAll, x, d);
  return x;
}
PL_DEV float warp_max(float x) {
  PL_UNROLL
  for (int d = kWarpSize / 2; d > 0; d /= 2) x = max(x, __shfl_xor_sync(kAll, x, d));
  return x;
}
// `parts`: one value per warp, free again after the next barrier.
template <int kThreads, class T>
PL_DEV T block_sum(T x, T* parts) {
  constexpr int kWarps = kThreads / kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  x = warp_sum(x);
  if (threadIdx.x % kWarpSize == 0) parts[warp] = x;
  __syncthreads();
  T sum = parts[0];
  PL_UNROLL
  for (int w = 1; w < kWarps; ++w) sum += parts[w];
  return sum;
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll::gpu
