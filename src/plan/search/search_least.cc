// The least memory of all that keeps the other limits, the knee next to a plan, and what no host and no disk goes below.
#include <algorithm>
#include <limits>
#include <map>

#include "plan/search/places.h"
#include "plan/search/search.h"

namespace plimsoll {
namespace {

// Work of searches for layouts (ArenaLayout::work, 1e8 are about a second of the processor's): after so much,
// layouts unlike one that missed come before its twins, and after so much more the twins are left out.
constexpr double kSearchedInOrder = 5e7, kMostSearched = 6e8;
// Layouts that the least memory of all is the least of.
constexpr int kMostLayouts = 12;
// Layouts of a deep model that come in the order of their bounds, before twins of one that missed wait.
constexpr int kLayoutsInOrder = 6;
constexpr int64_t kMemoryOfPrograms = 8;  // an eighth of the least host: programs differ
// The knee that a report names next to a plan: at most so much of its memory, in at most so many times its seconds.
constexpr double kKneeMemory = 0.8, kKneeSeconds = 1.1;

}  // namespace

// The same with larger micro-steps, which take as little at best, and are faster then.
void Search::add_larger_capacities(std::vector<std::pair<int64_t, Spot>>& spots, const Limits& limits,
                                   int64_t least) {
  Limits ties = limits;
  ties.bytes = least + 1;
  const size_t count = spots.size();
  for (size_t i = 0; i < count; ++i) {
    Spot spot = spots[i].second;
    if (spots[i].first > least) continue;
    const bool is_level = spot.first == spot.rest && !spot.split.any();
    const size_t from = frames_[spot.frame].capacity, place = spot.frame - capacities_[from].begin;
    for (size_t capacity = 0; capacity < capacities_.size(); ++capacity) {
      if (capacity == from || known_.no_less_capacity[capacity][from] == 0) continue;
      spot.frame = capacities_[capacity].begin + place;
      for (const Spot& choice : choices_at(spot))
        if (!is_level || may_be_at(choice, ties))
          offer(choice, ties, [&](const Spot& tie, Limits&) {
            if (const int64_t bytes = taken(tie.usage, limits.budget); bytes <= least)
              spots.emplace_back(bytes, tie);
          });
    }
  }
}

// The same with transfers ahead, which are faster where they take no more than is near the least.
void Search::add_prefetching(std::vector<std::pair<int64_t, Spot>>& spots, const Limits& limits,
                             int64_t most) {
  if (!limits.is_open() || request_.choices.prefetch) return;
  const size_t count = spots.size();
  for (size_t i = 0; i < count; ++i) {
    if (spots[i].first > most) continue;
    Spot spot = spots[i].second;
    const Frame& without = frames_[spot.frame];
    const OffloadChoice& choice = without.variant.offload;
    if (!choice.any() || choice.prefetch != 0) continue;
    const int64_t most_ahead = spot.split.any() ? 1 : 2;  // as in the space
    for (int64_t ahead = 1; ahead <= most_ahead; ++ahead) {
      spot.frame = frame_of(without.capacity, choice.targets(), ahead);
      if (!may_measure(spot)) continue;
      spot.usage = usage_at(spot);
      const int64_t bytes = taken(spot.usage, limits.budget);
      if (bytes <= most && overrun(spot, limits) <= 0) spots.emplace_back(bytes, spot);
    }
  }
}

// Bounds are met nearly always. Where one is not, the next ones are laid out as long as their bound is below
// the least layout and the work is not too much: thousands of layers are laid out for seconds each. Where
// layouts are searched for in vain, all of a deep model's frame that is not in segments is expected to miss
// by as much as what was laid out, and likewise segments: the next one is another kind, not a twin.
std::optional<Candidate> Search::least(const Limits& limits, const LayOut& lay_out) {
  constexpr double kNear = 1.02;
  if (!is_deep_)
    if (auto found = least_near(limits, lay_out, 1)) return found;
  return least_near(limits, lay_out, kNear);
}

// At `share` 1 only what takes the least bound of all is laid out, and what misses it is not returned. Where layouts
// miss the host or the disk, for which estimates said that they fit, the search continues without them.
std::optional<Candidate> Search::least_near(Limits limits, const LayOut& lay_out, double share) {
  constexpr int kRounds = 4;
  forget_layouts();
  std::optional<Candidate> best;
  for (int round = 0; round < kRounds; ++round) {
    LeastFound found = least_round(limits, lay_out, share);
    if (found.candidate) {
      best = std::move(found.candidate);
      limits.bytes = std::min(limits.bytes, found.bytes);
    }
    if (found.missed >= limits.bytes) break;
  }
  return best;
}

// The least bound of all, and the spots that are near it with theirs.
std::pair<int64_t, std::vector<std::pair<int64_t, Search::Spot>>> Search::spots_near_least(
    const Limits& limits, double share) {
  std::vector<std::pair<int64_t, Spot>> spots;
  int64_t least = kOpenBytes;
  each(limits, [&](const Spot& spot, Limits& left) {
    const int64_t bytes = taken(spot.usage, limits.budget);
    least = std::min(least, bytes);
    const auto near = static_cast<int64_t>(share * static_cast<double>(least));
    if (bytes <= near) spots.emplace_back(bytes, spot);
    left.has_least = true;
    left.bytes = std::min(left.bytes, share > 1 ? near : near + 1);
  });
  if (spots.empty()) return {least, spots};
  add_larger_capacities(spots, limits, least);
  add_prefetching(spots, limits, static_cast<int64_t>(share * static_cast<double>(least)));
  if (share == 1) std::erase_if(spots, [&](const auto& spot) { return spot.first > least; });
  return {least, spots};
}

Search::LeastFound Search::least_round(const Limits& limits, const LayOut& lay_out, double share) {
  auto [least, spots] = spots_near_least(limits, share);
  std::map<std::pair<size_t, bool>, int64_t> missed;
  const auto miss = [&](const Spot& spot) -> int64_t& { return missed[{spot.frame, spot.segment > 1}]; };
  LeastFound found;
  std::optional<Candidate>& best = found.candidate;
  int64_t& best_bytes = found.bytes;
  int layouts = 0;
  int64_t laid_out_ops = 0;
  double searched = 0;
  const auto bound = [](const auto& entry) { return std::pair(entry.first, entry.second.usage.seconds); };
  const auto expected = [&](const auto& entry) {
    return std::pair(entry.first + miss(entry.second), entry.second.usage.seconds);
  };
  const auto choose = [&] {
    const auto first = std::ranges::min_element(spots, {}, bound);
    if (!is_deep_ || (searched <= kSearchedInOrder && layouts <= kLayoutsInOrder)) return first;
    const auto other = std::ranges::min_element(spots, {}, expected);
    if (other != spots.end() && expected(*other).first < best_bytes) return other;
    return searched < kMostSearched ? first : spots.end();
  };
  // Deep models are known no better than that, and layouts are not looked for more closely.
  constexpr double kAsGood = 1.005;
  const auto is_as_good = [&](int64_t at_least) {
    return static_cast<double>(best_bytes) <= (is_deep_ ? kAsGood : 1.0) * static_cast<double>(at_least);
  };
  while (layouts++ < kMostLayouts && !(best && laid_out_ops > kMostLaidOut)) {
    const auto next = choose();
    if (next == spots.end() || is_as_good(next->first)) break;
    const auto [bytes, spot] = *next;
    spots.erase(next);
    // Other rows of logits with the same bound would be laid out alike: the loss is not where it is reached.
    if (is_deep_)
      std::erase_if(spots, [&](const auto& other) {
        return other.first == bytes && key_of(other.second) == key_of(spot);
      });
    const Candidate laid_out = lay_out(candidate(spot));
    laid_out_ops += spot.usage.ops;
    ops_laid_out_ += kLayoutWork * spot.usage.ops;
    searched += laid_out.layout_work;
    const int64_t above = laid_out.arena_bytes - arena_bytes(spot);
    miss(spot) = std::max(miss(spot), above);
    if (!within(laid_out, limits.budget, request_.target.host)) {
      reject(spot, laid_out);
      found.missed = std::min(found.missed, bytes);
      continue;
    }
    if (bytes + above < best_bytes) best = laid_out;
    best_bytes = std::min(best_bytes, bytes + above);
  }
  if (share == 1 && best_bytes != least) best.reset();
  return found;
}

std::optional<Candidate> Search::least_within(const Budget& budget, double seconds, const LayOut& lay_out,
                                              bool on_device) {
  return least({.budget = budget, .seconds = std::nextafter(seconds, kOpen), .on_device = on_device},
               lay_out);
}

// Host and disk that are less than any variant takes say nothing of the device: room for the least, on the
// host also for programs of more ops.
Budget Search::at_least_possible(Budget budget) {
  const auto raise = [&](std::optional<int64_t> Budget::*limit, int64_t capacity_of, const auto& bytes_of) {
    if (!(budget.*limit)) return;
    std::optional<int64_t> least;
    each({.budget = {}, .smallest_first = true}, [&](const Spot& spot, Limits& left) {
      least = std::min(least.value_or(kOpenBytes), bytes_of(spot.usage));
      left.budget.*limit = least;
    });
    if (least && *least > *(budget.*limit)) budget.*limit = *least + *least / capacity_of;
  };
  raise(&Budget::host_bytes, kMemoryOfPrograms, [&](const Usage& usage) {
    return usage.of(Space::host) + usage.program_bytes + request_.target.host.total();
  });
  raise(&Budget::disk_bytes, kOpenBytes, [](const Usage& usage) { return usage.of(Space::disk); });
  return budget;
}

std::optional<Candidate> Search::knee(const Candidate& chosen, const Budget& budget, const LayOut& lay_out) {
  const auto bytes_of = [&](const Candidate& candidate) {
    return memory_bytes(request_, candidate) -
           (request_.target.own_memory ? outside_bytes(request_.target.device) : 0);
  };
  const auto most = static_cast<int64_t>(kKneeMemory * static_cast<double>(bytes_of(chosen)));
  const OffloadChoice& moved = chosen.variant.offload;
  std::optional<Spot> best;
  each({.budget = budget,
        .seconds = kKneeSeconds * chosen.seconds_per_step,
        .smallest_first = true,
        .on_device = !moved.any(),
        .moves_no_more_than = moved,
        .bytes = most},
       [&](const Spot& spot, Limits& left) {
         const int64_t bytes = taken(spot.usage, budget);
         if (bytes >= left.bytes || !moves_no_more(variant_of(spot).offload, moved)) return;
         best = spot;
         left.bytes = bytes;
       });
  if (!best) return std::nullopt;
  const Candidate found = lay_out(candidate(*best));
  const bool is_one = within(found, budget, request_.target.host) && bytes_of(found) <= most &&
                      found.seconds_per_step <= kKneeSeconds * chosen.seconds_per_step;
  return is_one ? std::optional(found) : std::nullopt;
}

Candidate Search::smallest(const Budget& budget, const LayOut& lay_out) {
  // The limits that are not to be made small, and what marks which one is.
  Limits others{.budget = budget, .smallest_first = true};
  const auto open = [](std::optional<int64_t>& limit) {
    if (limit) limit = std::numeric_limits<int64_t>::max();
  };
  open(others.budget.device_bytes);
  open(others.budget.process_bytes);
  const Others key{budget.host_bytes, budget.disk_bytes, budget.device_bytes.has_value(),
                   budget.process_bytes.has_value()};
  if (const auto known = smallest_.find(key); known != smallest_.end()) return known->second;
  if (const auto found = least(others, lay_out)) return smallest_.emplace(key, *found).first->second;
  others.budget = at_least_possible(others.budget);
  if (const auto found = least(others, lay_out)) return smallest_.emplace(key, *found).first->second;
  std::optional<Spot> best;
  double least_excess = kOpen;
  const Limits unlimited{.budget = {}, .smallest_first = true};
  each(unlimited, [&](const Spot& spot, Limits&) {
    const double excess = overrun(spot, {.budget = budget});
    if (excess < least_excess) best = spot;
    least_excess = std::min(excess, least_excess);
  });
  return lay_out(candidate(*best));
}

}  // namespace plimsoll
