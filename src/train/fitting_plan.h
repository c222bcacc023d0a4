// What a plan has to keep before a run may begin with it.
#pragma once

#include "plan/plan.h"

namespace plimsoll {

// Throws DoesNotFitError for what exceeds a budget, this machine's free memory or the process's limits,
// before arenas or threads exist.
void require_fit(const Plan& plan);

}  // namespace plimsoll
