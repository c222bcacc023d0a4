// memset and memcpy with all threads: one core cannot saturate the memory, and a vocabulary's gradient is
// hundreds of MB.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plimsoll {

void parallel_clear(void* to, int64_t bytes, int threads);
// Does nothing where `from` is `to`; otherwise they do not overlap.
void parallel_copy(void* to, const void* from, int64_t bytes, int threads);

}  // namespace plimsoll
