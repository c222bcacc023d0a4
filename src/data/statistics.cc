#include "data/statistics.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "data/prefix_tree.h"
#include "data/row_reader.h"
#include "data/shared_rows.h"

namespace plimsoll {
namespace {

constexpr int64_t kSampledUnits = 16;
constexpr int64_t kSampledRows = 2048;

// Of a pair, what both begin with.
int64_t common_to_all(const Example& example) {
  int64_t common = 0;
  const std::span<const int32_t> ids(example.ids), labels(example.labels);
  const auto part = [&](std::span<const int32_t> of, int64_t i) {
    const auto begin = static_cast<size_t>(i == 0 ? 0 : example.end_of(i - 1));
    return of.subspan(begin, static_cast<size_t>(example.end_of(i)) - begin);
  };
  for (int64_t i = 1; i < example.sequences(); ++i)
    common += common_tokens(part(ids, i - 1), part(labels, i - 1), part(ids, i), part(labels, i));
  return common;
}

using EvenSample = EvenlySpread<RowSize, 4096>;

// How many rows have each length.
class Lengths {
 public:
  void add(int64_t length) {
    ++rows_;
    ++of_[length];
  }
  void tell(DataStatistics& statistics) const {
    constexpr int64_t kFew = 1000;
    int64_t longer = 0;
    for (auto at = of_.rbegin(); at != of_.rend(); longer += at++->second) {
      statistics.common_length = at->first;
      statistics.rows_longer = longer;
      if (longer + at->second > rows_ / kFew) return;
    }
  }

 private:
  std::map<int64_t, int64_t> of_;
  int64_t rows_ = 0;
};

// A target begins with a token that is no part of it.
void add_lengths(const Example& example, bool has_target, DataStatistics& statistics, EvenSample& sizes) {
  const auto tokens = std::ssize(example.ids);
  RowSize size{has_target ? example.end_of(0) : tokens, has_target ? tokens - example.end_of(0) - 1 : 0,
               has_target ? 0 : common_to_all(example)};
  statistics.longest_shared = std::max(statistics.longest_shared, tokens - size.shared);
  statistics.longest_sample = std::max(statistics.longest_sample, tokens);
  statistics.longest_target = std::max(statistics.longest_target, size.targets);
  for (int64_t i = 0, begin = 0; i < (has_target ? 1 : example.sequences()); begin = example.end_of(i++))
    statistics.longest_sequence = std::max(statistics.longest_sequence, example.end_of(i) - begin);
  sizes.add(size);
}

void add(const Example& example, bool has_target, DataStatistics& statistics, EvenSample& sizes,
         SharedRows& shared) {
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
  add_lengths(example, has_target, statistics, sizes);
  if (!has_target) shared.add(example);
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

DataStatistics measure_data(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder,
                            const std::function<void(int64_t)>& progress) {
  constexpr int64_t kTold = 1024;  // rows
  RowReader reader(dataset, subset, {.shuffle = false});
  DataStatistics statistics;
  EvenSample sizes(statistics.sizes);
  Lengths lengths;
  SharedRows shared;
  const bool has_target = encoder.options().task.task == Task::seq2seq;
  Example example;
  for (int64_t index = 0; index < reader.rows(); ++index) {
    reader.encode(0, index, encoder, example);
    add(example, has_target, statistics, sizes, shared);
    if (example.damage.empty()) lengths.add(example.longest());
    if (progress && index % kTold == 0) progress(index);
  }
  statistics.of_all_rows = true;
  statistics.shared = shared.shares();
  lengths.tell(statistics);
  const auto& units = dataset.units();
  if (std::none_of(units.begin(), units.end(), [](const PlacedUnit& unit) { return unit.weight < 1; }))
    return statistics;
  for (int64_t index = 0; index < subset.size(); ++index) {
    reader.encode_row(subset.row(index), encoder, example);
    if (example.damage.empty() && example.targets > 0) add_lengths(example, has_target, statistics, sizes);
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
  EvenSample sizes(statistics.sizes);
  SharedRows shared;
  const bool has_target = encoder.options().task.task == Task::seq2seq;
  RowReader reader(dataset, subset, {.shuffle = false});
  Example example;
  for (int64_t i = 0; i < taken; ++i) {
    const PlacedUnit& unit = dataset.units()[starts[static_cast<size_t>(i * groups / taken)]];
    const int64_t first = subset.rank(unit.first_row);
    const int64_t rows = subset.rank(unit.first_row + unit.rows) - first;
    const int64_t wanted = std::min(rows, kSampledRows / taken);
    for (int64_t k = 0; k < wanted; ++k) {
      reader.encode_row(subset.row(first + k * rows / wanted), encoder, example);
      add(example, has_target, statistics, sizes, shared);
    }
  }
  statistics.shared = shared.shares();
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
