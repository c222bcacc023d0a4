// Checks that a plan keeps its limits before a run may begin with it.
#pragma once

#include <string>
#include <vector>

#include "plan/search/plan.h"

namespace plimsoll {

// Throws RefusedPlan for what exceeds a budget, DoesNotFitError for what exceeds this machine's free memory or
// the process's limits, before arenas or threads exist. Adds shortage_text() to the notes.
void require_fit(const Plan& plan, std::vector<std::string>& notes);

// Names the variant that was taken instead of the fastest one, where the budget is `auto` or a share and the
// memory that is free now is too little for that. Else empty.
std::string shortage_text(const Plan& plan);

}  // namespace plimsoll
