// Spans with ranks, searched for the first by rank inside a given range: a k-d tree over (begin, end) whose
// nodes keep the bounds and the best rank of what is left below them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace plimsoll::layout {

// Points of a line, end exclusive.
struct Span {
  uint32_t begin = 0;
  uint32_t end = 0;
};

class RankedSpans {
 public:
  // The index of a span is its rank; 0 goes first. O(n log n).
  explicit RankedSpans(std::span<const Span> spans);

  // Removes and returns the best-ranked span that lies wholly inside `range`, if there is one. O(sqrt(n)) at
  // worst (two one-sided bounds on a k-d tree), mostly O(log n).
  std::optional<uint32_t> take_best_inside(Span range);

 private:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  // The spans that are left below a node; as it stands for none, so that the union with it changes nothing.
  struct Node {
    uint32_t best_rank = kNone;
    uint32_t min_begin = kNone;
    uint32_t max_begin = 0;
    uint32_t min_end = kNone;
    uint32_t max_end = 0;
  };

  static Node united(const Node& a, const Node& b);
  void build(size_t node, std::span<uint32_t> ranks, size_t width, bool by_begin,
             std::span<const Span> spans);
  void find_best(size_t node, Span range, uint32_t& best) const;

  std::vector<Node> nodes_;      // children of i are 2i and 2i + 1, the root is 1
  std::vector<size_t> leaf_of_;  // by rank
};

}  // namespace plimsoll::layout
