// Captured graphs within a whole plan: which of its programs are captured, in the memory that is left for
// them, and what the others cost a step.
#pragma once

#include "plan/program/time_model.h"
#include "plan/search/plan.h"

namespace plimsoll {

// Seconds that a step is longer for the host's launches: of all programs that have no graphs.
double launch_gaps(const Plan& plan, TimeModel model);

// Fills in the graphs of a plan that is laid out, or none, and the seconds of a step with them.
void set_graphs(Plan& plan, bool wanted, const char* why_not = "");
// With graphs; those that were not asked for are left out where memory is short.
void take_graphs(Plan& plan);

}  // namespace plimsoll
