// The weights that a run begins or continues with.
#pragma once

#include "ops/cpu_kernel.h"
#include "plan/program/experiment.h"
#include "prepare/run/run_settings.h"
#include "runs/observer.h"
#include "weights/rank_reader.h"

namespace plimsoll {

// All weights but those of adapters. Frozen ones always come from here, also in a run that resumes.
// `reader`: of several ranks; null of one.
void load_start(const WeightSource& source, const Experiment& experiment, const PersistentState& state,
                RunObserver& observer, RankReader* reader);
// The adapters of a run that begins.
void begin_adapters(const WeightSource& source, const Experiment& experiment, const CpuSettings& cpu,
                    const PersistentState& state, RunRanks& ranks, RankReader* reader);

}  // namespace plimsoll
