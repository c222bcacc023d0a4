#include "layout/skyline.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>
#include <span>
#include <utility>

#include "base/error.h"

namespace plimsoll::layout {
namespace {

// Points of the live profile, end exclusive; never empty.
struct Span {
  size_t begin = 0;
  size_t end = 0;
};

// Heights over points, with the maximum over a span and the assignment of a span in O(log n). An assigned
// height is never below what the span holds, so maxima only rise and nothing has to be pushed down the tree:
// a node keeps the largest height below it and the largest height assigned to the whole of it.
class HeightTree {
 public:
  explicit HeightTree(size_t points)
      : width_(std::bit_ceil(std::max<size_t>(points, 1))), highest_(2 * width_), assigned_(2 * width_) {}

  [[nodiscard]] int64_t highest(Span span) const {
    int64_t height = 0;
    for_each_cover(span, [&](size_t node) { height = std::max(height, highest_[node]); });
    // Heights assigned to nodes above the cover; each of those holds the first or the last point of the span.
    for (size_t node = (width_ + span.begin) / 2; node > 0; node /= 2)
      height = std::max(height, assigned_[node]);
    for (size_t node = (width_ + span.end - 1) / 2; node > 0; node /= 2)
      height = std::max(height, assigned_[node]);
    return height;
  }

  // `height` must be at least highest(span).
  void assign(Span span, int64_t height) {
    for_each_cover(span, [&](size_t node) { highest_[node] = assigned_[node] = height; });
    for (size_t node = (width_ + span.begin) / 2; node > 0; node /= 2) raise(node, height);
    for (size_t node = (width_ + span.end - 1) / 2; node > 0; node /= 2) raise(node, height);
  }

 private:
  // The O(log n) nodes whose leaves together are the span. Leaf i is node width_ + i, the root is node 1.
  template <typename Visit>
  void for_each_cover(Span span, Visit visit) const {
    size_t left = width_ + span.begin;
    size_t right = width_ + span.end;
    for (; left < right; left /= 2, right /= 2) {
      if (left % 2 == 1) visit(left++);
      if (right % 2 == 1) visit(--right);
    }
  }
  void raise(size_t node, int64_t height) { highest_[node] = std::max(highest_[node], height); }

  size_t width_;
  std::vector<int64_t> highest_;
  std::vector<int64_t> assigned_;
};

// What all tie-breaks share, computed once per problem.
struct Instance {
  size_t num_points = 0;
  int64_t lower_bound = 0;
  std::vector<Span> spans;       // by buffer
  std::vector<int64_t> bytes;    // by buffer, aligned
  std::vector<int64_t> profile;  // by buffer: the most bytes alive at one op of its lifetime
};

// Instance::profile. Every point is assigned once, onto 0, so their order is free.
std::vector<int64_t> profile_maxima(const LiveProfile& profile, std::span<const Span> spans) {
  HeightTree tree(profile.ops.size());
  for (size_t i = 0; i < profile.ops.size(); ++i) tree.assign({i, i + 1}, profile.live_bytes[i]);
  std::vector<int64_t> maxima;
  maxima.reserve(spans.size());
  for (const Span& span : spans) maxima.push_back(tree.highest(span));
  return maxima;
}

Instance make_instance(const Problem& problem) {
  check_problem(problem);
  const LiveProfile profile = live_profile(problem);
  const std::vector<int32_t>& ops = profile.ops;
  Instance instance;
  instance.num_points = ops.size();
  if (!ops.empty()) instance.lower_bound = std::ranges::max(profile.live_bytes);
  for (const Buffer& b : problem.buffers) {
    instance.spans.push_back({static_cast<size_t>(std::ranges::lower_bound(ops, b.first) - ops.begin()),
                              static_cast<size_t>(std::ranges::upper_bound(ops, b.last) - ops.begin())});
    instance.bytes.push_back(aligned_bytes(problem, b));
  }
  instance.profile = profile_maxima(profile, instance.spans);
  return instance;
}

// Buffers in the order of their rank. Lifetimes count points of the profile, not ops: op indices that come
// from outside may be time stamps. Areas are doubles as 63 bits may not hold them, and a rank needs no exact
// number.
std::vector<int32_t> ranking(const Instance& instance, TieBreak tie_break) {
  const auto key = [&](int32_t buffer) -> std::pair<int64_t, double> {
    const auto b = static_cast<size_t>(buffer);
    const auto lifetime = static_cast<double>(instance.spans[b].end - instance.spans[b].begin);
    const auto bytes = static_cast<double>(instance.bytes[b]);
    switch (tie_break) {
      case TieBreak::profile_area:
        return {instance.profile[b], bytes * lifetime};
      case TieBreak::area:
        return {0, bytes * lifetime};
      case TieBreak::profile_lifetime:
        return {instance.profile[b], lifetime};
      case TieBreak::lifetime:
        return {0, lifetime};
      case TieBreak::bytes:
        return {0, bytes};
    }
    throw InternalError("layout: unknown tie-break");
  };
  std::vector<std::pair<int64_t, double>> keys;
  std::vector<int32_t> order(instance.spans.size());
  std::iota(order.begin(), order.end(), 0);
  for (const int32_t buffer : order) keys.push_back(key(buffer));
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](int32_t buffer) { return keys[static_cast<size_t>(buffer)]; });
  return order;
}

