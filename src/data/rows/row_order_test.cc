#include "data/rows/row_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "data/rows/permutation.h"

namespace plimsoll {
namespace {

// Groups of two units of 10 rows each.
std::vector<PlacedUnit> make_units(int count) {
  std::vector<PlacedUnit> units;
  for (int i = 0; i < count; ++i) units.push_back({{10, 1000, i / 2}, 10 * i});
  return units;
}

std::vector<int64_t> visit(const RowOrder& order) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < order.rows(); ++i) rows.push_back(order.at(i).row);
  return rows;
}

std::vector<int64_t> first_rows(int64_t count) {
  std::vector<int64_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

TEST(Permutation, visits_every_index_once) {
  for (const int64_t size : {1, 2, 3, 4, 5, 16, 17, 1000}) {
    std::set<int64_t> seen;
    const Permutation permutation(size, 7);
    for (int64_t i = 0; i < size; ++i) seen.insert(permutation(i));
    EXPECT_EQ(seen.size(), static_cast<size_t>(size));
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), size - 1);
  }
}

// Over many keys each of the 5 indices comes first equally often: 1,000 of 5,000 with a standard deviation of
// 28; five of these either way.
TEST(Permutation, keys_spread_evenly) {
  std::array<int, 5> counts{};
  for (uint64_t key = 0; key < 5000; ++key) ++counts[static_cast<size_t>(Permutation(5, mix_bits(key))(0))];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 141);
}

// Neighbours before are not neighbours after: the mean distance of two random indices below n is n/3.
TEST(Permutation, neighbours_part) {
  constexpr int64_t kSize = 10'000;
  const Permutation permutation(kSize, 42);
  double distance = 0;
  for (int64_t i = 1; i < kSize; ++i)
    distance += static_cast<double>(std::abs(permutation(i) - permutation(i - 1)));
  EXPECT_NEAR(distance / kSize, kSize / 3.0, kSize / 50.0);
}

TEST(RowOrder, every_epoch_visits_every_row_once_in_its_own_order) {
  for (const int64_t window_bytes : {int64_t{1}, int64_t{2500}, kShuffleWindowBytes}) {
    RowOrder order(make_units(8), RowSubset::all(80),
                   {.shuffle = Shuffle::window, .window_bytes = window_bytes});
    const std::vector<int64_t> first = visit(order);
    order.start_epoch(1);
    const std::vector<int64_t> second = visit(order);
    EXPECT_THAT(first, testing::UnorderedElementsAreArray(first_rows(80)));
    EXPECT_THAT(second, testing::UnorderedElementsAreArray(first_rows(80)));
    EXPECT_NE(first, second);
    order.start_epoch(0);
    EXPECT_EQ(visit(order), first);
  }
}

// Groups do not matter to it, and no window.
TEST(RowOrder, a_full_shuffle_is_a_permutation_of_all_rows) {
  std::vector<PlacedUnit> one_group = make_units(8), groups = make_units(8);
  for (size_t i = 0; i < 8; ++i) one_group[i].group = 0, groups[i].group = static_cast<int32_t>(i);
  RowOrder order(one_group, RowSubset::all(80), {.window_bytes = 1});
  const std::vector<int64_t> first = visit(order);
  EXPECT_THAT(first, testing::UnorderedElementsAreArray(first_rows(80)));
  EXPECT_EQ(visit(RowOrder(groups, RowSubset::all(80), {.window_bytes = 1})), first);
  EXPECT_EQ(visit(RowOrder(groups, RowSubset::all(80), {.shuffle = Shuffle::window})), first);
  order.start_epoch(1);
  EXPECT_NE(visit(order), first);
}

TEST(RowOrder, the_seed_decides) {
  const auto order_of = [](uint64_t seed) {
    return visit(RowOrder(make_units(8), RowSubset::all(80), {.seed = seed}));
  };
  EXPECT_EQ(order_of(1), order_of(1));
  EXPECT_NE(order_of(1), order_of(2));
}

TEST(RowOrder, without_shuffle_rows_come_as_they_are) {
  EXPECT_EQ(visit(RowOrder(make_units(8), RowSubset::all(80), {.shuffle = Shuffle::off})), first_rows(80));
}

TEST(RowOrder, a_window_holds_no_more_than_its_bytes_and_is_never_left_and_entered_again) {
  const OrderOptions options = {.shuffle = Shuffle::window, .window_bytes = 2500};
  const auto units = make_units(9);
  const RowOrder order(units, RowSubset::all(90), options);
  size_t window = 0;
  for (int64_t i = 0; i < 90; ++i) {
    const RowOrder::Place place = order.at(i);
    EXPECT_GE(place.window, window);
    window = place.window;
    int64_t bytes = 0;
    bool holds_row = false;
    for (const size_t unit : order.window_units(window)) {
      bytes += units[unit].bytes;
      holds_row = holds_row || (place.row >= units[unit].first_row && place.row < units[unit].first_row + 10);
    }
    EXPECT_LE(bytes, max_window_bytes(units, options));
    EXPECT_TRUE(holds_row);
  }
  EXPECT_EQ(max_window_bytes(units, options), 2500);
  EXPECT_EQ(max_window_bytes(units, {.shuffle = Shuffle::off}), 1000);
  EXPECT_EQ(max_window_bytes(units, {}), 9000);
}

