#include "tokenizer/models/piece_trie.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {

// Nodes are placed depth first; a family of siblings goes where all of its places are free.
class PieceTrie::Builder {
 public:
  Builder(std::vector<Entry>& entries, std::vector<Node>& nodes) : entries_(entries), nodes_(nodes) {
    add_block();
    taken_[0] = true;  // the root
  }

  void run() {
    // Depth first with a list of its own: pieces may be long.
    std::vector<Task> tasks = {{0, 0, entries_.size(), 0}};
    while (!tasks.empty()) {
      const Task task = tasks.back();
      tasks.pop_back();
      place_children(task, tasks);
    }
  }

 private:
  static constexpr size_t kBlock = 256;
  // Only this many last blocks are searched for free places, which keeps building linear.
  static constexpr size_t kOpenBlocks = 16;

  // The entries [begin, end) share their first `depth` bytes, which lead to `node`.
  struct Task {
    uint32_t node;
    size_t begin;
    size_t end;
    size_t depth;
  };
  struct Child {
    unsigned char label;
    size_t begin;
    size_t end;
  };

  void add_block() {
    nodes_.resize(nodes_.size() + kBlock);
    taken_.resize(nodes_.size(), false);
  }

  void place_children(const Task& task, std::vector<Task>& tasks) {
    size_t i = task.begin;
    // Equal pieces stand side by side in the order given.
    for (; i < task.end && entries_[i].piece.size() == task.depth; ++i) nodes_[task.node].id = entries_[i].id;
    children_.clear();
    for (; i < task.end; ++i) {
      const auto label = static_cast<unsigned char>(entries_[i].piece[task.depth]);
      if (children_.empty() || children_.back().label != label) children_.push_back({label, i, i});
      children_.back().end = i + 1;
    }
    if (children_.empty()) return;
    const uint32_t base = find_base();
    nodes_[task.node].base = base;
    for (const Child& child : children_) {
      const uint32_t place = base ^ child.label;
      taken_[place] = true;
      nodes_[place].parent = task.node;
      tasks.push_back({place, child.begin, child.end, task.depth + 1});
    }
  }

  bool fits(uint32_t base) const {
    return std::none_of(children_.begin(), children_.end(),
                        [&](const Child& child) { return taken_[base ^ child.label]; });
  }

  uint32_t find_base() {
    const size_t blocks = nodes_.size() / kBlock;
    const size_t first_open = blocks > kOpenBlocks ? (blocks - kOpenBlocks) * kBlock : 0;
    first_free_ = std::max(first_free_, first_open);
    while (first_free_ < nodes_.size() && taken_[first_free_]) ++first_free_;
    for (size_t place = first_free_; place < nodes_.size(); ++place) {
      if (taken_[place]) continue;
      const auto base = static_cast<uint32_t>(place) ^ children_[0].label;
      if (fits(base)) return base;
    }
    add_block();
    return static_cast<uint32_t>(nodes_.size() - kBlock) ^ children_[0].label;
  }

  std::vector<Entry>& entries_;
  std::vector<Node>& nodes_;
  std::vector<bool> taken_;
  std::vector<Child> children_;
  size_t first_free_ = 0;
};

PieceTrie::PieceTrie(std::vector<Entry> entries) {
  // A walk from every place of a text goes as far as a piece reaches.
  constexpr size_t kLongest = 2048;
  for (const Entry& entry : entries)
    if (entry.piece.size() > kLongest)
      throw UsageError(formatted("the tokenizer has a piece of {} bytes; the longest that is run has {}",
                                 entry.piece.size(), kLongest));
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.piece < b.piece; });
  Builder(entries, nodes_).run();
  nodes_.shrink_to_fit();
}

}  // namespace plimsoll
