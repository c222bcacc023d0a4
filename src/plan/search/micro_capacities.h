// Micro-batches measured in tokens: how the rows fill a capacity, and the capacities worth weighing.
#pragma once

#include <vector>

#include "plan/program/time_model.h"
#include "plan/search/plan.h"

namespace plimsoll {

// An estimate of how an optimizer step's rows go into micro-steps of this capacity: on average, over a fixed
// choice among `sizes` that is the same for every capacity.
struct MicroEstimate {
  double steps = 0;
  int64_t most_rows = 0;  // in a micro-step
};
MicroEstimate estimate_micro_steps(const Experiment& experiment, const MicroCapacity& capacity,
                                   const std::vector<RowSize>& sizes);

// The smallest room for each number of micro-steps on average, the largest room first: whole numbers, and of
// capacities in tokens of deep models quarters below two micro-steps and halves below four. In rows where the recipe states it,
// where their sizes are not known or all alike, and with packing.
std::vector<MicroCapacity> micro_capacities(const PlanRequest& request);

// The share of the variant's programs that the rows of a step fill. Full where no rows are known.
Filling filling_of(const Experiment& experiment, const std::optional<RunSteps>& run, const Variant& variant);

}  // namespace plimsoll
