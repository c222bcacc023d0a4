// The facts that the processes of one run must have in common before any of them touches its folder.
#pragma once

#include <string>

#include "plan/search/plan.h"
#include "ranks/run_ranks.h"
#include "recipe/recipe.h"

namespace plimsoll {

// The program, the instruction set, the experiment with its model and data.
RankFacts facts_of_recipe(const Recipe& recipe, const std::string& version, const std::string& kernels);
// Once it is planned: programs, layout, steps, the checkpoint that it continues.
RankFacts facts_of_plan(const Plan& plan, int64_t total_steps, bool resumes, const std::string& output);

}  // namespace plimsoll
