#include "data/batch/statistics.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"
#include "data/batch/row_facts.h"
#include "data/batch/row_reader.h"
#include "data/batch/shared_rows.h"
#include "data/rows/evenly_spread.h"

namespace plimsoll {
namespace {

constexpr int64_t kSampledUnits = 16;
constexpr int64_t kSampledRows = 2048;

using EvenSample = EvenlySpread<RowSize, 4096>;

// The number of rows of each length.
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
      statistics.usual.tokens = at->first;
      statistics.usual.rows_longer = longer;
      if (longer + at->second > rows_ / kFew) return;
    }
  }

 private:
  std::map<int64_t, int64_t> of_;
  int64_t rows_ = 0;
};

void add_lengths(const RowFacts& row, DataStatistics& statistics, EvenSample& sizes) {
  statistics.longest_shared = std::max(statistics.longest_shared, row.tokens - row.size.shared);
  statistics.longest_sample = std::max(statistics.longest_sample, row.tokens);
  statistics.longest_target = std::max(statistics.longest_target, row.size.targets);
  statistics.longest_sequence = std::max(statistics.longest_sequence, row.longest_source);
  sizes.add(row.size);
}

// A damaged row is read in every epoch, too.
void add_bytes(const RowFacts& row, DataStatistics& statistics) {
  statistics.largest.size = std::max(statistics.largest.size, row.row_size);
  statistics.largest.memory = std::max(statistics.largest.memory, row.memory);
}

void add(const RowFacts& row, DataStatistics& statistics, EvenSample& sizes) {
  ++statistics.rows;
  add_bytes(row, statistics);
  if (!row.damage.empty()) {
    if (++statistics.damaged == 1) statistics.first_damage = row.damage;
    return;
  }
  statistics.longest = std::max(statistics.longest, row.whole_length);
  if (row.truncated) ++statistics.truncated;
  if (!row.learns) {
    ++statistics.skipped;
    return;
  }
  statistics.tokens += row.tokens;
  statistics.squares += row.squares;
  add_lengths(row, statistics, sizes);
  statistics.target_tokens += row.targets;
  statistics.labelled += row.labelled;
}

// Tokens of every row of the data set; 0 for those that no batch takes.
std::vector<int32_t> row_lengths(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder,
                                 int64_t threads) {
  std::vector<int32_t> lengths(static_cast<size_t>(dataset.rows()));
  for_each_row(dataset, subset, encoder, Visit::epoch, threads, [&](const RowFacts& row) {
    if (row.learns) lengths[static_cast<size_t>(row.row)] = static_cast<int32_t>(row.tokens);
  });
  return lengths;
}

// visit(example) for about so many rows, spread over the data set: of first units of groups, as what comes
// later in a Parquet row group costs the decoding of all before it. Holds nothing afterwards.
template <class Visit>
void for_sampled_rows(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder, int64_t most,
                      Visit visit) {
  std::vector<size_t> starts;
  for (size_t unit = 0; unit < dataset.units().size(); ++unit)
    if (unit == 0 || dataset.units()[unit].group != dataset.units()[unit - 1].group) starts.push_back(unit);
  const auto groups = static_cast<int64_t>(starts.size());
  const int64_t taken = std::min(groups, kSampledUnits);
  RowReader reader(dataset, subset, {.shuffle = Shuffle::off});
  Example example;
  for (int64_t i = 0; i < taken; ++i) {
    const PlacedUnit& unit = dataset.units()[starts[static_cast<size_t>(i * groups / taken)]];
    const int64_t first = subset.rank(unit.first_row);
    const int64_t rows = subset.rank(unit.first_row + unit.rows) - first;
    const int64_t wanted = std::min(rows, most / taken);
    for (int64_t k = 0; k < wanted; ++k) {
      reader.encode_row(subset.row(first + k * rows / wanted), encoder, example);
      visit(example);
    }
  }
  dataset.hold({});
}

// Rows with a source and a target share no beginning.
std::vector<double> shared_of(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder) {
  SharedRows shared;
  if (!rule_of(encoder.samples().task.task).has_targets)
    for_sampled_rows(dataset, subset, encoder, SharedRows::kMostRows, [&](const Example& example) {
      if (example.damage.empty() && example.learns()) shared.add(example);
    });
  return shared.shares();
}

}  // namespace

DataStatistics measure_data(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder,
                            const std::function<void(int64_t)>& progress, int64_t threads) {
  constexpr int64_t kTold = 1024;  // rows
  DataStatistics statistics;
  EvenSample sizes(statistics.sizes);
  Lengths lengths;
  CommonBegin begin = no_common_begin(encoder);
  const auto take = [&](const RowFacts& row) {
    if (progress && statistics.rows % kTold == 0) progress(statistics.rows);
    add(row, statistics, sizes);
    if (row.damage.empty()) lengths.add(row.longest);
  };
  for_each_row(dataset, subset, encoder, Visit::epoch, threads, take, &begin);
  statistics.of_all_rows = true;
  statistics.shared = shared_of(dataset, subset, encoder);
  lengths.tell(statistics);
  const auto& units = dataset.units();
  const auto add_sizes = [&](const RowFacts& row) {
    add_bytes(row, statistics);
    if (row.damage.empty() && row.learns) add_lengths(row, statistics, sizes);
  };
  if (std::any_of(units.begin(), units.end(), [](const PlacedUnit& unit) { return unit.weight < 1; }))
    for_each_row(dataset, subset, encoder, Visit::each_once, threads, add_sizes, &begin);
  statistics.common_begin = begin.tokens();
  return statistics;
}

