// The weights that a run begins or continues with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "ops/cpu_kernel.h"
#include "plan/program/experiment.h"
#include "recipe/recipe.h"
#include "runs/observer.h"
#include "weights/persistent_state.h"

namespace plimsoll {

struct WeightSource {
  std::string model;                   // folder
  std::optional<std::string> adapter;  // folder of the adapter that trains on
  Init init = Init::weights;
  uint64_t seed = 0;
};

// All weights but those of adapters. Frozen ones always come from here, also in a run that resumes.
void load_start(const WeightSource& source, const Experiment& experiment, const PersistentState& state,
                RunObserver& observer);
// The adapters of a run that begins.
void begin_adapters(const WeightSource& source, const Experiment& experiment, const CpuSettings& cpu,
                    const PersistentState& state);

}  // namespace plimsoll
