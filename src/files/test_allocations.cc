// Replaces operator new for the whole test program. This is a file of its own because the compiler warns of
// pairs that do not match if it sees these bodies together with their callers.
#include "files/test_allocations.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "base/heap_peak.h"

namespace {
thread_local int64_t allocations = 0;
std::atomic<int64_t> allocations_of_process = 0;
thread_local int64_t held = 0, peak = 0;

void* counted(void* memory) {
  ++allocations;
  ++allocations_of_process;
  held += static_cast<int64_t>(malloc_usable_size(memory));
  peak = std::max(peak, held);
  plimsoll::note_allocated(memory);
  return memory;
}
void release(void* memory) {
  held -= static_cast<int64_t>(malloc_usable_size(memory));
  plimsoll::note_freed(memory);
  std::free(memory);
}
}  // namespace

int64_t plimsoll::heap_allocations() { return allocations; }
int64_t plimsoll::heap_allocations_of_process() { return allocations_of_process; }
int64_t plimsoll::heap_bytes() { return held; }
int64_t plimsoll::heap_peak() { return peak; }
void plimsoll::reset_heap_peak() { peak = held; }

void* operator new(size_t bytes) {
  if (void* memory = std::malloc(bytes)) return counted(memory);
  throw std::bad_alloc();
}
// Temporary buffers of algorithms come from this one, and go by the same delete.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return counted(std::malloc(bytes)); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, size_t) noexcept { release(memory); }
