// Replaces operator new for the whole test program. A file of its own: where the compiler sees these bodies
// beside their callers, it warns of pairs that do not match.
#include "base/test_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
thread_local int64_t allocations = 0;
std::atomic<int64_t> allocations_of_process = 0;
}  // namespace

int64_t plimsoll::heap_allocations() { return allocations; }
int64_t plimsoll::heap_allocations_of_process() { return allocations_of_process; }

void* operator new(size_t bytes) {
  ++allocations;
  ++allocations_of_process;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
// Temporary buffers of algorithms come from this one, and go by the same delete.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  ++allocations_of_process;
  return std::malloc(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
