// Counts heap allocations, for tests that promise none. A test program lists test_allocations.cc among its
// sources.
#pragma once

#include <cstdint>

namespace plimsoll {

// Calls of operator new by this thread so far.
int64_t heap_allocations();
// The same of all threads.
int64_t heap_allocations_of_process();
// Bytes that this thread holds by operator new, less what it freed of others; and the most since
// reset_heap_peak().
int64_t heap_bytes();
int64_t heap_peak();
void reset_heap_peak();

}  // namespace plimsoll
