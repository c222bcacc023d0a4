// Decides which products go to a library, and which to the kernels here.
#include <algorithm>
#include <utility>

#include "base/units.h"
#include "ops/gpu_rows.h"
#include "ops/linear/gpu_matmul.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr unsigned kCopyThreads = 256;
template <class W>
__global__ void __launch_bounds__(kCopyThreads) copy_words(const W* from, W* to, int64_t count) {
  const int64_t at = int64_t{blockIdx.x} * kCopyThreads + threadIdx.x;
  if (at < count) to[at] = from[at];
}
template <class W>
void launch_copy(gpu::Stream& stream, const void* from, void* to, int64_t bytes) {
  const auto count = bytes / static_cast<int64_t>(sizeof(W));
  gpu::launch(stream, {gpu::blocks_of(count, kCopyThreads)}, {kCopyThreads}, copy_words<W>,
              static_cast<const W*>(from), static_cast<W*>(to), count);
}

// The library adds to C, in plans that keep the two apart as in those that do not. By the size of a row: how
// many are live must not ask for code that was not loaded.
void bring_addend(gpu::Stream& stream, const GpuMatmul& g, int64_t live) {
  if (g.addend == g.c) return;
  const int64_t row = g.shape.n * size_of(g.shape.c);
  const int64_t bytes = (g.shape.a_transposed ? g.shape.m : live) * row;
  if (row % static_cast<int64_t>(sizeof(SixteenBytes)) == 0)
    launch_copy<SixteenBytes>(stream, g.addend, g.c, bytes);
  else
    launch_copy<uint16_t>(stream, g.addend, g.c, bytes);
}

// A library has no second pair of operands: the kernels here add its product to what is there.
void launch_adapter(gpu::Stream& stream, const GpuMatmul& g) {
  GpuMatmul adapter{.shape = g.shape,
                    .a = g.adapter_a,
                    .b = g.adapter_b,
                    .c = g.c,
                    .addend = g.c,
                    .alpha = g.adapter_alpha,
                    .tf32 = g.tf32,
                    .live = g.live};
  adapter.shape.k = std::exchange(adapter.shape.adapter, 0);
  launch_own_matmul(stream, adapter);
}

}  // namespace

void ask_library(const GpuBinding& b, GpuMatmul& g, bool knows, std::span<std::byte> workspace) {
  gpu::ProductLibrary* const library = b.library();
  if (library == nullptr) return;
  ++library->use.requested;
  MatmulShape shape = g.shape;
  shape.adapter = 0;
  if (knows)
    g.by = library->find({.shape = shape,
                          .tf32 = g.tf32,
                          .alpha = g.alpha,
                          .a = g.a,
                          .b = g.b,
                          .c = g.c,
                          .bias = g.bias,
                          .workspace = workspace});
  if (g.by == nullptr) ++library->use.refused;
}

std::span<std::byte> library_workspace(const GpuBinding& b, int64_t used) {
  constexpr int64_t kAligned = 256;  // as cuBLASLt asks
  if (b.scratch() == nullptr) return {};
  const auto begin = reinterpret_cast<int64_t>(b.scratch());
  const int64_t from = round_up(begin + used, kAligned) - begin;
  const int64_t bytes = b.graph().tensor(b.op().scratch).bytes();
  if (from >= bytes) return {};
  return {b.scratch() + from, static_cast<size_t>(bytes - from)};
}

void launch_matmul(gpu::Stream& stream, const GpuMatmul& g) {
  if (g.by != nullptr && stream.only_loads()) {
    g.by->load(stream.handle());
    if (g.addend != nullptr) bring_addend(stream, g, g.shape.m);
    if (g.shape.adapter > 0) launch_adapter(stream, g);
  } else if (g.by != nullptr) {
    const int64_t live = g.live_here.of(g.shape.a_transposed ? g.shape.k : g.shape.m);
    const bool adds = g.addend != nullptr && g.accumulation_here.adds();
    if (live > 0 && adds) bring_addend(stream, g, live);
    if (live > 0 && g.by->run(stream.handle(), live, adds)) {
      if (g.shape.adapter > 0) launch_adapter(stream, g);
      return;
    }
  }
  launch_own_matmul(stream, g);
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
