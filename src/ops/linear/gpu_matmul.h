// Dense row-major matrix products on the GPU: C = alpha * A B [+ adapter_alpha * T U] [+ addend] [+ bias], T U
// being the fused adapter, a second product summed into the same C, of shapes that have one; 16-bit values by tensor
// cores, f32 by plain arithmetic or, where the op asks for it, by tensor cores too, cut to TF32; all sum in
// f32 and round once. An element's order of summation follows from k alone. A library computes what it has
// algorithms for.
#pragma once

#include <memory>
#include <span>

#include "device/rates.h"
#include "gpu/stream.h"
#include "ops/gpu_kernel.h"
#include "ops/gpu_step.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

struct GpuMatmul {
  MatmulShape shape = {};  // A and B both f32, bf16 or f16; C like them, or f32
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* addend = nullptr;     // [m, n] of C's type; may be c
  const void* bias = nullptr;       // [n] of C's type
  const void* adapter_a = nullptr;  // [m, adapter]: its rows count where A's do
  const void* adapter_b = nullptr;
  float adapter_alpha = 1.0F;
  float alpha = 1.0F;
  int tile = 0;  // rows and columns of C that a block of 16-bit products computes, 64 or 128; 0: by the shape
  bool tf32 = false;  // f32 operands are rounded to 10 bits of mantissa
  // Rows of stored A that count (m, or k when a_transposed): the rest is not read, and rows of C beyond live
  // m are not touched.
  LiveRows live = {};
  Accumulation accumulation = {};  // without it the addend is left out
  // By a library, which reads the same two on the host; nullptr: by the kernels here.
  std::shared_ptr<const gpu::LibraryProduct> by = nullptr;
  LiveRows live_here = {};
  Accumulation accumulation_here = {};
};

// Throws UsageError, in the name of the op, for types that there is no kernel for, or that the card has none
// for.
void require_matmul(const GpuBinding& binding, const MatmulShape& shape);
// Returns true if the op asks for TF32: attribute tf32 (passes/pipeline.cc).
bool by_tf32(const GpuBinding& binding);
// Asks the device's library for the product, where there is one and `knows`: the host has what live_here and
// accumulation_here will read. A product without rows, and what the library refuses, go to the kernels here.
void ask_library(const GpuBinding& binding, GpuMatmul& matmul, bool knows, std::span<std::byte> workspace);
// The part of the op's workspace behind its first `used` bytes, for a library.
std::span<std::byte> library_workspace(const GpuBinding& binding, int64_t used = 0);
// For shapes that require_matmul() lets pass.
void launch_matmul(gpu::Stream& stream, const GpuMatmul& matmul);
// By the kernels here.
void launch_own_matmul(gpu::Stream& stream, const GpuMatmul& matmul);

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
