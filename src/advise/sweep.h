// From budget to seconds: the fastest plan of each budget between two sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/search/plan.h"

namespace plimsoll {

// The budgets of --sweep=memory=SIZE..SIZE: from the first to the second, evenly spaced in ratios.
struct SweptMemory {
  std::string low, high;  // as they were written
  std::vector<int64_t> budgets;
};
SweptMemory read_sweep(const std::string& text);

// The fastest plan of a budget; of several budgets with the same plan the smallest. On a host several processes
// share it.
struct SweptPlan {
  int64_t budget = 0;
  int64_t bytes = 0;  // that the budget bounds: on each card, or of all processes of a host
  Plan plan;
};
struct Sweep {
  std::vector<SweptPlan> points;  // of the budgets that some plan fits
  int64_t smallest_bytes = 0;     // the least that any variant takes
};
// Every point is laid out, so that its bytes are exact.
Sweep sweep(const PlanRequest& request, const std::vector<int64_t>& budgets);

}  // namespace plimsoll
