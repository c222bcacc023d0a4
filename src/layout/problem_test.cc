#include "layout/problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"

namespace plimsoll::layout {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Aligned to 16: x 112, y 48, z 16 bytes; y and z never meet.
const Problem kProblem{.buffers = {{"x", 100, 0, 5}, {"y", 48, 2, 3}, {"z", 1, 4, 9}}, .alignment = 16};

TEST(LiveProfile, counts_aligned_bytes_where_buffers_begin) {
  const LiveProfile profile = live_profile(kProblem);
  EXPECT_THAT(profile.ops, ElementsAre(0, 2, 4));
  EXPECT_THAT(profile.live_bytes, ElementsAre(112, 160, 128));
}

TEST(LowerBound, is_the_most_alive_at_one_op) {
  EXPECT_EQ(lower_bound(kProblem), 160);
  EXPECT_EQ(peak_op(kProblem), 2);
}

TEST(LowerBound, last_op_is_inclusive) {
  Problem problem = kProblem;
  problem.buffers[1].last = 4;
  EXPECT_EQ(lower_bound(problem), 176);
  EXPECT_EQ(peak_op(problem), 4);
}

TEST(LowerBound, nothing_alive_needs_nothing) {
  EXPECT_EQ(lower_bound(Problem{}), 0);
  EXPECT_THROW(peak_op(Problem{}), InternalError);
}

TEST(CheckProblem, names_what_makes_no_sense) {
  const auto check = [](Buffer buffer, int64_t alignment = 512) {
    return [=] { check_problem({.buffers = {{"ok", 1, 0, 0}, buffer}, .alignment = alignment}); };
  };
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_NO_THROW(check({"empty", 0, 3, 3})());
  EXPECT_THAT(check({"w.grad", -1, 0, 0}), ThrowsMessage<InternalError>(HasSubstr("w.grad has -1 bytes")));
  EXPECT_THAT(check({"w.grad", 1, 3, 2}),
              ThrowsMessage<InternalError>(HasSubstr("w.grad lives from op 3 to op 2")));
  EXPECT_THAT(check({"w.grad", 1, -1, 2}), ThrowsMessage<InternalError>(HasSubstr("from op -1")));
  EXPECT_THAT(check({"w.grad", kHuge, 0, 0}), ThrowsMessage<InternalError>(HasSubstr("62 bits")));
  EXPECT_THAT(check({"w.grad", int64_t{1} << 62, 0, 0}), ThrowsMessage<InternalError>(HasSubstr("62 bits")));
  EXPECT_THAT(check({"x", 1, 0, 0}, 48), ThrowsMessage<InternalError>(HasSubstr("alignment 48")));
  EXPECT_THAT(check({"x", 1, 0, 0}, 0), ThrowsMessage<InternalError>(HasSubstr("alignment 0")));
}

}  // namespace
}  // namespace plimsoll::layout
