// Changes that would shorten a run of days, planned for real: the report's lines "faster".
#pragma once

#include <vector>

#include "advise/what_if.h"
#include "recipe/recipe.h"

namespace plimsoll {

// Changes with which the run would end sooner, fastest first, for a plan that fits and whose run takes days.
std::vector<Faster> faster_runs(const WhatIf& what_if, const Recipe& recipe, const Plan& plan);

}  // namespace plimsoll
