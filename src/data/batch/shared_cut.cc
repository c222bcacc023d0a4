#include "data/batch/shared_cut.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/units.h"

namespace plimsoll {

SharedCut::SharedCut(const MicroCapacity& capacity, int64_t rows, int64_t whole_tokens)
    : capacity_(capacity), whole_tokens_(whole_tokens) {
  const auto most = static_cast<size_t>(rows);
  rows_.reserve(most);
  for (auto* numbers : {&sorted_, &longest_first_, &step_of_}) numbers->reserve(most);
  common_.reserve(most);
  shared_.reserve(most);
  filled_.reserve(most);
}

void SharedCut::set(const EffectiveBatch& batch, SharedLabels labels) {
  const int64_t rows = batch.packed_sequences();
  rows_.clear();
  for (int64_t i = 0; i < rows; ++i) {
    const RowSize size = batch.size_of(i, false);
    rows_.push_back({batch.begin_of(i, labels), size.tokens - size.shared, size.tokens});
  }
  for (auto* numbers : {&sorted_, &longest_first_}) {
    numbers->resize(rows_.size());
    std::iota(numbers->begin(), numbers->end(), 0);
  }
  std::sort(longest_first_.begin(), longest_first_.end(), [&](int32_t a, int32_t b) {
    return row(a).tokens != row(b).tokens ? row(a).tokens > row(b).tokens : a < b;
  });
  std::sort(sorted_.begin(), sorted_.end(), [&](int32_t a, int32_t b) {
    const auto order = std::lexicographical_compare_three_way(row(a).begin.begin(), row(a).begin.end(),
                                                              row(b).begin.begin(), row(b).begin.end());
    return order != 0 ? order < 0 : a < b;
  });
  common_.assign(rows_.size(), 0);
  common_to_all_ = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < sorted_.size(); ++i) {
    rows_[static_cast<size_t>(sorted_[i])].place = static_cast<int32_t>(i);
    if (i == 0) continue;
    const auto above = row(sorted_[i - 1]).begin, own = row(sorted_[i]).begin;
    common_[i] = std::mismatch(above.begin(), above.end(), own.begin(), own.end()).first - above.begin();
    common_to_all_ = std::min(common_to_all_, common_[i]);
  }
}

int64_t SharedCut::tokens(int64_t steps, const std::function<int64_t(int64_t)>& step_of) {
  int64_t sum = 0;
  shared_.assign(static_cast<size_t>(steps), 0);  // of a row here with the last one there, so far
  for (size_t i = 0; i < sorted_.size(); ++i) {
    for (int64_t& shared : shared_) shared = std::min(shared, common_[i]);
    int64_t& shared = shared_[static_cast<size_t>(step_of(sorted_[i]))];
    sum += row(sorted_[i]).tokens - shared;
    shared = std::numeric_limits<int64_t>::max();
  }
  return sum;
}

bool SharedCut::takes(const Filled& filled, const Row& row, int64_t shared) const {
  return filled.rows < capacity_.samples && filled.whole_tokens + row.whole_tokens <= whole_tokens_ &&
         (!capacity_.by_tokens() || filled.tokens + row.tokens - shared <= capacity_.tokens);
}

void SharedCut::find_shared(int32_t number) {
  std::fill(shared_.begin(), shared_.end(), int64_t{-1});
  const auto place = static_cast<size_t>(row(number).place);
  int64_t common = std::numeric_limits<int64_t>::max();
  const auto meet = [&](size_t other, size_t between) {
    common = std::min(common, common_[between]);
    const int32_t step = step_of_[static_cast<size_t>(sorted_[other])];
    if (step >= 0) shared_[static_cast<size_t>(step)] = std::max(shared_[static_cast<size_t>(step)], common);
  };
  for (size_t at = place; at > 0; --at) meet(at - 1, at);
  common = std::numeric_limits<int64_t>::max();
  for (size_t at = place + 1; at < sorted_.size(); ++at) meet(at, at);
}

// The longest row first, each where most of it is there already, and where that is equal, where there is most
// room. The beginning of all rows draws none of them to another.
bool SharedCut::put_into(int64_t steps) {
  step_of_.assign(rows_.size(), -1);
  shared_.resize(static_cast<size_t>(steps));
  filled_.assign(static_cast<size_t>(steps), Filled{});
  for (const int32_t number : longest_first_) {
    find_shared(number);
    std::ptrdiff_t best = -1;
    int64_t most = -1;
    for (std::ptrdiff_t step = 0; step < std::ssize(filled_); ++step) {
      const Filled& filled = filled_[static_cast<size_t>(step)];
      const int64_t shared = shared_[static_cast<size_t>(step)];
      if (!takes(filled, row(number), std::max<int64_t>(0, shared))) continue;
      const int64_t draws = std::max(shared, common_to_all_);
      if (draws < most) continue;
      if (draws == most && filled.tokens >= filled_[static_cast<size_t>(best)].tokens) continue;
      best = step;
      most = draws;
    }
    if (best < 0) return false;
    Filled& to = filled_[static_cast<size_t>(best)];
    to.tokens += row(number).tokens - std::max<int64_t>(0, shared_[static_cast<size_t>(best)]);
    to.whole_tokens += row(number).whole_tokens;
    ++to.rows;
    step_of_[static_cast<size_t>(number)] = static_cast<int32_t>(best);
  }
  return true;
}

bool SharedCut::cut(int64_t most) {
  int64_t least = ceil_div(std::ssize(rows_), capacity_.samples);
  if (capacity_.by_tokens())
    least = std::max(least, ceil_div(tokens(1, [](int64_t) { return 0; }), capacity_.tokens));
  for (int64_t steps = std::max<int64_t>(1, least); steps <= most; ++steps)
    if (put_into(steps)) return true;
  return false;
}

}  // namespace plimsoll
