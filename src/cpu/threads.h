// The compute threads, which are OpenMP's.
#pragma once

#include <cstdint>
#include <functional>

namespace plimsoll {

// CPUs that this process might run on when it asked first, before anything was pinned (its affinity mask).
int available_cpus();

// Starts `n` OpenMP threads (the caller is the first) and makes all flush denormals to zero. Several are
// pinned, each to a CPU of its own of the process's mask: to those first on which no other process of
// Plimsoll has pinned one. Call it once: pinning narrows the caller's own mask. Throws UsageError unless 1 <=
// n <= available_cpus().
void start_threads(int n);

// Calls part(begin, end) for parts of [0, count), of `least` or more, on all compute threads, and returns
// when all are done. `part` throws nothing.
void on_all_threads(int64_t count, int64_t least, const std::function<void(int64_t, int64_t)>& part);

// Gives the calling thread all CPUs again: threads inherit the mask of the one that starts them, and a helper
// thread must not sit on the first compute thread's CPU.
void unpin_this_thread();

}  // namespace plimsoll
