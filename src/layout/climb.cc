#include "layout/climb.h"

#include <array>
#include <bit>
#include <limits>

#include "base/units.h"

namespace plimsoll::layout {
namespace {

// Without success in this part of the work, a height is given up for a larger one.
constexpr double kPartOfHeight = 0.125;
constexpr double kPartOfGoal = 0.5;  // the same for a goal
// Pairs that are alive together: beyond them nothing is tried.
constexpr int64_t kMostPairs = 3'000'000;
constexpr size_t kLanes = 4;       // orders that are changed, the best of those that it begins with
constexpr int kChangesInARow = 8;  // of one of them
constexpr int64_t kQuarters = 3;   // of what is left above the bound: the next height
constexpr double kPlaceWork = 8;   // of one that is met, in comparisons

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
  int32_t offset = 0, end = 0;  // of those before Lane::placed in the order, in units
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

// Offsets and heights are counted in units, so that four of them are compared at once on any machine.
class Climb {
 public:
  // `most`: no height is above it.
  Climb(const Instance& instance, const Neighbours& neighbours, const Twins* twins, int64_t most,
        uint64_t seed)
      : instance_(instance),
        near_(neighbours),
        twins_(twins),
        unit_(instance.alignment),
        marks_(instance.spans.size()),
        meets_twin_(instance.spans.size()),
        draws_(seed) {
    while (most / unit_ > std::numeric_limits<int32_t>::max() / 4) unit_ *= 2;
    for (const int64_t bytes : instance.bytes) bytes_.push_back(units(bytes));
    if (twins == nullptr) return;
    for (size_t i = 0; i < meets_twin_.size(); ++i)
      for (const auto other : near_.of(static_cast<int32_t>(i)))
        if (other.buffer() == i) meets_twin_[i] = 1;
    base_ = units(twins->base);
  }

  // The unit that a height is a multiple of.
  [[nodiscard]] int64_t unit() const { return unit_; }

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
      place.offset = static_cast<int32_t>(best.offsets[buffer] / unit_);
      place.end = units(best.offsets[buffer] + instance_.bytes[buffer]);
    }
    return lane;
  }

  // Places the lane's order from the beginning, until a buffer finds no room below `height`.
  void place(Lane& lane, int64_t height) {
    height_ = static_cast<int32_t>(height / unit_);
    place(lane, lane.fixed, lane.fixed);
  }

  // Changes the order before the first buffer without room, and keeps what gets as far.
  void change(Lane& lane) {
    const size_t stuck = lane.placed;
    work_ += static_cast<double>(lane.order.size());
    size_t begin = 0;
    size_t known = stuck;  // places from `begin` to here that buffers had before
    forget_marks();
    if (const size_t kind = draws_.next(twins_ != nullptr ? 4 : 3); kind == 0) {
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
    } else if (kind == 3) {  // from the other side
      begin = stuck - draws_.near(stuck - lane.fixed);
      remember(lane, begin, stuck + 1);
      mark(lane.order[begin]);
      lane.of(lane.order[begin]).from_above ^= true;
    } else {  // one that it meets goes earlier
      const auto met = near_.of(lane.order[stuck]);
      if (met.empty()) return;
      const size_t from = lane.of(static_cast<int32_t>(met[draws_.next(met.size())].buffer())).rank;
      if (from < lane.fixed) return;
      begin = std::min(from, stuck - draws_.near(stuck - lane.fixed));
      if (from > stuck) known = stuck + 1;
      remember(lane, begin, std::max(stuck, from) + 1);
      mark(lane.order[from]);
      move_forward(lane, from, begin);
    }
    place(lane, begin, known);
    if (lane.placed < stuck) restore(lane, begin, stuck);
  }

  [[nodiscard]] double work() const { return work_; }
  // Of the offset of a twin and the end of the other.
  [[nodiscard]] int64_t sum() const { return (int64_t{base_} + height_) * unit_; }

