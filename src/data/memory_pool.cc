#include "data/memory_pool.h"

#include <arrow/status.h>

namespace plimsoll {

bool CappedMemoryPool::claim(int64_t bytes) {
  const int64_t held = held_.fetch_add(bytes) + bytes;
  if (bytes > 0 && held > cap_) {
    held_ -= bytes;
    return false;
  }
  int64_t peak = peak_;
  while (peak < held && !peak_.compare_exchange_weak(peak, held)) {
  }
  if (bytes > 0) total_ += bytes;
  return true;
}

arrow::Status CappedMemoryPool::Allocate(int64_t size, int64_t alignment, uint8_t** out) {
  if (!claim(size)) return arrow::Status::OutOfMemory("the cap of ", cap_.load(), " bytes is reached");
  const arrow::Status status = arrow::system_memory_pool()->Allocate(size, alignment, out);
  if (status.ok())
    ++allocations_;
  else
    claim(-size);
  return status;
}

arrow::Status CappedMemoryPool::Reallocate(int64_t old_size, int64_t new_size, int64_t alignment,
                                           uint8_t** ptr) {
  if (!claim(new_size - old_size))
    return arrow::Status::OutOfMemory("the cap of ", cap_.load(), " bytes is reached");
  const arrow::Status status = arrow::system_memory_pool()->Reallocate(old_size, new_size, alignment, ptr);
  if (status.ok())
    ++allocations_;
  else
    claim(old_size - new_size);
  return status;
}

void CappedMemoryPool::Free(uint8_t* buffer, int64_t size, int64_t alignment) {
  arrow::system_memory_pool()->Free(buffer, size, alignment);
  claim(-size);
}

}  // namespace plimsoll
