#include "layout/period.h"

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
constexpr double kHot = 0.95;         // share of the bound: is placed with the period beside it
constexpr double kCircleWork = 0.05;  // of all, for each
constexpr double kStageWork = 0.05;   // of all, for each

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

// A circle of so many points, its buffers cycle after cycle.
struct Circle {
  Instance instance;
  uint32_t points = 0;
};

// None where buffers live for too many cycles.
std::optional<Circle> circle_of(const Instance& instance, const Period& period) {
  int64_t longest = 0;
  for (size_t i = 0; i < period.classes; ++i)
    longest = std::max(longest, life_of(instance, period.members[i]));
  auto cycles = static_cast<uint32_t>(ceil_div(longest, int64_t{period.points}));
  if (cycles == 3) cycles = 6;  // what lives for up to two of them alternates between two places
  if (cycles > kMostCycles || cycles * period.classes > period.members.size()) return std::nullopt;
  Circle circle;
  circle.points = cycles * period.points;
  circle.instance.alignment = instance.alignment;
  std::vector<int64_t> live(period.points);
  for (size_t i = 0; i < cycles * period.classes; ++i) {
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

Pairs pairs_on(const Circle& circle) {
  const std::vector<Span>& spans = circle.instance.spans;
  const auto reaches = [&](Span from, Span to) {
    const uint32_t points = circle.points;
    return (to.begin % points + points - from.begin % points) % points < from.end - from.begin;
  };
  Pairs pairs;
  for (size_t a = 0; a < spans.size(); ++a)
    for (size_t b = 0; b < a; ++b)
      if (reaches(spans[a], spans[b]) || reaches(spans[b], spans[a]))
        pairs.emplace_back(static_cast<int32_t>(a), static_cast<int32_t>(b));
  return pairs;
}

// By buffer of the circle.
std::vector<int64_t> offsets_on(const Circle& circle, double most_work, double& work) {
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
  Placement best;
  for (const int64_t each : instance.bytes) {
    best.offsets.push_back(best.top);
    best.top += each;
  }
  const Neighbours neighbours(pairs_on(circle), instance.spans.size());
  work += improve_by_climbing(instance, neighbours, orders, most_work, 1, "", best);
  return best.offsets;
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
  Instance instance;             // spans: of the first member
  std::vector<int32_t> of;       // by buffer of the whole problem: its number here, -1: it comes later
  std::vector<int64_t> offsets;  // of the places, on the circle
  std::vector<char> odd;         // of the places: of every second cycle
  std::vector<int64_t> place;    // by buffer: its own on the circle; -1: it has none
  size_t first_fixed = 0;        // those of earlier stages begin here
  Placement placement;
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

Stage stage_of(const Instance& instance, const Period& period, const Circle& circle,
               const std::vector<size_t>& stages, size_t number, const Placement& earlier) {
  Stage stage;
  stage.instance.alignment = instance.alignment;
  stage.instance.lower_bound = instance.lower_bound;
  stage.instance.enough = std::max(instance.enough, earlier.top);
  stage.of.assign(instance.spans.size(), -1);
  const size_t places = circle.instance.spans.size();
  for (size_t i = 0; i < places; ++i) {
    add(stage, circle.instance.spans[i], circle.instance.bytes[i], 0);
    stage.odd.push_back(i / period.classes % 2 == 0 ? 0 : 1);
  }
  const std::vector<uint32_t> taken = taken_before(instance, stages, number);
  std::vector<int64_t> place_of(instance.spans.size(), -1);
  for (size_t i = 0; i < period.members.size(); ++i) {
    const auto member = static_cast<size_t>(period.members[i]);
    const Span span = instance.spans[member];
    if (taken[span.end] == taken[span.begin])
      stage.of[member] = static_cast<int32_t>(i % places);
    else
      place_of[member] = static_cast<int64_t>(i % places);
  }
  stage.place.resize(places);
  std::iota(stage.place.begin(), stage.place.end(), 0);
  for (const bool fixed : {false, true}) {
    stage.first_fixed = stage.instance.spans.size();
    for (size_t i = 0; i < stages.size(); ++i) {
      if (stage.of[i] >= 0 || (fixed ? stages[i] >= number : stages[i] != number)) continue;
      stage.of[i] = static_cast<int32_t>(stage.instance.spans.size());
      add(stage, instance.spans[i], instance.bytes[i], fixed ? earlier.offsets[i] : 0);
      stage.place.push_back(place_of[i]);
    }
  }
  return stage;
}

Pairs pairs_of(const Stage& stage, const Pairs& pairs) {
  Pairs all;
  Pairs of_places;  // of which there are several alike
  for (const auto& [a, b] : pairs) {
    const int32_t low = std::min(stage.of[static_cast<size_t>(a)], stage.of[static_cast<size_t>(b)]);
    const int32_t high = std::max(stage.of[static_cast<size_t>(a)], stage.of[static_cast<size_t>(b)]);
    if (low < 0 || static_cast<size_t>(low) >= stage.first_fixed) continue;
    (static_cast<size_t>(low) < stage.offsets.size() ? of_places : all).emplace_back(low, high);
  }
  std::ranges::sort(of_places);
  all.insert(all.end(), of_places.begin(), std::ranges::unique(of_places).begin());
  return all;
}

// The places, then the rest. Places by their offsets on the circle, which takes none of them higher than
// there; or every second cycle from below and the others from above, what lives long first. The rest from the
// stretch outward, or the large first.
enum class Sides : uint8_t { one, odd_above, even_above };

Order order_of(const Stage& stage, const Period& period, Sides sides, bool outward) {
  const Instance& instance = stage.instance;
  const bool two_sided = sides != Sides::one;
  const double near = 2.0 * period.points;
  const auto away = [&](Span span) -> double {
    if (span.end <= period.stretch.begin) return period.stretch.begin - span.end + 1;
    return span.begin >= period.stretch.end ? span.begin - period.stretch.end + 1 : 0;
  };
  using Key = std::tuple<int, double, double>;
  Order order;
  order.buffers = by_keys(instance, [&](int32_t buffer) -> Key {
    const auto at = static_cast<size_t>(buffer);
    if (at >= stage.first_fixed) return {3, 0, 0};
    const auto bytes = static_cast<double>(instance.bytes[at]);
    const auto life = static_cast<double>(life_of(instance, buffer));
    const double distance = away(instance.spans[at]);
    if (stage.place[at] >= 0) {
      const bool tied = at < stage.offsets.size();
      if (tied && two_sided) return {2, life, bytes};
      return {tied ? 2 : 1, -static_cast<double>(stage.offsets[static_cast<size_t>(stage.place[at])]), 0};
    }
    if (two_sided && distance < near) return {outward ? 2 : 1, life, bytes};
    if (outward) return {0, -std::ceil(std::log2(distance + 1)), bytes};
    return {0, bytes * life, 0};
  });
  order.fixed = instance.spans.size() - stage.first_fixed;
  order.from_above.assign(instance.spans.size(), 0);
  for (size_t i = 0; two_sided && i < stage.place.size(); ++i) {
    if (stage.place[i] < 0) continue;
    const bool odd = stage.odd[static_cast<size_t>(stage.place[i])] != 0;
    order.from_above[i] = odd == (sides == Sides::odd_above) ? 1 : 0;
  }
  return order;
}

// Places the stage around those before it; whether that is below the best known.
bool place_stage(const Period& period, const Pairs& pairs, double most_work, uint64_t seed, Stage& stage,
                 double& work) {
  std::vector<Order> orders;
  for (const Sides sides : {Sides::one, Sides::odd_above, Sides::even_above})
    for (const bool outward : {true, false}) orders.push_back(order_of(stage, period, sides, outward));
  const Neighbours neighbours(pairs_of(stage, pairs), stage.instance.spans.size());
  const int64_t known = stage.placement.top;
  work += improve_by_climbing(stage.instance, neighbours, orders, most_work, seed, "", stage.placement);
  return stage.placement.top < known;
}

}  // namespace

double improve_by_period(const Instance& instance, const Pairs& pairs, double most_work, Placement& best) {
  if (best.top <= good_enough(instance)) return 0;
  const std::vector<Period> periods = PeriodFinder(instance).all();
  if (periods.empty()) return 0;
  double work = 0;
  std::vector<Circle> circles;
  std::vector<std::vector<int64_t>> offsets;
  for (const Period& period : periods) {
    std::optional<Circle> circle = circle_of(instance, period);
    if (!circle) return work;
    offsets.push_back(offsets_on(*circle, kCircleWork * most_work, work));
    circles.push_back(*std::move(circle));
  }
  const std::vector<size_t> stages = stages_of(instance, periods);
  // A stage may leave no way to place the next: again, with other changes of orders.
  for (uint64_t seed = 1; work < most_work && best.top > near_enough(instance); ++seed) {
    Placement placement = best;
    placement.tie_break = "by period";
    stack(instance, stages, placement);
    for (size_t number = 1; number <= periods.size(); ++number) {
      const Period& period = periods[number - 1];
      Stage stage = stage_of(instance, period, circles[number - 1], stages, number, placement);
      stage.offsets = offsets[number - 1];
      stage.placement.top = best.top;
      if (!place_stage(period, pairs, kStageWork * most_work, seed, stage, work)) break;
      placement.top = stage.placement.top;
      for (size_t i = 0; i < stages.size(); ++i)
        if (stages[i] == number)
          placement.offsets[i] = stage.placement.offsets[static_cast<size_t>(stage.of[i])];
      if (number == periods.size()) best = placement;
    }
  }
  return work;
}

}  // namespace plimsoll::layout
