#include "data/batch/longest_alike.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace plimsoll {

LongestAlike::LongestAlike(int64_t documents, int64_t tokens) {
  sorted_.reserve(static_cast<size_t>(documents));
  common_.reserve(sorted_.capacity());
  starts_.reserve(sorted_.capacity());
  lengths_.reserve(static_cast<size_t>(tokens));
}

void LongestAlike::set(const EffectiveBatch& batch) {
  of_ = &batch;
  sorted_.resize(static_cast<size_t>(batch.sequences()));
  std::iota(sorted_.begin(), sorted_.end(), 0);
  std::sort(sorted_.begin(), sorted_.end(), [&](int32_t a, int32_t b) {
    return std::ranges::lexicographical_compare(batch.ids(a), batch.ids(b));
  });
  starts_.clear();
  size_t tokens = 0;
  for (int64_t i = 0; i < batch.sequences(); ++i) {
    starts_.push_back(tokens);
    tokens += batch.ids(i).size();
  }
  lengths_.assign(tokens, 0);
  common_.assign(sorted_.size(), 0);
  for (size_t i = 1; i < sorted_.size(); ++i) {
    const auto above = batch.ids(sorted_[i - 1]), own = batch.ids(sorted_[i]);
    common_[i] = static_cast<size_t>(std::ranges::mismatch(above, own).in1 - above.begin());
  }
  for (size_t place = 0; place < sorted_.size(); ++place) measure(place);
}

// Two documents share the least of what neighbours between them share. The longest that shares so many tokens
// is noted at the last of them; it shares those before it too.
void LongestAlike::measure(size_t place) {
  const auto length = [&](size_t at) { return static_cast<int32_t>(of_->ids(sorted_[at]).size()); };
  const std::span<int32_t> own = std::span(lengths_).subspan(starts_[static_cast<size_t>(sorted_[place])],
                                                             static_cast<size_t>(length(place)));
  own.back() = length(place);
  size_t common = std::numeric_limits<size_t>::max();
  const auto meet = [&](size_t other, size_t between) {
    common = std::min(common, common_[between]);
    if (common > 0) own[common - 1] = std::max(own[common - 1], length(other));
    return common > 0;
  };
  for (size_t at = place; at > 0 && meet(at - 1, at);) --at;
  common = std::numeric_limits<size_t>::max();
  for (size_t at = place + 1; at < sorted_.size() && meet(at, at);) ++at;
  for (size_t i = own.size() - 1; i > 0; --i) own[i - 1] = std::max(own[i - 1], own[i]);
}

std::span<const int32_t> LongestAlike::of(int64_t document) const {
  return std::span(lengths_).subspan(starts_[static_cast<size_t>(document)], of_->ids(document).size());
}

int64_t LongestAlike::planned_bytes(int64_t documents, int64_t tokens) {
  return documents * static_cast<int64_t>(sizeof(int32_t) + 2 * sizeof(size_t)) +
         tokens * static_cast<int64_t>(sizeof(int32_t));
}

}  // namespace plimsoll
