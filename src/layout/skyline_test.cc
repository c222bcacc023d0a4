#include "layout/skyline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <numeric>
#include <random>

#include "base/error.h"
#include "layout/test_problems.h"
#include "layout/validator.h"

namespace plimsoll::layout {
namespace {

using testing::ElementsAre;

// The standard's distributions differ between libraries; the remainder does not.
int32_t draw(std::mt19937& random, int32_t low, int32_t high) {
  return low + static_cast<int32_t>(random() % static_cast<uint32_t>(high - low + 1));
}

Problem random_problem(uint32_t seed, int32_t num_buffers, int32_t num_ops, int32_t max_bytes) {
  std::mt19937 random(seed);
  Problem problem{.buffers = {}, .alignment = int64_t{1} << draw(random, 0, 5)};
  for (int32_t i = 0; i < num_buffers; ++i) {
    const int32_t first = draw(random, 0, num_ops - 1);
    const int32_t last = std::min(num_ops - 1, first + draw(random, 0, num_ops / 2));
    problem.buffers.push_back({"b" + std::to_string(i), draw(random, 0, max_bytes), first, last});
  }
  return problem;
}

// The smallest possible top. Put down in the order of their offsets in an optimal layout, each buffer as low
// as those it meets allow, the buffers give a layout no higher; so trying every order finds the optimum.
int64_t optimal_top(const Problem& problem) {
  const std::vector<Buffer>& buffers = problem.buffers;
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  int64_t best = std::numeric_limits<int64_t>::max();
  do {
    std::vector<int64_t> end(buffers.size(), 0);
    for (size_t i = 0; i < order.size(); ++i) {
      const Buffer& b = buffers[order[i]];
      int64_t floor = 0;
      for (size_t j = 0; j < i; ++j) {
        const Buffer& a = buffers[order[j]];
        if (a.first <= b.last && b.first <= a.last) floor = std::max(floor, end[order[j]]);
      }
      end[order[i]] = floor + aligned_bytes(problem, b);
    }
    best = std::min(best, std::ranges::max(end));
  } while (std::ranges::next_permutation(order).found);
  return best;
}

TEST(Skyline, nothing_needs_nothing) {
  const Placement placement = solve({});
  EXPECT_EQ(placement.top, 0);
  EXPECT_EQ(placement.lower_bound, 0);
  EXPECT_EQ(faults({}, placement), "");
}

TEST(Skyline, buffers_that_never_meet_share_their_bytes) {
  const Problem problem{.buffers = {{"a", 700, 0, 2}, {"b", 1024, 3, 4}, {"c", 1, 2, 3}}, .alignment = 512};
  const Placement placement = solve(problem);
  EXPECT_THAT(placement.offsets, ElementsAre(0, 0, 1024));
  EXPECT_EQ(placement.top, 1536);
  EXPECT_EQ(placement.lower_bound, 1536);
  EXPECT_EQ(placement.tie_break, "profile,bytes*lifetime");
}

TEST(Skyline, an_empty_buffer_takes_no_bytes) {
  const Problem problem{.buffers = {{"a", 0, 0, 9}, {"b", 16, 0, 9}}, .alignment = 16};
  const Placement placement = solve(problem);
  EXPECT_EQ(placement.top, 16);
  EXPECT_EQ(faults(problem, placement), "");
}

TEST(Skyline, another_tie_break_is_tried_where_the_first_is_not_exact) {
  const Problem problem = read_problem("tests/layout/seed-1094.csv", 512);
  EXPECT_GT(place(problem, TieBreak::profile_area).top, lower_bound(problem));
  EXPECT_EQ(solve(problem).top, lower_bound(problem));
  EXPECT_EQ(solve(problem).tie_break, "profile,lifetime");
}

TEST(Skyline, op_indices_may_be_time_stamps) {
  Problem problem = random_problem(7, 60, 40, 5000);
  const Placement dense = solve(problem);
  for (Buffer& b : problem.buffers) {
    b.first *= 50'000'000;
    b.last *= 50'000'000;
  }
  EXPECT_EQ(solve(problem).offsets, dense.offsets);
}

TEST(Skyline, refuses_a_problem_that_makes_no_sense) {
  EXPECT_THROW(solve({.buffers = {{"a", 16, 4, 3}}, .alignment = 16}), InternalError);
}

TEST(Skyline, every_tie_break_is_valid_on_random_problems) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const Problem problem = random_problem(seed, 5 + static_cast<int32_t>(seed) / 3, 40, 4000);
    int64_t smallest = std::numeric_limits<int64_t>::max();
    for (const TieBreak tie_break : kTieBreaks) {
      const Placement placement = place(problem, tie_break);
      ASSERT_EQ(faults(problem, placement), "") << "seed " << seed << ", " << to_string(tie_break);
      ASSERT_EQ(placement.lower_bound, lower_bound(problem));
      ASSERT_GE(placement.top, placement.lower_bound);
      smallest = std::min(smallest, placement.top);
    }
    const Placement best = solve(problem);
    ASSERT_LE(best.top, smallest) << "seed " << seed;
    ASSERT_EQ(faults(problem, best), "") << "seed " << seed;
  }
}

