// Takes frames of a queue and this machine, from the database, the folders of runs, and /proc.
#pragma once

#include <map>
#include <set>

#include "fleet/devices/watch.h"
#include "fleet/queue/processes/process_tree.h"
#include "fleet/queue/store/store.h"
#include "fleet/top/frame.h"

namespace plimsoll::top {

class Gatherer {
 public:
  // `free_host_bytes`: what the system has left. `gpus`: watches the cards, outlives this; null: they are not
  // asked.
  Gatherer(queue::Store& store, int64_t (*free_host_bytes)(), devices::GpuWatch* gpus = nullptr)
      : store_(store), free_(free_host_bytes), gpus_(gpus) {}
  // Open entries, and the last ones that ended.
  Frame take();

 private:
  RunStatus look_at_run(const queue::Entry& entry, const std::map<pid_t, queue::Process>& processes);
  void look_at_gpus(Frame& frame, bool has_worker_record, const std::map<pid_t, queue::Process>& processes);
  std::optional<double> cores_of(int64_t ticks, int64_t before) const;

  queue::Store& store_;
  int64_t (*free_)();
  devices::GpuWatch* gpus_;
  std::map<int64_t, std::vector<pid_t>> trees_;  // processes of runs in this frame, by entry
  std::map<pid_t, int64_t> ticks_;               // of CPU time that processes had in the frame before, by pid
  std::set<pid_t> of_runs_;                      // processes of runs and their supervisors in this frame
  std::string host_name_ = "cpu:0";              // what runs without a card are on
  double taken_ = 0, elapsed_ = 0;
};

}  // namespace plimsoll::top
