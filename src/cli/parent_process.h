// Ends this process with the one that started it.
#pragma once

#include <cstdint>

namespace plimsoll {

// From now on this process gets SIGTERM once `parent`, which started it, is gone. Throws UsageError where it is gone
// already, or did not start this one. A thread of the parent that started this process and ends is not its end.
void end_with_parent(int64_t parent);

}  // namespace plimsoll
