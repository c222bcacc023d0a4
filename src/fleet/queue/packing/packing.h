// Decides which waiting runs start now, and where: pure functions of what is reserved, waiting and expected
// to end.
//
// A run starts only where its whole need fits in addition to the needs of the runs that are there, on its
// cards and on the host; all its cards at once or none. Free memory never counts: what a neighbour has yet to
// take is not free.
//
// Order: rank (priority, and one more for each `patience` of waiting), then the longest, then the oldest. The
// first run that does not fit is promised the time at which it will; others may overtake it where they do not
// put that off. Recipes on cards share what these compute: one goes where it is predicted to end first, which
// is its seconds times the runs that are then on the card, and waits for a faster card that is free soon
// enough. Once a promise is broken (a prediction was wrong) nothing below that run starts before it: as
// rank grows without end, every run that can fit at all starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll::queue {

// The resources that a run takes, all of them at once.
struct Need {
  int devices = 0;           // cards, each of them `device_bytes`; 0: the host alone
  int64_t device_bytes = 0;  // on each card
  int64_t host_bytes = 0;
  int threads = 1;
  // The cards that a plan is for: those of a model (MachineCard::model), or one by its name. Empty: any.
  std::string card = {};
  // Processes of a recipe on several devices, which share the host's bytes and the threads, each on a card of its
  // own where there are any.
  int processes = 1;
  // A part of `host_bytes` that the processes of a machine hold once, the most of any plan of the run.
  int64_t shared_bytes = 0;
  bool operator==(const Need&) const = default;
};

struct MachineCard {
  std::string name;
  int64_t bytes = 0;         // that runs may reserve: headroom and foreign use are off it already
  int max_runs = 0;          // 0: as many as fit
  std::string problem = {};  // why it takes nothing new, in words behind its name; empty: it does
  std::string model = {};    // "RTX 3060 12GB"; empty: not known, and taken to be what a plan is for
};

struct Machine {
  int64_t host_bytes = 0;  // that runs may reserve
  int threads = 0;
  std::vector<MachineCard> cards;
  std::string host = "cpu:0";  // what the host's memory and threads are called
};

// Another plan of the same run: in less memory or with fewer threads, for other cards, or on another number of
// devices.
struct SmallerPlan {
  int64_t host_bytes = 0;
  double seconds = 0;
  int threads = 0;           // 0: as many as the run's own plan
  int64_t device_bytes = 0;  // of a run on cards, as the next
  std::string card = {};
  int processes = 0;  // 0: as many as the run's own plan
  bool operator==(const SmallerPlan&) const = default;
};

// The need of a run that runs with this plan.
Need with_plan(Need need, const SmallerPlan& plan);
// Host memory of so many of its processes on one machine.
int64_t host_bytes_of(const Need& need, int processes);

struct Waiting {
  int64_t id = 0;
  int priority = 0;
  double seconds = 0;    // predicted; 0: unknown, taken as kUnknownSeconds
  double submitted = 0;  // on the clock of `now`
  std::optional<double> promised;
  Need need;
  std::vector<SmallerPlan> smaller = {};  // that it may have instead, the fastest first
  std::vector<SmallerPlan> elsewhere =
      {};  // where `need` is of some cards: a plan for each other kind and number of them
};

struct Running {
  int64_t id = 0;
  double started = 0;
  double seconds = 0;  // as of Waiting
  Need need;
  std::vector<int> cards;  // indices into Machine::cards
};

struct Placement {
  int64_t id = 0;
  std::vector<int> cards;
  Need need;  // of Waiting, or with the plan for the cards that it got
  double seconds = 0;
};

struct Promise {
  int64_t id = 0;
  double time = 0;
};

struct Packing {
  std::vector<Placement> starts;
  std::optional<Promise> promise;  // of the first that waits; keep it in Waiting::promised if that has none
};

inline constexpr double kUnknownSeconds = 3600;
inline constexpr double kPatienceSeconds = 2 * 3600;

Packing pack(const Machine& machine, std::vector<Waiting> waiting, std::vector<Running> running, double now,
             double patience = kPatienceSeconds);

// Returns true if a plan with such a need is for the card.
bool is_for(const Need& need, const MachineCard& card);

// The time at which a run will have ended, as far as predictions tell.
double expected_end(const Running& run, double now);

// In the order in which they are looked at: priority and waiting, then the longest, then the oldest.
void sort_by_rank(std::vector<Waiting>& waiting, double now, double patience = kPatienceSeconds);

// The reason why a need can never fit this machine, empty where it fits when nothing else runs.
std::string never_fits(const Machine& machine, const Need& need);
// The shortage while these run, in words for a list: "4.00 GiB of memory short on the host".
std::string what_is_short(const Machine& machine, const Need& need, const std::vector<Running>& running);

// Reserved now, all runs together: never above the machine.
struct Free {
  int64_t host_bytes = 0;
  int threads = 0;
  std::vector<int64_t> card_bytes;
  std::vector<int> card_runs;  // that may still come
  std::vector<int> on_card;    // that are there
};
Free free_of(const Machine& machine, const std::vector<Running>& running);

}  // namespace plimsoll::queue
