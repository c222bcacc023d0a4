#include "layout/evict.h"

#include <cmath>
#include <limits>

namespace plimsoll::layout {
namespace {

constexpr int64_t kStays = int64_t{1} << 50;  // the weight of what is never driven out
constexpr int64_t kMostWeight = int64_t{1} << 40;
constexpr int64_t kFreshSteps = 3;    // so many steps after it found a place
constexpr int64_t kFreshWeight = 64;  // a buffer weighs so many times as much
constexpr double kMetWork = 8;        // of one that lies in the way, in terms of one that does not

}  // namespace

Evictions::Evictions(const Instance& instance, const Neighbours& neighbours, int64_t base, int64_t height)
    : instance_(instance), near_(neighbours), base_(base), height_(height), places_(instance.spans.size()) {
  for (const int64_t each : instance.bytes)
    size_weights_.push_back(1 +
                            static_cast<int64_t>(std::sqrt(static_cast<double>(each / instance.alignment))));
  for (size_t i = 0; i < places_.size(); ++i) places_[i].weight = size_weights_[i];
}

void Evictions::lie(int32_t buffer, int64_t offset, Standing standing) {
  Place& place = places_[static_cast<size_t>(buffer)];
  place.begin = offset;
  place.end = offset + bytes(buffer);
  place.standing = standing;
}

void Evictions::put(int32_t buffer, int64_t offset) { lie(buffer, offset, Standing::stays); }

bool Evictions::lay(int32_t buffer, int64_t offset) {
  const int64_t end = offset + bytes(buffer);
  const auto is_there = [&](int32_t other) {
    return places_[static_cast<size_t>(other)].lies_in(offset, end);
  };
  if (std::ranges::any_of(near_.of(buffer), is_there)) return false;
  lie(buffer, offset, Standing::lies);
  return true;
}

bool Evictions::settle(std::span<const int32_t> buffers, double most_work, uint64_t seed) {
  draws_ = seed;
  step_ = 0;
  std::vector<Waiting> waiting;
  for (const int32_t buffer : buffers) {
    Place& place = places_[static_cast<size_t>(buffer)];
    place.weight = size_weights_[static_cast<size_t>(buffer)];
    place.placed_at = -kFreshSteps;
    if (place.standing == Standing::nowhere) waiting.push_back({place.weight, buffer});
  }
  const double end = work_ + most_work;
  while (!waiting.empty() && work_ < end) {
    ++step_;
    const auto heaviest = std::ranges::max_element(waiting, {}, &Waiting::weight);
    const int32_t buffer = heaviest->buffer;
    work_ += static_cast<double>(waiting.size()) / kMetWork;
    const int64_t offset = place_for(buffer);
    if (offset < 0) break;
    *heaviest = waiting.back();
    waiting.pop_back();
    take(buffer, offset, waiting);
  }
  const bool done = waiting.empty();
  for (const int32_t buffer : buffers)
    places_[static_cast<size_t>(buffer)].standing = done ? Standing::stays : Standing::nowhere;
  return done;
}

// Finds the buffers that have a place and are alive with it.
void Evictions::meet(int32_t buffer) {
  met_.clear();
  lows_.clear();
  highs_.clear();
  for (const int32_t other : near_.of(buffer)) {
    const Place& place = places_[static_cast<size_t>(other)];
    if (place.standing == Standing::nowhere) continue;
    const bool fresh = place.placed_at + kFreshSteps >= step_;
    const int64_t weight =
        place.standing == Standing::stays ? kStays : place.weight * (fresh ? kFreshWeight : 1);
    met_.push_back(other);
    lows_.push_back({place.begin, weight});
    highs_.push_back({place.end, weight});
  }
  std::ranges::sort(lows_, {}, &Side::at);
  std::ranges::sort(highs_, {}, &Side::at);
  work_ += static_cast<double>(near_.of(buffer).size()) + kMetWork * static_cast<double>(lows_.size());
}

// The place where what lies there weighs least, one of several; -1: what stays leaves none. Places are looked
// at that touch an end or something else.
int64_t Evictions::place_for(int32_t buffer) {
  const int64_t own = bytes(buffer), last = height_ - own;
  if (base_ > last) return -1;
  meet(buffer);
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  auto low = lows_.begin(), below = lows_.begin();
  auto high = highs_.begin(), above = highs_.begin();
  int64_t weight = 0;  // of what begins below the candidate's end, less what ends below its begin
  int64_t least = kStays, place = -1;
  size_t equal = 0;
  for (int64_t candidate = base_; candidate <= last;) {
    for (; low != lows_.end() && low->at < candidate + own; ++low) weight += low->weight;
    for (; high != highs_.end() && high->at <= candidate; ++high) weight -= high->weight;
    if (weight < least) equal = 0;
    if (weight < kStays && weight <= least && draw(++equal) == 0) {
      least = weight;
      place = candidate;
    }
    if (candidate == last) break;
    while (below != lows_.end() && below->at - own <= candidate) ++below;
    while (above != highs_.end() && above->at <= candidate) ++above;
    candidate = std::min(
        {last, below != lows_.end() ? below->at - own : kNone, above != highs_.end() ? above->at : kNone});
  }
  return place;
}

// place_for() met what lies there.
void Evictions::take(int32_t buffer, int64_t offset, std::vector<Waiting>& waiting) {
  const int64_t end = offset + bytes(buffer);
  for (const int32_t other : met_) {
    Place& place = places_[static_cast<size_t>(other)];
    if (!place.lies_in(offset, end)) continue;
    place.standing = Standing::nowhere;
    place.weight = std::min(kMostWeight, place.weight + size_weights_[static_cast<size_t>(other)]);
    waiting.push_back({place.weight, other});
  }
  lie(buffer, offset, Standing::lies);
  places_[static_cast<size_t>(buffer)].placed_at = step_;
}

// Below `count`, by a linear congruential generator (Knuth's MMIX): the same everywhere.
size_t Evictions::draw(size_t count) {
  draws_ = draws_ * 6364136223846793005U + 1442695040888963407U;
  return static_cast<size_t>((draws_ >> 33U) % count);
}

}  // namespace plimsoll::layout
