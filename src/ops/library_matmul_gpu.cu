// Which products go to a library, and which to the kernels here.
#include <algorithm>

#include "base/units.h"
#include "ops/gpu_matmul.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

void ask_library(const GpuBinding& b, GpuMatmul& g, bool knows, std::span<std::byte> workspace) {
  gpu::ProductLibrary* const library = b.library();
  if (library == nullptr) return;
  ++library->use.asked;
  if (knows)
    g.by = library->find({.shape = g.shape,
                          .tf32 = g.tf32,
                          .alpha = g.alpha,
                          .a = g.a,
                          .b = g.b,
                          .c = g.c,
                          .addend = g.addend,
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
  } else if (g.by != nullptr) {
    const int64_t live = g.live_here.of(g.shape.a_transposed ? g.shape.k : g.shape.m);
    const bool adds = g.addend != nullptr && g.accumulation_here.adds();
    if (live > 0 && g.by->run(stream.handle(), live, adds)) return;
  }
  launch_own_matmul(stream, g);
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
