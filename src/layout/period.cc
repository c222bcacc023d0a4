#include "layout/period.h"

#include <optional>
#include <tuple>

#include "base/units.h"
#include "layout/evict.h"

namespace plimsoll::layout {
namespace {

constexpr size_t kMostPeriods = 4;    // of a problem: the passes through its layers
constexpr size_t kMostClasses = 500;  // buffers of a cycle
constexpr size_t kMostCycles = 6;     // of a circle
constexpr size_t kFewestRepetitions = 3;
constexpr size_t kJointCycles = 3;  // at both ends of a stretch, which give way to their neighbours
constexpr uint64_t kLargestTries = 3;
constexpr double kLargestWork = 2e5;  // of each
// Work of the first try of a circle (Evictions::work). Tries succeed soon or late, so that each takes twice
// the one before.
constexpr double kTryWork = 1e6;
constexpr double kFewestWork = 3;       // in terms of that, of a circle of the fewest cycles, the smallest
constexpr double kAllWork = 12;         // likewise, of all that is placed around circles
constexpr double kNearWork = 1e8;       // of all tries below what is near enough
constexpr double kBetweenWork = 0.3e8;  // of those below a greater height
// The share of an arena's bound for which so much is done: less for what can gain less.
constexpr int64_t kWorthAllWork = 400;

// The work that may be done, and what was done.
struct Work {
  double most = 0;
  double done = 0;
  [[nodiscard]] double left(double share) const { return std::min(share, most - done); }
};

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
  // Two buffers are alike that have the same size and life, and begin as long after the one before.
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

Circle circle_of(const Instance& instance, const Period& period, size_t cycles) {
  Circle circle;
  circle.points = static_cast<uint32_t>(cycles) * period.points;
  circle.instance.alignment = instance.alignment;
  for (size_t i = 0; i < cycles * period.classes; ++i) {
    circle.instance.spans.push_back(span_of(instance, period.members[i]));
    circle.instance.bytes.push_back(bytes_of(instance, period.members[i]));
  }
  return circle;
}

Neighbours neighbours_on(const Circle& circle) {
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
  return Neighbours(pairs, spans.size());
}

// Places of the members of a few cycles, which hold for all.
using Turns = std::vector<int64_t>;

// The most bytes of these that are alive at one point of the circle.
int64_t alive_together(const Circle& circle, std::span<const int32_t> buffers) {
  std::vector<int64_t> live(circle.points);
  for (const int32_t buffer : buffers) {
    const Span span = span_of(circle.instance, buffer);
    for (uint32_t at = span.begin; at < span.end; ++at)
      live[at % circle.points] += bytes_of(circle.instance, buffer);
  }
  return std::ranges::max(live);
}

// Buffers with offsets.
using Places = std::vector<std::pair<int32_t, int64_t>>;

// Places the buffers of the largest size in as many bytes as are alive together of them; nullopt where no way
// was found. Whether there is one depends on the number of cycles: where some take turns every two cycles and
// others every three, they lie so on a circle of six, and on no smaller one.
std::optional<Places> place_largest(const Circle& circle, const Neighbours& near, int64_t base) {
  const int64_t size = std::ranges::max(circle.instance.bytes);
  std::vector<int32_t> largest;
  for (size_t i = 0; i < circle.instance.bytes.size(); ++i)
    if (circle.instance.bytes[i] == size) largest.push_back(static_cast<int32_t>(i));
  const int64_t height = base + alive_together(circle, largest);
  for (uint64_t seed = 1; seed <= kLargestTries; ++seed) {
    Evictions evictions(circle.instance, near, base, height);
    if (!evictions.settle(largest, kLargestWork, seed)) continue;
    Places places;
    for (const int32_t buffer : largest) places.emplace_back(buffer, evictions.offset(buffer));
    return places;
  }
  return std::nullopt;
}

// Looks for the turns of one period.
class CircleSearch {
 public:
  CircleSearch(const Instance& instance, const Period& period, int64_t base, int64_t height)
      : base_(base), height_(height) {
    int64_t longest = 0;
    for (size_t i = 0; i < period.classes; ++i)
      longest = std::max(longest, life_of(instance, period.members[i]));
    const size_t all = period.members.size() / period.classes;
    const auto fewest = static_cast<size_t>(ceil_div(longest, int64_t{period.points}));
    for (size_t cycles = fewest; cycles <= std::min(kMostCycles, all); ++cycles) {
      Circle circle = circle_of(instance, period, cycles);
      Neighbours near = neighbours_on(circle);
      std::optional<Places> largest = place_largest(circle, near, base);
      circles_.push_back({std::move(circle), std::move(near), std::move(largest)});
    }
  }

  // Returns true if there is a circle whose largest buffers lie in as few bytes as they can.
  [[nodiscard]] bool may_be_tight() const {
    return std::ranges::any_of(circles_, [](const Prepared& each) { return each.largest.has_value(); });
  }

