#include "data/statistics.h"

#include <algorithm>

#include "data/row_reader.h"

namespace plimsoll {

DataStatistics measure_data(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder) {
  RowReader reader(dataset, subset, {.shuffle = false});
  DataStatistics statistics;
  Example example;
  for (int64_t index = 0; index < reader.rows(); ++index) {
    reader.encode(0, index, encoder, example);
    ++statistics.rows;
    statistics.longest = std::max(statistics.longest, example.whole_length);
    if (example.truncated()) ++statistics.truncated;
    if (example.targets == 0) {
      ++statistics.skipped;
      continue;
    }
    statistics.tokens += static_cast<int64_t>(example.ids.size());
    statistics.target_tokens += example.targets;
  }
  return statistics;
}

}  // namespace plimsoll
