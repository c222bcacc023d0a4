// Ranks that are threads of one process, for tests.
#pragma once

#include <barrier>
#include <functional>
#include <vector>

#include "ranks/group.h"

namespace plimsoll {

// Calls `work` with a group on so many threads, rank 0's being the caller's, and returns when all are done.
// An exception of `work` ends the process, as the others would wait for ever.
void run_as_threads(int ranks, const std::function<void(Group&)>& work);

}  // namespace plimsoll
