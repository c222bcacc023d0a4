// Replaces operator new for the whole test program. A file of its own: where the compiler sees these bodies
// beside their callers, it warns of pairs that do not match.
#include "data/test_allocations.h"

#include <cstdlib>
#include <new>

namespace {
thread_local int64_t allocations = 0;
}

int64_t plimsoll::heap_allocations() { return allocations; }

void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
