// Limits of a launch on a GPU, and the error of one that fails: the same for nvcc's launches and the
// emulator's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/error.h"

namespace plimsoll::gpu {

// Blocks of a grid, threads of a block, and bytes of shared memory that the launch gives a block.
struct LaunchShape {
  struct Sides {
    unsigned x = 1, y = 1, z = 1;
  };
  Sides grid, block;
  unsigned shared = 0;
};

// No card takes the launch. The code that binds the op adds its name.
struct LaunchRefused : UsageError {
  using UsageError::UsageError;
};

// The reason why no card takes it; empty: it may be launched. `most_shared`: bytes that a block of this card
// may have; 0: not known.
std::string launch_fault(const LaunchShape& shape, int64_t most_shared);
// Throws LaunchRefused with that; InternalError where no size of a recipe's is to blame.
void require_launchable(const LaunchShape& shape, int64_t most_shared);

// By CUDA's error: CardFault where it lasts, which a kernel before this one caused; else InternalError.
[[noreturn]] void throw_failed_launch(int error, const char* text);

// The note before kernels are loaded on a card of that compute capability (90) by a build that has code for
// `architectures` ("75,120"): that the driver compiles them, and for how long. Empty: it need not.
std::string compile_note(std::string_view architectures, int compute_capability);

// The shared memory that kernels may be launched with. It is only raised: a graph may hold launches of one
// kernel with several sizes, of which the largest counts.
class SharedLimits {
 public:
  // Returns true if the kernel's limit has to be set to `bytes` now.
  bool raises(const void* kernel, unsigned bytes);

 private:
  static constexpr unsigned kNotRequested = 48 * 1024;  // what a kernel gets without asking
  std::map<const void*, unsigned> limits_;
};
// The limits of this process, whose one thread launches.
SharedLimits& shared_limits();

}  // namespace plimsoll::gpu
