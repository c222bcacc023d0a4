#include "layout/period.h"

#include <array>
#include <cmath>
#include <optional>
#include <tuple>

#include "base/units.h"

namespace plimsoll::layout {
namespace {

constexpr size_t kMostPeriods = 4;    // of a problem: the passes through its layers
constexpr size_t kMostClasses = 500;  // buffers of a cycle
constexpr uint32_t kMostCycles = 6;   // of a circle
constexpr size_t kFewestRepetitions = 3;
constexpr double kHot = 0.95;        // share of the bound: is placed with the period beside it
constexpr double kPart = 0.05;       // of all the work, for each circle and each stage
constexpr double kTwinsPart = 0.3;   // the same with twins, which find a way in few attempts or none
constexpr int64_t kSmall = 1000;     // of the circle's bound: its twins leave smaller ones to the stage
constexpr uint64_t kTwinsSeeds = 6;  // of a circle
constexpr double kTwinsTries = 3;    // of a circle for the work of a stage
constexpr double kTwinsWork = 2;     // in terms of what is without them

// Buffers of one cycle, then those of the next, each the same number of points later than the one before.
struct Period {
  std::vector<int32_t> members;
  size_t classes = 0;   // buffers of a cycle
  uint32_t points = 0;  // of a cycle
  Span stretch;         // from the first cycle's begin to the last one's
};

Span span_of(const Instance& instance, int32_t buffer) { return instance.spans[static_cast<size_t>(buffer)]; }
int64_t bytes_of(const Instance& instance, int32_t buffer) {
  return instance.bytes[static_cast<size_t>(buffer)];
}
int64_t life_of(const Instance& instance, int32_t buffer) {
  const Span span = span_of(instance, buffer);
  return int64_t{span.end} - span.begin;
}

// Finds stretches of cycles that are alike.
class PeriodFinder {
 public:
  explicit PeriodFinder(const Instance& instance) : instance_(instance), order_(instance.spans.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::stable_sort(order_, {}, [&](int32_t buffer) {
      const Span span = span_of(instance, buffer);
      return std::tuple(span.begin, span.end, bytes_of(instance, buffer));
    });
  }

  // First the one around the place where most is alive, the middle one of several; then what is left of it,
  // and on its right.
  std::vector<Period> all() {
    find(0, order_.size());
    return std::move(periods_);
  }

 private:
  // Buffers [from, to) of the order, in cycles of so many.
  struct Found {
    size_t from = 0, to = 0, classes = 0;
  };

  void find(size_t begin, size_t end) {
    if (periods_.size() == kMostPeriods || begin + 1 >= end) return;
    Found found = around(hottest(begin, end), begin, end);
    if (found.classes == 0) found = around(begin + (end - begin) / 2, begin, end);
    if (found.classes == 0) return;
    add(found);
    find(begin, found.from);
    find(found.to, end);
  }

  [[nodiscard]] Found around(size_t middle, size_t begin, size_t end) const {
    Found best;
    for (size_t count = 1; count <= kMostClasses && count < end - begin; ++count) {
      size_t low = middle, high = middle;
      while (low > begin + 1 && low - 1 + count < end && alike(low - 1, low - 1 + count)) --low;
      while (high > begin && high + count < end && alike(high, high + count)) ++high;
      if (high - low < kFewestRepetitions * count || high + count - low <= best.to - best.from) continue;
      best = {low, high + count, count};
    }
    if (best.classes > 0) best.to -= (best.to - best.from) % best.classes;
    return best;
  }

  // The buffer that begins where most is alive, of those in [begin, end).
  [[nodiscard]] size_t hottest(size_t begin, size_t end) const {
    int64_t most = 0;
    for (size_t i = begin; i < end; ++i) most = std::max(most, alive_at(i));
    std::vector<size_t> hot;
    for (size_t i = begin; i < end; ++i)
      if (alive_at(i) >= most - most / 1000) hot.push_back(i);
    return hot[hot.size() / 2];
  }
  [[nodiscard]] int64_t alive_at(size_t i) const {
    return instance_.live[span_of(instance_, order_[i]).begin];
  }
  // Of the same size and life, begun as long after the one before.
  [[nodiscard]] bool alike(size_t a, size_t b) const {
    const auto after = [&](size_t i) {
      return i == 0 ? 0 : span_of(instance_, order_[i]).begin - span_of(instance_, order_[i - 1]).begin;
    };
    return bytes_of(instance_, order_[a]) == bytes_of(instance_, order_[b]) &&
           life_of(instance_, order_[a]) == life_of(instance_, order_[b]) && after(a) == after(b);
  }

