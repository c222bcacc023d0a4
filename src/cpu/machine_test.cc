#include <dnnl.h>
#include <gtest/gtest.h>
#include <immintrin.h>
#include <omp.h>
#include <sched.h>

#include <set>
#include <thread>

#include "base/error.h"
#include "cpu/isa.h"
#include "cpu/threads.h"

namespace plimsoll {
namespace {

TEST(Isa, a_cap_holds_for_onednn_too_and_cannot_change) {
  EXPECT_EQ(effective_isa(Isa::avx2), Isa::avx2);
  EXPECT_EQ(dnnl_get_effective_cpu_isa(), dnnl_cpu_isa_avx2);
  EXPECT_EQ(effective_isa(Isa::avx2), Isa::avx2);
  if (detect_isa() == Isa::avx2) return;
  EXPECT_THROW(effective_isa({}), InternalError);
}

TEST(Isa, a_cap_above_the_machine_is_refused) {
  if (detect_isa() == Isa::amx) GTEST_SKIP() << "nothing is above this machine";
  EXPECT_THROW(effective_isa(Isa::amx), UsageError);
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
