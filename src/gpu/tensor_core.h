// Tensor core products of 16x8x16 (of f32 cut to TF32 16x8x8) with f32 sums, their operand loads, and copies
// to shared memory that run concurrently with the computation. sm_75 has f16 products of depth 8 and no such
// copies: it gets two products and plain loads.
#pragma once

#include "gpu/device.h"

namespace plimsoll::gpu {
inline namespace PLIMSOLL_GPU {

#ifdef __CUDACC__
PL_DEV uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

template <class T>
PL_DEV void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
template <>
PL_DEV void mma<bf16>(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();  // planning never gives bf16 to a card without it
#endif
}
template <>
PL_DEV void mma<f16>(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  for (int half = 0; half < 2; ++half)
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
#endif
}
// Values as to_tf32() gives them.
PL_DEV void mma_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();  // such a card is refused
#endif
}
PL_DEV void load_matrix(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
PL_DEV void load_matrix_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
// 16 bytes to shared memory; zeros where not `live`.
PL_DEV void copy_async(void* to, const void* from, bool live) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(live ? 16 : 0)
               : "memory");
#else
  *static_cast<uint4*>(to) = live ? *static_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
#endif
}
PL_DEV void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int kGroupsLeft>
PL_DEV void wait_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroupsLeft) : "memory");
#endif
}
#else
template <class T>
void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulated::mma_16816(
      PL_HERE, [](uint16_t bits) { return to_float(T{bits}); }, c, a, b);
}
// A lane has rows lane / 4 and that + 8 of A and of C, and column lane / 4 of B; of the depth lane % 4 and
// that + 4.
inline void mma_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const unsigned lane = threadIdx.x % kWarpSize;
  for (unsigned k = 0; k < 8; ++k) {
    const unsigned left = lane / 4 * 4 + k % 4, right = lane % 4 * 8 + k % 4;
    const float upper = as_float(__shfl_sync(kAll, k < 4 ? a[0] : a[2], left));
    const float lower = as_float(__shfl_sync(kAll, k < 4 ? a[1] : a[3], left));
    const float first = as_float(__shfl_sync(kAll, k < 4 ? b[0] : b[1], right));
    const float second = as_float(__shfl_sync(kAll, k < 4 ? b[0] : b[1], right + 4));
    c[0] = fma(upper, first, c[0]);
    c[1] = fma(upper, second, c[1]);
    c[2] = fma(lower, first, c[2]);
    c[3] = fma(lower, second, c[3]);
  }
}
inline void load_matrix(uint32_t (&r)[4], const void* row) {
  emulated::load_matrix_x4(PL_HERE, false, r, row);
}
inline void load_matrix_transposed(uint32_t (&r)[4], const void* row) {
  emulated::load_matrix_x4(PL_HERE, true, r, row);
}
inline void copy_async(void* to, const void* from, bool live) {
  emulated::copy_async(PL_HERE, to, from, live);
}
inline void commit_copies() { emulated::commit_copies(); }
template <int kGroupsLeft>
void wait_copies() {
  emulated::wait_copies(kGroupsLeft);
}
#endif

// Bits of x with 10 of its 23 bits of mantissa: to nearest, ties away from zero, as the instruction has it.
PL_BOTH uint32_t to_tf32(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
#else
  const uint32_t bits = as_bits(x);
  if ((bits & 0x7F800000U) == 0x7F800000U) return x == x ? bits : 0x7FFFFFFFU;
  return (bits + 0x1000U) & ~0x1FFFU;
#endif
}

// Two values as one register, the first in the low half.
template <class T>
PL_DEV uint32_t packed(float low, float high) {
  return uint32_t{rounded<T>(low).bits} | uint32_t{rounded<T>(high).bits} << 16;
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll::gpu
