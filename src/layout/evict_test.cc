#include "layout/evict.h"

#include <gtest/gtest.h>

#include "layout/skyline.h"
#include "layout/test_problems.h"

namespace plimsoll::layout {
namespace {

struct Prepared {
  explicit Prepared(Problem given)
      : problem(std::move(given)),
        instance(make_instance(problem)),
        near(pairs_of(instance).value(), instance.spans.size()) {
    for (size_t i = 0; i < instance.spans.size(); ++i) all.push_back(static_cast<int32_t>(i));
  }
  [[nodiscard]] Placement placement(const Evictions& evictions) const {
    Placement placement{{}, 0, instance.lower_bound, "by eviction"};
    for (const int32_t buffer : all) {
      placement.offsets.push_back(evictions.offset(buffer));
      placement.top =
          std::max(placement.top, placement.offsets.back() + instance.bytes[static_cast<size_t>(buffer)]);
    }
    return placement;
  }

  Problem problem;
  Instance instance;
  Neighbours near;
  std::vector<int32_t> all;
};

// Chains whose lives overlap, of sizes that fill the arena at every op.
Problem chains() {
  Problem problem{.buffers = {}, .alignment = 1};
  for (int32_t i = 0; i < 40; ++i)
    for (const int64_t bytes : {8, 5, 3})
      problem.buffers.push_back(
          {"b", bytes, 10 * i + static_cast<int32_t>(bytes), 10 * i + static_cast<int32_t>(bytes) + 11});
  return problem;
}

TEST(Evictions, reach_the_bound_where_buffers_must_give_way) {
  const Prepared made(chains());
  const int64_t height = made.instance.lower_bound;
  EXPECT_GT(place(made.problem, TieBreak::bytes).top, height);  // not by the order of sizes
  Evictions evictions(made.instance, made.near, 0, height);
  ASSERT_TRUE(evictions.settle(made.all, 1e7, 1));
  EXPECT_LE(made.placement(evictions).top, height);
  EXPECT_EQ(faults(made.problem, made.placement(evictions)), "");
}

TEST(Evictions, equal_seeds_give_equal_places) {
  const Prepared made(read_problem("tests/layout/seed-735.csv", 512));
  const int64_t height = near_enough(made.instance);
  std::vector<Placement> placements;
  for (int i = 0; i < 2; ++i) {
    Evictions evictions(made.instance, made.near, 0, height);
    ASSERT_TRUE(evictions.settle(made.all, 1e7, 3));
    placements.push_back(made.placement(evictions));
    EXPECT_EQ(faults(made.problem, placements.back()), "");
  }
  EXPECT_EQ(placements[0].offsets, placements[1].offsets);
}

TEST(Evictions, what_was_put_stays_and_what_was_laid_may_go) {
  // Three that are alive together: the first was put in the midst, the second laid where the third must go.
  const Prepared made({.buffers = {{"put", 2, 0, 9}, {"laid", 3, 0, 9}, {"large", 4, 0, 9}}, .alignment = 1});
  Evictions evictions(made.instance, made.near, 0, 9);
  evictions.put(0, 3);
  evictions.lay(1, 6);
  ASSERT_TRUE(evictions.settle(std::vector<int32_t>{1, 2}, 1e4, 1));
  EXPECT_EQ(evictions.offset(0), 3);
  EXPECT_EQ(evictions.offset(1), 0);
  EXPECT_EQ(evictions.offset(2), 5);
}

TEST(Evictions, nothing_is_laid_where_something_is) {
  const Prepared made({.buffers = {{"a", 2, 0, 9}, {"b", 2, 5, 12}}, .alignment = 1});
  Evictions evictions(made.instance, made.near, 0, 4);
  evictions.lay(0, 1);
  evictions.lay(1, 2);
  ASSERT_TRUE(evictions.settle(made.all, 1e4, 1));
  EXPECT_EQ(faults(made.problem, made.placement(evictions)), "");
}

TEST(Evictions, give_up_below_the_bound_when_the_work_is_done) {
  const Prepared made(chains());
  Evictions evictions(made.instance, made.near, 0, made.instance.lower_bound - 1);
  EXPECT_FALSE(evictions.settle(made.all, 1e5, 1));
  EXPECT_LT(evictions.work(), 1.1e5);
  Evictions none(made.instance, made.near, 0, 7);  // one is larger
  EXPECT_FALSE(none.settle(made.all, 1e5, 1));
}

}  // namespace
}  // namespace plimsoll::layout