  // Of an order that is placed.
  [[nodiscard]] Placement placement_of(const Lane& lane, const Placement& before,
                                       std::string_view name) const {
    Placement placement{before.offsets, 0, instance_.lower_bound, std::string(name)};
    for (size_t i = 0; i < lane.places.size(); ++i) {
      int64_t& offset = placement.offsets[i];
      if (lane.places[i].rank >= lane.fixed) offset = lane.places[i].offset * unit_;
      placement.top = std::max(placement.top, offset + instance_.bytes[i]);
      if (twins_ != nullptr && twins_->has_one[i] != 0)
        placement.top = std::max(placement.top, sum() - offset);
    }
    return placement;
  }

 private:
  [[nodiscard]] int32_t units(int64_t bytes) const { return static_cast<int32_t>(ceil_div(bytes, unit_)); }

  // Places from `begin` on. Up to `known` a buffer that is not marked stays where it is: it meets the same
  // ones before it in the order, and they are where they were.
  void place(Lane& lane, size_t begin, size_t known) {
    for (lane.placed = begin; lane.placed < lane.order.size(); ++lane.placed) {
      const int32_t buffer = lane.order[lane.placed];
      Place& place = lane.of(buffer);
      const bool stays = lane.placed < known && marks_[static_cast<size_t>(buffer)] != mark_;
      const int32_t offset = stays ? place.offset : offset_of(lane, buffer);
      work_ += static_cast<double>(near_.of(buffer).size()) + kPlaceWork * static_cast<double>(place.met);
      if (offset < 0) return;
      if (stays) continue;
      if (lane.placed < known && offset != place.offset) mark(buffer);
      place.offset = offset;
      place.end = offset + bytes_[static_cast<size_t>(buffer)];
    }
  }

