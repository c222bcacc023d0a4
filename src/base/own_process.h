// Runs work in a child process, so that its memory is released when it is done.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace plimsoll {

// Runs `work` in a fork of this process, which ends with it, and returns its result; nothing else that it
// changes is seen here. Exceptions of `work` are thrown here again: the classes of base/error.h with their
// codes, std::bad_alloc, and failures of the system with their numbers and paths. The fork has no open files
// but the standard streams, none of this process's threads, and ends when this process does. Throws
// StoppedError where the system starts no process or ends it, DoesNotFitError where the kernel says that it
// ended one for want of memory, InternalError where it crashes. `peak_bytes`: gets the most that it had resident.
std::string in_own_process(const std::function<std::string()>& work, int64_t* peak_bytes = nullptr);

}  // namespace plimsoll
