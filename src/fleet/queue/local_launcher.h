// The worker: starts what fits, settles what has ended, and takes up what an earlier worker has started.
//
// It may end at any moment. Runs continue under their supervisors; the next worker finds them by the database
// and the folders of their attempts.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "fleet/queue/entry_steps.h"
#include "fleet/queue/log_reading.h"
#include "fleet/queue/packing/choose_plans.h"
#include "fleet/queue/packing/machine_ledger.h"
#include "fleet/queue/packing/watched_cards.h"
#include "fleet/queue/processes/process_tree.h"

namespace plimsoll::queue {

struct WorkerOptions {
  Machine machine;
  std::string program;  // Plimsoll itself, for recipes
  bool until_done = false;
  double grace_seconds = 30;
  // Until what waits for others is held, where the worker is to end (ladder.h).
  double patience_seconds = kOthersPatienceSeconds;
  // Host memory that the system has left in addition to what runs take; asked once a second at most.
  std::function<int64_t()> free_host_bytes;
  std::filesystem::path machine_folder;  // of the machine's queues (machine_ledger.h)
  std::shared_ptr<WatchedCards> cards;   // of `machine`; null: there are no other users
  // One line for people about a start or an end.
  std::function<void(const std::string&)> report;
};

// A plan that a run begins with instead of its own.
struct TakenPlan {
  SmallerPlan plan;
  std::string why;
};

class Worker {
 public:
  // Throws UsageError while another worker has the queue.
  Worker(Store& store, WorkerOptions options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Runs until `stop_asked`, until all is done where that was asked for, or until the queue was drained.
  void run(const std::function<bool()>& stop_asked);
  // Once: takes in what has changed, settles what has ended, starts what fits. Whether there is no more to
  // do. Throws StoppedError where the disk is full, or another program holds the database.
  bool look();
  [[nodiscard]] size_t running() const;

 private:
  void reload();
  void look_at_cards();
  void take_in_damaged();
  bool let_go_damaged();
  bool settle_ended();
  // False while its log is being read.
  bool settle_one(Entry& entry, const AttemptState& state);
  [[nodiscard]] bool is_put_off(int64_t id) const;
  void pass_on_requests(const Entry& entry) const;
  void start_what_fits();
  void keep_promise(const Promise& promise, const Machine& machine);
  void end_what_does_not_hear();
  bool starts_without_lock(const std::vector<Waiting>& waiting);
  [[nodiscard]] std::string promised_words() const;
  void start(Entry& entry, const std::vector<int>& cards, const std::optional<TakenPlan>& taken);
  void launch_attempt(const Entry& entry, const Attempt& attempt);
  [[nodiscard]] std::vector<Running> reserved();
  [[nodiscard]] std::vector<RunOnCards> runs_on_cards() const;
  // The processes of an attempt. `children`: of the machine, listed when the first needs them.
  [[nodiscard]] std::vector<pid_t> processes_of(const Attempt& attempt,
                                                std::optional<Children>& children) const;
  [[nodiscard]] std::optional<RunOnCards> run_on_cards(const Attempt& attempt,
                                                       std::optional<Children>& children) const;
  // Handles those of `waiting` that others leave no room for: they get less, their next step, their end, or
  // wait.
  void see_to_what_others_block(const Machine& machine, std::vector<Waiting>& waiting);
  // False where it does not wait any more.
  bool see_to_blocked(Entry& entry, const Machine& machine);
  void hold_blocked(Entry& entry, const std::string& why);
  [[nodiscard]] std::string what_others_block(const Entry& entry, const Machine& machine) const;
  [[nodiscard]] Machine machine_now();
  [[nodiscard]] Machine machine_of_ladder();
  void promise_what_runs() const;
  [[nodiscard]] bool all_done() const;
  void sleep();

  struct Child {
    int file = -1;  // pidfd
    int64_t entry = 0;
  };
  Store& store_;
  WorkerOptions options_;
  MachineLedger ledger_;
  WorkerLock lock_;
  int64_t version_ = -1;
  std::vector<Entry> entries_;               // not over, as the database has them
  std::map<int64_t, Attempt> attempts_;      // of those that run, and of `damaged_`
  std::set<int64_t> damaged_;                // entries with damaged rows, whose runs continue
  std::map<pid_t, Child> children_;          // supervisors that this process started
  std::map<int64_t, int> launched_;          // attempts that this process has tried to begin, by entry
  std::map<int64_t, double> stop_asked_at_;  // by entry, as far as this worker knows
  // Runs that were refused as others had taken their memory: they start not before this time; and how often
  // that was.
  struct Later {
    double time = 0;
    int times = 0;
    double since = 0;
  };
  std::map<int64_t, Later> later_;
  std::map<int64_t, double> blocked_since_;  // by entry: others leave it no room
  LogReadings readings_;
  double lock_missed_at_ = 0, lock_given_up_at_ = 0;  // of the machine's queues; 0: not
  std::map<uid_t, int64_t> promised_by_;              // of the host, by the users of other queues
  double foreign_asked_ = 0;
  int64_t host_limit_ = 0;
  bool changed_ = true;
  bool draining_ = false;
};

}  // namespace plimsoll::queue
