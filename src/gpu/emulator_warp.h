// The names that CUDA C++ gives to what threads do together, over the emulator: barriers, shuffles, and the
// instructions of tensor cores and asynchronous copies with the register layouts of the PTX manual. Only
// kernels include it (gpu/device.h): it defines CUDA's names.
#pragma once

#include <type_traits>

#include "gpu/emulator.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define threadIdx (::plimsoll::gpu::emulated::current->index)
#define blockIdx (::plimsoll::gpu::emulated::block->index)
#define blockDim (::plimsoll::gpu::emulated::block->size)
#define gridDim (::plimsoll::gpu::emulated::block->grid)

#define PL_HERE (::plimsoll::gpu::emulated::Place{__FILE__, __LINE__})
#define __syncthreads() ::plimsoll::gpu::emulated::block->barrier(PL_HERE)
#define __syncwarp(...) ::plimsoll::gpu::emulated::sync_warp(PL_HERE __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_sync(...) \
  ::plimsoll::gpu::emulated::shuffle(PL_HERE, ::plimsoll::gpu::emulated::Shuffle::from, __VA_ARGS__)
#define __shfl_xor_sync(...) \
  ::plimsoll::gpu::emulated::shuffle(PL_HERE, ::plimsoll::gpu::emulated::Shuffle::exchange, __VA_ARGS__)
#define __shfl_down_sync(...) \
  ::plimsoll::gpu::emulated::shuffle(PL_HERE, ::plimsoll::gpu::emulated::Shuffle::down, __VA_ARGS__)
#define __ballot_sync(...) ::plimsoll::gpu::emulated::ballot(PL_HERE, __VA_ARGS__)
#define PL_SHARED(T, name, n)      \
  static char name##_tag;          \
  T* const name = static_cast<T*>( \
      ::plimsoll::gpu::emulated::block->shared_part(&name##_tag, sizeof(T) * (n), alignof(T)))
#define PL_LAUNCHED_SHARED(T, name, n)                                 \
  ::plimsoll::gpu::emulated::block->require_launched(sizeof(T) * (n)); \
  PL_SHARED(T, name, n)

namespace plimsoll::gpu::emulated {

// The instruction, which every machine has that the program runs on (cpu/isa.h). Kernels are compiled for
// plain x86-64, as the linker may take inline functions of their files for everybody's: there, the compiler
// calls the C library, for most of a run's time.
#if defined(__x86_64__)
inline float fma(float a, float b, float c) {
  asm("vfmadd231ss %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
  return c;
}
inline double fma(double a, double b, double c) {
  asm("vfmadd231sd %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
  return c;
}
#else
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#endif

// Orders the memory of the whole warp, unlike shuffles.
void sync_warp(Place place, uint32_t mask = kAllLanes);

enum class Shuffle : uint8_t { from, exchange, down };
// The lane whose value this lane gets, of its segment of `width`; beyond the segment its own. Fails where
// that lane is outside the mask.
int shuffle_source(Place place, Shuffle kind, uint32_t mask, int x, int width);
// Each lane's `bytes` (8 at most) from lane `source`.
const std::byte* exchange(Place place, uint32_t mask, const void* value, size_t bytes, int source);

template <class T>
T shuffle(Place place, Shuffle kind, uint32_t mask, T value, int x, int width = kWarp) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  const int source = shuffle_source(place, kind, mask, x, width);
  std::memcpy(&value, exchange(place, mask, &value, sizeof(T), source), sizeof(T));
  return value;
}

// A bit for each lane of the mask whose predicate is not 0.
uint32_t ballot(Place place, uint32_t mask, int predicate);

// mma.m16n8k16 with f32 sums; `value` makes a float of 16 bits.
void mma_16816(Place place, float (*value)(uint16_t), float (&c)[4], const uint32_t (&a)[4],
               const uint32_t (&b)[2]);
// ldmatrix.x4 of 8x8 matrices of 16 bits.
void load_matrix_x4(Place place, bool transposed, uint32_t (&to)[4], const void* row);
// cp.async of 16 bytes: the copy lands when its group is waited for, not before; until then its target is
// NaN.
void copy_async(Place place, void* to, const void* from, bool live);
void commit_copies();
void wait_copies(int groups_left);

}  // namespace plimsoll::gpu::emulated
