#include "cpu/threads.h"

#include <immintrin.h>
#include <omp.h>
#include <sched.h>

#include <atomic>
#include <string>
#include <vector>

#include "base/error.h"

namespace plimsoll {
namespace {

std::vector<int> read_mask() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0)
    throw StoppedError("sched_getaffinity failed: this machine has more than 1024 CPUs");
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  return cpus;
}

// The process's mask as it was before anything was pinned: pinning narrows that of the calling thread.
const std::vector<int>& allowed_cpus() {
  static const std::vector<int> kCpus = read_mask();
  return kCpus;
}

bool pin_to(int cpu) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(cpu, &mask);
  return sched_setaffinity(0, sizeof mask, &mask) == 0;
}

}  // namespace

int available_cpus() { return static_cast<int>(allowed_cpus().size()); }

void start_threads(int n) {
  const std::vector<int>& cpus = allowed_cpus();
  if (n < 1 || n > static_cast<int>(cpus.size()))
    throw UsageError("threads: " + std::to_string(n) + " asked for, use 1 to " + std::to_string(cpus.size()) +
                     " (the CPUs this process may run on)");
  omp_set_dynamic(0);
  omp_set_num_threads(n);
  std::atomic<int> ready = 0;
  // Unpinned, both spinning threads of libgomp were often left on one CPU: 6 ms for each parallel region.
#pragma omp parallel num_threads(n)
  {
    constexpr unsigned kFlushToZero = 0x8000;
    constexpr unsigned kDenormalsAreZero = 0x0040;
    _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
    if (pin_to(cpus[static_cast<size_t>(omp_get_thread_num())])) ++ready;
  }
  if (ready != n)
    throw StoppedError("could start and pin " + std::to_string(ready) + " of " + std::to_string(n) +
                       " threads; ask for fewer threads");
}

void unpin_this_thread() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : allowed_cpus()) CPU_SET(cpu, &mask);
  sched_setaffinity(0, sizeof mask, &mask);
}

}  // namespace plimsoll
