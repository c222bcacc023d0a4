// The order in which an epoch visits the rows: a pure function of (seed, epoch, index).
//
// A full shuffle is a permutation of all rows, however the files are made. In windows, units are shuffled by
// group, then cut into windows that fit in memory, and rows are shuffled within a window; a data set that
// fits into one window has the order of the full shuffle. The window is a constant and never follows the
// memory that happens to be free: memory must not change the experiment.
//
// A unit of weight 2 is in the order twice, one of weight 0.25 with a quarter of its rows, drawn anew in each
// epoch (without shuffling its first ones). All counts are the same in every epoch.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "data/rows/dataset.h"
#include "data/rows/row_subset.h"

namespace plimsoll {

// 12 MiB of text are some 20,000 typical instruction rows; more would make the memory of a run depend on how
// large its data are.
inline constexpr int64_t kShuffleWindowBytes = 12 * kMiB;

struct OrderOptions {
  Shuffle shuffle = Shuffle::full;
  uint64_t seed = 42;
  int64_t window_bytes = kShuffleWindowBytes;
};

class RowOrder {
 public:
  // Starts at epoch 0.
  RowOrder(std::span<const PlacedUnit> units, RowSubset subset, const OrderOptions& options);

  [[nodiscard]] int64_t rows() const { return rows_; }
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
  [[nodiscard]] int64_t windows() const { return std::ssize(windows_); }
  // The indices of a window's rows: the first, and that behind the last.
  [[nodiscard]] std::pair<int64_t, int64_t> window_rows(size_t window) const {
    return {windows_[window].first_index, windows_[window].first_index + windows_[window].rows};
  }

 private:
  // Rows of a unit that stand together before they are shuffled within their window.
  struct Entry {
    size_t unit = 0;
    int64_t rows = 0;
    bool drawn = false;       // not all of the unit's rows, some
    int64_t first_index = 0;  // of the epoch
  };
  // Entries of one group, which stay together and in order, as that is how they are read.
  using Run = std::vector<Entry>;
  struct Window {
    size_t first_entry = 0;
    int64_t first_index = 0;  // of the epoch
    int64_t rows = 0;
  };

  void list_runs();
  // Adds a group's entries: `copies` of all rows, then what is left of the weight.
  void add_group(size_t first, size_t end);
  [[nodiscard]] int64_t rows_in(size_t unit) const;
  [[nodiscard]] int64_t row_of(const Entry& entry, int64_t number) const;

  std::vector<PlacedUnit> units_;
  RowSubset subset_;
  OrderOptions options_;
  int64_t rows_ = 0;
  int64_t bytes_ = 0;  // of the units that are used
  std::vector<Run> runs_;
  int64_t epoch_ = 0;
  std::vector<Entry> entries_;  // of the epoch
  std::vector<size_t> entry_units_;
  std::vector<Window> windows_;
};

// Memory that an order of these takes.
int64_t row_order_bytes(std::span<const PlacedUnit> units);

// Returns true if the units are more than one window holds.
bool exceeds_window(std::span<const PlacedUnit> units, const OrderOptions& options);

// Most bytes of units that a window of these can hold.
int64_t max_window_bytes(std::span<const PlacedUnit> units, const OrderOptions& options);

}  // namespace plimsoll
