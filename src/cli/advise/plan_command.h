// Functions and types that the parts of `plimsoll plan` share.
#pragma once

#include <string>
#include <vector>

#include "cli/commands.h"
#include "plan/search/plan.h"

namespace plimsoll {

struct PlanArguments {
  RecipeArguments recipe;
  std::string dump, html, machine;
  std::vector<std::string> compare;
  std::string sweep, max;
  bool json = false, timeline = false, explain = false, count = false, full = false;
};

// A recipe, with all inputs of its planning.
struct PlanInput {
  Resolved resolved;
  KeyReport other_tools;
  PlannedMachine machine;
  std::shared_ptr<const DataSetup> data;  // where the recipe names some
  PlanRequest request;
  bool card_by_itself = false;  // device: auto took a card
};
PlanInput plan_input(const PlanArguments& arguments);
// Under other assumptions: "method.type=full". Throws UsageError for what is not possible.
PlanInput plan_input(const PlanArguments& arguments, const std::vector<std::string>& what_if);
// The same, with rows that may all be as long as data.max_length.
PlanInput plan_input_of_full_rows(const PlanArguments& arguments, const std::vector<std::string>& what_if);

// Memory savings of lossy options that the recipe neither names nor allows, each with what the plan's variant
// would take.
std::vector<Saving> not_allowed_savings(const Recipe& recipe, const PlanInput& input, const Plan& plan);

// Changes with which the run would end sooner, fastest first, for a plan that fits and whose run takes days.
std::vector<Faster> faster_runs(const PlanArguments& arguments, const Recipe& recipe, const Plan& plan);

// The budgets of --sweep=memory=SIZE..SIZE: from the first to the second, evenly spaced in ratios.
struct SweptMemory {
  std::string low, high;  // as they were written
  std::vector<int64_t> budgets;
};
SweptMemory read_sweep(const std::string& text);

// The plan with the least memory at a value of what --max makes large: where it fits, some plan does.
struct TriedValue {
  int64_t value = 0;
  int64_t bytes = 0;  // of what the budget bounds
  bool fits = false;
};
// The last value from 1 to `most` that fits, as bytes grow with it; 0: not even 1 does.
int64_t largest_that_fits(int64_t most, const std::optional<int64_t>& limit,
                          const std::function<TriedValue(int64_t)>& try_value);

ExitCode run_compare(const PlanArguments& arguments);
ExitCode run_explain(const PlanArguments& arguments);
ExitCode run_sweep(const PlanArguments& arguments);
ExitCode run_max(const PlanArguments& arguments);

}  // namespace plimsoll
