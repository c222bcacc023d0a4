#include "fleet/queue/packing/ladder.h"

#include <algorithm>

namespace plimsoll::queue {
namespace {

// The most that each of the run's cards can give, or the host.
int64_t whole_device(const Machine& machine, const Need& need) {
  if (need.devices == 0) return machine.host_bytes;
  std::vector<int64_t> bytes;
  for (const MachineCard& card : machine.cards)
    if (is_for(need, card)) bytes.push_back(card.bytes);
  std::sort(bytes.rbegin(), bytes.rend());
  const auto last = static_cast<size_t>(need.devices) - 1;
  return last < bytes.size() ? bytes[last] : 0;
}

// One of the two amounts of a need.
struct Part {
  int64_t Need::*bytes;
  int64_t whole;  // that the machine gives of it
};

// The least that is worth trying of a raised amount; none: it was not raised.
std::optional<int64_t> least_of_raised(const Part& part, const Need& need, const std::vector<Tried>& tried) {
  std::optional<int64_t> least;
  for (const Tried& one : tried)
    if (one.same_command && one.need.*part.bytes < need.*part.bytes)
      least = std::max(least.value_or(0), one.need.*part.bytes + 1);
  if (least || tried.empty() || tried.back().same_command) return least;
  // A new step has run out of nothing yet: it may have what was asked for at first.
  const int64_t requested = tried.front().need.*part.bytes;
  return requested < need.*part.bytes ? std::optional(requested) : std::nullopt;
}

// Lowers a raised amount to what there is. Returns what that means for the run.
Fit lower(const Part& part, Need& need, const std::vector<Tried>& tried) {
  if (need.*part.bytes <= part.whole) return Fit::fits;
  const auto least = least_of_raised(part, need, tried);
  if (!least) return Fit::none;
  if (part.whole >= *least) {
    need.*part.bytes = part.whole;
    return Fit::less;
  }
  if (tried.back().same_command) return Fit::too_little;
  need.*part.bytes = *least;
  return Fit::less;  // and waits for that as for anything that was asked for
}

}  // namespace

FitNextToOthers fit_next_to_others(const Machine& machine, const Need& need,
                                   const std::vector<Tried>& tried) {
  FitNextToOthers beside{Fit::fits, need};
  Need host = need;
  host.devices = 0;
  std::vector<Part> parts = {{&Need::host_bytes, whole_device(machine, host)}};
  if (need.devices > 0) parts.push_back({&Need::device_bytes, whole_device(machine, need)});
  for (const Part& part : parts) beside.fit = std::max(beside.fit, lower(part, beside.need, tried));
  if (beside.fit == Fit::fits && !never_fits(machine, need).empty()) beside.fit = Fit::none;
  if (beside.fit == Fit::none || beside.fit == Fit::too_little) beside.need = need;
  return beside;
}

std::optional<Need> need_after_memory_ran_out(const Machine& machine, Need need, int64_t used) {
  int64_t& bytes = need.devices == 0 ? need.host_bytes : need.device_bytes;
  if (used > 0 && used < bytes) return need;
  const int64_t whole = whole_device(machine, need);
  if (bytes >= whole || used > whole) return std::nullopt;
  bytes = std::min(whole, std::max(bytes + bytes / 2, used + used / 4));
  return need;
}

}  // namespace plimsoll::queue
