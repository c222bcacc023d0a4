#include "layout/outward.h"

#include <array>
#include <bit>
#include <cmath>
#include <span>
#include <tuple>
#include <utility>

#include "base/units.h"

namespace plimsoll::layout {
namespace {

// Comparisons of one buffer with another: some tenths of a second.
constexpr double kWork = 2e8;
// Without success so long, a height is given up for a larger one.
constexpr double kWorkOfHeight = kWork / 8;
// Pairs that are alive together: beyond them (models of hundreds of layers) nothing is tried.
constexpr int64_t kMostPairs = 3'000'000;
constexpr size_t kLanes = 4;       // orders that are changed, the best of those that it begins with
constexpr int kChangesInARow = 8;  // of one of them
constexpr int64_t kQuarters = 3;   // of what is left above the bound: the next height
constexpr double kSortWork = 8;    // of one neighbour, in comparisons

// A linear congruential generator (Knuth's MMIX): the same everywhere.
class Draws {
 public:
  // Below `count`.
  size_t next(size_t count) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<size_t>((state_ >> 33U) % count);
  }
  // From 0 to `most`, evenly by the logarithm: small ones as often as large ones.
  size_t near(size_t most) {
    const size_t below = size_t{1} << next(static_cast<size_t>(std::bit_width(most)) + 1);
    return std::min(next(below), most);
  }

 private:
  uint64_t state_ = 1;
};

// By buffer: those that are alive with it at some point.
class Neighbours {
 public:
  explicit Neighbours(const Instance& instance) {
    std::vector<int32_t> by_begin(instance.spans.size());
    std::iota(by_begin.begin(), by_begin.end(), 0);
    const auto span = [&](int32_t buffer) { return instance.spans[static_cast<size_t>(buffer)]; };
    std::ranges::stable_sort(by_begin, {}, [&](int32_t buffer) { return span(buffer).begin; });
    std::vector<std::pair<int32_t, int32_t>> pairs;
    std::vector<int32_t> alive;
    for (const int32_t buffer : by_begin) {
      std::erase_if(alive, [&](int32_t other) { return span(other).end <= span(buffer).begin; });
      if (static_cast<int64_t>(pairs.size() + alive.size()) > kMostPairs) return;
      for (const int32_t other : alive) pairs.emplace_back(buffer, other);
      alive.push_back(buffer);
    }
    first_.resize(instance.spans.size() + 1);
    for (const auto& [a, b] : pairs)
      for (const int32_t buffer : {a, b}) ++first_[static_cast<size_t>(buffer) + 1];
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    all_.resize(2 * pairs.size());
    std::vector<size_t> at(first_.begin(), first_.end() - 1);
    for (const auto& [a, b] : pairs) {
      all_[at[static_cast<size_t>(a)]++] = b;
      all_[at[static_cast<size_t>(b)]++] = a;
    }
  }
  // Too many of them were not counted.
  [[nodiscard]] bool known() const { return !first_.empty(); }
  [[nodiscard]] std::span<const int32_t> of(int32_t buffer) const {
    const auto b = static_cast<size_t>(buffer);
    return std::span(all_).subspan(first_[b], first_[b + 1] - first_[b]);
  }

