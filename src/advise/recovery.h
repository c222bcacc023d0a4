// Changes for a run that ran out of memory: the doctor's next steps, each with its bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "advise/what_if.h"
#include "fleet/doctor/diagnosis.h"
#include "fleet/doctor/tensors.h"

namespace plimsoll {

// A recipe as other tools run it, whatever that takes, and what would shrink it.
struct RecoveryPlan {
  PlanRequest request;
  int64_t base_bytes = 0;                   // of the device, as it stands
  std::string base_words;                   // its variant
  std::vector<doctor::TensorShape> shapes;  // that a step may ask for in one piece
  std::vector<doctor::Step> steps;          // whose commands are "--set KEY=VALUE ..."
};
// `of_states`: memory ran out where the optimizer's states are made, which no smaller batch helps.
RecoveryPlan plan_recovery(const Recipe& recipe, const std::shared_ptr<ModelFiles>& models,
                           const PlannedMachine& machine, bool of_states);

// All at once, as the planner chooses: what fits the device, the nearest to the recipe as it stands.
std::optional<doctor::Step> fitting_step(const WhatIf& what_if, const RecoveryPlan& recovery);

// Steps whose command `plan` would refuse are left out; of the others, whether they do by themselves.
// `timed`: the planner knows the device's speed.
void keep_possible(const WhatIf& what_if, bool timed, std::vector<doctor::Step>& steps);

}  // namespace plimsoll
