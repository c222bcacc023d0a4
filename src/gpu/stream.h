// Launches kernels: launch(stream, grid, block, kernel, arguments...). nvcc makes a launch of it; any other
// compiler runs the kernel on the emulator, at once or when the stream's taker does.
#pragma once

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include <tuple>

#include "gpu/emulator.h"
#endif
#include "gpu/backend.h"
#include "gpu/launch_limits.h"
#include "gpu/stream_handle.h"

namespace plimsoll::gpu {
inline namespace PLIMSOLL_GPU {

// Threads of a block, or blocks of a grid.
struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

inline void require_launchable(Stream& stream, Dim3 grid, Dim3 block, unsigned shared) {
  gpu::require_launchable({{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared},
                          stream.most_shared());
  if (!stream.only_loads()) stream.count_blocks(uint64_t{grid.x} * grid.y * grid.z);
}

// Arguments are converted to the kernel's parameters here. Throws LaunchRefused for a shape that no card
// takes, also where it only loads; CardFault where a kernel before this one failed, and InternalError where
// the launch is refused; the emulator also for what the kernel does wrong.
// `shared`: bytes of what the kernel declares as PL_LAUNCHED_SHARED.
#ifdef __CUDACC__
template <class... Parameters, class... Arguments>
void launch_with_shared(Stream& stream, Dim3 grid, Dim3 block, unsigned shared, void (*kernel)(Parameters...),
                        Arguments... arguments) {
  require_launchable(stream, grid, block, shared);
  if (shared_limits().raises(reinterpret_cast<const void*>(kernel), shared))
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
  if (stream.only_loads()) {
    // Asking for a kernel's attributes loads it.
    cudaFuncAttributes loaded;
    cudaFuncGetAttributes(&loaded, kernel);
  } else {
    kernel<<<dim3(grid.x, grid.y, grid.z), dim3(block.x, block.y, block.z), shared,
             static_cast<cudaStream_t>(stream.handle())>>>(static_cast<Parameters>(arguments)...);
  }
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
    throw_failed_launch(static_cast<int>(error), cudaGetErrorString(error));
}
#else
template <class... Parameters, class... Arguments>
void launch_with_shared(Stream& stream, Dim3 grid, Dim3 block, unsigned shared, void (*kernel)(Parameters...),
                        Arguments... arguments) {
  require_launchable(stream, grid, block, shared);
  if (stream.only_loads()) return;
  const auto run = [=, values = std::tuple<Parameters...>(static_cast<Parameters>(arguments)...)] {
    emulated::run_grid({grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared,
                       [&values, kernel] { std::apply(kernel, values); });
  };
  if (stream.handle() == nullptr) {
    run();
  } else {
    static_cast<LaunchTaker*>(stream.handle())->take(run);
  }
}
#endif
template <class... Parameters, class... Arguments>
void launch(Stream& stream, Dim3 grid, Dim3 block, void (*kernel)(Parameters...), Arguments... arguments) {
  launch_with_shared(stream, grid, block, 0, kernel, arguments...);
}

// Blocks of `size` that cover `count`.
inline unsigned blocks_of(long long count, long long size) {
  return static_cast<unsigned>((count + size - 1) / size);
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll::gpu
