// The steps that every worker of a queue takes with an entry, local or on Slurm: whether it may start, what
// is started, what has become of it.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "fleet/queue/outcome.h"
#include "fleet/queue/packing/ladder.h"
#include "fleet/queue/processes/attempt.h"
#include "fleet/queue/store/store.h"

namespace plimsoll::queue {

// Seconds since 1970.
double clock_now();
// "12 name", for people.
std::string title(const Entry& entry);
// NAME=VALUE: everything that an attempt starts has it in its environment.
std::string mark_of(const Store& store, const Attempt& attempt);

// Held by the one worker of a queue. Throws UsageError where another has it.
class WorkerLock {
 public:
  explicit WorkerLock(const std::filesystem::path& queue_folder);
  WorkerLock(const WorkerLock&) = delete;
  WorkerLock& operator=(const WorkerLock&) = delete;
  ~WorkerLock();

 private:
  int file_ = -1;
};

// Waits for errors that pass, a full disk or a database that another program holds, so that the worker need
// not be started again.
class RetryLoop {
 public:
  explicit RetryLoop(std::function<void(const std::string&)> report) : report_(std::move(report)) {}
  // Returns true if `step` could be done. An error that prevents it is reported once, and waited for a
  // second.
  bool done(const std::function<void()>& step);
  // Throws StoppedError, with that error, where no step could be done for so long.
  void give_up_after(double patience_seconds) const;

 private:
  std::function<void(const std::string&)> report_;
  std::string problem_;
  std::chrono::steady_clock::time_point since_;  // of the problem
};

// The plans that may be chosen for an entry that starts. A run that continues keeps the plan it began with,
// where that still fits `machine` at all; on a number of devices that may be chosen it may continue with another one.
std::vector<SmallerPlan> open_plans(const Machine& machine, const Entry& entry);
// The reason why neither its own plan nor any of these can ever fit; empty where one of them fits.
std::string never_fits_at_all(const Machine& machine, const Entry& entry,
                              const std::vector<SmallerPlan>& plans);
// Returns true if all that a waiting entry comes after is done. An entry that can never start on `machine` is
// held, with the reason; one that needs cards is not held while more of them may come.
bool is_ready(Store& store, const Machine& machine, Entry& entry, bool cards_may_come = false);
// Returns true if it is held because of an entry that it comes after.
bool is_held_by_another(const Entry& entry);
// Requeues held entries whose dependency has been retried or resumed.
void let_go_what_may_follow(Store& store, std::vector<Entry>& entries);

// Holds those that come after themselves, by way of others: they would wait for ever.
void hold_cycles(Store& store, std::vector<Entry>& entries);

// `program`: Plimsoll itself, for recipes. The attempt's folder is made.
Launch launch_of(Store& store, const Entry& entry, const Attempt& attempt, const std::string& program,
                 double grace_seconds);

// The needs that an entry has tried, for fit_next_to_others().
std::vector<Tried> tried_by(Store& store, const Entry& entry);

// Attempts that another worker has begun end by this one's grace.
void take_up(Store& store, double grace_seconds);

// Settles an attempt that is over. `entry` becomes what the store has then; returns a line for people.
std::string settle_attempt(Store& store, const Machine& machine, Entry& entry, int number,
                           const AttemptState& state, const LogVerdict& verdict);

}  // namespace plimsoll::queue
