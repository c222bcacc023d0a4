// Watches every load and store of emulated kernels that were compiled with -fsanitize=thread
// (cmake/gpu.cmake): the compiler calls the sanitizer's functions at each, and emulator_check.cc is them; the
// sanitizer itself is not linked.
//
// Found: two threads that touch a byte without a barrier between them and one of which writes; accesses
// outside an op's operands; writes to its inputs; reads of what nothing wrote; misaligned vectors.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace plimsoll::gpu::emulated {

// Memory of the device that kernels see. The whole of it is `allowed` to no op; operands in it are.
struct Region {
  const void* begin = nullptr;
  size_t bytes = 0;
  bool allowed = true;
  bool writable = false;
  bool initial = false;  // holds values before the first kernel runs
  std::string name;
};

// From now on these are watched, all others forgotten. An operand that lies in another's place is given after
// it.
void watch(const std::vector<Region>& regions);
// The errors found since watch(), one line each.
std::vector<std::string> findings();

}  // namespace plimsoll::gpu::emulated
