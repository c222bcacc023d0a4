#include "recipe/row_range.h"

#include <gtest/gtest.h>

#include "recipe/recipe.h"

namespace plimsoll {
namespace {

TEST(RowRanges, are_read_as_python_reads_slices) {
  EXPECT_EQ(parse_row_range(":95%")->of(40), std::pair(int64_t{0}, int64_t{38}));
  EXPECT_EQ(parse_row_range("95%:")->of(40), std::pair(int64_t{38}, int64_t{40}));
  EXPECT_EQ(parse_row_range("-5:")->of(40), std::pair(int64_t{35}, int64_t{40}));
  EXPECT_EQ(parse_row_range(":1000")->of(40), std::pair(int64_t{0}, int64_t{40}));
  EXPECT_EQ(parse_row_range("30:10")->of(40), std::pair(int64_t{30}, int64_t{30}));
  EXPECT_EQ(parse_row_range(":2.5"), std::nullopt);
  EXPECT_EQ(parse_row_range("5"), std::nullopt);
  EXPECT_EQ(print_row_range(*parse_row_range("10%:-3")), "10%:-3");
}

TEST(Intervals, are_steps_epochs_or_shares) {
  const auto every = [](Every::Unit unit, int64_t steps, double percent) {
    return Every{unit, steps, percent};
  };
  EXPECT_TRUE(every(Every::Unit::steps, 5, 0).is_due(10, 100, false));
  EXPECT_FALSE(every(Every::Unit::steps, 0, 0).is_due(10, 100, true));
  EXPECT_TRUE(every(Every::Unit::epochs, 0, 0).is_due(7, 100, true));
  EXPECT_FALSE(every(Every::Unit::epochs, 0, 0).is_due(7, 100, false));
  EXPECT_TRUE(every(Every::Unit::percent, 0, 12.5).is_due(26, 99, false));  // 12.375 steps are 13
  EXPECT_FALSE(every(Every::Unit::percent, 0, 12.5).is_due(12, 99, false));
}

}  // namespace
}  // namespace plimsoll
