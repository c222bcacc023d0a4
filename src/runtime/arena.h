// The one allocation of a run: mapped, touched and zero before anything is loaded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ranks/node_pages.h"
#include "runtime/device.h"

namespace plimsoll {

// Private anonymous memory of exactly `bytes`, in huge pages where the system grants them. Throws
// DoesNotFitError when the kernel refuses.
class Arena : public DeviceMemory {
 public:
  // Pages are touched by `threads` threads, so that no page fault waits in the first step. `front`: pages that lie at
  // its front, and are those of other processes too; null: all are its own.
  Arena(int64_t bytes, int threads, NodePages* front = nullptr);
  ~Arena() override;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  [[nodiscard]] std::byte* data() const override { return data_; }
  // As requested from the system: what "measured device bytes" reports.
  [[nodiscard]] int64_t bytes() const override { return bytes_; }

 private:
  std::byte* data_ = nullptr;  // aligned to a huge page
  int64_t bytes_ = 0;
  int64_t mapped_ = 0;
};

}  // namespace plimsoll
