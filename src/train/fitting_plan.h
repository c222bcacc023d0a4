// What a plan has to keep before a run may begin with it.
#pragma once

#include <string>

#include "plan/plan.h"

namespace plimsoll {

// Throws DoesNotFitError for what exceeds a budget, this machine's free memory or the process's limits,
// before arenas or threads exist.
void require_fit(const Plan& plan);

// Where memory.device is `auto` or a share and what is free now does not do for the fastest variant: what was
// taken instead of it. Else empty.
std::string shortage_text(const Plan& plan);

}  // namespace plimsoll
