// The queue that kernels are launched on.
#pragma once

#include <cstdint>
#include <functional>

namespace plimsoll::gpu {

// Keeps launches on the emulator, to run them later.
class LaunchTaker {
 public:
  virtual ~LaunchTaker() = default;
  virtual void take(std::function<void()> launch) = 0;
};

// Without a handle, which the emulator's may be, what is launched has run when launch() returns.
class Stream {
 public:
  Stream() = default;
  // A cudaStream_t of the caller's; the emulator's: a LaunchTaker*.
  explicit Stream(void* handle) : handle_(handle) {}
  [[nodiscard]] void* handle() const { return handle_; }
  // Kernels launched from now on are loaded, and do not run.
  void only_load(bool only) { only_loads_ = only; }
  [[nodiscard]] bool only_loads() const { return only_loads_; }
  // Kernels launched from now on are captured, to be launched again with other inputs.
  void capture(bool captures) { captures_ = captures; }
  [[nodiscard]] bool captures() const { return captures_; }
  // Blocks of all that was launched, and did not only load.
  void count_blocks(uint64_t blocks) { blocks_ += blocks; }
  [[nodiscard]] uint64_t blocks() const { return blocks_; }
  // Bytes of shared memory that a block of the card may have; 0: not known.
  void limit_shared(int64_t most) { most_shared_ = most; }
  [[nodiscard]] int64_t most_shared() const { return most_shared_; }

 private:
  void* handle_ = nullptr;
  bool only_loads_ = false, captures_ = false;
  uint64_t blocks_ = 0;
  int64_t most_shared_ = 0;
};

}  // namespace plimsoll::gpu