  // The circles of the fewest cycles that can be placed; `tight`: with the largest in as few bytes as they
  // can, if there is a circle on which they can.
  std::optional<Turns> find(uint64_t seed, bool tight, double share, Work& work) const {
    const bool some = tight && may_be_tight();
    double most = kFewestWork * share;
    for (const Prepared& each : circles_) {
      if (some && !each.largest) continue;
      if (std::optional<Turns> turns = find_on(each, seed, some, work.left(most), work)) return turns;
      most = share;
    }
    return std::nullopt;
  }

 private:
  struct Prepared {
    Circle circle;
    Neighbours near;
    std::optional<Places> largest;
  };

  std::optional<Turns> find_on(const Prepared& on, uint64_t seed, bool tight, double most, Work& work) const {
    Evictions evictions(on.circle.instance, on.near, base_, height_);
    if (tight)
      for (const auto& [buffer, offset] : *on.largest) evictions.put(buffer, offset);
    std::vector<int32_t> all(on.circle.instance.spans.size());
    std::iota(all.begin(), all.end(), 0);
    const bool done = evictions.settle(all, most, seed);
    work.done += evictions.work();
    if (!done) return std::nullopt;
    Turns turns;
    for (const int32_t buffer : all) turns.push_back(evictions.offset(buffer));
    return turns;
  }

  int64_t base_, height_;
  std::vector<Prepared> circles_;
};

// A problem in which all members of a period that lie at the same turn are one, but for those of its first
// and last cycles.
struct Tied {
  std::vector<int32_t> of;       // by buffer
  Instance instance;             // without lives
  std::vector<int64_t> offsets;  // of members; -1: it has none yet
  std::vector<char> stays;       // of members

  int32_t add(const Instance& whole, int32_t buffer, int64_t offset, bool does_stay) {
    instance.spans.push_back(span_of(whole, buffer));
    instance.bytes.push_back(bytes_of(whole, buffer));
    offsets.push_back(offset);
    stays.push_back(does_stay ? 1 : 0);
    return static_cast<int32_t>(offsets.size()) - 1;
  }
};

// Places below one height.
class Periods {
 public:
  Periods(const Instance& instance, const Neighbours& neighbours, int64_t height)
      : instance_(instance), near_(neighbours), height_(height), periods_(PeriodFinder(instance).all()) {
    stack();
    for (const Period& period : periods_)
      circles_.emplace_back(instance, period, end_of_stack(period), height);
  }

  [[nodiscard]] bool may_be_tight() const {
    return std::ranges::any_of(circles_, &CircleSearch::may_be_tight);
  }

  // Another try for each seed, `tight` or not (CircleSearch::find). Circles first; then all that is around
  // them, for which they change where they must.
  std::optional<Placement> place(uint64_t seed, bool tight, double share, Work& work) const {
    std::vector<Turns> turns;
    for (const CircleSearch& circle : circles_) {
      std::optional<Turns> found = circle.find(seed, tight, share, work);
      if (!found) return std::nullopt;
      turns.push_back(*std::move(found));
    }
    const Tied tied = tie(turns, tight);
    const Neighbours near = neighbours_of(tied);
    Evictions evictions(tied.instance, near, 0, height_);
    std::vector<int32_t> others;
    for (size_t i = 0; i < tied.offsets.size(); ++i) {
      const auto one = static_cast<int32_t>(i);
      const bool lies = tied.offsets[i] >= 0 && evictions.lay(one, tied.offsets[i]);
      if (lies && tied.stays[i] != 0)
        evictions.put(one, tied.offsets[i]);
      else
        others.push_back(one);
    }
    const bool done = evictions.settle(others, work.left(kAllWork * share), seed);
    work.done += evictions.work();
    if (!done) return std::nullopt;
    Placement placement{{}, 0, instance_.lower_bound, "by period"};
    for (size_t i = 0; i < tied.of.size(); ++i) {
      placement.offsets.push_back(evictions.offset(tied.of[i]));
      placement.top = std::max(placement.top, placement.offsets.back() + instance_.bytes[i]);
    }
    return placement;
  }

 private:
  // Places buffers that live through the midst of a period and are no members of one, the longest lives
  // first, each as low as it goes.
  void stack() {
    std::vector<char> is_member(instance_.spans.size());
    for (const Period& period : periods_)
      for (const int32_t member : period.members) is_member[static_cast<size_t>(member)] = 1;
    std::vector<std::pair<int64_t, int32_t>> placed;  // by offset
    for (const int32_t buffer : by_keys(instance_, [&](int32_t b) { return life_of(instance_, b); })) {
      const Span span = span_of(instance_, buffer);
      const auto is_through = [&](const Period& period) {
        const uint32_t middle = period.stretch.begin + (period.stretch.end - period.stretch.begin) / 2;
        return span.begin <= middle && span.end > middle;
      };
      if (is_member[static_cast<size_t>(buffer)] != 0 || std::ranges::none_of(periods_, is_through)) continue;
      int64_t offset = 0;
      for (const auto& [low, other] : placed) {
        const Span lives = span_of(instance_, other);
        if (lives.end <= span.begin || lives.begin >= span.end) continue;
        if (low - offset >= bytes_of(instance_, buffer)) break;
        offset = std::max(offset, low + bytes_of(instance_, other));
      }
      placed.insert(std::ranges::upper_bound(placed, std::pair(offset, buffer)), {offset, buffer});
      stack_.emplace_back(buffer, offset);
    }
  }

