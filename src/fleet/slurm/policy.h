// The request to Slurm for a run, and the meaning of an end there: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fleet/queue/packing/packing.h"
#include "fleet/queue/processes/attempt.h"
#include "fleet/slurm/slurm.h"

namespace plimsoll::slurm {

// Memory of a job in addition to its run's: its supervisor, with the kernel's own of its control group.
inline constexpr int64_t kSupervisorBytes = int64_t{32} << 20;

struct GpuType {
  std::string name;        // as Slurm's GRES calls it; empty: without a type
  int64_t bytes = 0;       // of memory, on each
  std::string model = {};  // as plans name it; empty: not known by its name
};

// The nodes of a job that runs on several, each with at most so many of the run's processes.
struct Spread {
  int nodes = 1, on_node = 1;
};
// For a run of several processes that no node has room for alone, over at most so many nodes like `node`; none
// where there is no room for it, or where it needs no more than one.
std::optional<Spread> spread_of(const queue::Machine& node, int nodes, const queue::Need& need);
// The need of its processes on one node together.
queue::Need need_on_node(const queue::Need& need, int processes);

// The time limit of a job: predicted seconds and half as much again, a quarter of an hour at least.
double time_limit(double predicted_seconds, double stated_limit);
// Memory of a job: the run's, and what its supervisor takes in addition.
int64_t job_memory(int64_t host_bytes);
// "l4", "a100" and the like with what plans call it.
GpuType read_type(const std::string& name, int64_t bytes);
// The stated types by the names that nodes have for them (Nodes::gpu_types): GPUs without a type are asked for without one.
// Throws UsageError for what no node has: Slurm lets a job wait for it without an end.
std::vector<GpuType> types_of_nodes(std::vector<GpuType> stated, const std::vector<std::string>& of_nodes);
// The smallest type that has so much, and that the plan is for; none where no type is, "" where there is no
// choice to make.
std::optional<std::string> gpu_type(const std::vector<GpuType>& types, const queue::Need& need);
// The first plan that a type is for: the run's own, or one of the others. Its own where there is no such
// type.
queue::Need need_of_types(const std::vector<GpuType>& types, const queue::Need& own,
                          const std::vector<queue::SmallerPlan>& plans);

// The end of an attempt, by Slurm's word and its own record. `begun`: its supervisor was there. Nothing: it
// is not over, or its record may still be on its way (`seconds_over`: for so long it has been over, or gone).
struct Ended {
  queue::AttemptState state;
  bool canceled_there = false;  // by scancel, not through the queue
};
std::optional<Ended> ended(const std::optional<Job>& job, const std::optional<queue::Exit>& exit, bool begun,
                           double limit, double seconds_over);

// Ended for its memory, with its supervisor.
queue::AttemptState ended_by_memory();

}  // namespace plimsoll::slurm
