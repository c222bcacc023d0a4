#include "data/rows/row_order.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/rows/permutation.h"

namespace plimsoll {
namespace {

// Without shuffling nothing is gained by holding more than the unit being read.
int64_t window_limit(const OrderOptions& options) {
  return options.shuffle == Shuffle::off ? 0 : options.window_bytes;
}

}  // namespace

RowOrder::RowOrder(std::span<const PlacedUnit> units, RowSubset subset, const OrderOptions& options)
    : units_(units.begin(), units.end()), subset_(std::move(subset)), options_(options) {
  list_runs();
  check_internal(subset_.size() > 0, "an order of no rows");
  if (rows_ == 0) throw UsageError("data.train: with these weights an epoch has no rows. Raise them.");
  start_epoch(0);
}

int64_t RowOrder::rows_in(size_t unit) const {
  const PlacedUnit& u = units_[unit];
  return subset_.rank(u.first_row + u.rows) - subset_.rank(u.first_row);
}

void RowOrder::list_runs() {
  for (size_t first = 0; first < units_.size();) {
    size_t end = first;
    while (end < units_.size() && units_[end].group == units_[first].group) ++end;
    add_group(first, end);
    first = end;
  }
  for (const Run& run : runs_)
    for (const Entry& entry : run) rows_ += entry.rows;
}

void RowOrder::add_group(size_t first, size_t end) {
  const double weight = units_[first].weight;
  const auto copies = static_cast<int64_t>(weight);
  const double share = weight - static_cast<double>(copies);
  // Rows of the source before a unit decide how many of it are drawn: the sum over the source is the nearest
  // whole number to its share.
  const auto source = std::find_if(units_.begin(), units_.end(), [&](const PlacedUnit& unit) {
    return unit.source == units_[first].source;
  });
  const int64_t source_start = subset_.rank(source->first_row);
  const auto drawn_before = [&](int64_t row) {
    return std::llround(share * static_cast<double>(subset_.rank(row) - source_start));
  };
  Run whole;
  Run drawn;
  for (size_t unit = first; unit < end; ++unit) {
    const PlacedUnit& u = units_[unit];
    const int64_t part = drawn_before(u.first_row + u.rows) - drawn_before(u.first_row);
    if (copies > 0 && rows_in(unit) > 0) whole.push_back({unit, rows_in(unit), false, 0});
    if (part > 0) drawn.push_back({unit, part, true, 0});
    if ((copies > 0 && rows_in(unit) > 0) || part > 0) bytes_ += u.bytes;
  }
  for (int64_t copy = 0; copy < copies && !whole.empty(); ++copy) runs_.push_back(whole);
  if (!drawn.empty()) runs_.push_back(drawn);
}

void RowOrder::start_epoch(int64_t epoch) {
  epoch_ = epoch;
  entries_.clear();
  entry_units_.clear();
  windows_.clear();
  // One window for all: the order of its units does not matter then, and keeping it fixed keeps them loaded.
  const bool one_window = options_.shuffle == Shuffle::full ||
                          (options_.shuffle == Shuffle::window && bytes_ <= options_.window_bytes);
  const bool shuffles = options_.shuffle == Shuffle::window && !one_window;
  const auto runs = static_cast<int64_t>(runs_.size());
  const Permutation shuffle(runs, stream_key(options_.seed, Stream::groups, epoch));
  int64_t index = 0;
  int64_t window_bytes = 0;
  for (int64_t i = 0; i < runs; ++i) {
    for (Entry entry : runs_[static_cast<size_t>(shuffles ? shuffle(i) : i)]) {
      const int64_t bytes = units_[entry.unit].bytes;
      if (windows_.empty() || (!one_window && window_bytes + bytes > window_limit(options_))) {
        windows_.push_back({entries_.size(), index, 0});
        window_bytes = 0;
      }
      entry.first_index = index;
      window_bytes += bytes;
      windows_.back().rows += entry.rows;
      index += entry.rows;
      entries_.push_back(entry);
      entry_units_.push_back(entry.unit);
    }
  }
}

// The row with this number among an entry's.
int64_t RowOrder::row_of(const Entry& entry, int64_t number) const {
  if (entry.drawn && options_.shuffle != Shuffle::off) {
    const uint64_t key = stream_key(options_.seed, Stream::drawn, epoch_, static_cast<int64_t>(entry.unit));
    number = Permutation(rows_in(entry.unit), key)(number);
  }
  return subset_.row(subset_.rank(units_[entry.unit].first_row) + number);
}

RowOrder::Place RowOrder::at(int64_t index) const {
  const auto next = std::upper_bound(windows_.begin(), windows_.end(), index,
                                     [](int64_t i, const Window& window) { return i < window.first_index; });
  const Window& window = *std::prev(next);
  const auto number = static_cast<size_t>(std::prev(next) - windows_.begin());
  if (options_.shuffle != Shuffle::off) {
    const uint64_t key = stream_key(options_.seed, Stream::rows, epoch_, static_cast<int64_t>(number));
    index = window.first_index + Permutation(window.rows, key)(index - window.first_index);
  }
  const auto entry = std::prev(std::upper_bound(entries_.begin(), entries_.end(), index,
                                                [](int64_t i, const Entry& e) { return i < e.first_index; }));
  return {row_of(*entry, index - entry->first_index), number};
}

std::span<const size_t> RowOrder::window_units(size_t window) const {
  const size_t end = window + 1 < windows_.size() ? windows_[window + 1].first_entry : entries_.size();
  return std::span(entry_units_).subspan(windows_[window].first_entry, end - windows_[window].first_entry);
}

// A copy of the units; their entries by group, and again in the order of the epoch with as many windows at
// most.
int64_t row_order_bytes(std::span<const PlacedUnit> units) {
  constexpr int64_t kEntryBytes = 160;
  double entries = 0;
  for (const PlacedUnit& unit : units) entries += std::ceil(unit.weight);
  return static_cast<int64_t>(units.size() * sizeof(PlacedUnit)) +
         static_cast<int64_t>(entries) * kEntryBytes;
}

bool exceeds_window(std::span<const PlacedUnit> units, const OrderOptions& options) {
  int64_t bytes = 0;
  for (const PlacedUnit& unit : units) bytes += unit.bytes;
  return bytes > options.window_bytes;
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
