// Checks that a plan keeps its limits before a run may begin with it.
#pragma once

#include <string>
#include <vector>

#include "plan/search/plan.h"

namespace plimsoll {

// Throws RefusedPlan for what exceeds a budget, DoesNotFitError for what exceeds this machine's free memory or
// the process's limits, before arenas or threads exist. Adds shortage_text() to the notes.
void require_fit(const Plan& plan, std::vector<std::string>& notes);

// Where the budget is `auto` or a share and what is free now does not do for the fastest variant: what was
// taken instead of it. Else empty.
std::string shortage_text(const Plan& plan);

}  // namespace plimsoll