TEST(Skyline, orders_that_put_first_what_stuck_out_beat_every_tie_break_somewhere) {
  int better = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const Problem problem = random_problem(seed, 40, 40, 4000);
    const Placement best = solve(problem);
    if (best.tie_break != "first fit") continue;
    ++better;
    for (const TieBreak tie_break : kTieBreaks) ASSERT_LT(best.top, place(problem, tie_break).top);
  }
  EXPECT_GE(better, 5);
}

// Searches that would end above what is of use are left out; a placement that takes no more is the same as without.
TEST(Skyline, a_limit_that_no_search_reaches_leaves_searches_out) {
  int given_up = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    Problem problem = random_problem(seed, 40, 40, 4000);
    const Placement open = solve(problem);
    if (open.work == 0) continue;
    problem.most = open.lower_bound + open.lower_bound / 200;
    const Placement limited = solve(problem);
    EXPECT_EQ(limited.work, 0.0) << seed;
    EXPECT_TRUE(limited.gave_up) << seed;
    EXPECT_GE(limited.top, open.top) << seed;
    EXPECT_EQ(faults(problem, limited), "") << seed;
    ++given_up;
    problem.most = limited.top;
    EXPECT_EQ(solve(problem).offsets, open.offsets) << seed;
  }
  EXPECT_GE(given_up, 3);
}

// Not a promise of the algorithm, but what the five tie-breaks together reach on problems this small.
TEST(Skyline, small_random_problems_are_solved_to_the_exact_optimum) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const Problem problem = random_problem(seed, 6, 8, 100);
    const Placement placement = solve(problem);
    const int64_t optimum = optimal_top(problem);
    ASSERT_EQ(faults(problem, placement), "") << "seed " << seed;
    ASSERT_LE(placement.lower_bound, optimum) << "seed " << seed;
    ASSERT_EQ(placement.top, optimum) << "seed " << seed;
  }
}

TEST(Skyline, kept_training_programs_are_within_one_percent_of_the_bound) {
  int num_problems = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/layout")) {
    if (entry.path().extension() != ".csv") continue;
    ++num_problems;
    const Problem problem = read_problem(entry.path(), 512);
    const Placement placement = solve(problem);
    EXPECT_EQ(faults(problem, placement), "") << entry.path();
    EXPECT_LE(static_cast<double>(placement.top), 1.01 * static_cast<double>(placement.lower_bound))
        << entry.path();
    EXPECT_EQ(solve(problem).offsets, placement.offsets) << entry.path();
  }
  EXPECT_GE(num_problems, 8);
}

}  // namespace
}  // namespace plimsoll::layout
