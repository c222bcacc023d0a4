#include <gtest/gtest.h>
#include <immintrin.h>
#include <omp.h>
#include <sched.h>

#include <cstdlib>
#include <set>
#include <string>
#include <thread>

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

}  // namespace
}  // namespace plimsoll
