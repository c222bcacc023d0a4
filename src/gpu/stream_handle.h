// The queue that kernels are launched on.
#pragma once

namespace plimsoll::gpu {

// The emulator's has no handle: what is launched has run when launch() returns.
class Stream {
 public:
  Stream() = default;
  // A cudaStream_t of the caller's.
  explicit Stream(void* handle) : handle_(handle) {}
  [[nodiscard]] void* handle() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

}  // namespace plimsoll::gpu
