#include "data/batch/row_facts.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "data/batch/prefix_tree.h"
#include "data/batch/row_memory.h"
#include "data/batch/row_reader.h"
#include "data/files/cell.h"
#include "data/rows/row_order.h"

namespace plimsoll {
namespace {

std::vector<PlacedUnit> visited_units(const Dataset& dataset, Visit visit) {
  std::vector<PlacedUnit> units(dataset.units().begin(), dataset.units().end());
  if (visit == Visit::each_once)
    for (PlacedUnit& unit : units) unit.weight = 1.0;
  return units;
}

// Each holds a unit and what becomes of a row of it: of long rows a run has room for one.
int64_t most_threads(const Dataset& dataset) {
  constexpr int64_t kMost = 64, kTogether = 16 * kMiB;
  int64_t longest = kUnitBytes;
  for (const PlacedUnit& unit : dataset.units())
    longest = std::max(longest, unit.longest > 0 ? unit.longest : unit.bytes - kUnitBytes);
  return longest == kUnitBytes ? kMost : std::max<int64_t>(1, kTogether / longest);
}

// The tokens that all sequences of a row begin with: of a pair, what both begin with.
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

// Threads take one window of the order after another and read it whole; its results wait until all before it
// were passed on.
class RowVisitor {
 public:
  RowVisitor(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder, Visit visit,
             const std::function<void(const RowFacts&)>& take, CommonBegin* begin)
      : dataset_(dataset),
        order_(visited_units(dataset, visit), subset, {.shuffle = Shuffle::off}),
        encoder_(encoder),
        take_(take),
        begin_(begin) {}

  void run(int64_t threads) {
    {
      std::vector<std::jthread> helpers;
      try {
        while (std::ssize(helpers) + 1 < std::min(threads, order_.windows()))
          helpers.emplace_back([this] { work(); });
      } catch (const std::system_error&) {  // the system starts no more of them: fewer do
      }
      work();
    }
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  struct Work {
    int64_t window = 0;
    CommonBegin begin;
    std::vector<RowFacts> facts = {};
    std::exception_ptr error = nullptr;  // of the row behind them
  };
  using Blocks = std::map<size_t, std::unique_ptr<Block>>;

  void work() {
    Work work{.begin = no_common_begin(encoder_)};
    Blocks blocks;
    while (next(work, blocks)) {
      try {
        read(blocks, work);
      } catch (...) {
        work.error = std::current_exception();
      }
      blocks.clear();
      finish(std::move(work));
      work = {.begin = no_common_begin(encoder_)};
    }
  }

  // Files are read by one thread at a time, from their start to their end.
  bool next(Work& work, Blocks& blocks) {
    const std::lock_guard lock(reading_);
    if (stopped_ || taken_ == order_.windows()) return false;
    work.window = taken_++;
    try {
      for (const size_t unit : order_.window_units(static_cast<size_t>(work.window)))
        if (!blocks.contains(unit)) blocks.emplace(unit, dataset_.load(unit));
    } catch (...) {
      stopped_ = true;
      work.error = std::current_exception();
      finish(std::move(work));
      return false;
    }
    return true;
  }

  void read(const Blocks& blocks, Work& work) const {
    const bool has_target = rule_of(encoder_.samples().task.task).has_targets;
    const auto [first, end] = order_.window_rows(static_cast<size_t>(work.window));
    work.facts.reserve(static_cast<size_t>(end - first));
    Row cells;
    Example example;
    for (int64_t index = first; index < end; ++index) {
      const int64_t row = order_.at(index).row;
      const size_t unit = dataset_.unit_of(row);
      const int64_t memory = encode_counted(*blocks.at(unit), row - dataset_.units()[unit].first_row,
                                            {row, 0}, dataset_.on_error(), encoder_, cells, example);
      work.facts.push_back(facts_of(row, example, has_target));
      work.facts.back().memory = memory;
      if (begin_ != nullptr && example.damage.empty() && example.learns()) work.begin.add(example);
    }
  }

  void finish(Work work) {
    const std::lock_guard lock(telling_);
    const int64_t window = work.window;
    waiting_.emplace(window, std::move(work));
    for (auto at = waiting_.begin(); at != waiting_.end() && at->first == told_ && error_ == nullptr;
         at = waiting_.erase(at), ++told_)
      tell(at->second);
    if (error_ != nullptr) stopped_ = true;
  }

  void tell(const Work& work) {
    try {
      for (const RowFacts& facts : work.facts) take_(facts);
      if (begin_ != nullptr) begin_->add(work.begin);
      error_ = work.error;
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  Dataset& dataset_;
  const RowOrder order_;
  const ExampleEncoder& encoder_;
  const std::function<void(const RowFacts&)>& take_;
  CommonBegin* begin_;
  std::mutex reading_, telling_;  // taken in this order
  int64_t taken_ = 0;
  std::atomic<bool> stopped_ = false;
  std::map<int64_t, Work> waiting_;
  int64_t told_ = 0;
  std::exception_ptr error_;
};

}  // namespace

// A target begins with a token that is no part of it.
RowFacts facts_of(int64_t row, const Example& example, bool has_target) {
  RowFacts facts{.row = row, .whole_length = example.whole_length, .row_size = example.size};
  facts.damage = example.damage;
  if (!facts.damage.empty()) return facts;
  facts.tokens = std::ssize(example.ids);
  facts.targets = example.targets;
  facts.learns = example.learns();
  facts.truncated = example.truncated();
  facts.labelled = std::count_if(example.labels.begin(), example.labels.end(),
                                 [](int32_t label) { return label != kIgnoreLabel; });
  for (int64_t i = 0, begin = 0; i < example.sequences(); begin = example.end_of(i++)) {
    const int64_t length = example.end_of(i) - begin;
    facts.squares += length * length;
    facts.longest = std::max(facts.longest, length);
    if (i == 0 || !has_target) facts.longest_source = facts.longest;
  }
  facts.size = {has_target ? example.end_of(0) : facts.tokens,
                has_target ? facts.tokens - example.end_of(0) - 1 : 0,
                has_target ? 0 : common_to_all(example)};
  return facts;
}

CommonBegin no_common_begin(const ExampleEncoder& encoder) {
  return CommonBegin(labels_of(rule_of(encoder.samples().task.task).sequences));
}

void for_each_row(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder, Visit visit,
                  int64_t threads, const std::function<void(const RowFacts&)>& take, CommonBegin* begin) {
  dataset.hold({});
  RowVisitor(dataset, subset, encoder, visit, take, begin)
      .run(std::clamp(threads, int64_t{1}, most_threads(dataset)));
}

}  // namespace plimsoll
