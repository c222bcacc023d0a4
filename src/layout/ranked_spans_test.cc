#include "layout/ranked_spans.h"

#include <gtest/gtest.h>

#include <random>

namespace plimsoll::layout {
namespace {

TEST(RankedSpans, nothing_is_inside_when_there_is_nothing) {
  EXPECT_EQ(RankedSpans({}).take_best_inside({0, 10}), std::nullopt);
}

TEST(RankedSpans, takes_the_best_rank_inside_and_only_once) {
  const std::vector<Span> spans = {{0, 9}, {2, 5}, {2, 5}, {3, 4}, {4, 6}};
  RankedSpans waiting(spans);
  EXPECT_EQ(waiting.take_best_inside({2, 5}), 1U);
  EXPECT_EQ(waiting.take_best_inside({2, 5}), 2U);
  EXPECT_EQ(waiting.take_best_inside({2, 5}), 3U);
  EXPECT_EQ(waiting.take_best_inside({2, 5}), std::nullopt);
  EXPECT_EQ(waiting.take_best_inside({0, 9}), 0U);
  EXPECT_EQ(waiting.take_best_inside({0, 9}), 4U);
  EXPECT_EQ(waiting.take_best_inside({0, 9}), std::nullopt);
}

TEST(RankedSpans, agrees_with_a_scan_of_all_spans) {
  std::mt19937 random(1);
  const auto draw_span = [&](uint32_t points) {
    const auto begin = static_cast<uint32_t>(random() % points);
    return Span{begin, begin + 1 + static_cast<uint32_t>(random() % (points - begin))};
  };
  for (size_t count = 1; count <= 70; ++count) {
    std::vector<Span> spans;
    for (size_t i = 0; i < count; ++i) spans.push_back(draw_span(30));
    std::vector<bool> taken(count, false);
    RankedSpans waiting(spans);
    for (int query = 0; query < 200; ++query) {
      const Span range = draw_span(30);
      std::optional<uint32_t> expected;
      for (uint32_t rank = 0; rank < count && !expected; ++rank) {
        const bool inside = spans[rank].begin >= range.begin && spans[rank].end <= range.end;
        if (inside && !taken[rank]) expected = rank;
      }
      if (expected) taken[*expected] = true;
      ASSERT_EQ(waiting.take_best_inside(range), expected) << count << " spans, query " << query;
    }
  }
}

}  // namespace
}  // namespace plimsoll::layout
