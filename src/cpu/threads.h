// The compute threads: OpenMP's, one pinned to each CPU.
#pragma once

namespace plimsoll {

// CPUs that this process may run on (its affinity mask).
int available_cpus();

// Starts `n` OpenMP threads (the caller is the first), pins each to its own CPU of the process's mask and
// makes all flush denormals to zero. Call it once: pinning narrows the caller's own mask. Throws UsageError
// unless 1 <= n <= available_cpus().
void start_threads(int n);

}  // namespace plimsoll
