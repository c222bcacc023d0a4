#include "data/row_order.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "data/permutation.h"

namespace plimsoll {
namespace {

// Without shuffling nothing is gained by holding more than the unit being read.
int64_t window_limit(const OrderOptions& options) { return options.shuffle ? options.window_bytes : 0; }

}  // namespace

RowOrder::RowOrder(std::span<const PlacedUnit> units, RowSubset subset, const OrderOptions& options)
    : units_(units.begin(), units.end()), subset_(std::move(subset)), options_(options) {
  check_internal(subset_.size() > 0, "an order of no rows");
  start_epoch(0);
}

int64_t RowOrder::rows_in(size_t unit) const {
  const PlacedUnit& u = units_[unit];
  return subset_.rank(u.first_row + u.rows) - subset_.rank(u.first_row);
}

// Groups in random order; the units of a group stay together and in order, as that is how they are read.
std::vector<size_t> RowOrder::shuffled_units(int64_t epoch) const {
  std::vector<size_t> group_starts;
  for (size_t unit = 0; unit < units_.size(); ++unit)
    if (unit == 0 || units_[unit].group != units_[unit - 1].group) group_starts.push_back(unit);
  const auto groups = static_cast<int64_t>(group_starts.size());
  group_starts.push_back(units_.size());
  const Permutation shuffle(groups, stream_key(options_.seed, Stream::groups, epoch));
  std::vector<size_t> order;
  order.reserve(units_.size());
  for (int64_t i = 0; i < groups; ++i) {
    const auto group = static_cast<size_t>(options_.shuffle ? shuffle(i) : i);
    for (size_t unit = group_starts[group]; unit < group_starts[group + 1]; ++unit) order.push_back(unit);
  }
  return order;
}

void RowOrder::start_epoch(int64_t epoch) {
  epoch_ = epoch;
  units_in_order_.clear();
  unit_index_.clear();
  windows_.clear();
  int64_t total_bytes = 0;
  for (const PlacedUnit& unit : units_) total_bytes += unit.bytes;
  // One window for all: the order of its units does not matter then, and keeping it fixed keeps them loaded.
  const bool one_window = options_.shuffle && total_bytes <= options_.window_bytes;
  std::vector<size_t> order(units_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!one_window) order = shuffled_units(epoch);

  int64_t index = 0;
  int64_t window_bytes = 0;
  for (const size_t unit : order) {
    const int64_t rows = rows_in(unit);
    if (rows == 0) continue;
    if (windows_.empty() || window_bytes + units_[unit].bytes > window_limit(options_)) {
      windows_.push_back({units_in_order_.size(), units_in_order_.size(), index, 0});
      window_bytes = 0;
    }
    units_in_order_.push_back(unit);
    unit_index_.push_back(index);
    window_bytes += units_[unit].bytes;
    windows_.back().end_unit = units_in_order_.size();
    windows_.back().rows += rows;
    index += rows;
  }
}

RowOrder::Place RowOrder::at(int64_t index) const {
  const auto next = std::upper_bound(windows_.begin(), windows_.end(), index,
                                     [](int64_t i, const Window& window) { return i < window.first_index; });
  const Window& window = *std::prev(next);
  const auto number = static_cast<size_t>(std::prev(next) - windows_.begin());
  if (options_.shuffle) {
    const uint64_t key = stream_key(options_.seed, Stream::rows, epoch_, static_cast<int64_t>(number));
    index = window.first_index + Permutation(window.rows, key)(index - window.first_index);
  }
  const auto unit_next = std::upper_bound(unit_index_.begin(), unit_index_.end(), index);
  const auto position = static_cast<size_t>(std::prev(unit_next) - unit_index_.begin());
  const PlacedUnit& unit = units_[units_in_order_[position]];
  return {subset_.row(subset_.rank(unit.first_row) + index - unit_index_[position]), number};
}

std::span<const size_t> RowOrder::window_units(size_t window) const {
  const Window& w = windows_[window];
  return std::span(units_in_order_).subspan(w.first_unit, w.end_unit - w.first_unit);
}

int64_t max_window_bytes(std::span<const PlacedUnit> units, const OrderOptions& options) {
  int64_t total = 0;
  int64_t largest = 0;
  for (const PlacedUnit& unit : units) {
    total += unit.bytes;
    largest = std::max(largest, unit.bytes);
  }
  return std::min(total, std::max(largest, window_limit(options)));
}

}  // namespace plimsoll