  void add(const Found& found) {
    Period period;
    period.classes = found.classes;
    period.members.assign(order_.begin() + static_cast<std::ptrdiff_t>(found.from),
                          order_.begin() + static_cast<std::ptrdiff_t>(found.to));
    const auto begin = [&](size_t i) { return span_of(instance_, period.members[i]).begin; };
    period.points = begin(found.classes) - begin(0);
    period.stretch = {begin(0), begin(period.members.size() - found.classes)};
    if (period.points > 0) periods_.push_back(std::move(period));
  }

  const Instance& instance_;
  std::vector<int32_t> order_;  // by time
  std::vector<Period> periods_;
};

// A circle of so many points, its buffers cycle after cycle. With twins only those of the first half of the
// cycles: the others lie as far below the top as these above the bottom.
struct Circle {
  Instance instance;
  uint32_t points = 0;
  bool twins = false;
  Order order;                   // with twins: that of the best layout
  std::vector<int64_t> offsets;  // without
  int64_t top = 0;
};

// How many cycles the circle has; 0 where buffers live for too many.
size_t cycles_of(const Instance& instance, const Period& period, bool twins) {
  int64_t longest = 0;
  for (size_t i = 0; i < period.classes; ++i)
    longest = std::max(longest, life_of(instance, period.members[i]));
  auto cycles = static_cast<size_t>(ceil_div(longest, int64_t{period.points}));
  // What lives for up to two cycles alternates between two places. Twins are an odd number of cycles apart,
  // so that these places are twins.
  if (cycles == 1 && twins) cycles = 2;
  if (cycles == 3 || (cycles > 3 && twins)) cycles = kMostCycles;
  return cycles > kMostCycles || cycles * period.classes > period.members.size() ? 0 : cycles;
}

Circle circle_of(const Instance& instance, const Period& period, size_t cycles, bool twins) {
  Circle circle;
  circle.twins = twins;
  circle.points = static_cast<uint32_t>(cycles) * period.points;
  circle.instance.alignment = instance.alignment;
  std::vector<int64_t> live(period.points);
  for (size_t i = 0; i < cycles * period.classes / (twins ? 2 : 1); ++i) {
    const Span span = span_of(instance, period.members[i]);
    circle.instance.spans.push_back(span);
    circle.instance.bytes.push_back(bytes_of(instance, period.members[i]));
    if (i >= period.classes) continue;
    for (uint32_t point = span.begin; point < span.end; ++point)
      live[point % period.points] += bytes_of(instance, period.members[i]);
  }
  circle.instance.lower_bound = std::ranges::max(live);
  circle.instance.enough = circle.instance.lower_bound + good_enough(instance) - instance.lower_bound;
  return circle;
}

Neighbours neighbours_on(const Circle& circle) {
  const std::vector<Span>& spans = circle.instance.spans;
  const auto reaches = [&](Span from, Span to) {
    const uint32_t points = circle.points;
    return (to.begin % points + points - from.begin % points) % points < from.end - from.begin;
  };
  Pairs pairs, with_twins;
  const auto is_left_out = [&](size_t buffer) {
    return circle.twins && circle.instance.bytes[buffer] < circle.instance.lower_bound / kSmall;
  };
  for (size_t a = 0; a < spans.size(); ++a)
    for (size_t b = 0; b <= a; ++b) {
      if (is_left_out(a) || is_left_out(b)) continue;
      const auto pair = std::pair(static_cast<int32_t>(a), static_cast<int32_t>(b));
      const Span twin = {spans[b].begin + circle.points / 2, spans[b].end + circle.points / 2};
      if (a != b && (reaches(spans[a], spans[b]) || reaches(spans[b], spans[a]))) pairs.push_back(pair);
      if (circle.twins && (reaches(spans[a], twin) || reaches(twin, spans[a]))) with_twins.push_back(pair);
    }
  return Neighbours(pairs, spans.size(), with_twins);
}

// `room`: more than that is of no use.
void lay_out(Circle& circle, int64_t room, double most_work, double& work) {
  const Instance& instance = circle.instance;
  using Key = std::pair<double, double>;
  const auto life = [&](int32_t buffer) { return static_cast<double>(life_of(instance, buffer)); };
  const auto bytes = [&](int32_t buffer) { return static_cast<double>(bytes_of(instance, buffer)); };
  const std::vector<Order> orders = {
      {by_keys(instance, [&](int32_t b) { return bytes(b) * life(b); }), {}},
      {by_keys(instance, [&](int32_t b) { return Key(bytes(b), life(b)); }), {}},
      {by_keys(instance, [&](int32_t b) { return Key(life(b), bytes(b)); }), {}},
      {by_keys(instance,
               [&](int32_t b) { return Key(bytes(b), -static_cast<double>(span_of(instance, b).begin)); }),
       {}}};
  Placement all;
  for (const int64_t each : instance.bytes) {
    all.offsets.push_back(all.top);
    all.top += each;
  }
  if (circle.twins) all.top *= 2;
  const Neighbours neighbours = neighbours_on(circle);
  for (uint64_t seed = 1; seed == 1 || (circle.twins && circle.top > room && seed <= kTwinsSeeds); ++seed) {
    Placement best = all;
    Twins twins{std::vector<char>(instance.spans.size(), 1)};
    Climbed climbed = improve_by_climbing(instance, neighbours, orders, most_work, seed, "", best,
                                          circle.twins ? &twins : nullptr);
    work += climbed.work;
    if (seed > 1 && best.top >= circle.top) continue;
    if (climbed.order) circle.order = *std::move(climbed.order);
    circle.offsets = std::move(best.offsets);
    circle.top = best.top;
  }
}

// Which buffers are placed together: what lives through the midst of a period in one stack below all others,
// as stage 0; then the periods, the hottest first, each with what is no member of one and lives between it
// and those before and behind it.
std::vector<size_t> stages_of(const Instance& instance, const std::vector<Period>& periods) {
  const size_t none = periods.size() + 1;
  std::vector<size_t> stages(instance.spans.size(), none);
  for (size_t p = 0; p < periods.size(); ++p)
    for (const int32_t member : periods[p].members) stages[static_cast<size_t>(member)] = p + 1;
  const auto take = [&](size_t stage, uint32_t begin, uint32_t end) {
    for (size_t i = 0; i < stages.size(); ++i)
      if (stages[i] == none && instance.spans[i].end > begin && instance.spans[i].begin < end)
        stages[i] = stage;
  };
  for (const Period& period : periods) {
    const uint32_t middle = period.stretch.begin + (period.stretch.end - period.stretch.begin) / 2;
    take(0, middle, middle + 1);
  }
  const auto is_hot = [&](uint32_t point) {
    return static_cast<double>(instance.live[point]) >= kHot * static_cast<double>(instance.lower_bound);
  };
  for (size_t p = 0; p < periods.size(); ++p) {
    const Span stretch = periods[p].stretch;
    uint32_t begin = 0, end = instance.num_points;
    for (const Period& other : periods) {
      if (other.stretch.end <= stretch.begin) begin = std::max(begin, other.stretch.end);
      if (other.stretch.begin >= stretch.end) end = std::min(end, other.stretch.begin);
    }
    while (begin < stretch.begin && !is_hot(begin)) ++begin;
    while (end > stretch.end && !is_hot(end - 1)) --end;
    take(p + 1, begin, end);
  }
  for (size_t& stage : stages) stage = std::min(stage, periods.size());
  return stages;
}

// Those of stage 0, the longest lives first, each as low as it goes.
void stack(const Instance& instance, const std::vector<size_t>& stages, Placement& placement) {
  const std::vector<int32_t> order =
      by_keys(instance, [&](int32_t buffer) { return life_of(instance, buffer); });
  std::vector<std::pair<int64_t, size_t>> placed;  // by offset
  placement.top = 0;
  for (const int32_t buffer : order) {
    const auto at = static_cast<size_t>(buffer);
    if (stages[at] != 0) continue;
    const Span span = instance.spans[at];
    int64_t offset = 0;
    for (const auto& [low, other] : placed) {
      if (instance.spans[other].end <= span.begin || instance.spans[other].begin >= span.end) continue;
      if (low - offset >= instance.bytes[at]) break;
      offset = std::max(offset, low + instance.bytes[other]);
    }
    placement.offsets[at] = offset;
    placement.top = std::max(placement.top, offset + instance.bytes[at]);
    placed.insert(std::ranges::upper_bound(placed, std::pair(offset, at)), {offset, at});
  }
}

// A stage's problem. Its buffers: the places of the circle, each of which stands for the members there; the
// stage's other buffers, and members that meet earlier stages, which may lie elsewhere; those of earlier
// stages, which stay.
struct Stage {
  const Circle* circle = nullptr;
  Instance instance;           // spans: of the first member
  std::vector<int32_t> of;     // by buffer of the whole problem: its number here, -1: it comes later
  std::vector<char> is_twin;   // by buffer of the whole problem: of that one's twin
  std::vector<char> odd;       // of the places: of every second cycle
  std::vector<int64_t> place;  // by buffer: its own on the circle; -1: it has none
  std::vector<char> above;     // by buffer: that one's twin is its own
  size_t first_fixed = 0;      // those of earlier stages begin here
  Placement placement;
  Twins twins;
  int64_t goal = 0;  // a height that is tried before all others; 0: none

