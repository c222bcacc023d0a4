// The worker of a queue whose runs go to Slurm: hands over what may start, and follows it. Slurm decides
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

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fleet/queue/entry_steps.h"
#include "fleet/queue/log_reading.h"
#include "fleet/slurm/policy.h"

namespace plimsoll::slurm {

struct SlurmOptions {
  std::string program;  // Plimsoll itself, where nodes find it too
  std::string partition;
  std::vector<std::string> options;  // of sbatch, for every job
  std::vector<GpuType> gpus;         // by size, the smallest first; empty: Slurm's own choice
  double time_limit = 0;             // seconds, where none is predicted, and the most in any case; 0: none
  double poll_seconds = 10;          // between questions to Slurm
  double grace_seconds = 30;
  size_t most_jobs = 1000;  // handed over at a time
  bool until_done = false;
  std::function<void(const std::string&)> report;
};

class SlurmWorker {
 public:
  // Throws UsageError while another worker has the queue, or where Slurm does not answer.
  SlurmWorker(queue::Store& store, SlurmOptions options);
  // Runs until `stop_asked`, until all is done where that was asked for, or until the queue was drained.
  void run(const std::function<bool()>& stop_asked);
  [[nodiscard]] size_t handed_over() const { return handed_.size(); }
  [[nodiscard]] const queue::Machine& largest_node() const { return node_; }

 private:
  bool look();
  struct Handed {
    queue::Attempt attempt;
    std::optional<Job> job;  // by Slurm's last report
    double over_since = 0;   // that Slurm calls it over, or has forgotten it; 0: neither
    double cancel_sent = 0;  // scancel
    double cancel_asked = 0;
  };
  void reload();
  void ask_slurm();
  void find_lost_hand_overs(const std::vector<Job>& jobs);
  void take_word(queue::Entry& entry, Handed& handed, const Job* job);
  void pass_on_request(const queue::Entry& entry, Handed& handed);
  bool settle_ended();
  // False while its logs are read.
  bool settle_one(queue::Entry& entry, const Handed& handed, const Ended& ended);
  void submit_ready();
  std::vector<std::vector<int64_t>> groups_of(const std::vector<queue::Waiting>& waiting);
  void submit_group(const std::vector<int64_t>& ids);
  void hand_over(const std::vector<queue::Entry*>& group);
  void refuse(const std::vector<queue::Entry*>& group, const Answer& answer);
  [[nodiscard]] Submission submission_of(const std::vector<queue::Entry*>& group) const;
  [[nodiscard]] double limit_of(const queue::Entry& entry) const;
  queue::Entry* entry_of(int64_t id);
  void say_once(const std::string& problem);

  queue::Store& store_;
  SlurmOptions options_;
  queue::WorkerLock lock_;
  queue::Machine node_;
  int64_t version_ = -1;
  std::vector<queue::Entry> entries_;  // not over
  std::map<int64_t, Handed> handed_;   // by entry
  queue::LogReadings readings_;
  double asked_ = 0, settled_ = 0, refused_ = 0;  // when
  bool changed_ = true, draining_ = false;
  std::string problem_;  // that was reported last
};

}  // namespace plimsoll::slurm
