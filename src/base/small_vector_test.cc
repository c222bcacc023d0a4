#include "base/small_vector.h"

#include <gtest/gtest.h>

#include <numeric>

namespace plimsoll {
namespace {

using Small = SmallVector<int32_t, 3>;

std::vector<int32_t> counted(size_t size) {
  std::vector<int32_t> values(size);
  std::iota(values.begin(), values.end(), 1);
  return values;
}

// On both sides of what lies in the object itself.
TEST(SmallVector, holds_what_a_vector_holds_at_every_size) {
  for (size_t size = 0; size < 9; ++size) {
    const std::vector<int32_t> values = counted(size);
    Small pushed;
    for (const int32_t value : values) pushed.push_back(value);
    EXPECT_EQ(pushed, Small(values));
    EXPECT_TRUE(std::equal(pushed.begin(), pushed.end(), values.begin(), values.end()));
    ASSERT_EQ(pushed.size(), size);
    EXPECT_EQ(pushed.empty(), size == 0);
    if (size > 0) {
      EXPECT_EQ(pushed.back(), static_cast<int32_t>(size));
    }
    Small resized = pushed;
    resized.resize(size + 2, -1);
    EXPECT_EQ(resized.back(), -1);
    EXPECT_NE(resized, pushed);
    resized.pop_back();
    resized.pop_back();
    EXPECT_EQ(resized, pushed);
  }
}

TEST(SmallVector, copies_are_their_own_and_what_was_moved_from_is_empty) {
  for (const size_t size : {size_t{2}, size_t{7}}) {
    for (const size_t other : {size_t{1}, size_t{5}}) {
      const Small original(counted(size));
      Small copy(counted(other));
      copy = original;
      copy[0] = 77;
      EXPECT_EQ(original[0], 1);
      EXPECT_EQ(copy.size(), size);
      Small moved(counted(other));
      moved = std::move(copy);
      EXPECT_EQ(moved[0], 77);
      EXPECT_EQ(moved.size(), size);
      EXPECT_TRUE(copy.empty());  // NOLINT(bugprone-use-after-move)
      copy.push_back(5);
      EXPECT_EQ(copy, Small({5}));
      copy = *&copy;
      EXPECT_EQ(copy, Small({5}));
    }
  }
}

TEST(SmallVector, a_value_of_its_own_may_be_added_while_it_grows) {
  Small values = {4, 5, 6};
  values.push_back(values[0]);
  EXPECT_EQ(values, Small({4, 5, 6, 4}));
  values.resize(20, values[1]);
  EXPECT_EQ(values[19], 5);
}

}  // namespace
}  // namespace plimsoll
