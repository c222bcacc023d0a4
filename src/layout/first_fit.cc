#include "layout/first_fit.h"

#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "base/error.h"

namespace plimsoll::layout {
namespace {

// Comparisons of one buffer with another by all its rounds: a tenth of a second.
constexpr double kFirstFitWork = 4e7;

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
  return by_keys(instance, key);
}

// The buffers that have been placed, by offset. Nearly everything that a buffer is compared with is not alive
// with it, so that lives lie apart from offsets, and several are compared at once.
class PlacedByOffset {
 public:
  explicit PlacedByOffset(size_t most) {
    places_.reserve(most);
    born_.reserve(most);
    dead_.reserve(most);
  }

  // The lowest offset where so many bytes have room while nothing that is alive in `span` lies there, and how
  // many were looked at for it.
  struct Room {
    int64_t offset = 0;
    size_t seen = 0;
  };
  [[nodiscard]] Room find(Span span, int64_t bytes) const {
    constexpr size_t kAtOnce = 64;
    Room room;
    const auto begin = static_cast<int32_t>(span.begin), end = static_cast<int32_t>(span.end);
    for (size_t first = 0; first < places_.size(); first += kAtOnce) {
      const size_t count = std::min(kAtOnce, places_.size() - first);
      std::array<uint8_t, kAtOnce> alive{};
      for (size_t i = 0; i < count; ++i)
        alive[i] = static_cast<uint8_t>(static_cast<int32_t>(born_[first + i] < end) &
                                        static_cast<int32_t>(begin < dead_[first + i]));
      for (size_t word = 0; word < count; word += sizeof(uint64_t)) {
        uint64_t any = 0;
        std::memcpy(&any, &alive[word], sizeof any);
        for (size_t i = word; any != 0 && i < word + sizeof any; ++i) {
          if (alive[i] == 0) continue;
          const auto& [offset, top] = places_[first + i];
          room.seen = first + i;
          if (offset - room.offset >= bytes) return room;
          room.offset = std::max(room.offset, top);
        }
      }
    }
    room.seen = places_.size();
    return room;
  }

  void add(int64_t offset, int64_t bytes, Span span) {
    const auto place = std::ranges::upper_bound(places_, offset, {}, &Place::offset) - places_.begin();
    places_.insert(places_.begin() + place, {offset, offset + bytes});
    born_.insert(born_.begin() + place, static_cast<int32_t>(span.begin));
    dead_.insert(dead_.begin() + place, static_cast<int32_t>(span.end));
  }

 private:
  struct Place {
    int64_t offset, end;
  };
  std::vector<Place> places_;
  std::vector<int32_t> born_, dead_;  // points of the profile, the second exclusive
};

// Each buffer at the lowest offset where nothing that is alive with it lies; gaps below others are used,
// which a skyline cannot. Adds the comparisons it made to `work`.
Placement first_fit(const Instance& instance, std::span<const int32_t> order, double& work) {
  PlacedByOffset placed(order.size());
  Placement placement;
  placement.offsets.resize(order.size());
  placement.lower_bound = instance.lower_bound;
  placement.tie_break = "first fit";
  for (const int32_t buffer : order) {
    const auto b = static_cast<size_t>(buffer);
    const int64_t bytes = instance.bytes[b];
    const auto [offset, seen] = placed.find(instance.spans[b], bytes);
    work += static_cast<double>(seen + 1);
    placed.add(offset, bytes, instance.spans[b]);
    placement.offsets[b] = offset;
    placement.top = std::max(placement.top, offset + bytes);
  }
  return placement;
}

// Moves buffers that stuck out above the lower bound to an earlier place for the next time ("squeaky wheel"
// optimisation: Joslin and Clements, JAIR 1999): at once to the front, or half the way.
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

}  // namespace

void improve_by_first_fit(const Instance& instance, Placement& best) {
  const int64_t enough = good_enough(instance);
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

}  // namespace plimsoll::layout
