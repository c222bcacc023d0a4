#include "layout/skyline.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>
#include <span>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "layout/ranked_spans.h"

namespace plimsoll::layout {
namespace {

// What all tie-breaks share, computed once per problem.
struct Instance {
  uint32_t num_points = 0;
  int64_t lower_bound = 0;
  std::vector<Span> spans;       // by buffer, in points of the live profile; never empty
  std::vector<int64_t> bytes;    // by buffer, aligned
  std::vector<int64_t> profile;  // by buffer: the most bytes alive at one op of its lifetime
  std::vector<int64_t> ops;      // by buffer: from its first to its last
};

// Instance::profile, by a segment tree: leaf i is node width + i, the root is node 1.
std::vector<int64_t> profile_maxima(const LiveProfile& profile, std::span<const Span> spans) {
  const size_t width = std::bit_ceil(std::max<size_t>(profile.ops.size(), 1));
  std::vector<int64_t> highest(2 * width);
  std::ranges::copy(profile.live_bytes, highest.begin() + static_cast<std::ptrdiff_t>(width));
  for (size_t node = width - 1; node > 0; --node) {
    highest[node] = std::max(highest[2 * node], highest[2 * node + 1]);
  }
  std::vector<int64_t> maxima;
  maxima.reserve(spans.size());
  for (const Span& span : spans) {
    int64_t height = 0;
    for (size_t left = width + span.begin, right = width + span.end; left < right; left /= 2, right /= 2) {
      if (left % 2 == 1) height = std::max(height, highest[left++]);
      if (right % 2 == 1) height = std::max(height, highest[--right]);
    }
    maxima.push_back(height);
  }
  return maxima;
}

Instance make_instance(const Problem& problem) {
  check_problem(problem);
  const LiveProfile profile = live_profile(problem);
  const std::vector<int32_t>& ops = profile.ops;
  Instance instance;
  instance.num_points = static_cast<uint32_t>(ops.size());
  if (!ops.empty()) instance.lower_bound = std::ranges::max(profile.live_bytes);
  for (const Buffer& b : problem.buffers) {
    instance.spans.push_back({static_cast<uint32_t>(std::ranges::lower_bound(ops, b.first) - ops.begin()),
                              static_cast<uint32_t>(std::ranges::upper_bound(ops, b.last) - ops.begin())});
    instance.bytes.push_back(aligned_bytes(problem, b));
    instance.ops.push_back(int64_t{b.last} - b.first);
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
  // higher. Whoever takes it puts it back changed, by raise() or cover().
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
  // Whether a segment of the queue still stands: nothing was put on it and no neighbour has swallowed it.
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

// What first fit stops for: a five-hundredth of the bound is not worth its time.
constexpr int64_t kSmallLoss = 500;
// Comparisons of one buffer with another by all its rounds: some tenths of a second.
constexpr double kFirstFitWork = 1.2e8;

// Orders that first fit begins with. Programs that move tensors have chains of copies whose lives overlap by
// one; by size and time these alternate between the same places, with room for the next size between them.
enum class FitOrder : uint8_t { profile_area, profile_bytes, bytes_end, bytes_begin, bytes_lifetime, area };
constexpr std::array kFitOrders = {FitOrder::profile_area, FitOrder::profile_bytes,  FitOrder::bytes_end,
                                   FitOrder::bytes_begin,  FitOrder::bytes_lifetime, FitOrder::area};

std::vector<int32_t> ranking(const Instance& instance, FitOrder fit_order) {
  const auto key = [&](int32_t buffer) -> std::pair<double, double> {
    const auto b = static_cast<size_t>(buffer);
    const Span span = instance.spans[b];
    const auto bytes = static_cast<double>(instance.bytes[b]);
    const auto profile = static_cast<double>(instance.profile[b]);
    const auto lifetime = static_cast<double>(instance.ops[b]);
    switch (fit_order) {
      case FitOrder::profile_area:
        return {profile, bytes * lifetime};
      case FitOrder::profile_bytes:
        return {profile, bytes};
      case FitOrder::bytes_end:
        return {bytes, static_cast<double>(span.end)};
      case FitOrder::bytes_begin:
        return {bytes, -static_cast<double>(span.begin)};
      case FitOrder::bytes_lifetime:
        return {bytes, lifetime};
      case FitOrder::area:
        return {bytes * lifetime, 0};
    }
    throw InternalError("layout: unknown order");
  };
  std::vector<std::pair<double, double>> keys;
  std::vector<int32_t> order(instance.spans.size());
  std::iota(order.begin(), order.end(), 0);
  for (const int32_t buffer : order) keys.push_back(key(buffer));
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](int32_t buffer) { return keys[static_cast<size_t>(buffer)]; });
  return order;
}

// Each buffer at the lowest offset where nothing that is alive with it lies; gaps below others are used,
// which a skyline cannot. Adds the comparisons it made to `work`.
Placement first_fit(const Instance& instance, std::span<const int32_t> order, double& work) {
  struct Placed {
    int64_t offset, end;
    Span span;
  };
  std::vector<Placed> placed;  // by offset
  placed.reserve(order.size());
  Placement placement;
  placement.offsets.resize(order.size());
  placement.lower_bound = instance.lower_bound;
  placement.tie_break = "first fit";
  for (const int32_t buffer : order) {
    const auto b = static_cast<size_t>(buffer);
    const Span span = instance.spans[b];
    const int64_t bytes = instance.bytes[b];
    int64_t offset = 0;
    size_t seen = 0;
    for (; seen < placed.size(); ++seen) {
      const Placed& other = placed[seen];
      if (other.span.end <= span.begin || span.end <= other.span.begin) continue;
      if (other.offset - offset >= bytes) break;
      offset = std::max(offset, other.end);
    }
    work += static_cast<double>(seen + 1);
    const auto place = std::ranges::upper_bound(placed, offset, {}, &Placed::offset);
    placed.insert(place, {offset, offset + bytes, span});
    placement.offsets[b] = offset;
    placement.top = std::max(placement.top, offset + bytes);
  }
  return placement;
}

// What stuck out above the lower bound goes earlier the next time ("squeaky wheel" optimisation: Joslin and
// Clements, JAIR 1999): at once to the front, or half the way.
void promote_what_sticks_out(const Instance& instance, const Placement& placement, bool at_once,
                             std::vector<int32_t>& order) {
  const auto sticks_out = [&](int32_t buffer) {
    const auto b = static_cast<size_t>(buffer);
    return placement.offsets[b] + instance.bytes[b] > instance.lower_bound;
  };
  if (at_once) {
    std::ranges::stable_partition(order, sticks_out);
    return;
  }
  std::vector<size_t> rank(order.size());  // of a buffer, doubled, so that halves stay apart
  for (size_t i = 0; i < order.size(); ++i)
    rank[static_cast<size_t>(order[i])] = sticks_out(order[i]) ? i : 2 * i + 1;
  std::ranges::stable_sort(order, {}, [&](int32_t buffer) { return rank[static_cast<size_t>(buffer)]; });
}

// First fit in rounds until a placement is good enough or the work is done. No clock: equal problems have
// equal answers.
void improve_by_first_fit(const Instance& instance, Placement& best) {
  const int64_t enough = instance.lower_bound + instance.lower_bound / kSmallLoss;
  constexpr int kMostRounds = 50;
  // Models of a thousand layers: a single round would take longer than all of the others' together.
  constexpr size_t kMostBuffers = 60'000;
  if (instance.spans.size() > kMostBuffers) return;
  std::array<std::vector<int32_t>, 2 * kFitOrders.size()> orders;
  double work = 0;
  for (int round = 0; round < kMostRounds; ++round) {
    for (size_t lane = 0; lane < orders.size(); ++lane) {
      const bool at_once = lane < kFitOrders.size();
      if (round == 0 && !at_once) break;
      if (best.top <= enough || work > kFirstFitWork) return;
      std::vector<int32_t>& order = orders[lane];
      if (round == 0) order = ranking(instance, kFitOrders[lane]);
      Placement placement = first_fit(instance, order, work);
      if (round == 0) {
        orders[lane + kFitOrders.size()] = order;
        promote_what_sticks_out(instance, placement, false, orders[lane + kFitOrders.size()]);
      }
      promote_what_sticks_out(instance, placement, at_once, order);
      if (placement.top < best.top) best = std::move(placement);
    }
  }
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
    if (best.top == instance.lower_bound) break;
    if (std::optional<Placement> better = attempt(instance, tie_break, best.top)) best = *std::move(better);
  }
  improve_by_first_fit(instance, best);
  return best;
}

}  // namespace plimsoll::layout