  [[nodiscard]] size_t places() const { return circle->instance.spans.size(); }
};

void add(Stage& stage, Span span, int64_t bytes, int64_t offset) {
  stage.instance.spans.push_back(span);
  stage.instance.bytes.push_back(bytes);
  stage.placement.offsets.push_back(offset);
}

// By point: at how many points before it something of the stages from 1 to below `number` is alive.
std::vector<uint32_t> taken_before(const Instance& instance, const std::vector<size_t>& stages,
                                   size_t number) {
  std::vector<int32_t> change(instance.num_points + 1);
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i] == 0 || stages[i] >= number) continue;
    ++change[instance.spans[i].begin];
    --change[instance.spans[i].end];
  }
  std::vector<uint32_t> taken = {0};
  int32_t alive = 0;
  for (uint32_t point = 0; point < instance.num_points; ++point) {
    alive += change[point];
    taken.push_back(taken.back() + (alive > 0 ? 1 : 0));
  }
  return taken;
}

// The end of what lives through the period.
int64_t base_of(const Instance& instance, const Period& period, const std::vector<size_t>& stages,
                const Placement& stacked) {
  int64_t base = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    const Span span = instance.spans[i];
    if (stages[i] != 0 || span.begin >= period.stretch.end || span.end <= period.stretch.begin) continue;
    base = std::max(base, stacked.offsets[i] + instance.bytes[i]);
  }
  return base;
}

