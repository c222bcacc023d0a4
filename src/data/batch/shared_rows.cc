#include "data/batch/shared_rows.h"

#include <algorithm>
#include <span>

namespace plimsoll {
namespace {

constexpr size_t kMostTokens = 2048;  // of a sequence

int64_t common(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace

// Answers of a pair are trained separately: their tokens are like no others.
void SharedRows::add(const Example& example) {
  if (!spread_.next_is_kept()) return;
  Row& row = rows_.emplace_back();
  row.tokens = std::ssize(example.ids);
  for (int64_t i = 0, begin = 0; i < example.sequences(); begin = example.end_of(i++)) {
    const auto length = std::min(kMostTokens, static_cast<size_t>(example.end_of(i) - begin));
    Ids ids(length);
    for (size_t at = 0; at < length; ++at) {
      const size_t from = static_cast<size_t>(begin) + at;
      const bool own = example.sequences() > 1 && example.labels[from] >= 0;
      ids[at] = own ? --own_ : example.ids[from];
    }
    row.sequences.push_back(std::move(ids));
  }
}

// In sorted order each sequence shares the most with the one before it, and a tree of all of them has what is
// left of their tokens.
double SharedRows::share_of(size_t group) const {
  constexpr size_t kStride = 97;  // prime to powers of two: neighbours in a file are no group
  int64_t tokens = 0, shared = 0;
  std::vector<const Ids*> sorted;
  for (size_t first = 0; first + group <= rows_.size(); first += group) {
    sorted.clear();
    for (size_t i = first; i < first + group; ++i) {
      const Row& row = rows_[rows_.size() % kStride == 0 ? i : i * kStride % rows_.size()];
      tokens += row.tokens;
      for (const Ids& ids : row.sequences) sorted.push_back(&ids);
    }
    std::sort(sorted.begin(), sorted.end(), [](const Ids* a, const Ids* b) { return *a < *b; });
    for (size_t i = 1; i < sorted.size(); ++i) shared += common(*sorted[i - 1], *sorted[i]);
  }
  return tokens == 0 ? 0.0 : static_cast<double>(shared) / static_cast<double>(tokens);
}

std::vector<double> SharedRows::shares() const {
  std::vector<double> shares;
  for (size_t group = 1; group <= rows_.size(); group *= 2) shares.push_back(share_of(group));
  return shares;
}

}  // namespace plimsoll
