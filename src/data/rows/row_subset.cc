#include "data/rows/row_subset.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "data/rows/permutation.h"

namespace plimsoll {

RowSubset RowSubset::all(int64_t total) { return {total, {}, true}; }
RowSubset RowSubset::only(int64_t total, std::vector<int64_t> rows) {
  return {total, std::move(rows), false};
}
RowSubset RowSubset::all_but(int64_t total, std::vector<int64_t> rows) {
  return {total, std::move(rows), true};
}

int64_t RowSubset::size() const {
  const auto listed = static_cast<int64_t>(listed_.size());
  return excludes_ ? total_ - listed : listed;
}

int64_t RowSubset::row(int64_t index) const {
  if (!excludes_) return listed_[static_cast<size_t>(index)];
  // The listed row with number i has listed_[i] - i members below it: binary search for the first with more
  // than `index`.
  int64_t low = 0;
  auto high = static_cast<int64_t>(listed_.size());
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (listed_[static_cast<size_t>(middle)] - middle > index)
      high = middle;
    else
      low = middle + 1;
  }
  return index + low;
}

int64_t RowSubset::rank(int64_t row) const {
  const auto below = std::lower_bound(listed_.begin(), listed_.end(), row) - listed_.begin();
  return excludes_ ? row - below : below;
}

RowSubset RowSubset::without(const std::vector<int64_t>& rows) const {
  std::vector<int64_t> listed;
  if (excludes_)
    std::set_union(listed_.begin(), listed_.end(), rows.begin(), rows.end(), std::back_inserter(listed));
  else
    std::set_difference(listed_.begin(), listed_.end(), rows.begin(), rows.end(), std::back_inserter(listed));
  return {total_, std::move(listed), excludes_};
}

HoldOut hold_out(const RowSubset& rows, double share, uint64_t seed) {
  if (!(share > 0 && share < 1)) throw UsageError("data.eval: a share must lie between 0 % and 100 %.");
  return hold_out(rows, std::max<int64_t>(1, std::llround(static_cast<double>(rows.size()) * share)), seed);
}

HoldOut hold_out(const RowSubset& rows, int64_t count, uint64_t seed) {
  if (count >= rows.size())
    throw UsageError(formatted(
        "data.eval: holding out {} of {} rows leaves none to train on. Give a smaller share or a file.",
        format_count(count), format_count(rows.size())));
  const Permutation shuffled(rows.size(), stream_key(seed, Stream::hold_out));
  std::vector<int64_t> held;
  held.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) held.push_back(rows.row(shuffled(i)));
  std::sort(held.begin(), held.end());
  RowSubset train = rows.without(held);
  return {std::move(train), RowSubset::only(rows.total(), std::move(held))};
}

}  // namespace plimsoll
