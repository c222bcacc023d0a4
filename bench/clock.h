// The clock of benches that run beside other programs.
#pragma once

#include <omp.h>

#include <ctime>

namespace plimsoll {

// Seconds: of the CPU for one thread, so that other load hardly counts; of the wall for several, whose CPU
// times Linux adds up too late for runs of milliseconds.
inline double now() {
  timespec t{};
  clock_gettime(omp_get_max_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace plimsoll
