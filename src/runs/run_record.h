// The record of a run at its end: run.json, and the lines that compare plan and measurement.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/system_memory.h"
#include "files/run_folder.h"
#include "plan/search/plan.h"
#include "runs/loss_scale.h"
#include "runs/observer.h"
#include "runs/run_rows.h"
#include "runtime/device.h"

namespace plimsoll {

struct BestStep {
  int64_t step = 0;
  double eval_loss = 0;
  std::string goal = "loss";  // that it is the best by, and its value
  double value = 0;
};

// Memory of a GPU, with all processes on it.
struct CardBytes {
  int64_t total = 0;     // that programs may have
  int64_t arena = 0;     // what the driver took for it
  int64_t beside = 0;    // the rest that is taken now: of this process, where no other is there
  int64_t grown = 0;     // since the programs were bound
  int64_t on_host = 0;   // what opening the device took of the host's memory
  int64_t exchange = 0;  // of beside: for what ranks exchange by NCCL
  Device::GraphUse graphs;
};

// The work of the model in this process.
struct RunWork {
  int64_t micro_steps = 0, tokens = 0;
  int64_t passed = 0;  // tokens through the model: those that rows share once
};

// One of several processes of a run.
struct RankRecord {
  int64_t peak_rss = 0, data = 0, device_bytes = 0;
  int64_t shared_bytes = 0;    // of these, that the processes of its machine have once
  int64_t exchange_bytes = 0;  // of the card, that exchange by NCCL takes
  int64_t sent_bytes = 0;      // to others
  double sending_seconds = 0;  // in which it waited for others and for what they sent
  int64_t loaded_bytes = 0;    // of weights and states that it read for all
};

struct RunRecord {
  bool finished = false;  // false: interrupted
  int64_t steps = 0;
  double seconds = 0;  // of this process, from its first step on
  double final_loss = 0;
  std::optional<double> eval_loss;
  std::optional<BestStep> best;
  int64_t device_bytes = 0, host_bytes = 0, disk_bytes = 0;  // bytes requested from the system
  int64_t scratch_bytes = 0;                                 // the same: of the shuffle
  ProcessMemory memory;
  std::optional<CardBytes> card;  // of a device with memory of its own
  std::string products;           // the library that computes them on it; empty: only the device's own
                                  // kernels could
  double data_wait_seconds = 0, offload_wait_seconds = 0;
  std::string kernels;
  RunWork work = {};
  RowCounts rows = {};  // of this process
  std::optional<LossScale> loss_scale = {};
  std::vector<RankRecord> ranks = {};  // empty: it has one process

  // The peaks of all processes; memory that those of a machine share counts once for each of so many machines.
  [[nodiscard]] int64_t bytes_together(int64_t machines) const;
};

// Seconds and rates of each step of this process; memory for them is claimed at the start.
class StepTimes {
 public:
  void reserve(int64_t steps);
  void add(double seconds, double tokens_per_second);  // allocates nothing
  [[nodiscard]] int64_t steps() const { return static_cast<int64_t>(seconds_.size()); }
  // Medians after the first two steps; 0 where there are no others.
  [[nodiscard]] double median_seconds() const;
  [[nodiscard]] double median_rate() const;

 private:
  std::vector<double> seconds_, rates_;
};

void write_run_json(RunFolder& output, const Plan& plan, const RunRecord& record, const StepTimes& times);
// The note of a run whose process had more resident bytes than planned; empty for any other. A kernel with large
// folios maps far more of a library's pages than are used (55 MiB for 36): clean ones, which it can drop.
// `card`: the files are the driver's too, which the plan has a component for.
std::string above_plan(const ProcessMemory& measured, int64_t planned, bool card = false);
// "done    938 steps in 20:04 · loss 1.0312 ...", planned and measured, what to do next. `whole`: what was
// saved and its base are all of the model.
void report_end(RunObserver& progress, const std::filesystem::path& output, const Plan& plan,
                const RunRecord& record, const StepTimes& times, bool whole);

// The first line of a run: bytes, batch and steps.
std::string plan_line(const Plan& plan, int64_t steps);
// The note where bf16 is computed without instructions for it; else empty.
std::string products_note(const Plan& plan);

}  // namespace plimsoll