Stage stage_of(const Instance& instance, const Period& period, const Circle& circle,
               const std::vector<size_t>& stages, size_t number, const Placement& earlier) {
  Stage stage;
  stage.circle = &circle;
  stage.instance.alignment = instance.alignment;
  stage.instance.lower_bound = instance.lower_bound;
  stage.instance.enough = std::max(instance.enough, earlier.top);
  stage.of.assign(instance.spans.size(), -1);
  stage.is_twin.assign(instance.spans.size(), 0);
  const size_t places = stage.places();
  for (size_t i = 0; i < places; ++i) {
    add(stage, circle.instance.spans[i], circle.instance.bytes[i], 0);
    stage.odd.push_back(i / period.classes % 2 == 0 ? 0 : 1);
  }
  const std::vector<uint32_t> taken = taken_before(instance, stages, number);
  std::vector<int64_t> place_of(instance.spans.size(), -1);
  for (size_t i = 0; i < period.members.size(); ++i) {
    const auto member = static_cast<size_t>(period.members[i]);
    const Span span = instance.spans[member];
    const bool above = circle.twins && i / places % 2 != 0;
    stage.is_twin[member] = above ? 1 : 0;
    if (taken[span.end] == taken[span.begin])
      stage.of[member] = static_cast<int32_t>(i % places);
    else
      place_of[member] = static_cast<int64_t>(i % places);
  }
  stage.place.resize(places);
  std::iota(stage.place.begin(), stage.place.end(), 0);
  stage.above.resize(places);
  for (const bool fixed : {false, true}) {
    stage.first_fixed = stage.instance.spans.size();
    for (size_t i = 0; i < stages.size(); ++i) {
      if (stage.of[i] >= 0 || (fixed ? stages[i] >= number : stages[i] != number)) continue;
      stage.of[i] = static_cast<int32_t>(stage.instance.spans.size());
      add(stage, instance.spans[i], instance.bytes[i], fixed ? earlier.offsets[i] : 0);
      stage.place.push_back(place_of[i]);
      stage.above.push_back(std::exchange(stage.is_twin[i], 0));
    }
  }
  if (circle.twins) {
    stage.twins.has_one.assign(stage.instance.spans.size(), 0);
    std::fill_n(stage.twins.has_one.begin(), places, 1);
    stage.twins.base = base_of(instance, period, stages, earlier);
  }
  return stage;
}

