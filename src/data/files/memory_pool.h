// Arrow's memory pool, counted and capped.
#pragma once

#include <arrow/memory_pool.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace plimsoll {

// Stays below a cap; beyond it Arrow's calls return Status::OutOfMemory. Large buffers are mapped one by one,
// so that freeing them gives their pages back at once: malloc and Arrow's default pool keep them, and a
// process then holds up to 20 MiB more than Arrow says.
class CappedMemoryPool final : public arrow::MemoryPool {
 public:
  explicit CappedMemoryPool(int64_t cap) : cap_(cap) {}

  void set_cap(int64_t cap) { cap_ = cap; }
  [[nodiscard]] int64_t cap() const { return cap_; }

  arrow::Status Allocate(int64_t size, int64_t alignment, uint8_t** out) override;
  arrow::Status Reallocate(int64_t old_size, int64_t new_size, int64_t alignment, uint8_t** ptr) override;
  void Free(uint8_t* buffer, int64_t size, int64_t alignment) override;
  [[nodiscard]] int64_t bytes_allocated() const override { return held_; }
  [[nodiscard]] int64_t max_memory() const override { return peak_; }
  [[nodiscard]] int64_t total_bytes_allocated() const override { return total_; }
  [[nodiscard]] int64_t num_allocations() const override { return allocations_; }
  [[nodiscard]] std::string backend_name() const override { return "capped system"; }

 private:
  // Counts `bytes` more (or fewer) as held; false when that would pass the cap.
  bool claim(int64_t bytes);

  std::atomic<int64_t> cap_;
  std::atomic<int64_t> held_ = 0;
  std::atomic<int64_t> peak_ = 0;
  std::atomic<int64_t> total_ = 0;
  std::atomic<int64_t> allocations_ = 0;
};

}  // namespace plimsoll
