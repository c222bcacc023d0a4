// Runs on this machine: starts what fits next to running jobs, and settles what has ended.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "fleet/queue/log_reading.h"
#include "fleet/queue/packing/choose_plans.h"
#include "fleet/queue/packing/machine_ledger.h"
#include "fleet/queue/packing/watched_cards.h"
#include "fleet/queue/processes/process_tree.h"
#include "fleet/queue/worker.h"

namespace plimsoll::queue {

struct LocalOptions {
  Machine machine;
  // Host memory that the system has left in addition to what runs take; asked once a second at most.
  std::function<int64_t()> free_host_bytes;
  std::filesystem::path machine_folder;  // of the machine's queues (machine_ledger.h)
  std::shared_ptr<WatchedCards> cards;   // of `machine`; null: there are no other users
};

// A plan that a run begins with instead of its own.
struct TakenPlan {
  SmallerPlan plan;
  std::string why;
};

class LocalLauncher : public Launcher {
 public:
  LocalLauncher(Store& store, WorkerOptions options, LocalOptions local);
  ~LocalLauncher() override;
  LocalLauncher(const LocalLauncher&) = delete;
  LocalLauncher& operator=(const LocalLauncher&) = delete;

  Machine open() override;
  void adopt(std::vector<Entry>& entries) override;
  void stop(const Entry& entry) override;
  bool settle(std::vector<Entry>& entries) override;
  [[nodiscard]] bool is_due() const override;
  void start(std::vector<Entry>& entries) override;
  [[nodiscard]] size_t running() const override;
  [[nodiscard]] bool is_idle() const override;
  void wait(int milliseconds) override;

 private:
  bool look_at_cards();
  void take_in_damaged();
  bool let_go_damaged();
  bool settle_ended(std::vector<Entry>& entries);
  // False while its log is being read.
  bool settle_one(Entry& entry, const AttemptState& state);
  [[nodiscard]] bool is_put_off(int64_t id) const;
  void keep_promise(std::vector<Entry>& entries, const Promise& promise, const Machine& machine);
  [[nodiscard]] AttemptState state_of(const Entry& entry) const;
  bool starts_without_lock(std::vector<Entry>& entries, const std::vector<Waiting>& waiting);
  [[nodiscard]] std::string promised_words() const;
  void start_one(Entry& entry, const std::vector<int>& cards, const std::optional<TakenPlan>& taken);
  void launch_attempt(const Entry& entry, const Attempt& attempt);
  [[nodiscard]] std::vector<Running> reserved(const std::vector<Entry>& entries) const;
  [[nodiscard]] std::vector<RunOnCards> runs_on_cards() const;
  // The processes of an attempt. `children`: of the machine, listed when the first needs them.
  [[nodiscard]] std::vector<pid_t> processes_of(const Attempt& attempt,
                                                std::optional<Children>& children) const;
  [[nodiscard]] std::optional<RunOnCards> run_on_cards(const Attempt& attempt,
                                                       std::optional<Children>& children) const;
  // Handles those of `waiting` that others leave no room for: they get less, their next step, their end, or
  // wait.
  void see_to_what_others_block(std::vector<Entry>& entries, const Machine& machine,
                                std::vector<Waiting>& waiting);
  // False where it does not wait any more.
  bool see_to_blocked(Entry& entry, const Machine& machine);
  void hold_blocked(Entry& entry, const std::string& why);
  [[nodiscard]] std::string what_others_block(const Entry& entry, const Machine& machine) const;
  [[nodiscard]] Machine machine_now();
  [[nodiscard]] Machine machine_of_ladder();
  void promise_what_runs() const;

  struct Child {
    int file = -1;  // pidfd
    int64_t entry = 0;
  };
  Store& store_;
  WorkerOptions options_;
  LocalOptions local_;
  MachineLedger ledger_;
  std::map<int64_t, Attempt> attempts_;          // of those that run, and of `damaged_`
  std::set<int64_t> damaged_;                    // entries with damaged rows, whose runs continue
  std::map<pid_t, Child> children_;              // supervisors that this process started
  std::map<int64_t, int> ends_;                  // as waitpid tells them, of the last of each entry's
  std::map<int64_t, int> launched_;              // attempts that this process has tried to begin, by entry
  std::map<int64_t, double> stop_requested_at_;  // by entry, as far as this worker knows
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
  double foreign_looked_at_ = 0;
  int64_t host_limit_ = 0;
};

}  // namespace plimsoll::queue
