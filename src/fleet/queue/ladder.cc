#include "fleet/queue/ladder.h"

#include <algorithm>

namespace plimsoll::queue {
namespace {

// The most that each of the run's cards can give, or the host.
int64_t whole_device(const Machine& machine, const Need& need) {
  if (need.devices == 0) return machine.host_bytes;
  std::vector<int64_t> bytes;
  for (const Card& card : machine.cards)
    if (is_for(need, card)) bytes.push_back(card.bytes);
  std::sort(bytes.rbegin(), bytes.rend());
  const auto last = static_cast<size_t>(need.devices) - 1;
  return last < bytes.size() ? bytes[last] : 0;
}

}  // namespace

std::optional<Need> need_after_memory_ran_out(const Machine& machine, Need need, int64_t used) {
  int64_t& bytes = need.devices == 0 ? need.host_bytes : need.device_bytes;
  if (used > 0 && used < bytes) return need;
  const int64_t whole = whole_device(machine, need);
  if (bytes >= whole || used > whole) return std::nullopt;
  bytes = std::min(whole, std::max(bytes + bytes / 2, used + used / 4));
  return need;
}

}  // namespace plimsoll::queue
