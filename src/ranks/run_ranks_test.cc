#include "ranks/run_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstring>

#include "base/units.h"
#include "ranks/node_pages.h"
#include "ranks/thread_group.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;

// The end of each rank: its code and text; "" where nothing was thrown.
struct Ends {
  explicit Ends(int ranks) : codes(static_cast<size_t>(ranks)), texts(codes.size()), together(codes.size()) {}
  std::vector<int> codes;
  std::vector<std::string> texts;
  std::vector<int> together;
};

Ends ends_of(int ranks, const std::function<void(RunRanks&)>& work) {
  Ends ends(ranks);
  run_as_threads(ranks, [&](Group& group) {
    RunRanks own(group);
    const auto rank = static_cast<size_t>(group.rank());
    try {
      work(own);
    } catch (const Error& error) {
      ends.codes[rank] = static_cast<int>(error.code());
      ends.texts[rank] = error.what();
    }
    ends.together[rank] = own.failed_together() ? 1 : 0;
  });
  return ends;
}

TEST(RunRanks, together_gives_each_its_own_result) {
  run_as_threads(3, [](Group& group) {
    RunRanks ranks(group);
    EXPECT_EQ(ranks.together([&] { return 2 * group.rank(); }), 2 * group.rank());
    EXPECT_FALSE(ranks.failed_together());
  });
}

TEST(RunRanks, one_that_fails_ends_all_with_its_code) {
  for (const int who : {0, 1, 2}) {
    const Ends ends = ends_of(3, [&](RunRanks& ranks) {
      ranks.together([&] {
        if (ranks.group().rank() == who) throw DamagedError("row 7 is damaged");
      });
    });
    for (int rank = 0; rank < 3; ++rank) {
      const auto at = static_cast<size_t>(rank);
      EXPECT_EQ(ends.codes[at], 4);
      EXPECT_EQ(ends.together[at], 1);
      EXPECT_EQ(ends.texts[at],
                (rank == who ? "" : "rank " + std::to_string(who) + ": ") + std::string("row 7 is damaged"));
    }
  }
}

// One rank fails before work within, at which the others wait.
TEST(RunRanks, work_within_work_meets_a_failure_outside_of_it) {
  const Ends ends = ends_of(3, [](RunRanks& ranks) {
    ranks.together([&] {
      if (ranks.group().rank() == 1) throw UsageError("no such file");
      ranks.require_same({{"version", "1"}});
      ranks.by_leader([] { return std::string("plan"); });
    });
  });
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ends.codes[rank], 2);
    EXPECT_THAT(ends.texts[rank], HasSubstr("no such file"));
  }
}

TEST(RunRanks, the_leader_works_for_all) {
  run_as_threads(3, [](Group& group) {
    RunRanks ranks(group);
    int calls = 0;
    EXPECT_EQ(ranks.by_leader([&] { return std::to_string(++calls); }), "1");
    EXPECT_EQ(calls, group.leads() ? 1 : 0);
  });
}

TEST(RunRanks, facts_that_differ_are_named) {
  const Ends ends = ends_of(3, [](RunRanks& ranks) {
    const bool other = ranks.group().rank() == 2;
    ranks.require_same({{"version", "0.1"}, {"data", other ? "b" : "a"}, {"model", other ? "y" : "x"}});
  });
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ends.codes[rank], 2);
    EXPECT_EQ(ends.together[rank], 1);
    EXPECT_THAT(ends.texts[rank], HasSubstr("rank 2 has another data than rank 0: b, and a there"));
  }
}

TEST(RunRanks, a_word_of_any_counts_for_all) {
  run_as_threads(3, [](Group& group) {
    RunRanks ranks(group);
    RankWord word;
    word.rows = 11;
    word.stops = group.rank() == 2 ? 1 : 0;
    word.saves = group.rank() == 1 ? 1 : 0;
    word.ends = group.rank() == 1 ? 1 : 0;  // patience is the leader's
    const RankWord all = ranks.meet(word);
    EXPECT_EQ(all.stops, 1);
    EXPECT_EQ(all.saves, 1);
    EXPECT_EQ(all.ends, 0);
  });
}