  void forget_marks() { ++mark_; }
  // A buffer whose place changes, and all that meet it.
  void mark(int32_t buffer) {
    marks_[static_cast<size_t>(buffer)] = mark_;
    for (const auto other : near_.of(buffer)) marks_[other.buffer()] = mark_;
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

  // The lowest or highest room among what is placed and alive with it; -1: there is none.
  int32_t offset_of(Lane& lane, int32_t buffer) {
    const auto b = static_cast<size_t>(buffer);
    const bool has_twin = twins_ != nullptr && twins_->has_one[b] != 0;
    const size_t met = meet(lane, buffer);
    lane.of(buffer).met = static_cast<uint32_t>(met);
    const int32_t bytes = bytes_[b];
    const int32_t lowest = has_twin ? base_ : 0, highest = height_ - bytes;
    int32_t offset = lane.of(buffer).from_above ? highest : lowest;
    for (int32_t before = offset - 1; before != offset;) {
      if (offset < lowest || offset > highest) return -1;
      before = offset;
      offset = lane.of(buffer).from_above ? below(met, offset, bytes) : above(met, offset, bytes);
    }
    return offset;
  }

  // Takes what is placed and alive with it to low_ and high_; how many those are.
  size_t meet(const Lane& lane, int32_t buffer) {
    const auto near = near_.of(buffer);
    if (low_.size() <= near.size()) {
      low_.resize(near.size() + 1);
      high_.resize(near.size() + 1);
    }
    const uint32_t rank = lane.of(buffer).rank;
    const int32_t sum = base_ + height_;
    size_t met = 0;
    for (const auto other : near) {
      const Place& place = lane.places[other.buffer()];
      low_[met] = other.is_twin() ? sum - place.end : place.offset;
      high_[met] = other.is_twin() ? sum - place.offset : place.end;
      met += place.rank < rank ? 1 : 0;
    }
    if (meets_twin_[static_cast<size_t>(buffer)] != 0) {  // it lies on one side of the middle
      low_[met] = sum / 2;
      high_[met] = sum - sum / 2;
      ++met;
    }
    return met;
  }

  // The end of the highest of those that lie there, or the offset where none does.
  [[nodiscard]] int32_t above(size_t met, int32_t offset, int32_t bytes) const {
    const int32_t end = offset + bytes;
    int32_t next = offset;
    for (size_t i = 0; i < met; ++i) {
      const bool lies = (low_[i] < end) & (high_[i] > offset);
      next = std::max(next, lies ? high_[i] : offset);
    }
    return next;
  }
  // The highest offset below the lowest of those that lie there, or the offset where none does.
  [[nodiscard]] int32_t below(size_t met, int32_t offset, int32_t bytes) const {
    const int32_t end = offset + bytes;
    int32_t next = end;
    for (size_t i = 0; i < met; ++i) {
      const bool lies = (low_[i] < end) & (high_[i] > offset);
      next = std::min(next, lies ? low_[i] : end);
    }
    return next - bytes;
  }

  const Instance& instance_;
  const Neighbours& near_;
  const Twins* twins_;  // none: nullptr
  int64_t unit_;
  int32_t base_ = 0, height_ = 0;
  std::vector<int32_t> bytes_;    // by buffer, in units
  std::vector<uint32_t> marks_;   // by buffer: those of the latest change are mark_
  std::vector<char> meets_twin_;  // by buffer: its own
  uint32_t mark_ = 0;
  Draws draws_;
  std::vector<int32_t> old_order_;  // before the latest change, and their places
  std::vector<Place> old_places_;
  std::vector<int32_t> low_, high_;
  double work_ = 0;
};

Order order_of(const Lane& lane) {
  Order order{lane.order, {}, lane.fixed};
  for (const Place& place : lane.places) order.from_above.push_back(place.from_above ? 1 : 0);
  return order;
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

Neighbours::Neighbours(const Pairs& pairs, size_t buffers, const Pairs& with_twins) : first_(buffers + 1) {
  const auto each = [&](const auto& take) {
    for (const bool is_twin : {false, true})
      for (const auto& [a, b] : is_twin ? with_twins : pairs) {
        take(static_cast<size_t>(a), Neighbour(b, is_twin));
        if (a != b) take(static_cast<size_t>(b), Neighbour(a, is_twin));
      }
  };
  each([&](size_t buffer, Neighbour) { ++first_[buffer + 1]; });
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  all_.resize(first_.back());
  std::vector<size_t> at(first_.begin(), first_.end() - 1);
  each([&](size_t buffer, Neighbour other) { all_[at[buffer]++] = other; });
}

Climbed improve_by_climbing(const Instance& instance, const Neighbours& neighbours,
                            const std::vector<Order>& orders, double most_work, uint64_t seed,
                            std::string_view name, Placement& best, Twins* twins, int64_t goal) {
  const int64_t enough = good_enough(instance);
  Climbed climbed;
  if (best.top <= enough || orders.empty()) return climbed;
  Climb climb(instance, neighbours, twins, best.top, seed);
  int64_t height = next_height(instance, best.top, climb.unit());
  bool first = goal > 0 && goal < height;
  if (first) height = goal / climb.unit() * climb.unit();
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
    for (int i = 0; i < kChangesInARow && lane.placed < lane.order.size(); ++i) climb.change(lane);
    const bool reached = lane.placed == lane.order.size();
    if (!reached && climb.work() - since < (first ? kPartOfGoal : kPartOfHeight) * most_work) continue;
    first = false;
    if (reached) {
      if (twins != nullptr) twins->sum = climb.sum();
      best = climb.placement_of(lane, best, name);
      climbed.order = order_of(lane);
    }
    height = reached ? next_height(instance, best.top, climb.unit())
                     : round_up(height + (best.top - height) / 2, climb.unit());
    if (!reached && height >= best.top) break;
    for (Lane& each : lanes) climb.place(each, height);
    since = climb.work();
  }
  climbed.work = climb.work();
  return climbed;
}

}  // namespace plimsoll::layout
