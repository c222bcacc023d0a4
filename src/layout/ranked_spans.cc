#include "layout/ranked_spans.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace plimsoll::layout {

RankedSpans::RankedSpans(std::span<const Span> spans) : leaf_of_(spans.size()) {
  const size_t width = std::bit_ceil(std::max<size_t>(spans.size(), 1));
  nodes_.resize(2 * width);
  std::vector<uint32_t> ranks(spans.size());
  std::iota(ranks.begin(), ranks.end(), 0U);
  build(1, ranks, width, true, spans);
}

RankedSpans::Node RankedSpans::united(const Node& a, const Node& b) {
  return {std::min(a.best_rank, b.best_rank), std::min(a.min_begin, b.min_begin),
          std::max(a.max_begin, b.max_begin), std::min(a.min_end, b.min_end), std::max(a.max_end, b.max_end)};
}

// `width`, a power of two, is the number of leaves below the node; the first ranks.size() of them are used.
void RankedSpans::build(size_t node, std::span<uint32_t> ranks, size_t width, bool by_begin,
                        std::span<const Span> spans) {
  if (ranks.empty()) return;
  if (width == 1) {
    const uint32_t rank = ranks.front();
    const Span span = spans[rank];
    nodes_[node] = {rank, span.begin, span.begin, span.end, span.end};
    leaf_of_[rank] = node;
    return;
  }
  const size_t half = std::min(width / 2, ranks.size());
  const auto middle = ranks.begin() + static_cast<std::ptrdiff_t>(half);
  std::ranges::nth_element(ranks, middle, {},
                           [&](uint32_t rank) { return by_begin ? spans[rank].begin : spans[rank].end; });
  build(2 * node, ranks.first(half), width / 2, !by_begin, spans);
  build(2 * node + 1, ranks.subspan(half), width / 2, !by_begin, spans);
  nodes_[node] = united(nodes_[2 * node], nodes_[2 * node + 1]);
}

void RankedSpans::find_best(size_t node, Span range, uint32_t& best) const {
  const Node& n = nodes_[node];
  if (n.best_rank >= best || n.max_begin < range.begin || n.min_end > range.end) return;
  if (n.min_begin >= range.begin && n.max_end <= range.end) {
    best = n.best_rank;
    return;
  }
  // A leaf is inside or outside, so this node has children; the more promising one first, to cut off the
  // other.
  const size_t better = nodes_[2 * node].best_rank < nodes_[2 * node + 1].best_rank ? 2 * node : 2 * node + 1;
  find_best(better, range, best);
  find_best(better ^ 1, range, best);
}

std::optional<uint32_t> RankedSpans::take_best_inside(Span range) {
  uint32_t best = kNone;
  find_best(1, range, best);
  if (best == kNone) return std::nullopt;
  size_t node = leaf_of_[best];
  nodes_[node] = {};
  while ((node /= 2) > 0) nodes_[node] = united(nodes_[2 * node], nodes_[2 * node + 1]);
  return best;
}

}  // namespace plimsoll::layout
