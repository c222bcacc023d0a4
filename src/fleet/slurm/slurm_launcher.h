// Runs that go to Slurm: hands over what may start, and follows it. Slurm decides
// which of them runs when and where; the queue decides what becomes of an attempt, and what is done after a
// failure, as everywhere.
//
// A job is `plimsoll queue supervise FOLDER` on its node: the supervisor that local runs have (attempt.h), so
// log, memory and record are where they always are. The queue's folder must be on a file system that the
// nodes share, and so must the program and what a run reads.
//
// The worker may end at any moment. Jobs continue; the next worker finds them by the database, and one that
// was handed over but not yet written down by its comment, the attempt's folder.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fleet/queue/log_reading.h"
#include "fleet/queue/worker.h"
#include "fleet/slurm/policy.h"

namespace plimsoll::slurm {

struct SlurmOptions {
  std::string partition;
  std::vector<std::string> options;  // of sbatch, for every job
  std::vector<GpuType> gpus;         // by size, the smallest first; empty: Slurm's own choice
  double time_limit = 0;             // seconds, where none is predicted, and the most in any case; 0: none
  double poll_seconds = 10;          // between questions to Slurm
  size_t most_jobs = 1000;           // handed over at a time
};

class SlurmLauncher : public queue::Launcher {
 public:
  SlurmLauncher(queue::Store& store, queue::WorkerOptions options, SlurmOptions slurm);

  // Throws UsageError where Slurm does not answer.
  queue::Machine open() override;
  void adopt(std::vector<queue::Entry>& entries) override;
  void stop(const queue::Entry& entry) override;
  bool settle(std::vector<queue::Entry>& entries) override;
  [[nodiscard]] bool is_due() const override;
  void start(std::vector<queue::Entry>& entries) override;
  [[nodiscard]] size_t running() const override { return handed_.size(); }
  void wait(int milliseconds) override;
  // Once it is open.
  [[nodiscard]] const queue::Machine& largest_node() const { return node_; }

 private:
  struct Handed {
    queue::Attempt attempt;
    std::optional<Job> job;  // by Slurm's last report
    double over_since = 0;   // that Slurm calls it over, or has forgotten it; 0: neither
    double cancel_sent = 0;  // scancel
    double cancel_requested = 0;
    double end_requested = 0;  // of its supervisor, by a file on what may be a slow shared disk
  };
  bool ask_slurm(std::vector<queue::Entry>& entries);
  bool find_lost_hand_overs(std::vector<queue::Entry>& entries, const std::vector<Job>& jobs);
  void take_word(queue::Entry& entry, Handed& handed, const Job* job);
  bool settle_ended(std::vector<queue::Entry>& entries);
  // False while its logs are read.
  bool settle_one(queue::Entry& entry, const Handed& handed, const Ended& ended);
  [[nodiscard]] std::vector<std::vector<int64_t>> groups_of(std::vector<queue::Entry>& entries,
                                                            const std::vector<queue::Waiting>& waiting) const;
  void submit_group(std::vector<queue::Entry>& entries, const std::vector<int64_t>& ids);
  void hand_over(const std::vector<queue::Entry*>& group);
  void refuse(const std::vector<queue::Entry*>& group, const Answer& answer);
  [[nodiscard]] Submission submission_of(const std::vector<queue::Entry*>& group) const;
  [[nodiscard]] bool fits_cluster(const queue::Need& need) const;
  // The largest node, or of a run that has room on several alone, all of them as one.
  [[nodiscard]] queue::Machine machine_for(const queue::Entry& entry) const;
  void choose_plan(queue::Entry& entry) const;
  [[nodiscard]] double limit_of(const queue::Entry& entry) const;
  void say_once(const std::string& problem);

  queue::Store& store_;
  queue::WorkerOptions options_;
  SlurmOptions slurm_;
  queue::Machine node_;
  int nodes_ = 0;
  std::map<int64_t, Handed> handed_;  // by entry
  queue::LogReadings readings_;
  double requested_ = 0, settled_ = 0, refused_ = 0;  // when
  std::string problem_;                               // that was reported last
};

}  // namespace plimsoll::slurm
