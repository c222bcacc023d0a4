// Simulates a workload on a virtual clock: the queue's packing compared with what people do without one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fleet/queue/packing/ladder.h"
#include "fleet/queue/packing/packing.h"

namespace plimsoll::queue {

// One job as it turns out to be; the queue knows its estimates only.
struct Job {
  std::string name;
  int priority = 0;
  double arrives = 0;
  double seconds = 0;            // that it takes
  double predicted_seconds = 0;  // that the queue knows; 0: nothing
  Need need;                     // that the queue knows
  int64_t peak_bytes = 0;        // that it takes on each card, or on the host where it has none
  double ramp_seconds = 0;       // from nothing to its peak, evenly
  double leak_bytes_per_second = 0;
  std::vector<SmallerPlan> smaller = {};  // that the queue may give it; seconds as predicted
  // The next smaller variant where memory runs out and there is no more: --on-oom.
  struct Step {
    int64_t peak_bytes = 0;
    double seconds = 0;
  };
  std::vector<Step> steps = {};
};

// Memory that another user has of a device, or of the host, for a while.
struct OthersUse {
  int64_t bytes = 0;
  double from = 0, until = 0;  // until 0: for ever
};

struct Workload {
  Machine machine;      // whole capacities
  double headroom = 0;  // share of each device that is not given out
  double margin = 0;    // added to every estimate
  std::vector<Job> jobs;
  std::vector<std::vector<OthersUse>> others = {};   // on each device, and last on the host; empty: no other
                                                     // users
  double patience_seconds = kOthersPatienceSeconds;  // of the queue, with what waits for others
};

// The machine without what others have of it at that time.
Machine beside_others(const Workload& workload, Machine machine, double now);

// Throws UsageError, with the file's `name` and the job, for what is no workload: docs/howto/queue.md.
Workload read_workload(std::string_view json, const std::string& name);

// The machine with what may be given out.
Machine less_headroom(const Workload& workload);

enum class Policy : uint8_t {
  packed,      // this queue
  polled,      // every 30 s, in order, wherever as much memory is free as the job is expected to need
  one_a_card,  // one job on each card, in order
};
std::string_view name_of(Policy policy);

struct Outcome {
  Policy policy{};
  double makespan = 0;   // seconds until the last job ended
  double mean_wait = 0;  // seconds from arrival to the start that led to the end
  int crashes = 0;       // attempts that ran out of memory
  int crashed_jobs = 0;  // jobs with such an attempt
  int lost_jobs = 0;     // that a person would have to see to, those that are held included
  int held_jobs = 0;     // that others left no room for
  int done_jobs = 0;
  int steps_taken = 0;         // Job::steps
  double longest_blocked = 0;  // seconds that a job waited for others; packed only, as the two before
  int most_at_once = 0;        // runs
  double used_share = 0;       // of the devices' memory, peaks over time, until the last job ended
  int64_t most_reserved = 0;   // the highest sum of reservations on one device, bytes; packed only
};

Outcome simulate(const Workload& workload, Policy policy);

std::string simulation_text(const Workload& workload, const std::vector<Outcome>& outcomes);
std::string simulation_json(const Workload& workload, const std::vector<Outcome>& outcomes);

}  // namespace plimsoll::queue
