// The report's line "would save": suggestions that are never applied, only printed.
#pragma once

#include <vector>

#include "advise/what_if.h"
#include "recipe/recipe.h"

namespace plimsoll {

// Memory savings of lossy options that the recipe neither names nor allows, each with what the plan's variant
// would take.
std::vector<Saving> not_allowed_savings(const PlanInput& input, const Recipe& recipe, const Plan& plan);

}  // namespace plimsoll
