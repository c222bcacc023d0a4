#include "fleet/queue/packing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/units.h"

namespace plimsoll::queue {
namespace {

void take(Free& free, const Need& need, const std::vector<int>& cards, int sign) {
  free.host_bytes -= sign * need.host_bytes;
  free.threads -= sign * need.threads;
  for (const int card : cards) {
    free.card_bytes[static_cast<size_t>(card)] -= sign * need.device_bytes;
    free.card_runs[static_cast<size_t>(card)] -= sign;
  }
}

// The fullest cards that still have room, so that wide gaps stay wide. None: it does not fit.
std::optional<std::vector<int>> place(const Free& free, const Need& need) {
  if (free.host_bytes < need.host_bytes || free.threads < need.threads) return std::nullopt;
  std::vector<int> cards;
  for (size_t i = 0; need.devices > 0 && i < free.card_bytes.size(); ++i)
    if (free.card_bytes[i] >= need.device_bytes && free.card_runs[i] > 0)
      cards.push_back(static_cast<int>(i));
  if (cards.size() < static_cast<size_t>(need.devices)) return std::nullopt;
  std::stable_sort(cards.begin(), cards.end(), [&](int a, int b) {
    return free.card_bytes[static_cast<size_t>(a)] < free.card_bytes[static_cast<size_t>(b)];
  });
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
  }
  return both;
}

// When the first run that waits will fit, and what is then left beside it.
struct Reservation {
  double time = std::numeric_limits<double>::infinity();
  Free beside;
};

Reservation reserve(Free free, const Need& need, std::vector<Running> running, double now) {
  std::stable_sort(running.begin(), running.end(), [&](const Running& a, const Running& b) {
    return expected_end(a, now) < expected_end(b, now);
  });
  for (const Running& run : running) {
    take(free, run.need, run.cards, -1);
    if (const auto cards = place(free, need)) {
      take(free, need, *cards, 1);
      return {expected_end(run, now), free};
    }
  }
  return {std::numeric_limits<double>::infinity(), free};
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
  Free free{machine.host_bytes, machine.threads, {}, {}};
  for (const Card& card : machine.cards) {
    free.card_bytes.push_back(card.bytes);
    free.card_runs.push_back(card.max_runs > 0 ? card.max_runs : std::numeric_limits<int>::max());
  }
  for (const Running& run : running) take(free, run.need, run.cards, 1);
  return free;
}

Need with_plan(Need need, const SmallerPlan& plan) {
  need.host_bytes = plan.host_bytes;
  if (plan.threads > 0) need.threads = plan.threads;
  return need;
}

Packing pack(const Machine& machine, std::vector<Waiting> waiting, std::vector<Running> running, double now,
             double patience) {
  Packing packing;
  Free free = free_of(machine, running);
  std::optional<Reservation> held;
  sort_by_rank(waiting, now, patience);
  for (const Waiting& entry : waiting) {
    if (!never_fits(machine, entry.need).empty()) continue;
    const bool over_in_time = !held || now + entry.seconds <= held->time;
    if (const auto cards = place(over_in_time ? free : least(free, held->beside), entry.need)) {
      take(free, entry.need, *cards, 1);
      if (!over_in_time) take(held->beside, entry.need, *cards, 1);
      running.push_back({entry.id, now, entry.seconds, entry.need, *cards});
      packing.starts.push_back({entry.id, *cards});
      continue;
    }
    if (held) continue;
    held = reserve(free, entry.need, running, now);
    packing.promise = {entry.id, held->time};
    if (entry.promised && now > *entry.promised)
      break;  // its promise is broken: it waits no longer for others
  }
  return packing;
}

std::string never_fits(const Machine& machine, const Need& need) {
  if (need.threads > machine.threads)
    return std::to_string(need.threads) + " threads, the queue has " + std::to_string(machine.threads);
  if (need.host_bytes > machine.host_bytes)
    return format_bytes_up(need.host_bytes) + " on the host, the queue has " +
           format_bytes(machine.host_bytes);
  int64_t largest = 0;
  int enough = 0;
  for (const Card& card : machine.cards) {
    largest = std::max(largest, card.bytes);
    enough += card.bytes >= need.device_bytes ? 1 : 0;
  }
  if (enough >= need.devices) return "";
  if (static_cast<int>(machine.cards.size()) < need.devices)
    return std::to_string(need.devices) + " devices, the queue has " + std::to_string(machine.cards.size());
  return format_bytes_up(need.device_bytes) + " on each of " + std::to_string(need.devices) +
         " devices, the largest has " + format_bytes(largest);
}

std::string what_is_short(const Machine& machine, const Need& need, const std::vector<Running>& running) {
  const Free free = free_of(machine, running);
  if (place(free, need)) return "";
  if (free.host_bytes < need.host_bytes)
    return format_bytes_up(need.host_bytes - std::max<int64_t>(0, free.host_bytes)) +
           " of memory short on the host";
  if (free.threads < need.threads)
    return std::to_string(need.threads - std::max(0, free.threads)) + " threads short";
  return "no room on " + std::to_string(need.devices) + (need.devices == 1 ? " device" : " devices");
}

}  // namespace plimsoll::queue