  // The end of the buffers that live in the period.
  [[nodiscard]] int64_t end_of_stack(const Period& period) const {
    int64_t end = 0;
    for (const auto& [buffer, offset] : stack_) {
      const Span span = span_of(instance_, buffer);
      if (span.begin < period.stretch.end && span.end > period.stretch.begin)
        end = std::max(end, offset + bytes_of(instance_, buffer));
    }
    return end;
  }

  [[nodiscard]] Tied tie(const std::vector<Turns>& turns, bool joints) const {
    Tied tied;
    tied.of.assign(instance_.spans.size(), -1);
    tied.instance.alignment = instance_.alignment;
    for (const auto& [buffer, offset] : stack_)
      tied.of[static_cast<size_t>(buffer)] = tied.add(instance_, buffer, offset, true);
    for (size_t p = 0; p < periods_.size(); ++p) tie(periods_[p], turns[p], joints, tied);
    for (size_t i = 0; i < tied.of.size(); ++i)
      if (tied.of[i] < 0) tied.of[i] = tied.add(instance_, static_cast<int32_t>(i), -1, false);
    return tied;
  }

  // Without a cycle between them, the first and the last ones are tied as the others are, and all may change.
  void tie(const Period& period, const Turns& turns, bool joints, Tied& tied) const {
    const size_t cycles = period.members.size() / period.classes;
    const size_t joint =
        joints && cycles >= turns.size() / period.classes + 2 * kJointCycles ? kJointCycles : 0;
    const auto first = static_cast<int32_t>(tied.offsets.size());
    for (size_t i = 0; i < turns.size(); ++i) tied.add(instance_, period.members[i], turns[i], joint > 0);
    for (size_t i = 0; i < period.members.size(); ++i) {
      const int32_t member = period.members[i];
      const size_t cycle = i / period.classes, turn = i % turns.size();
      const bool in_joint = cycle < joint || cycle >= cycles - joint;
      tied.of[static_cast<size_t>(member)] =
          in_joint ? tied.add(instance_, member, turns[turn], false) : first + static_cast<int32_t>(turn);
    }
  }

  [[nodiscard]] Neighbours neighbours_of(const Tied& tied) const {
    Pairs pairs;
    for (size_t i = 0; i < tied.of.size(); ++i)
      for (const int32_t other : near_.of(static_cast<int32_t>(i))) {
        const std::pair pair(tied.of[i], tied.of[static_cast<size_t>(other)]);
        if (pair.first < pair.second) pairs.push_back(pair);
      }
    std::ranges::sort(pairs);
    pairs.erase(std::ranges::unique(pairs).begin(), pairs.end());
    return Neighbours(pairs, tied.offsets.size());
  }

  const Instance& instance_;
  const Neighbours& near_;
  int64_t height_;
  std::vector<Period> periods_;
  Places stack_;
  std::vector<CircleSearch> circles_;  // by period
};

// Adds what it did to `done`.
std::optional<Placement> place_below(const Instance& instance, const Neighbours& neighbours, int64_t height,
                                     double most_work, double& done) {
  const Periods periods(instance, neighbours, height);
  Work tight{periods.may_be_tight() ? most_work : 0}, plain{most_work};
  double share = kTryWork;
  std::optional<Placement> found;
  for (uint64_t seed = 1; !found && (tight.left(share) > 0 || plain.left(share) > 0); ++seed, share *= 2) {
    if (tight.left(share) > 0) found = periods.place(seed, true, share, tight);
    if (!found && plain.left(share) > 0) found = periods.place(seed, false, share, plain);
  }
  done += tight.done + plain.done;
  return found;
}

}  // namespace

void improve_by_period(const Instance& instance, const Neighbours& neighbours, Placement& best) {
  const int64_t near = near_enough(instance);
  if (best.top <= near) return;
  const int64_t between = (near + best.top) / 2 / instance.alignment * instance.alignment;
  const double share = std::min(1.0, static_cast<double>(kWorthAllWork * (best.top - near)) /
                                         static_cast<double>(instance.lower_bound + instance.beside));
  double work = 0;
  std::optional<Placement> found = place_below(instance, neighbours, near, share * kNearWork, work);
  if (!found) found = place_below(instance, neighbours, between, share * kBetweenWork, work);
  if (found) best = *std::move(found);
  best.work = work;
}

}  // namespace plimsoll::layout