TEST(RowSubset, rows_and_ranks_agree) {
  const std::vector<int64_t> listed = {0, 3, 4, 9};
  const RowSubset only = RowSubset::only(10, listed);
  const RowSubset rest = RowSubset::all_but(10, listed);
  EXPECT_EQ(rest.size(), 6);
  std::vector<int64_t> members;
  for (int64_t i = 0; i < rest.size(); ++i) {
    members.push_back(rest.row(i));
    EXPECT_EQ(rest.rank(rest.row(i)), i);
  }
  EXPECT_THAT(members, testing::ElementsAre(1, 2, 5, 6, 7, 8));
  for (int64_t i = 0; i < only.size(); ++i) EXPECT_EQ(only.rank(only.row(i)), i);
}

TEST(HoldOut, parts_are_disjoint_and_cover_everything) {
  const HoldOut parts = hold_out(RowSubset::all(80), 0.1, 42);
  EXPECT_EQ(parts.held_out.size(), 8);
  const std::vector<int64_t> train = visit(RowOrder(make_units(8), parts.train, {}));
  std::vector<int64_t> both =
      visit(RowOrder(make_units(8), parts.held_out, {.shuffle = Shuffle::window, .window_bytes = 1}));
  both.insert(both.end(), train.begin(), train.end());
  EXPECT_THAT(both, testing::UnorderedElementsAreArray(first_rows(80)));
  const RowSubset again = hold_out(RowSubset::all(80), 0.1, 42).held_out;
  const RowSubset other = hold_out(RowSubset::all(80), 0.1, 43).held_out;
  bool same_seed_same_rows = true;
  bool other_seed_same_rows = true;
  for (int64_t i = 0; i < 8; ++i) {
    same_seed_same_rows = same_seed_same_rows && again.row(i) == parts.held_out.row(i);
    other_seed_same_rows = other_seed_same_rows && other.row(i) == parts.held_out.row(i);
  }
  EXPECT_TRUE(same_seed_same_rows);
  EXPECT_FALSE(other_seed_same_rows);
}

TEST(HoldOut, both_parts_have_a_row_or_it_is_refused) {
  EXPECT_EQ(hold_out(RowSubset::all(10), 0.001, 1).held_out.size(), 1);
  EXPECT_THROW(hold_out(RowSubset::all(1), 0.5, 1), UsageError);
  EXPECT_THROW(hold_out(RowSubset::all(10), 0.99, 1), UsageError);
  EXPECT_THROW(hold_out(RowSubset::all(10), 1.5, 1), UsageError);
}

// Two sources: units 0 to 3 and units 4 to 7.
std::vector<PlacedUnit> two_sources(double first_weight, double second_weight) {
  std::vector<PlacedUnit> units = make_units(8);
  for (size_t i = 0; i < units.size(); ++i) {
    units[i].source = i < 4 ? 0 : 1;
    units[i].weight = i < 4 ? first_weight : second_weight;
  }
  return units;
}

TEST(RowOrder, weights_repeat_a_source_or_draw_some_of_it) {
  for (const int64_t window : {kShuffleWindowBytes, int64_t{2000}}) {
    RowOrder order(two_sources(2.25, 0.5), RowSubset::all(80),
                   {.shuffle = Shuffle::window, .seed = 3, .window_bytes = window});
    std::set<int64_t> drawn_before;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      order.start_epoch(epoch);
      EXPECT_EQ(order.rows(), 90 + 20);
      std::map<int64_t, int> visits;
      for (const int64_t row : visit(order)) ++visits[row];
      std::set<int64_t> drawn;
      int extra = 0;
      for (int64_t row = 0; row < 40; ++row) {
        EXPECT_GE(visits[row], 2);
        EXPECT_LE(visits[row], 3);
        extra += visits[row] - 2;
      }
      EXPECT_EQ(extra, 10);
      for (int64_t row = 40; row < 80; ++row) {
        EXPECT_LE(visits[row], 1);
        if (visits[row] == 1) drawn.insert(row);
      }
      EXPECT_EQ(drawn.size(), 20U);
      EXPECT_NE(drawn, drawn_before);
      drawn_before = drawn;
    }
  }
}

TEST(RowOrder, weights_respect_held_out_rows) {
  const HoldOut parts = hold_out(RowSubset::all(80), 0.25, 1);
  const RowOrder order(two_sources(3.0, 0.1), parts.train,
                       {.shuffle = Shuffle::window, .seed = 3, .window_bytes = 2000});
  for (const int64_t row : visit(order)) {
    const bool held = parts.held_out.rank(row + 1) > parts.held_out.rank(row);
    EXPECT_FALSE(held) << row;
  }
}

// Sources of many units are mixed, not read one after the other.
TEST(RowOrder, sources_larger_than_a_window_are_mixed) {
  std::vector<PlacedUnit> units = make_units(80);
  for (size_t i = 40; i < 80; ++i) units[i].source = 1;
  const RowOrder order(units, RowSubset::all(800),
                       {.shuffle = Shuffle::window, .seed = 3, .window_bytes = 8000});
  const std::vector<int64_t> rows = visit(order);
  const auto of_first = [&](size_t begin) {
    return std::count_if(rows.begin() + static_cast<std::ptrdiff_t>(begin),
                         rows.begin() + static_cast<std::ptrdiff_t>(begin) + 400,
                         [](int64_t row) { return row < 400; });
  };
  EXPECT_GT(of_first(0), 100);
  EXPECT_LT(of_first(0), 300);
}

TEST(RowOrder, its_memory_is_planned) {
  EXPECT_GE(row_order_bytes(two_sources(2.5, 1.0)), static_cast<int64_t>(8 * sizeof(PlacedUnit)));
  EXPECT_GT(row_order_bytes(two_sources(2.5, 1.0)), row_order_bytes(two_sources(1.0, 1.0)));
}

}  // namespace
}  // namespace plimsoll
