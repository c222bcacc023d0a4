// Heap allocations of the calling thread, for tests that promise none.
#pragma once

#include <cstdint>

namespace plimsoll {

// Calls of operator new by this thread so far.
int64_t heap_allocations();

}  // namespace plimsoll