 private:
  std::vector<size_t> first_;
  std::vector<int32_t> all_;
};

// How buffers are ordered: by their distance from the points where at least `share` of the bound is alive.
struct Outward {
  double share = 1;
  bool by_last = false;      // the stack: by last op, the latest lowest; otherwise by first op
  bool large_first = false;  // of about the same distance
  bool from_above = false;   // what ends before the peak is placed as high as it goes
};
constexpr std::array kOutward = {Outward{0.999, false, false, false}, Outward{0.999, false, true, false},
                                 Outward{0.999, true, false, false},  Outward{0.999, true, true, false},
                                 Outward{0.999, false, false, true},  Outward{0.97, false, false, false},
                                 Outward{0.97, false, true, false},   Outward{0.97, true, true, false},
                                 Outward{0.9, false, false, false},   Outward{0.9, false, true, false},
                                 Outward{0.9, true, true, false},     Outward{0.97, true, false, true}};

// Points from a span to the nearest of `hot`: 0 inside, below 0 where the span ends before it.
int64_t distance(Span span, std::span<const uint32_t> hot) {
  const auto next = std::ranges::lower_bound(hot, span.begin);
  if (next != hot.end() && *next < span.end) return 0;
  constexpr int64_t kFar = int64_t{1} << 40;
  const int64_t before = next != hot.end() ? int64_t{*next} - span.end + 1 : kFar;
  const int64_t behind = next != hot.begin() ? int64_t{span.begin} - *std::prev(next) : kFar;
  return before < behind ? -before : behind;
}

// A buffer in an order. One piece of memory, since all that it meets are looked at for each buffer placed.
struct Place {
  int64_t offset = 0, end = 0;  // of those before Lane::placed in the order
  uint32_t rank = 0;
  uint32_t met = 0;  // of those that are alive with it: how many come before it in the order
  bool from_above = false;
};

// An order, how far it gets, and the offsets until there.
struct Lane {
  std::vector<int32_t> order;
  std::vector<Place> places;  // by buffer
  size_t placed = 0;
  Place& of(int32_t buffer) { return places[static_cast<size_t>(buffer)]; }
  [[nodiscard]] const Place& of(int32_t buffer) const { return places[static_cast<size_t>(buffer)]; }
};

Lane lane_of(const Instance& instance, const Outward& how) {
  std::vector<uint32_t> hot;
  for (uint32_t point = 0; point < instance.num_points; ++point)
    if (static_cast<double>(instance.live[point]) >= how.share * static_cast<double>(instance.lower_bound))
      hot.push_back(point);
  Lane lane;
  for (const Span& span : instance.spans)
    lane.places.push_back({.from_above = how.from_above && distance(span, hot) < 0});
  lane.order = by_keys(instance, [&](int32_t buffer) -> std::tuple<int64_t, int64_t, int64_t> {
    const Span span = instance.spans[static_cast<size_t>(buffer)];
    const int64_t away = distance(span, hot);
    const int64_t begin = -int64_t{span.begin};
    if (away == 0) return {0, 0, how.by_last ? int64_t{span.end} : begin};
    const int64_t in_time = away < 0 ? int64_t{span.end} : begin;
    if (!how.large_first) return {-std::abs(away), 0, in_time};
    const auto doublings = static_cast<int64_t>(std::log2(std::abs(away)));
    return {-1 - doublings, instance.bytes[static_cast<size_t>(buffer)], in_time};
  });
  for (size_t i = 0; i < lane.order.size(); ++i) lane.of(lane.order[i]).rank = static_cast<uint32_t>(i);
  return lane;
}

// Takes what is at `from` of the order to `to`, which is not behind it.
void move_forward(Lane& lane, size_t from, size_t to) {
  const auto at = [&](size_t rank) { return lane.order.begin() + static_cast<std::ptrdiff_t>(rank); };
  std::rotate(at(to), at(from), at(from + 1));
  for (size_t i = to; i <= from; ++i) lane.of(lane.order[i]).rank = static_cast<uint32_t>(i);
}

class Climb {
 public:
  Climb(const Instance& instance, const Neighbours& neighbours)
      : instance_(instance), near_(neighbours), marks_(instance.spans.size()) {}

  // Places the lane's order from the beginning, until a buffer finds no room below `height`.
  void place(Lane& lane, int64_t height) { place(lane, 0, 0, height); }

  // Changes the order before the first buffer without room, and keeps what gets as far.
  void change(Lane& lane, int64_t height) {
    const size_t stuck = lane.placed;
    size_t begin = 0;
    size_t known = stuck;  // places from `begin` to here that buffers had before
    forget_marks();
    if (const size_t kind = draws_.next(3); kind == 0) {
      begin = stuck - draws_.near(stuck);
      known = stuck + 1;
      remember(lane, begin, stuck + 1);
      mark(lane.order[stuck]);
      move_forward(lane, stuck, begin);
    } else if (kind == 1 && stuck > 0) {
      const size_t a = stuck - 1 - draws_.near(stuck - 1);
      const size_t b = stuck - 1 - draws_.near(stuck - 1);
      begin = std::min(a, b);
      remember(lane, begin, stuck + 1);
      for (const size_t i : {a, b}) mark(lane.order[i]);
      std::swap(lane.order[a], lane.order[b]);
      for (const size_t i : {a, b}) lane.of(lane.order[i]).rank = static_cast<uint32_t>(i);
    } else {  // one that it meets goes earlier
      const std::span<const int32_t> met = near_.of(lane.order[stuck]);
      if (met.empty()) return;
      const size_t from = lane.of(met[draws_.next(met.size())]).rank;
      begin = std::min(from, stuck - draws_.near(stuck));
      if (from > stuck) known = stuck + 1;
      remember(lane, begin, std::max(stuck, from) + 1);
      mark(lane.order[from]);
      move_forward(lane, from, begin);
    }
    work_ += static_cast<double>(lane.order.size());
    place(lane, begin, known, height);
    if (lane.placed < stuck) restore(lane, begin, stuck);
  }

  [[nodiscard]] double work() const { return work_; }

 private:
  // Places from `begin` on. Up to `known` a buffer that is not marked stays where it is: it meets the same
  // ones before it in the order, and they are where they were.
  void place(Lane& lane, size_t begin, size_t known, int64_t height) {
    for (lane.placed = begin; lane.placed < lane.order.size(); ++lane.placed) {
      const int32_t buffer = lane.order[lane.placed];
      Place& place = lane.of(buffer);
      const bool stays = lane.placed < known && marks_[static_cast<size_t>(buffer)] != mark_;
      const int64_t offset = stays ? place.offset : offset_of(lane, buffer, height);
      work_ += static_cast<double>(near_.of(buffer).size()) + kSortWork * static_cast<double>(place.met);
      if (offset < 0) return;
      if (stays) continue;
      if (lane.placed < known && offset != place.offset) mark(buffer);
      place.offset = offset;
      place.end = offset + instance_.bytes[static_cast<size_t>(buffer)];
    }
  }

