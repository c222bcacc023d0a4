// Counts what this process did of a run: its steps, tokens, rows and seconds.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "calibrate/probe.h"
#include "runs/run_record.h"
#include "runs/run_rows.h"
#include "train/run_clock.h"
#include "train/run_programs.h"

namespace plimsoll {

struct RunTally {
  // `steps` are to come. Names of the classes are as the model's folder has them now: it may be gone at the
  // end.
  RunTally(int64_t steps, const TaskSpec& task, std::vector<std::string> classes);

  StepTimes times;
  std::vector<RankRecord> ranks;  // of several, as they were at the end
  double sending_seconds = 0;     // of this one
  SkippedRows skipped;
  SeenClasses seen;
  RunWork work;
  RunClock::time_point start;
  TimeLost lost;
  bool crowding_told = false;

  void add(const EffectiveBatch& batch, const OptimizerStep::Result& done);
  // A note, once, when steps have run for long enough to show that they are kept from their CPUs; else "".
  [[nodiscard]] std::string crowding(int threads);
};

}  // namespace plimsoll
