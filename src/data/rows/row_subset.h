// Training and held-out rows of one data set.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace plimsoll {

// Some of the rows [0, total), in ascending order. Costs 8 bytes per row of the smaller part.
class RowSubset {
 public:
  static RowSubset all(int64_t total);
  // `rows` must be ascending and distinct.
  static RowSubset only(int64_t total, std::vector<int64_t> rows);
  static RowSubset all_but(int64_t total, std::vector<int64_t> rows);

  [[nodiscard]] int64_t size() const;
  [[nodiscard]] int64_t total() const { return total_; }
  // The member with this number.
  [[nodiscard]] int64_t row(int64_t index) const;
  // The number of members below `row`.
  [[nodiscard]] int64_t rank(int64_t row) const;
  // Heap bytes.
  // Without some of its members, which are ascending and distinct.
  [[nodiscard]] RowSubset without(const std::vector<int64_t>& rows) const;
  [[nodiscard]] int64_t bytes() const { return static_cast<int64_t>(listed_.capacity() * sizeof(int64_t)); }

 private:
  RowSubset(int64_t total, std::vector<int64_t> listed, bool excludes)
      : total_(total), listed_(std::move(listed)), excludes_(excludes) {}

  int64_t total_ = 0;
  std::vector<int64_t> listed_;
  bool excludes_ = true;  // whether `listed_` are the rows left out, or the rows
};

struct HoldOut {
  RowSubset train;
  RowSubset held_out;
};

// Holds out the nearest whole number of rows to `share` of them, at least one, chosen by `seed` alone. Throws
// UsageError unless 0 < share < 1 and both parts have a row.
HoldOut hold_out(const RowSubset& rows, double share, uint64_t seed);
// The same with a number of rows.
HoldOut hold_out(const RowSubset& rows, int64_t count, uint64_t seed);

}  // namespace plimsoll