Neighbours neighbours_of(const Stage& stage, const Pairs& pairs) {
  std::array<Pairs, 2> all;        // of buffers, and with twins
  std::array<Pairs, 2> of_places;  // of which there are several alike
  for (const auto& [a, b] : pairs) {
    const auto first = static_cast<size_t>(a), second = static_cast<size_t>(b);
    const int32_t low = std::min(stage.of[first], stage.of[second]);
    const int32_t high = std::max(stage.of[first], stage.of[second]);
    if (low < 0 || static_cast<size_t>(low) >= stage.first_fixed) continue;
    const size_t kind = stage.is_twin[first] != stage.is_twin[second] ? 1 : 0;
    (static_cast<size_t>(low) < stage.places() ? of_places : all)[kind].emplace_back(low, high);
  }
  for (size_t kind = 0; kind < all.size(); ++kind) {
    std::ranges::sort(of_places[kind]);
    all[kind].insert(all[kind].end(), of_places[kind].begin(), std::ranges::unique(of_places[kind]).begin());
  }
  return Neighbours(all[0], stage.instance.spans.size(), all[1]);
}

// The places, then the rest. Places by their offsets on the circle, which takes none of them higher than
// there; or every second cycle from below and the others from above, what lives long first; twins in the
// order and from the sides of the circle, or what lives long first. The rest from the stretch outward, or the
// large first.
enum class Sides : uint8_t { one, odd_above, even_above, twins, long_twins };
enum class Rest : uint8_t { outward, large, outward_before, large_before };

bool is_from_above(const Stage& stage, Sides sides, size_t at) {
  if (stage.place[at] < 0 || sides == Sides::one) return false;
  const auto place = static_cast<size_t>(stage.place[at]);
  if (stage.circle->twins) return stage.circle->order.from_above[place] != stage.above[at];
  return (stage.odd[place] != 0) == (sides == Sides::odd_above);
}

Order order_of(const Stage& stage, const Period& period, Sides sides, Rest rest) {
  const bool outward = rest == Rest::outward || rest == Rest::outward_before;
  const bool before = rest == Rest::large_before || rest == Rest::outward_before;
  const Instance& instance = stage.instance;
  const bool long_first = sides != Sides::one && sides != Sides::twins;
  const double near = 2.0 * period.points;
  const auto away = [&](Span span) -> double {
    if (span.end <= period.stretch.begin) return period.stretch.begin - span.end + 1;
    return span.begin >= period.stretch.end ? span.begin - period.stretch.end + 1 : 0;
  };
  std::vector<double> ranks(stage.places());  // of the places
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (sides == Sides::twins)
      ranks[static_cast<size_t>(stage.circle->order.buffers[i])] = static_cast<double>(i);
    else
      ranks[i] = static_cast<double>(stage.circle->offsets[i]);
  }
  using Key = std::tuple<int, double, double>;
  Order order;
  order.buffers = by_keys(instance, [&](int32_t buffer) -> Key {
    const auto at = static_cast<size_t>(buffer);
    if (at >= stage.first_fixed) return {4, 0, 0};
    const auto bytes = static_cast<double>(instance.bytes[at]);
    const auto life = static_cast<double>(life_of(instance, buffer));
    const double distance = away(instance.spans[at]);
    if (stage.place[at] >= 0) {
      const bool tied = at < stage.places();
      if (tied && long_first) return {2, life, bytes};
      return {tied ? 2 : before ? 3 : 1, -ranks[static_cast<size_t>(stage.place[at])], 0};
    }
    if (long_first && !before && distance < near) return {outward ? 2 : 1, life, bytes};
    if (before && distance < near)
      return {3, outward ? -std::ceil(std::log2(distance + 1)) : bytes * life, bytes};
    if (outward) return {0, -std::ceil(std::log2(distance + 1)), bytes};
    return {0, bytes * life, 0};
  });
  order.fixed = instance.spans.size() - stage.first_fixed;
  for (size_t i = 0; i < instance.spans.size(); ++i)
    order.from_above.push_back(is_from_above(stage, sides, i) ? 1 : 0);
  return order;
}

// Of a buffer of the whole problem.
int64_t offset_of(const Stage& stage, size_t buffer, int64_t bytes) {
  const int64_t offset = stage.placement.offsets[static_cast<size_t>(stage.of[buffer])];
  return stage.is_twin[buffer] != 0 ? stage.twins.sum - offset - bytes : offset;
}

