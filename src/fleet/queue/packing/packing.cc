#include "fleet/queue/packing/packing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/format.h"
#include "base/units.h"

namespace plimsoll::queue {
namespace {

void take(Free& free, const Need& need, const std::vector<int>& cards, int sign) {
  free.host_bytes -= sign * need.host_bytes;
  free.threads -= sign * need.threads;
  for (const int card : cards) {
    const auto i = static_cast<size_t>(card);
    free.card_bytes[i] -= sign * need.device_bytes;
    free.card_runs[i] -= sign;
    free.on_card[i] += sign;
  }
}

// The fullest cards that still have room, so that wide gaps stay wide; of a plan for cards those with the
// fewest runs. None: it does not fit.
std::optional<std::vector<int>> place(const Machine& machine, const Free& free, const Need& need) {
  if (free.host_bytes < need.host_bytes || free.threads < need.threads) return std::nullopt;
  std::vector<int> cards;
  for (size_t i = 0; need.devices > 0 && i < free.card_bytes.size(); ++i)
    if (free.card_bytes[i] >= need.device_bytes && free.card_runs[i] > 0 && is_for(need, machine.cards[i]))
      cards.push_back(static_cast<int>(i));
  if (cards.size() < static_cast<size_t>(need.devices)) return std::nullopt;
  const auto order = [&](int card) {
    const auto i = static_cast<size_t>(card);
    return std::pair(need.card.empty() ? 0 : free.on_card[i], free.card_bytes[i]);
  };
  std::stable_sort(cards.begin(), cards.end(), [&](int a, int b) { return order(a) < order(b); });
  cards.resize(static_cast<size_t>(need.devices));
  return cards;
}

Free least(const Free& a, const Free& b) {
  Free both = a;
  both.host_bytes = std::min(a.host_bytes, b.host_bytes);
  both.threads = std::min(a.threads, b.threads);
  for (size_t i = 0; i < a.card_bytes.size(); ++i) {
    both.card_bytes[i] = std::min(a.card_bytes[i], b.card_bytes[i]);
    both.card_runs[i] = std::min(a.card_runs[i], b.card_runs[i]);
    both.on_card[i] = std::max(a.on_card[i], b.on_card[i]);
  }
  return both;
}

// The time at which the first run that waits will fit, and what is then left in addition to it.
struct Reservation {
  double time = std::numeric_limits<double>::infinity();
  Free beside;
};

Reservation reserve(const Machine& machine, Free free, const Need& need, std::vector<Running> running,
                    double now) {
  std::stable_sort(running.begin(), running.end(), [&](const Running& a, const Running& b) {
    return expected_end(a, now) < expected_end(b, now);
  });
  for (const Running& run : running) {
    take(free, run.need, run.cards, -1);
    if (const auto cards = place(machine, free, need)) {
      take(free, need, *cards, 1);
      return {expected_end(run, now), free};
    }
  }
  return {std::numeric_limits<double>::infinity(), free};
}

// The plans that a run may start with: its own, or those for other cards.
std::vector<Placement> ways_of(const Machine& machine, const Waiting& entry) {
  std::vector<Placement> ways = {{entry.id, {}, entry.need, entry.seconds}};
  for (const SmallerPlan& plan : entry.elsewhere)
    ways.push_back({entry.id, {}, with_plan(entry.need, plan), plan.seconds});
  std::erase_if(ways, [&](const Placement& way) { return !never_fits(machine, way.need).empty(); });
  return ways;
}

// The one that ends first of those that can start now; seconds until then. None: no way can.
struct Now {
  Placement start;
  double seconds = std::numeric_limits<double>::infinity();
};
std::optional<Now> start_now(const Machine& machine, const Free& free, const std::vector<Placement>& ways) {
  std::optional<Now> best;
  for (const Placement& way : ways) {
    const auto cards = place(machine, free, way.need);
    if (!cards) continue;
    double seconds = way.seconds;
    if (!way.need.card.empty()) seconds *= 1 + free.on_card[static_cast<size_t>(cards->front())];
    if (!best || seconds < best->seconds) best = {{way.id, *cards, way.need, way.seconds}, seconds};
  }
  return best;
}

// The one that ends first of all that will have room.
struct Later {
  const Placement* way = nullptr;
  Reservation reserved;
  [[nodiscard]] double end() const { return reserved.time + way->seconds; }
};
Later start_later(const Machine& machine, const Free& free, const std::vector<Placement>& ways,
                  const std::vector<Running>& running, double now) {
  Later best;
  for (const Placement& way : ways) {
    const Later later{&way, reserve(machine, free, way.need, running, now)};
    if (best.way == nullptr || later.end() < best.end()) best = later;
  }
  return best;
}

// Cards without room for it now would end it sooner than those that it could start on.
bool faster_is_soon(const Machine& machine, const Free& free, const std::vector<Placement>& ways,
                    const std::vector<Running>& running, double now, const Now& start) {
  if (ways.size() == 1) return false;
  std::vector<Placement> faster = ways;
  std::erase_if(faster, [&](const Placement& way) {
    return way.seconds >= start.seconds || place(machine, free, way.need);
  });
  return !faster.empty() && start_later(machine, free, faster, running, now).end() < now + start.seconds;
}

double rank(const Waiting& entry, double now, double patience) {
  return entry.priority + std::floor(std::max(0.0, now - entry.submitted) / patience);
}

}  // namespace

// A run that is over its predicted time is expected to take a tenth more than it took, a minute at least.
double expected_end(const Running& run, double now) {
  const double seconds = run.seconds > 0 ? run.seconds : kUnknownSeconds;
  const double end = run.started + seconds;
  return end > now ? end : now + std::max(60.0, (now - run.started) / 10);
}

void sort_by_rank(std::vector<Waiting>& waiting, double now, double patience) {
  for (Waiting& entry : waiting)
    if (entry.seconds <= 0) entry.seconds = kUnknownSeconds;
  std::sort(waiting.begin(), waiting.end(), [&](const Waiting& a, const Waiting& b) {
    const double rank_a = rank(a, now, patience), rank_b = rank(b, now, patience);
    if (rank_a != rank_b) return rank_a > rank_b;
    return a.seconds != b.seconds ? a.seconds > b.seconds : a.id < b.id;
  });
}

Free free_of(const Machine& machine, const std::vector<Running>& running) {
  Free free{machine.host_bytes, machine.threads, {}, {}, std::vector<int>(machine.cards.size(), 0)};
  for (const MachineCard& card : machine.cards) {
    free.card_bytes.push_back(card.bytes);
    free.card_runs.push_back(card.max_runs > 0 ? card.max_runs : std::numeric_limits<int>::max());
  }
  for (const Running& run : running) take(free, run.need, run.cards, 1);
  return free;
}

Need with_plan(Need need, const SmallerPlan& plan) {
  need.host_bytes = plan.host_bytes;
  if (plan.threads > 0) need.threads = plan.threads;
  if (plan.device_bytes > 0) {
    need.device_bytes = plan.device_bytes;
    need.card = plan.card;
  }
  if (plan.processes > 0) {
    need.processes = plan.processes;
    if (need.devices > 0) need.devices = plan.processes;
  }
  return need;
}

int64_t host_bytes_of(const Need& need, int processes) {
  if (processes >= need.processes) return need.host_bytes;
  // The shared part is in the sum once, as a share of each that is rounded up to pages.
  const int64_t rounding = need.shared_bytes > 0 ? 64 * kKiB * processes : 0;
  const int64_t shared = std::min(need.shared_bytes, need.host_bytes);
  const int64_t each = (need.host_bytes - shared) / need.processes;
  return std::min(need.host_bytes, each * processes + shared + rounding);
}

bool is_for(const Need& need, const MachineCard& card) {
  return need.card.empty() || card.model.empty() || need.card == card.model || need.card == card.name;
}

Packing pack(const Machine& machine, std::vector<Waiting> waiting, std::vector<Running> running, double now,
             double patience) {
  Packing packing;
  Free free = free_of(machine, running);
  std::optional<Reservation> held;
  sort_by_rank(waiting, now, patience);
  for (const Waiting& entry : waiting) {
    const std::vector<Placement> ways = ways_of(machine, entry);
    if (ways.empty()) continue;
    const bool over_in_time = !held || now + entry.seconds <= held->time;
    const bool is_late = entry.promised && now > *entry.promised;
    const Free room = over_in_time ? free : least(free, held->beside);
    auto start = start_now(machine, room, ways);
    if (start && !is_late && faster_is_soon(machine, room, ways, running, now, *start)) start.reset();
    if (start) {
      const Placement& placed = start->start;
      take(free, placed.need, placed.cards, 1);
      if (!over_in_time) take(held->beside, placed.need, placed.cards, 1);
      running.push_back({entry.id, now, placed.seconds, placed.need, placed.cards});
      packing.starts.push_back(placed);
      continue;
    }
    if (held) continue;
    held = start_later(machine, free, ways, running, now).reserved;
    packing.promise = {entry.id, held->time};
    if (is_late) break;  // its promise is broken: it waits no longer for others
  }
  return packing;
}

std::string never_fits(const Machine& machine, const Need& need) {
  if (need.threads > machine.threads)
    return formatted("{}{}, the queue has {}", need.threads, need.threads == 1 ? " thread" : " threads",
                     machine.threads);
  if (need.host_bytes > machine.host_bytes)
    return formatted("{} on the host, the queue has {}", format_bytes_up(need.host_bytes),
                     format_bytes(machine.host_bytes));
  int64_t largest = 0;
  int enough = 0, alike = 0;
  for (const MachineCard& card : machine.cards) {
    if (!is_for(need, card)) continue;
    ++alike;
    largest = std::max(largest, card.bytes);
    enough += card.bytes >= need.device_bytes ? 1 : 0;
  }
  if (enough >= need.devices) return "";
  const std::string kind = need.card.empty() ? "" : formatted(" ({})", need.card);
  if (alike < need.devices)
    return formatted("{}{}{}, the queue has {}", need.devices,
                     kind.empty() || need.devices > 1 ? " devices" : " device", kind, alike);
  return formatted("{} on each of {} devices{}, the largest has {}", format_bytes_up(need.device_bytes),
                   need.devices, kind, format_bytes(largest));
}

std::string what_is_short(const Machine& machine, const Need& need, const std::vector<Running>& running) {
  const Free free = free_of(machine, running);
  if (place(machine, free, need)) return "";
  if (free.host_bytes < need.host_bytes)
    return format_bytes_up(need.host_bytes - std::max<int64_t>(0, free.host_bytes)) +
           " of memory short on the host";
  if (free.threads < need.threads)
    return std::to_string(need.threads - std::max(0, free.threads)) +
           (need.threads - std::max(0, free.threads) == 1 ? " thread short" : " threads short");
  return formatted("no room on {}{}", need.devices, need.devices == 1 ? " device" : " devices");
}

}  // namespace plimsoll::queue
