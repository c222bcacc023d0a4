#include "data/files/memory_pool.h"

#include <arrow/status.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace plimsoll {
namespace {

// A map costs two system calls and a page fault per 4 KiB; below this size malloc is worth more.
constexpr int64_t kMapBytes = 256 * 1024;

bool is_mapped(int64_t size) { return size >= kMapBytes; }

// Pages are aligned to 4 KiB; Arrow asks for 64 bytes.
uint8_t* map_pages(int64_t size) {
  void* pages =
      mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages == MAP_FAILED ? nullptr : static_cast<uint8_t*>(pages);
}

uint8_t* resize_map(uint8_t* pages, int64_t old_size, int64_t new_size) {
  void* moved = mremap(pages, static_cast<size_t>(old_size), static_cast<size_t>(new_size), MREMAP_MAYMOVE);
  return moved == MAP_FAILED ? nullptr : static_cast<uint8_t*>(moved);
}

arrow::Status obtain(int64_t size, int64_t alignment, uint8_t** out) {
  if (!is_mapped(size)) return arrow::system_memory_pool()->Allocate(size, alignment, out);
  *out = map_pages(size);
  return *out == nullptr ? arrow::Status::OutOfMemory("the system has no ", size, " bytes left")
                         : arrow::Status::OK();
}

void release(uint8_t* buffer, int64_t size, int64_t alignment) {
  if (is_mapped(size))
    munmap(buffer, static_cast<size_t>(size));
  else
    arrow::system_memory_pool()->Free(buffer, size, alignment);
}

arrow::Status resize(int64_t old_size, int64_t new_size, int64_t alignment, uint8_t** buffer) {
  if (!is_mapped(old_size) && !is_mapped(new_size))
    return arrow::system_memory_pool()->Reallocate(old_size, new_size, alignment, buffer);
  if (is_mapped(old_size) && is_mapped(new_size)) {
    uint8_t* moved = resize_map(*buffer, old_size, new_size);
    if (moved == nullptr) return arrow::Status::OutOfMemory("the system has no ", new_size, " bytes left");
    *buffer = moved;
    return arrow::Status::OK();
  }
  uint8_t* moved = nullptr;
  ARROW_RETURN_NOT_OK(obtain(new_size, alignment, &moved));
  const int64_t kept = std::min(old_size, new_size);
  if (kept > 0) std::memcpy(moved, *buffer, static_cast<size_t>(kept));
  release(*buffer, old_size, alignment);
  *buffer = moved;
  return arrow::Status::OK();
}

}  // namespace

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
  const arrow::Status status = obtain(size, alignment, out);
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
  const arrow::Status status = resize(old_size, new_size, alignment, ptr);
  if (status.ok())
    ++allocations_;
  else
    claim(old_size - new_size);
  return status;
}

void CappedMemoryPool::Free(uint8_t* buffer, int64_t size, int64_t alignment) {
  release(buffer, size, alignment);
  claim(-size);
}

}  // namespace plimsoll
