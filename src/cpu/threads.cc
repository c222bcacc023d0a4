#include "cpu/threads.h"

#include <immintrin.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/format.h"

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

// Claims a CPU: announces to the machine's other processes of this program that this one computes on it,
// until it ends. An abstract socket has one owner at a time and goes with it. Returns whether the CPU was
// free.
bool claim(int cpu) {
  const std::string name = "plimsoll-cpu-" + std::to_string(cpu);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);  // behind a null: no file
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int file = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (file < 0) return true;  // none can be claimed here
  if (bind(file, reinterpret_cast<const sockaddr*>(&address), size) == 0 || errno != EADDRINUSE) return true;
  close(file);
  return false;
}

// `n` of the CPUs, those first on which no other process like this one computes.
std::vector<int> chosen_cpus(size_t n) {
  std::vector<int> chosen, taken;
  for (const int cpu : allowed_cpus())
    if (chosen.size() < n) (claim(cpu) ? chosen : taken).push_back(cpu);
  taken.resize(std::min(taken.size(), n - chosen.size()));
  chosen.insert(chosen.end(), taken.begin(), taken.end());
  return chosen;
}

// libgomp ends the process where the system refuses a thread: as many as it will start are tried first. Their
// stacks are what glibc gives it afterwards.
void require_threads(int n) {
  std::mutex held;
  std::vector<pthread_t> started;
  int error = 0;
  {
    const std::lock_guard lock(held);
    const auto wait = [](void* mutex) -> void* {
      const std::lock_guard until_released(*static_cast<std::mutex*>(mutex));
      return nullptr;
    };
    while (static_cast<int>(started.size()) < n && error == 0) {
      pthread_t thread{};
      error = pthread_create(&thread, nullptr, wait, &held);
      if (error == 0) started.push_back(thread);
    }
  }
  for (const pthread_t thread : started) pthread_join(thread, nullptr);
  if (error != 0)
    throw StoppedError(
        formatted("the system starts {} of {} threads (ulimit -u and -v limit them); ask for fewer with "
                  "--threads",
                  started.size() + 1, n + 1));
}

}  // namespace

int available_cpus() {
  return static_cast<int>(
      std::min<size_t>(allowed_cpus().size(), static_cast<size_t>(std::max(1, omp_get_thread_limit()))));
}

void start_threads(int n) {
  if (n < 1 || n > available_cpus())
    throw UsageError(
        formatted("threads: {} asked for, use 1 to {} (the CPUs this process may run on, and "
                  "OMP_THREAD_LIMIT)",
                  n, available_cpus()));
  require_threads(n - 1);
  omp_set_dynamic(0);
  omp_set_num_threads(n);
  // One thread alone is left to the system, which knows where there is room.
  const std::vector<int> cpus = n > 1 ? chosen_cpus(static_cast<size_t>(n)) : std::vector<int>{};
  std::atomic<int> ready = 0;
  // Unpinned, both spinning threads of libgomp were often left on one CPU: 6 ms for each parallel region.
#pragma omp parallel num_threads(n)
  {
    constexpr unsigned kFlushToZero = 0x8000;
    constexpr unsigned kDenormalsAreZero = 0x0040;
    _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
    if (cpus.empty() || pin_to(cpus[static_cast<size_t>(omp_get_thread_num())])) ++ready;
  }
  if (ready != n)
    throw StoppedError(
        formatted("could start and pin {} of {} threads; ask for fewer threads", ready.load(), n));
}

void on_all_threads(int64_t count, int64_t least, const std::function<void(int64_t, int64_t)>& part) {
  const int64_t parts = std::clamp<int64_t>(count / least, 1, omp_get_max_threads());
#pragma omp parallel for if (parts > 1)
  for (int64_t i = 0; i < parts; ++i) part(count * i / parts, count * (i + 1) / parts);
}

void unpin_this_thread() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : allowed_cpus()) CPU_SET(cpu, &mask);
  sched_setaffinity(0, sizeof mask, &mask);
}

}  // namespace plimsoll
