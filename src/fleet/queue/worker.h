// The worker of a queue: one loop that takes in what has changed, settles what has ended, and starts what may
// start. Where runs run is the business of its launcher: this machine (local_launcher.h) or Slurm
// (slurm/slurm_launcher.h).
//
// It may end at any moment. Runs continue without it; the next worker finds them by the database and the
// folders of their attempts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fleet/queue/entry_steps.h"

namespace plimsoll::queue {

struct WorkerOptions {
  std::string program;  // Plimsoll itself, where runs find it too
  bool until_done = false;
  // With until_done: for how long a job waits for memory that others use before it is held (packing/ladder.h),
  // and the worker, where nothing runs, for a disk or a database that cannot be written.
  double patience_seconds = kOthersPatienceSeconds;
  double grace_seconds = 30;
  // One line for people about a start or an end.
  std::function<void(const std::string&)> report;
};

// Starts runs and follows them. `entries` are all that are not over; a launcher changes in place what the
// database then has.
class Launcher {
 public:
  Launcher() = default;
  virtual ~Launcher() = default;
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Once, when the worker has the queue: the machine that commands read it for. Throws UsageError where
  // nothing can ever start.
  virtual Machine open() = 0;
  // Follows those that have begun, by the database. Takes out those that another launcher follows.
  virtual void adopt(std::vector<Entry>& entries) = 0;
  // At each look for each run that is to end: passes that on.
  virtual void stop(const Entry& entry) = 0;
  // Returns true if room may have come free.
  virtual bool settle(std::vector<Entry>& entries) = 0;
  // Returns true if more may start although nothing here has changed.
  [[nodiscard]] virtual bool is_due() const = 0;
  virtual void start(std::vector<Entry>& entries) = 0;
  // Runs that it follows.
  [[nodiscard]] virtual size_t running() const = 0;
  // Returns true if none of them is alive: others may have to begin, and cannot.
  [[nodiscard]] virtual bool is_idle() const { return running() == 0; }
  // At most so long, less where a run ends.
  virtual void wait(int milliseconds) = 0;
};

class Worker {
 public:
  // Throws UsageError while another worker has the queue, and what Launcher::open throws.
  Worker(Store& store, Launcher& launcher, WorkerOptions options);

  // Runs until `stop_requested`, until all is done where that was asked for, or until the queue was drained.
  void run(const std::function<bool()>& stop_requested);
  // Once. Whether there is no more to do. Throws StoppedError where the disk is full, or another program holds
  // the database.
  bool look();

 private:
  void reload();
  [[nodiscard]] bool all_done() const;

  Store& store_;
  Launcher& launcher_;
  WorkerOptions options_;
  WorkerLock lock_;
  int64_t version_ = -1;
  std::vector<Entry> entries_;  // not over, as the database has them
  bool changed_ = true;
  bool draining_ = false;
};

}  // namespace plimsoll::queue
