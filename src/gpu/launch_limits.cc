#include "gpu/launch_limits.h"

#include "base/format.h"
#include "base/strings.h"
#include "gpu/card_fault.h"

namespace plimsoll::gpu {
namespace {

constexpr unsigned kMostThreads = 1024;
constexpr unsigned kMostBlocks = 0x7FFFFFFFU;  // along x
constexpr unsigned kMostBlocksBeside = 65535;  // along y and z

uint64_t count_of(const LaunchShape::Sides& sides) { return uint64_t{sides.x} * sides.y * sides.z; }

}  // namespace

std::string launch_fault(const LaunchShape& shape, int64_t most_shared) {
  const auto& [grid, block, shared] = shape;
  if (count_of(grid) == 0 || count_of(block) == 0) return "a kernel was launched with nothing to run";
  if (grid.x > kMostBlocks || grid.y > kMostBlocksBeside || grid.z > kMostBlocksBeside ||
      count_of(grid) > kMostBlocks)
    return formatted("a kernel was launched with more blocks than a grid may have: {} x {} x {}", grid.x,
                     grid.y, grid.z);
  if (count_of(block) > kMostThreads)
    return formatted("a kernel was launched with blocks of {} threads; 1024 is what a block may have",
                     count_of(block));
  if (most_shared > 0 && int64_t{shared} > most_shared)
    return formatted("a kernel was launched with {} bytes of shared memory a block; this card has {}", shared,
                     most_shared);
  return "";
}

void require_launchable(const LaunchShape& shape, int64_t most_shared) {
  const std::string fault = launch_fault(shape, most_shared);
  if (fault.empty()) return;
  // Blocks are the kernels' choice; how many of them there are follows from what is trained.
  const bool ours =
      count_of(shape.grid) == 0 || count_of(shape.block) == 0 || count_of(shape.block) > kMostThreads;
  if (ours) throw InternalError(fault);
  throw LaunchRefused(fault);
}

void throw_failed_launch(int error, const char* text) {
  if (lasts(error)) throw CardFault(text);
  throw InternalError(std::string("a kernel was not launched: ") + text);
}

// Code runs on cards of its first number whose second one is not less.
std::string compile_note(std::string_view architectures, int compute_capability) {
  for (const std::string& one : split(architectures, ',')) {
    const int of = std::stoi(one);
    if (of / 10 == compute_capability / 10 && of <= compute_capability) return "";
  }
  const std::string number = formatted("{}.{}", compute_capability / 10, compute_capability % 10);
  return formatted(
      "kernels this build has no code for compute capability {}: the driver compiles it at the first start, in about a minute, and keeps it in ~/.nv; build with -DPLIMSOLL_NVCC_ARCHITECTURES={} to avoid that",
      number, compute_capability);
}

bool SharedLimits::raises(const void* kernel, unsigned bytes) {
  if (bytes <= kNotRequested) return false;
  unsigned& limit = limits_[kernel];
  if (bytes <= limit) return false;
  limit = bytes;
  return true;
}

SharedLimits& shared_limits() {
  static SharedLimits limits;
  return limits;
}

}  // namespace plimsoll::gpu
