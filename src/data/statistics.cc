#include "data/statistics.h"

#include <algorithm>

#include "base/error.h"
#include "data/row_reader.h"

namespace plimsoll {
namespace {

constexpr int64_t kSampledUnits = 16;
constexpr int64_t kSampledRows = 2048;

void add(const Example& example, DataStatistics& statistics) {
  ++statistics.rows;
  if (!example.damage.empty()) {
    if (++statistics.damaged == 1) statistics.first_damage = example.damage;
    return;
  }
  statistics.longest = std::max(statistics.longest, example.whole_length);
  statistics.longest_bytes = std::max(statistics.longest_bytes, example.bytes);
  if (example.truncated()) ++statistics.truncated;
  if (example.targets == 0) {
    ++statistics.skipped;
    return;
  }
  statistics.tokens += static_cast<int64_t>(example.ids.size());
  for (int64_t i = 0, begin = 0; i < example.sequences(); begin = example.end_of(i++)) {
    const int64_t length = example.end_of(i) - begin;
    statistics.squares += length * length;
  }
  statistics.target_tokens += example.targets;
  statistics.labelled += std::count_if(example.labels.begin(), example.labels.end(),
                                       [](int32_t l) { return l != kIgnoreLabel; });
}

// Tokens of every row of the data set; 0 for those that no batch takes.
std::vector<int32_t> row_lengths(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder) {
  RowReader reader(dataset, subset, {.shuffle = false});
  std::vector<int32_t> lengths(static_cast<size_t>(dataset.rows()));
  Example example;
  for (int64_t index = 0; index < reader.rows(); ++index) {
    const int64_t row = reader.encode(0, index, encoder, example);
    if (example.targets > 0) lengths[static_cast<size_t>(row)] = static_cast<int32_t>(example.ids.size());
  }
  return lengths;
}

}  // namespace

DataStatistics measure_data(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder) {
  RowReader reader(dataset, subset, {.shuffle = false});
  DataStatistics statistics;
  Example example;
  for (int64_t index = 0; index < reader.rows(); ++index) {
    reader.encode(0, index, encoder, example);
    add(example, statistics);
  }
  return statistics;
}

RowSubset rows_that_fit(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder) {
  RowReader reader(dataset, subset, {.shuffle = false});
  std::vector<int64_t> longer;
  Example example;
  for (int64_t index = 0; index < subset.size(); ++index) {
    const int64_t row = subset.row(index);
    reader.encode_row(row, encoder, example);
    if (example.damage.empty() && example.whole_length > encoder.options().max_length) longer.push_back(row);
  }
  dataset.hold({});
  return subset.without(longer);
}

// First units of groups: what comes later in a Parquet row group costs the decoding of all before it.
DataStatistics sample_data(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder) {
  if (subset.size() <= kSampledRows && dataset.units().size() <= kSampledUnits)
    return measure_data(dataset, subset, encoder);
  std::vector<size_t> starts;
  for (size_t unit = 0; unit < dataset.units().size(); ++unit)
    if (unit == 0 || dataset.units()[unit].group != dataset.units()[unit - 1].group) starts.push_back(unit);
  const auto groups = static_cast<int64_t>(starts.size());
  const int64_t taken = std::min(groups, kSampledUnits);
  DataStatistics statistics;
  RowReader reader(dataset, subset, {.shuffle = false});
  Example example;
  for (int64_t i = 0; i < taken; ++i) {
    const PlacedUnit& unit = dataset.units()[starts[static_cast<size_t>(i * groups / taken)]];
    const int64_t first = subset.rank(unit.first_row);
    const int64_t rows = subset.rank(unit.first_row + unit.rows) - first;
    const int64_t wanted = std::min(rows, kSampledRows / taken);
    for (int64_t k = 0; k < wanted; ++k) {
      reader.encode_row(subset.row(first + k * rows / wanted), encoder, example);
      add(example, statistics);
    }
  }
  dataset.hold({});
  return statistics;
}

void refuse_without_targets(const std::string& name, const ExampleOptions& options,
                            const std::string& first_damage) {
  const std::string length = " within data.max_length " + std::to_string(options.max_length);
  const bool pairs = rule_of(options.task.task).pairs;
  throw UsageError(
      name + (pairs ? ": no pair has a difference to learn" : ": no row has a token to learn") + length +
      (first_damage.empty()
           ? pairs ? ". Raise it, or look at the rows: chosen and rejected are the same, or a prompt leaves "
                     "no room for them."
                   : ". Raise it: the prompts alone fill it, or all labels are -100, or targets are empty."
           : ". Rows are damaged and skipped; the first: " + first_damage));
}

int64_t count_packed_steps(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder,
                           const LoaderOptions& options, int64_t epochs) {
  const std::vector<int32_t> lengths = row_lengths(dataset, subset, encoder);
  dataset.hold({});
  RowOrder order(dataset.units(), subset, options.order);
  Packer packer(options.effective, sequence_shape(options, encoder.options()));
  int64_t steps = 0;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    order.start_epoch(epoch);
    packer.clear();
    for (int64_t index = 0; index < order.rows(); ++index) {
      const int64_t length = lengths[static_cast<size_t>(order.at(index).row)];
      if (length == 0 || packer.place(length) >= 0) continue;
      ++steps;
      packer.clear();
      packer.place(length);
    }
    ++steps;  // the last one, which may hold rows without targets alone
  }
  return steps;
}

}  // namespace plimsoll
