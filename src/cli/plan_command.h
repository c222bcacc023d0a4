// What the parts of `plimsoll plan` share.
#pragma once

#include <string>
#include <vector>

#include "cli/commands.h"
#include "plan/plan.h"

namespace plimsoll {

struct PlanArguments {
  RecipeArguments recipe;
  std::string dump, html, machine;
  std::vector<std::string> compare;
  std::string sweep, max;
  bool json = false, timeline = false, explain = false, count = false;
};

// A recipe, and all that planning it asks.
struct PlanInput {
  Recipe recipe;
  KeyReport other_tools;
  PlannedMachine cpu;
  std::shared_ptr<const DataSetup> data;  // where the recipe names some
  PlanRequest request;
};
PlanInput plan_input(const PlanArguments& arguments);
// Under other assumptions: "method.type=full". Throws UsageError for what is not possible.
PlanInput plan_input(const PlanArguments& arguments, const std::vector<std::string>& what_if);
// The same, with rows that may all be as long as data.max_length.
PlanInput plan_input_of_full_rows(const PlanArguments& arguments, const std::vector<std::string>& what_if);

// What the plan's variant would take with means that the recipe neither names nor allows.
std::vector<Saving> not_allowed_savings(const Recipe& recipe, const PlanInput& input, const Plan& plan);

// What would be over sooner, fastest first, where the plan fits and its run takes days.
std::vector<Faster> faster_runs(const PlanArguments& arguments, const Recipe& recipe, const Plan& plan);

ExitCode run_compare(const PlanArguments& arguments);
ExitCode run_explain(const PlanArguments& arguments);
ExitCode run_sweep(const PlanArguments& arguments);
ExitCode run_max(const PlanArguments& arguments);

}  // namespace plimsoll