// One pass over all buffers; nothing once the top reaches `give_up_at`, as it can only grow.
std::optional<Placement> attempt(const Instance& instance, TieBreak tie_break, int64_t give_up_at) {
  const std::vector<int32_t> order = ranking(instance, tie_break);
  // (lowest offset known so far, rank): floors only rise, so an entry is never too high, and one that is too
  // low goes back with its present floor.
  using Entry = std::pair<int64_t, size_t>;
  std::vector<Entry> entries;
  entries.reserve(order.size());
  for (size_t rank = 0; rank < order.size(); ++rank) entries.emplace_back(0, rank);
  std::priority_queue queue(std::greater<>(), std::move(entries));

  HeightTree skyline(instance.num_points);
  Placement placement;
  placement.offsets.resize(order.size());
  placement.lower_bound = instance.lower_bound;
  placement.tie_break = to_string(tie_break);
  while (!queue.empty()) {
    const auto [known_floor, rank] = queue.top();
    queue.pop();
    const auto buffer = static_cast<size_t>(order[rank]);
    const int64_t floor = skyline.highest(instance.spans[buffer]);
    if (floor > known_floor) {
      queue.emplace(floor, rank);
      continue;
    }
    const int64_t end = floor + instance.bytes[buffer];
    if (end >= give_up_at) return std::nullopt;
    skyline.assign(instance.spans[buffer], end);
    placement.offsets[buffer] = floor;
    placement.top = std::max(placement.top, end);
  }
  return placement;
}

constexpr int64_t kNeverGiveUp = std::numeric_limits<int64_t>::max();

}  // namespace

std::string_view to_string(TieBreak tie_break) {
  switch (tie_break) {
    case TieBreak::profile_area:
      return "profile,bytes*lifetime";
    case TieBreak::area:
      return "bytes*lifetime";
    case TieBreak::profile_lifetime:
      return "profile,lifetime";
    case TieBreak::lifetime:
      return "lifetime";
    case TieBreak::bytes:
      return "bytes";
  }
  throw InternalError("layout: unknown tie-break");
}

Placement place(const Problem& problem, TieBreak tie_break) {
  return attempt(make_instance(problem), tie_break, kNeverGiveUp).value();
}

Placement solve(const Problem& problem) {
  const Instance instance = make_instance(problem);
  Placement best = attempt(instance, kTieBreaks.front(), kNeverGiveUp).value();
  for (const TieBreak tie_break : std::span(kTieBreaks).subspan(1)) {
    if (best.top == instance.lower_bound) break;
    if (std::optional<Placement> better = attempt(instance, tie_break, best.top)) best = *std::move(better);
  }
  return best;
}

}  // namespace plimsoll::layout