  void forget_marks() { ++mark_; }
  // A buffer whose place changes, and all that meet it.
  void mark(int32_t buffer) {
    marks_[static_cast<size_t>(buffer)] = mark_;
    for (const int32_t other : near_.of(buffer)) marks_[static_cast<size_t>(other)] = mark_;
  }

  void remember(const Lane& lane, size_t begin, size_t end) {
    old_order_.assign(lane.order.begin() + static_cast<std::ptrdiff_t>(begin),
                      lane.order.begin() + static_cast<std::ptrdiff_t>(end));
    old_places_.clear();
    for (const int32_t buffer : old_order_) old_places_.push_back(lane.of(buffer));
  }
  void restore(Lane& lane, size_t begin, size_t placed) {
    std::ranges::copy(old_order_, lane.order.begin() + static_cast<std::ptrdiff_t>(begin));
    for (size_t i = 0; i < old_order_.size(); ++i) lane.of(old_order_[i]) = old_places_[i];
    lane.placed = placed;
  }

  // The lowest or highest room below `height` among what is placed and alive with it; -1: there is none.
  int64_t offset_of(Lane& lane, int32_t buffer, int64_t height) {
    const int64_t bytes = instance_.bytes[static_cast<size_t>(buffer)];
    const uint32_t rank = lane.of(buffer).rank;
    const bool from_above = lane.of(buffer).from_above;
    taken_.clear();
    for (const int32_t other : near_.of(buffer)) {
      const Place& place = lane.of(other);
      if (place.rank < rank) taken_.emplace_back(place.offset, place.end);
    }
    std::ranges::sort(taken_, {}, &std::pair<int64_t, int64_t>::first);
    lane.of(buffer).met = static_cast<uint32_t>(taken_.size());
    int64_t found = -1;
    int64_t end = 0;
    for (const auto& [low, high] : taken_) {
      if (low - end >= bytes) found = from_above ? low - bytes : end;
      if (found >= 0 && !from_above) return found;
      end = std::max(end, high);
    }
    if (height - end >= bytes) found = from_above ? height - bytes : end;
    return found;
  }

  const Instance& instance_;
  const Neighbours& near_;
  std::vector<uint32_t> marks_;  // by buffer: those of the latest change are mark_
  uint32_t mark_ = 0;
  Draws draws_;
  std::vector<int32_t> old_order_;  // before the latest change, and their places
  std::vector<Place> old_places_;
  std::vector<std::pair<int64_t, int64_t>> taken_;
  double work_ = 0;
};

Placement placement_of(const Instance& instance, const Lane& lane) {
  Placement placement{{}, 0, instance.lower_bound, "outward from the peak"};
  for (const Place& place : lane.places) {
    placement.offsets.push_back(place.offset);
    placement.top = std::max(placement.top, place.end);
  }
  return placement;
}

// The height to be tried after one that was reached.
int64_t next_height(const Instance& instance, int64_t top, int64_t alignment) {
  const int64_t above = (top - instance.lower_bound) * kQuarters / 4;
  return std::max(good_enough(instance), instance.lower_bound + above) / alignment * alignment;
}

}  // namespace

void improve_outward(const Instance& instance, Placement& best) {
  const int64_t enough = good_enough(instance);
  if (best.top <= enough) return;
  const Neighbours neighbours(instance);
  if (!neighbours.known()) return;
  Climb climb(instance, neighbours);
  int64_t height = next_height(instance, best.top, instance.alignment);
  std::vector<Lane> lanes;
  for (const Outward& how : kOutward) {
    lanes.push_back(lane_of(instance, how));
    climb.place(lanes.back(), height);
  }
  std::ranges::stable_sort(lanes, std::greater<>(), &Lane::placed);
  lanes.resize(kLanes);
  double since = climb.work();
  for (size_t turn = 0; best.top > enough && climb.work() < kWork; ++turn) {
    Lane& lane = lanes[turn % kLanes];
    for (int i = 0; i < kChangesInARow && lane.placed < lane.order.size(); ++i) climb.change(lane, height);
    const bool reached = lane.placed == lane.order.size();
    if (!reached && climb.work() - since < kWorkOfHeight) continue;
    if (reached) best = placement_of(instance, lane);
    height = reached ? next_height(instance, best.top, instance.alignment)
                     : round_up(height + (best.top - height) / 2, instance.alignment);
    if (!reached && height >= best.top) return;
    for (Lane& each : lanes) climb.place(each, height);
    since = climb.work();
  }
}

}  // namespace plimsoll::layout