// Places the stage around those before it; whether that is below the best known.
bool place_stage(const Period& period, const Pairs& pairs, double most_work, uint64_t seed, Stage& stage,
                 double& work) {
  std::vector<Order> orders;
  const auto add = [&](Sides sides) {
    for (const Rest rest : {Rest::outward, Rest::large, Rest::outward_before, Rest::large_before})
      if (stage.goal > 0 || rest < Rest::outward_before)
        orders.push_back(order_of(stage, period, sides, rest));
  };
  const bool twins = stage.circle->twins;
  if (twins)
    for (const Sides sides : {Sides::twins, Sides::long_twins}) add(sides);
  else
    for (const Sides sides : {Sides::one, Sides::odd_above, Sides::even_above}) add(sides);
  const int64_t known = stage.placement.top;
  work += improve_by_climbing(stage.instance, neighbours_of(stage, pairs), orders, most_work, seed, "",
                              stage.placement, twins ? &stage.twins : nullptr, stage.goal)
              .work;
  return stage.placement.top < known;
}

// The circle of each period; with twins where nothing of it lives for more than two cycles. Empty where
// buffers of one live for too many.
std::vector<Circle> circles_of(const Instance& instance, const std::vector<Period>& periods, bool twins,
                               int64_t room, double most_work, double& work) {
  std::vector<Circle> circles;
  for (const Period& period : periods) {
    const bool turns = twins && cycles_of(instance, period, true) == 2;
    const size_t cycles = cycles_of(instance, period, turns);
    if (cycles == 0) return {};
    lay_out(circles.emplace_back(circle_of(instance, period, cycles, turns)), room,
            turns ? most_work / kTwinsTries : most_work, work);
  }
  return circles;
}

// Periods are placed one around the other.
class Periods {
 public:
  Periods(const Instance& instance, const Pairs& pairs)
      : instance_(instance), pairs_(pairs), periods_(PeriodFinder(instance).all()) {
    if (periods_.empty()) return;
    stages_ = stages_of(instance, periods_);
    stacked_.offsets.resize(instance.spans.size());
    stacked_.lower_bound = instance.lower_bound;
    stacked_.tie_break = "by period";
    stack(instance, stages_, stacked_);
  }

  // Until `best` is near enough or the work is done, which is returned.
  double improve(bool twins, double most_work, Placement& best) {
    double work = 0;
    const double part = (twins ? kTwinsPart : kPart) * most_work;
    const std::vector<Circle> circles =
        circles_of(instance_, periods_, twins, near_enough(instance_) - stacked_.top, part, work);
    if (circles.empty() || (twins && std::ranges::none_of(circles, &Circle::twins))) return work;
    // A stage may leave no way to place the next: again, with other changes of orders.
    for (uint64_t seed = 1; work < most_work && best.top > near_enough(instance_); ++seed) {
      Placement placement = stacked_;
      size_t number = 1;
      const auto place_next = [&] {
        Stage stage =
            stage_of(instance_, periods_[number - 1], circles[number - 1], stages_, number, placement);
        stage.placement.top = best.top;
        stage.goal = twins && seed % 2 == 1 ? near_enough(instance_) : 0;
        return place(number, stage, part, seed, placement, work);
      };
      while (number <= periods_.size() && place_next()) ++number;
      if (number > periods_.size()) best = placement;
    }
    return work;
  }

 private:
  // Whether there is room for the stage below what is known.
  bool place(size_t number, Stage& stage, double most_work, uint64_t seed, Placement& placement,
             double& work) const {
    if (!place_stage(periods_[number - 1], pairs_, most_work, seed, stage, work)) return false;
    placement.top = stage.placement.top;
    for (size_t i = 0; i < stages_.size(); ++i)
      if (stages_[i] == number) placement.offsets[i] = offset_of(stage, i, instance_.bytes[i]);
    return true;
  }

  const Instance& instance_;
  const Pairs& pairs_;
  std::vector<Period> periods_;
  std::vector<size_t> stages_;  // by buffer
  Placement stacked_;           // stage 0
};

}  // namespace

double improve_by_period(const Instance& instance, const Pairs& pairs, double most_work, Placement& best) {
  if (best.top <= good_enough(instance)) return 0;
  Periods periods(instance, pairs);
  periods.improve(true, kTwinsWork * most_work, best);
  return periods.improve(false, most_work, best);
}

}  // namespace plimsoll::layout