RowSubset rows_that_fit(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder,
                        int64_t threads) {
  std::vector<int64_t> longer;
  for_each_row(dataset, subset, encoder, Visit::each_once, threads, [&](const RowFacts& row) {
    if (row.damage.empty() && row.whole_length > encoder.samples().max_length) longer.push_back(row.row);
  });
  return subset.without(longer);
}

DataStatistics sample_data(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder) {
  if (subset.size() <= kSampledRows && dataset.units().size() <= kSampledUnits)
    return measure_data(dataset, subset, encoder);
  DataStatistics statistics;
  EvenSample sizes(statistics.sizes);
  SharedRows shared;
  CommonBegin begin = no_common_begin(encoder);
  const bool has_target = rule_of(encoder.samples().task.task).has_targets;
  for_sampled_rows(dataset, subset, encoder, kSampledRows, [&](const Example& example) {
    add(facts_of(0, example, has_target), statistics, sizes);
    if (!example.damage.empty() || !example.learns()) return;
    begin.add(example);
    if (!has_target) shared.add(example);
  });
  statistics.shared = shared.shares();
  statistics.common_begin = begin.tokens();
  return statistics;
}

void refuse_without_targets(const std::string& name, const SampleRules& samples,
                            const std::string& first_damage) {
  // No text of a model fills as much: init looks at rows without a bound.
  constexpr int64_t kNoBound = int64_t{1} << 24;
  const bool has_bound = samples.max_length < kNoBound;
  const std::string length = has_bound ? " within data.max_length " + std::to_string(samples.max_length) : "";
  const bool pairs = rule_of(samples.task.task).pairs;
  throw UsageError(
      name + (pairs ? ": no pair has a difference to learn" : ": no row has a token to learn") + length +
      (first_damage.empty()
           ? !has_bound ? pairs ? ". Chosen and rejected are the same."
                                : ". All labels are -100, or targets are empty."
             : pairs
                 ? ". Raise it, or look at the rows: chosen and rejected are the same, or a prompt leaves "
                   "no room for them."
                 : ". Raise it: the prompts alone fill it, or all labels are -100, or targets are empty."
           : ". Rows are damaged and skipped; the first: " + first_damage));
}

void refuse_short_texts(const std::string& name, const SampleRules& samples) {
  throw UsageError(
      formatted("{}: all rows together have fewer tokens than a sequence of data.packing: joined "
                "(data.max_length: {}); give more rows, or a smaller data.max_length",
                name, format_count(samples.max_length)));
}

int64_t steps_of_epochs(double epochs, int64_t an_epoch) {
  return static_cast<int64_t>(std::ceil(epochs * static_cast<double>(an_epoch)));
}

namespace {

int64_t joined_steps(const RowOrder& order, const std::vector<int32_t>& lengths, int64_t max_length,
                     int64_t effective) {
  int64_t tokens = 0;
  for (int64_t index = 0; index < order.rows(); ++index)
    tokens += lengths[static_cast<size_t>(order.at(index).row)];
  return ceil_div(tokens / max_length, effective);
}

int64_t filled_steps(const RowOrder& order, const std::vector<int32_t>& lengths, Packer& packer) {
  int64_t steps = 1;  // the last one, which may hold rows without targets alone
  packer.clear();
  for (int64_t index = 0; index < order.rows(); ++index) {
    const int64_t length = lengths[static_cast<size_t>(order.at(index).row)];
    if (length == 0 || packer.place(length) >= 0) continue;
    ++steps;
    packer.clear();
    packer.place(length);
  }
  return steps;
}

}  // namespace

int64_t count_packed_steps(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder,
                           const LoaderOptions& options, double epochs, int64_t threads) {
  const std::vector<int32_t> lengths = row_lengths(dataset, subset, encoder, threads);
  RowOrder order(dataset.units(), subset, options.order);
  Packer packer(options.effective, sequence_shape(options, encoder.samples()));
  int64_t steps = 0;
  for (int64_t epoch = 0; static_cast<double>(epoch) < epochs; ++epoch) {
    order.start_epoch(epoch);
    const int64_t all = options.joined
                            ? joined_steps(order, lengths, encoder.samples().max_length, options.effective)
                            : filled_steps(order, lengths, packer);
    steps += steps_of_epochs(std::min(1.0, epochs - static_cast<double>(epoch)), all);
  }
  return steps;
}

}  // namespace plimsoll
