#include "tokenizer/models/bpe_merge.h"

#include <algorithm>
#include <array>
#include <climits>
#include <queue>
#include <tuple>

namespace plimsoll {
namespace {

constexpr Merge kNoMerge = {INT_MAX, -1};

Merge merge_of(const MergeTable& merges, int32_t left, int32_t right) {
  const Merge* merge = merges.find(left, right);
  return merge == nullptr ? kNoMerge : *merge;
}

// A symbol in the doubly linked list of what is left of the word; id -1 marks one that was merged away.
struct Symbol {
  int32_t id;
  int32_t previous;
  int32_t next;
};

// As small as can be: a word of a megabyte has two million of them.
struct Candidate {
  int32_t rank;
  int32_t position;

  friend bool operator>(const Candidate& a, const Candidate& b) {
    return std::tie(a.rank, a.position) > std::tie(b.rank, b.position);
  }
};

class HeapMerger {
 public:
  HeapMerger(const MergeTable& merges, const std::vector<int32_t>& ids) : merges_(merges) {
    const auto count = static_cast<int32_t>(ids.size());
    symbols_.reserve(ids.size());
    for (int32_t i = 0; i < count; ++i)
      symbols_.push_back({ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
    // There are rarely more of them later: a merge takes its neighbours' pairs away and offers two.
    std::vector<Candidate> pairs;
    pairs.reserve(ids.size());
    for (int32_t i = 0; i + 1 < count; ++i)
      if (const Merge* merge = merges_.find(at(i).id, at(i + 1).id)) pairs.push_back({merge->rank, i});
    queue_ = Queue(std::greater<>(), std::move(pairs));
  }

  void run() {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      Symbol& left = at(top.position);
      // Entries are never removed from the heap: one whose pair is no longer there is stale. A rank is of one
      // pair.
      if (left.id < 0 || left.next < 0) continue;
      Symbol& right = at(left.next);
      const Merge* merge = merges_.find(left.id, right.id);
      if (merge == nullptr || merge->rank != top.rank) continue;
      left.id = merge->id;
      left.next = right.next;
      right.id = -1;
      if (left.next >= 0) at(left.next).previous = top.position;
      if (left.previous >= 0) push(left.previous);
      push(top.position);
    }
  }

  void write(std::vector<int32_t>& ids) const {
    ids.clear();
    for (const Symbol& symbol : symbols_)
      if (symbol.id >= 0) ids.push_back(symbol.id);
  }

 private:
  using Queue = std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>>;
  Symbol& at(int32_t position) { return symbols_[static_cast<size_t>(position)]; }

  // Offers the pair that starts at `position`.
  void push(int32_t position) {
    const Symbol& left = at(position);
    if (left.next < 0) return;
    const int32_t right = at(left.next).id;
    if (const Merge* merge = merges_.find(left.id, right)) queue_.push({merge->rank, position});
  }

  const MergeTable& merges_;
  std::vector<Symbol> symbols_;
  Queue queue_;
};

}  // namespace

void merge_by_scan(const MergeTable& merges, std::vector<int32_t>& symbols) {
  size_t count = symbols.size();
  if (count < 2) return;
  // pairs[i] is the merge of symbols i and i + 1.
  std::array<Merge, kScanLimit> pairs;
  for (size_t i = 0; i + 1 < count; ++i) merges.prefetch(symbols[i], symbols[i + 1]);
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = merge_of(merges, symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].id < 0) break;
    symbols[best] = pairs[best].id;
    std::copy(symbols.begin() + static_cast<int64_t>(best) + 2, symbols.begin() + static_cast<int64_t>(count),
              symbols.begin() + static_cast<int64_t>(best) + 1);
    std::copy(pairs.begin() + best + 1, pairs.begin() + count - 1, pairs.begin() + best);
    --count;
    if (best + 1 < count) pairs[best] = merge_of(merges, symbols[best], symbols[best + 1]);
    if (best > 0) pairs[best - 1] = merge_of(merges, symbols[best - 1], symbols[best]);
  }
  symbols.resize(count);
}

void merge_by_heap(const MergeTable& merges, std::vector<int32_t>& symbols) {
  HeapMerger merger(merges, symbols);
  merger.run();
  merger.write(symbols);
}

void merge_symbols(const MergeTable& merges, std::vector<int32_t>& symbols) {
  if (symbols.size() <= kScanLimit)
    merge_by_scan(merges, symbols);
  else
    merge_by_heap(merges, symbols);
}

}  // namespace plimsoll
