#include "layout/climb.h"

#include <array>
#include <bit>

#include "base/units.h"

namespace plimsoll::layout {
namespace {

// Without success in this part of the work, a height is given up for a larger one.
constexpr double kPartOfHeight = 0.125;
// Pairs that are alive together: beyond them nothing is tried.
constexpr int64_t kMostPairs = 3'000'000;
constexpr size_t kLanes = 4;       // orders that are changed, the best of those that it begins with
constexpr int kChangesInARow = 8;  // of one of them
constexpr int64_t kQuarters = 3;   // of what is left above the bound: the next height
constexpr double kSortWork = 8;    // of one neighbour, in comparisons

// A linear congruential generator (Knuth's MMIX): the same everywhere.
class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed) {}
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
  uint64_t state_;
};

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
  size_t fixed = 0;  // so many of the first stay
  Place& of(int32_t buffer) { return places[static_cast<size_t>(buffer)]; }
  [[nodiscard]] const Place& of(int32_t buffer) const { return places[static_cast<size_t>(buffer)]; }
};

// Takes what is at `from` of the order to `to`, which is not behind it.
void move_forward(Lane& lane, size_t from, size_t to) {
  const auto at = [&](size_t rank) { return lane.order.begin() + static_cast<std::ptrdiff_t>(rank); };
  std::rotate(at(to), at(from), at(from + 1));
  for (size_t i = to; i <= from; ++i) lane.of(lane.order[i]).rank = static_cast<uint32_t>(i);
}

class Climb {
 public:
  Climb(const Instance& instance, const Neighbours& neighbours, uint64_t seed)
      : instance_(instance), near_(neighbours), marks_(instance.spans.size()), draws_(seed) {}

  Lane lane_of(const Order& order, const Placement& best) const {
    Lane lane;
    lane.order = order.buffers;
    lane.fixed = order.fixed;
    lane.places.resize(order.buffers.size());
    for (size_t i = 0; i < order.buffers.size(); ++i) {
      const auto buffer = static_cast<size_t>(order.buffers[i]);
      Place& place = lane.places[buffer];
      place.rank = static_cast<uint32_t>(i);
      if (!order.from_above.empty()) place.from_above = order.from_above[buffer] != 0;
      if (i >= order.fixed) continue;
      place.offset = best.offsets[buffer];
      place.end = place.offset + instance_.bytes[buffer];
    }
    return lane;
  }

  // Places the lane's order from the beginning, until a buffer finds no room below `height`.
  void place(Lane& lane, int64_t height) { place(lane, lane.fixed, lane.fixed, height); }

  // Changes the order before the first buffer without room, and keeps what gets as far.
  void change(Lane& lane, int64_t height) {
    const size_t stuck = lane.placed;
    work_ += static_cast<double>(lane.order.size());
    size_t begin = 0;
    size_t known = stuck;  // places from `begin` to here that buffers had before
    forget_marks();
    if (const size_t kind = draws_.next(3); kind == 0) {
      begin = stuck - draws_.near(stuck - lane.fixed);
      known = stuck + 1;
      remember(lane, begin, stuck + 1);
      mark(lane.order[stuck]);
      move_forward(lane, stuck, begin);
    } else if (kind == 1 && stuck > lane.fixed) {
      const size_t before = stuck - 1 - lane.fixed;
      const size_t a = stuck - 1 - draws_.near(before);
      const size_t b = stuck - 1 - draws_.near(before);
      begin = std::min(a, b);
      remember(lane, begin, stuck + 1);
      for (const size_t i : {a, b}) mark(lane.order[i]);
      std::swap(lane.order[a], lane.order[b]);
      for (const size_t i : {a, b}) lane.of(lane.order[i]).rank = static_cast<uint32_t>(i);
    } else {  // one that it meets goes earlier
      const std::span<const int32_t> met = near_.of(lane.order[stuck]);
      if (met.empty()) return;
      const size_t from = lane.of(met[draws_.next(met.size())]).rank;
      if (from < lane.fixed) return;
      begin = std::min(from, stuck - draws_.near(stuck - lane.fixed));
      if (from > stuck) known = stuck + 1;
      remember(lane, begin, std::max(stuck, from) + 1);
      mark(lane.order[from]);
      move_forward(lane, from, begin);
    }
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

Placement placement_of(const Instance& instance, const Lane& lane, std::string_view name) {
  Placement placement{{}, 0, instance.lower_bound, std::string(name)};
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

std::optional<Pairs> pairs_of(const Instance& instance) {
  std::vector<int32_t> by_begin(instance.spans.size());
  std::iota(by_begin.begin(), by_begin.end(), 0);
  const auto span = [&](int32_t buffer) { return instance.spans[static_cast<size_t>(buffer)]; };
  std::ranges::stable_sort(by_begin, {}, [&](int32_t buffer) { return span(buffer).begin; });
  Pairs pairs;
  std::vector<int32_t> alive;
  for (const int32_t buffer : by_begin) {
    std::erase_if(alive, [&](int32_t other) { return span(other).end <= span(buffer).begin; });
    if (static_cast<int64_t>(pairs.size() + alive.size()) > kMostPairs) return std::nullopt;
    for (const int32_t other : alive) pairs.emplace_back(buffer, other);
    alive.push_back(buffer);
  }
  return pairs;
}

Neighbours::Neighbours(const Pairs& pairs, size_t buffers) : first_(buffers + 1), all_(2 * pairs.size()) {
  for (const auto& [a, b] : pairs)
    for (const int32_t buffer : {a, b}) ++first_[static_cast<size_t>(buffer) + 1];
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  std::vector<size_t> at(first_.begin(), first_.end() - 1);
  for (const auto& [a, b] : pairs) {
    all_[at[static_cast<size_t>(a)]++] = b;
    all_[at[static_cast<size_t>(b)]++] = a;
  }
}

double improve_by_climbing(const Instance& instance, const Neighbours& neighbours,
                           const std::vector<Order>& orders, double most_work, uint64_t seed,
                           std::string_view name, Placement& best) {
  const int64_t enough = good_enough(instance);
  if (best.top <= enough || orders.empty()) return 0;
  Climb climb(instance, neighbours, seed);
  int64_t height = next_height(instance, best.top, instance.alignment);
  std::vector<Lane> lanes;
  for (const Order& order : orders) {
    lanes.push_back(climb.lane_of(order, best));
    climb.place(lanes.back(), height);
  }
  std::ranges::stable_sort(lanes, std::greater<>(), &Lane::placed);
  lanes.resize(std::min(lanes.size(), kLanes));
  double since = climb.work();
  for (size_t turn = 0; best.top > enough && climb.work() < most_work; ++turn) {
    Lane& lane = lanes[turn % lanes.size()];
    for (int i = 0; i < kChangesInARow && lane.placed < lane.order.size(); ++i) climb.change(lane, height);
    const bool reached = lane.placed == lane.order.size();
    if (!reached && climb.work() - since < kPartOfHeight * most_work) continue;
    if (reached) best = placement_of(instance, lane, name);
    height = reached ? next_height(instance, best.top, instance.alignment)
                     : round_up(height + (best.top - height) / 2, instance.alignment);
    if (!reached && height >= best.top) break;
    for (Lane& each : lanes) climb.place(each, height);
    since = climb.work();
  }
  return climb.work();
}

}  // namespace plimsoll::layout
