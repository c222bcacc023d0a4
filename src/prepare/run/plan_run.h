// Makes the plan that a run trains with.
#pragma once

#include <string>
#include <vector>

#include "prepare/allowed.h"
#include "ranks/run_ranks.h"

namespace plimsoll {

// plan_allowed(), on resuming keep_sums_in_order(), and require_fit() with what these throw and note. They
// weigh thousands of programs, so a process of its own does, and only the plan that it chose is made here:
// its heap is what the components "program" and "programs" bound. Of several ranks the leading one chooses for all, by the
// memory that is free there. Call it before any thread of ours is started.
AllowedPlan plan_run(const Resolved& resolved, const PlannedMachine& machine, const DataSetup& data,
                     const LayoutOptions& layout, bool resumes, RunRanks& ranks,
                     std::vector<std::string>& notes);

}  // namespace plimsoll
