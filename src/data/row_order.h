// The order in which an epoch visits the rows: a pure function of (seed, epoch, index).
//
// Units are shuffled by group, then cut into windows that fit in memory, and rows are shuffled within a
// window. A data set that fits into one window is thus fully shuffled. The window is a constant of the recipe
// and never follows the memory that happens to be free: memory must not change the experiment.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "data/row_subset.h"

namespace plimsoll {

// 64 MiB of text are some 100,000 typical instruction rows.
inline constexpr int64_t kShuffleWindowBytes = 64 * kMiB;

struct OrderOptions {
  bool shuffle = true;
  uint64_t seed = 42;
  int64_t window_bytes = kShuffleWindowBytes;
};

class RowOrder {
 public:
  // Starts at epoch 0.
  RowOrder(std::span<const PlacedUnit> units, RowSubset subset, const OrderOptions& options);

  [[nodiscard]] int64_t rows() const { return subset_.size(); }
  // Costs a few operations per unit.
  void start_epoch(int64_t epoch);

  struct Place {
    int64_t row = 0;  // of the data set
    size_t window = 0;
  };
  // The row that the epoch visits at `index`.
  [[nodiscard]] Place at(int64_t index) const;
  // The units of a window, in the order in which to load them.
  [[nodiscard]] std::span<const size_t> window_units(size_t window) const;

 private:
  // Part of a window: the rows of one unit that belong to the subset.
  struct Window {
    size_t first_unit = 0;  // in units_in_order_
    size_t end_unit = 0;
    int64_t first_index = 0;  // of the epoch
    int64_t rows = 0;
  };

  [[nodiscard]] std::vector<size_t> shuffled_units(int64_t epoch) const;
  [[nodiscard]] int64_t rows_in(size_t unit) const;

  std::vector<PlacedUnit> units_;
  RowSubset subset_;
  OrderOptions options_;
  int64_t epoch_ = 0;
  std::vector<size_t> units_in_order_;
  std::vector<int64_t> unit_index_;  // first index of each of them within the epoch
  std::vector<Window> windows_;
};

// Most bytes of units that a window of these can hold.
int64_t max_window_bytes(std::span<const PlacedUnit> units, const OrderOptions& options);

}  // namespace plimsoll
