// Captured graphs within a whole plan: which of its programs have some, with room for them, and what the
// others cost a step.
#pragma once

#include <functional>
#include <optional>

#include "plan/plan.h"
#include "plan/time_model.h"

namespace plimsoll {

// Seconds that a step is longer for the host's launches: of all programs that have no graphs.
double launch_gaps(const Plan& plan, TimeModel model);

// Fills in the graphs of a plan that is laid out, and the seconds of a step with them. Those that nobody
// asked for are left where there is no room.
void take_graphs(Plan& plan);

// A plan with room for the graphs that memory.graphs: on asks for: `make` plans within a budget, from which
// they are taken.
std::optional<Plan> with_graphs(const PlanRequest& given,
                                const std::function<std::optional<Plan>(const Budget&)>& make);

}  // namespace plimsoll
