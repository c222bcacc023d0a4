#include <gtest/gtest.h>
#include <immintrin.h>
#include <omp.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cpu/isa.h"
#include "cpu/threads.h"

namespace plimsoll {
namespace {

TEST(Isa, a_cap_holds) {
  EXPECT_EQ(effective_isa(Isa::avx2), Isa::avx2);
  EXPECT_EQ(effective_isa({}), detect_isa());
}

TEST(Isa, a_cap_above_the_machine_is_refused) {
  if (detect_isa() == Isa::amx) GTEST_SKIP() << "nothing is above this machine";
  EXPECT_THROW(effective_isa(Isa::amx), UsageError);
}

TEST(Isa, the_environment_makes_a_lesser_machine_and_never_a_greater_one) {
  const char* before = std::getenv("PLIMSOLL_MAX_ISA");
  const std::string kept = before == nullptr ? "" : before;
  const Isa here = detect_isa();
  setenv("PLIMSOLL_MAX_ISA", "amx", 1);
  EXPECT_GE(detect_isa(), here);
  setenv("PLIMSOLL_MAX_ISA", "avx2", 1);
  EXPECT_EQ(detect_isa(), Isa::avx2);
  EXPECT_THROW(effective_isa(Isa::avx512), UsageError);
  setenv("PLIMSOLL_MAX_ISA", "sse9", 1);
  EXPECT_THROW(detect_isa(), UsageError);
  before == nullptr ? unsetenv("PLIMSOLL_MAX_ISA") : setenv("PLIMSOLL_MAX_ISA", kept.c_str(), 1);
  EXPECT_EQ(detect_isa(), here);
}

TEST(Threads, more_than_the_process_may_use_are_refused) {
  EXPECT_GE(available_cpus(), 1);
  EXPECT_THROW(start_threads(available_cpus() + 1), UsageError);
  EXPECT_THROW(start_threads(0), UsageError);
}

TEST(Threads, share_all_of_a_range_and_no_part_of_it_twice) {
  for (const int64_t count : {0, 1, 63, 64, 1000, 100'001}) {
    std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
    on_all_threads(count, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](const auto& times) { return times == 1; })) << count;
  }
}

// On a thread of its own: pinning narrows the mask of the caller.
TEST(Threads, each_has_its_own_cpu_and_flushes_denormals) {
  std::thread([] {
    const int n = available_cpus();
    start_threads(n);
    std::set<int> cpus;
#pragma omp parallel
    {
      cpu_set_t mask;
      CPU_ZERO(&mask);
      sched_getaffinity(0, sizeof mask, &mask);
      const unsigned flags = _mm_getcsr() & 0x8040U;
#pragma omp critical
      {
        EXPECT_EQ(CPU_COUNT(&mask), 1);
        EXPECT_EQ(flags, 0x8040U);
        cpus.insert(sched_getcpu());
      }
    }
    EXPECT_EQ(static_cast<int>(cpus.size()), n);
  }).join();
}

std::set<int> own_mask() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(0, sizeof mask, &mask);
  std::set<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mask)) cpus.insert(cpu);
  return cpus;
}

// Two trainings of one thread each once shared the first CPU of the machine, and left the other one idle.
TEST(Threads, one_alone_goes_wherever_there_is_room) {
  std::thread([] {
    const std::set<int> before = own_mask();
    start_threads(1);
    EXPECT_EQ(own_mask(), before);
  }).join();
}

// CPUs by thread of a process of its own, which keeps them until it is killed.
struct OtherProcess {
  explicit OtherProcess(int threads) {
    int answer[2];
    if (pipe(answer) != 0) return;
    pid = fork();
    if (pid == 0) {
      start_threads(threads);
      std::vector<int> cpus(static_cast<size_t>(threads));
#pragma omp parallel
      cpus[static_cast<size_t>(omp_get_thread_num())] = *own_mask().begin();
      if (write(answer[1], cpus.data(), cpus.size() * sizeof(int)) > 0) pause();
      _exit(1);
    }
    close(answer[1]);
    std::vector<int> cpus(static_cast<size_t>(threads));
    if (read(answer[0], cpus.data(), cpus.size() * sizeof(int)) > 0) own = {cpus.begin(), cpus.end()};
    close(answer[0]);
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;
  ~OtherProcess() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  pid_t pid = -1;
  std::set<int> own;
};

// In a network of their own, in which no other test has claimed CPUs.
TEST(Threads, several_go_where_no_other_process_has_pinned_its_own) {
  const int n = available_cpus();
  if (n < 2) GTEST_SKIP() << "needs two CPUs";
  bool alone = false;
  std::set<int> all;
  std::thread([&] {
    alone = unshare(CLONE_NEWNET) == 0;
    if (!alone) return;
    const OtherProcess first(2);
    const OtherProcess second(2);
    EXPECT_EQ(first.own.size(), 2u);
    EXPECT_EQ(second.own.size(), 2u);
    all = first.own;
    all.insert(second.own.begin(), second.own.end());
  }).join();
  if (!alone) GTEST_SKIP() << "the system gives no network of its own";
  EXPECT_EQ(all.size(), n >= 4 ? 4u : static_cast<size_t>(n));
}

}  // namespace
}  // namespace plimsoll
