// The plan that a run may begin with.
#pragma once

#include "plan/plan.h"

namespace plimsoll {

// Throws DoesNotFitError for what exceeds a budget, this machine's free memory or the process's limits,
// before arenas or threads exist.
Plan fitting_plan(PlanRequest request);

}  // namespace plimsoll
