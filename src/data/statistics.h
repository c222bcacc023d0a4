// What a data set holds, by reading and encoding every row once.
#pragma once

#include <cstdint>

#include "data/dataset.h"
#include "data/example.h"
#include "data/row_subset.h"

namespace plimsoll {

struct DataStatistics {
  int64_t rows = 0;
  int64_t tokens = 0;         // after truncation, skipped rows not counted
  int64_t target_tokens = 0;  // that the loss sees
  int64_t longest = 0;        // tokens of the longest row, before truncation
  int64_t truncated = 0;      // rows
  int64_t skipped = 0;        // rows with no target left

  [[nodiscard]] double share_truncated() const {
    return rows == 0 ? 0.0 : static_cast<double>(truncated) / static_cast<double>(rows);
  }
};

// Costs the time of tokenising everything, and the memory of one unit. `dataset` has its columns selected and
// holds its last unit afterwards.
DataStatistics measure_data(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder);

}  // namespace plimsoll
