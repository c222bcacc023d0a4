// Lossy memory options, used only where the recipe allows them by name (memory.allow) and nothing without
// them fits.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "prepare/setup.h"

namespace plimsoll {

// The recipe with one of the means of memory.allow; none where that means nothing with the rest of it.
std::optional<Recipe> with_means(Recipe recipe, const std::string& means);

// A recipe, changed by what was taken, and its plan. What was taken is in plan.request.lossy.
struct AllowedPlan {
  Recipe recipe;
  Plan plan;
};

// The recipe without lossy means. Unless memory.shard is stated, several devices divide gradients too, or weights, where
// nothing fits without that, and where cards that would fetch parts from the host are faster so.
AllowedPlan plan_lossless(const Resolved& resolved, const PlannedMachine& machine, const DataSetup* data);

// The same where it fits, and where none of the allowed means helps: then the plan does not fit. Otherwise takes as few
// means as will do; of equally many, the fastest.
AllowedPlan plan_allowed(const Resolved& resolved, const PlannedMachine& machine, const DataSetup* data,
                         const LayoutOptions& layout = {}, bool names_knee = false,
                         const std::function<void(size_t, size_t)>& progress = {});
// The same plan where it fits, in less time (FittingPlans). `measured`: of the recipe as it is, with other budgets.
std::optional<Plan> fitting_allowed(const Resolved& resolved, const PlannedMachine& machine,
                                    const DataSetup* data, const std::shared_ptr<KnownModels>& measured = {});

}  // namespace plimsoll
