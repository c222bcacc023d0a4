#include "layout/skyline.h"

#include <limits>
#include <optional>
#include <queue>
#include <span>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "layout/first_fit.h"
#include "layout/instance.h"
#include "layout/period.h"
#include "layout/ranked_spans.h"

namespace plimsoll::layout {
namespace {

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
  return by_keys(instance, key);
}

// The tops of what has been put down: flat segments from left to right.
class Skyline {
 public:
  struct Valley {
    int64_t height = 0;
    Span span;
  };

  explicit Skyline(uint32_t num_points)
      : num_points_(num_points), height_(num_points), end_(num_points), begin_(num_points) {
    if (num_points > 0) set({0, {0, num_points}});
  }

  // The lowest segment, the leftmost of several, joined with neighbours of its height: both sides of it are
  // higher. The caller puts it back changed, by raise() or cover().
  Valley take_lowest() {
    for (;;) {
      Valley valley = lowest_.top();
      lowest_.pop();
      if (!is_current(valley)) continue;
      Span& span = valley.span;
      while (span.begin > 0 && height_before(span) == valley.height) {
        end_[span.begin] = kSwallowed;
        span.begin = begin_[span.begin - 1];
      }
      while (span.end < num_points_ && height_[span.end] == valley.height) {
        span.end = std::exchange(end_[span.end], kSwallowed);
      }
      return valley;
    }
  }

  // Fills a valley, into which no box fits, up to its lower side.
  void raise(Valley valley) {
    constexpr int64_t kNoSide = std::numeric_limits<int64_t>::max();
    const int64_t left = valley.span.begin > 0 ? height_before(valley.span) : kNoSide;
    const int64_t right = valley.span.end < num_points_ ? height_[valley.span.end] : kNoSide;
    check_internal(std::min(left, right) != kNoSide, "layout: a buffer fits nowhere");
    set({std::min(left, right), valley.span});
  }

  // Puts a box that ends at `top` on part of a valley.
  void cover(const Valley& valley, Span box, int64_t top) {
    if (valley.span.begin < box.begin) set({valley.height, {valley.span.begin, box.begin}});
    set({top, box});
    if (box.end < valley.span.end) set({valley.height, {box.end, valley.span.end}});
  }

 private:
  struct Higher {
    bool operator()(const Valley& a, const Valley& b) const {
      return std::tie(a.height, a.span.begin) > std::tie(b.height, b.span.begin);
    }
  };

  void set(const Valley& segment) {
    height_[segment.span.begin] = segment.height;
    end_[segment.span.begin] = segment.span.end;
    begin_[segment.span.end - 1] = segment.span.begin;
    lowest_.push(segment);
  }
  // A segment of the queue still stands: nothing was put on it and no neighbour has swallowed it.
  [[nodiscard]] bool is_current(const Valley& segment) const {
    return end_[segment.span.begin] == segment.span.end && height_[segment.span.begin] == segment.height;
  }
  [[nodiscard]] int64_t height_before(Span span) const { return height_[begin_[span.begin - 1]]; }

  static constexpr uint32_t kSwallowed = 0;  // no segment ends there

  uint32_t num_points_;
  std::vector<int64_t> height_;  // by first point of a segment; entries of other points are out of date
  std::vector<uint32_t> end_;    // by first point of a segment; those of swallowed segments are kSwallowed
  std::vector<uint32_t> begin_;  // by last point of a segment
  std::priority_queue<Valley, std::vector<Valley>, Higher> lowest_;
};

// One pass over all buffers; nothing once the top reaches `give_up_at`, as it can only grow.
std::optional<Placement> attempt(const Instance& instance, std::span<const int32_t> order,
                                 std::string_view tie_break, int64_t give_up_at) {
  std::vector<Span> ranked;
  ranked.reserve(order.size());
  for (const int32_t buffer : order) ranked.push_back(instance.spans[static_cast<size_t>(buffer)]);
  RankedSpans waiting(ranked);

  Skyline skyline(instance.num_points);
  Placement placement;
  placement.offsets.resize(order.size());
  placement.lower_bound = instance.lower_bound;
  placement.tie_break = tie_break;
  for (size_t num_placed = 0; num_placed < order.size();) {
    const Skyline::Valley valley = skyline.take_lowest();
    const std::optional<uint32_t> rank = waiting.take_best_inside(valley.span);
    if (!rank) {
      skyline.raise(valley);
      continue;
    }
    const auto buffer = static_cast<size_t>(order[*rank]);
    const int64_t end = valley.height + instance.bytes[buffer];
    if (end >= give_up_at) return std::nullopt;
    skyline.cover(valley, ranked[*rank], end);
    placement.offsets[buffer] = valley.height;
    placement.top = std::max(placement.top, end);
    ++num_placed;
  }
  return placement;
}

constexpr int64_t kNeverGiveUp = std::numeric_limits<int64_t>::max();

std::optional<Placement> attempt(const Instance& instance, TieBreak tie_break, int64_t give_up_at) {
  return attempt(instance, ranking(instance, tie_break), to_string(tie_break), give_up_at);
}

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
    if (best.top <= std::max(instance.lower_bound, instance.enough)) break;
    if (std::optional<Placement> better = attempt(instance, tie_break, best.top)) best = *std::move(better);
  }
  improve_by_first_fit(instance, best);
  if (best.top <= good_enough(instance)) return best;
  best.gave_up = best.top > instance.most && instance.most < near_enough(instance);
  if (best.gave_up) return best;
  const std::optional<Pairs> pairs = pairs_of(instance);
  if (!pairs) return best;
  improve_by_period(instance, Neighbours(*pairs, instance.spans.size()), best);
  return best;
}

}  // namespace plimsoll::layout