TEST(RunRanks, other_rows_at_one_rank_stop_the_run) {
  const Ends ends = ends_of(2, [](RunRanks& ranks) {
    RankWord word;
    word.rows = static_cast<uint64_t>(ranks.group().rank());
    ranks.meet(word);
  });
  EXPECT_THAT(ends.codes, testing::Each(5));
}

TEST(RunRanks, a_rank_that_fails_is_understood_by_those_who_begin_common_work) {
  const Ends ends = ends_of(3, [](RunRanks& ranks) {
    if (ranks.group().rank() == 1) return ranks.fail(ExitCode::stopped, "the disk is full");
    ranks.by_leader([] { return std::string("never"); });
  });
  EXPECT_EQ(ends.codes, (std::vector<int>{5, 0, 5}));
  EXPECT_EQ(ends.texts[2], "rank 1: the disk is full");
}

TEST(RunRanks, work_after_a_failure_may_fail_too) {
  for (const int who : {-1, 0, 2}) {
    int worked = 0;
    const Ends ends = ends_of(3, [&](RunRanks& ranks) {
      if (ranks.group().rank() == 1)
        ranks.fail(ExitCode::damaged, "row 7 is damaged");
      else
        EXPECT_THROW(ranks.meet({}), Error);
      ranks.after_failure([&] {
        ranks.together([&] {
          if (ranks.group().rank() == who) throw StoppedError("the disk is full");
        });
        if (ranks.leads()) ++worked;
      });
    });
    EXPECT_EQ(ends.codes, (who < 0 ? std::vector<int>{0, 0, 0} : std::vector<int>{5, 5, 5}));
    EXPECT_EQ(worked, who < 0 ? 1 : 0);
    EXPECT_THAT(ends.together, testing::Each(1));
  }
}

TEST(RunRanks, a_rank_that_fails_between_steps_is_met_there) {
  const Ends ends = ends_of(3, [](RunRanks& ranks) {
    if (ranks.group().rank() != 1) {
      ranks.meet({});
      return;
    }
    ranks.fail(ExitCode::damaged, "row 7 is damaged");
    ranks.fail(ExitCode::damaged, "once is enough");
  });
  EXPECT_EQ(ends.codes, (std::vector<int>{4, 0, 4}));
  EXPECT_EQ(ends.texts[0], "rank 1: row 7 is damaged");
  EXPECT_THAT(ends.together, testing::Each(1));
}

// Pages of three ranks that have claimed 5 MiB and a little, at an address of each.
TEST(NodePages, what_one_rank_writes_all_have_and_one_of_them_writes_what_is_nobodys) {
  constexpr int64_t kBytes = 5 * kMiB + 100;
  std::array<int, 3> writers{};
  run_as_threads(3, [&](Group& group) {
    RunRanks ranks(group);
    const int rank = group.rank();
    NodePages pages(ranks, kBytes);
    EXPECT_EQ(pages.bytes(), 5 * kMiB + 4096);
    writers[static_cast<size_t>(rank)] = pages.writes() ? 1 : 0;
    const auto size = static_cast<size_t>(pages.bytes());
    void* const at = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    auto* const bytes = static_cast<std::byte*>(at);
    pages.map(bytes);
    const size_t own = size / 3 * static_cast<size_t>(rank);
    std::memset(bytes + own, rank + 1, 100);
    group.barrier();
    pages.seal();
    for (int other = 0; other < 3; ++other)
      for (size_t i = 0; i < 100; ++i)
        ASSERT_EQ(std::to_integer<int>(bytes[size / 3 * static_cast<size_t>(other) + i]), other + 1);
    EXPECT_EQ(bytes[size - 1], std::byte{0});
    group.barrier();
    munmap(at, size);
  });
  EXPECT_EQ(writers, (std::array{1, 0, 0}));
}

TEST(NodePagesDeathTest, nothing_writes_them_once_they_are_sealed) {
  RunRanks ranks(alone());
  NodePages pages(ranks, 4096);
  void* const at = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  auto* const bytes = static_cast<volatile std::byte*>(at);
  pages.map(static_cast<std::byte*>(at));
  *bytes = std::byte{7};
  pages.seal();
  EXPECT_TRUE(*bytes == std::byte{7});
  EXPECT_DEATH({ *bytes = std::byte{8}; }, "");
  munmap(at, 4096);
}

}  // namespace
}  // namespace plimsoll
