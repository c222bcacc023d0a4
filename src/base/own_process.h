// Work in a process of its own, whose memory is gone when it is done.
#pragma once

#include <functional>
#include <string>

namespace plimsoll {

// What `work` returns, done by a copy of this process that ends with it: nothing else that it changes is seen
// here. What it throws is thrown here, the classes of base/error.h with their codes, std::bad_alloc, and
// failures of the system with their numbers and paths. The copy has no open files but the standard streams,
// none of this process's threads, and ends when this process does. Throws StoppedError where the system
// starts no process or ends it, DoesNotFitError where the kernel says that it ended one for want of memory,
// InternalError where it crashes.
std::string in_own_process(const std::function<std::string()>& work);

}  // namespace plimsoll
