// Functions and types that the parts of `plimsoll plan` share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "advise/ways.h"
#include "advise/what_if.h"
#include "cli/caller_arguments.h"
#include "cli/commands.h"
#include "prepare/plan_input.h"

namespace plimsoll {

struct PlanArguments {
  RecipeArguments recipe;
  CallerArguments caller;
  std::string dump, html, machine;
  std::vector<std::string> compare;
  std::string sweep, max;
  int64_t stated_rows = 0,
          stated_tokens = 0;  // of rows that the recipe does not name; 0: they are not stated
  bool json = false, timeline = false, explain = false, count = false, full = false;
  // Shared by copies of these arguments, like what their recipes are read from.
  std::shared_ptr<OpenedRows> rows = std::make_shared<OpenedRows>();
};

// Programs are made and thrown away by the hundred: given back to the system each time, their memory was a
// tenth of a plan's time.
void keep_freed_memory();

// The recipe of a command line, as it is planned.
struct RequestedPlan {
  PlanInput input;
  KeyReport other_tools;
  bool card_by_itself = false;  // device: auto took a card
};
RequestedPlan plan_of(const PlanArguments& arguments);
// The recipe under other assumptions (Overrides::what_if). Throws UsageError for what is not possible.
// `full_rows`: with rows that may all be as long as data.max_length.
PlanInput plan_input(const PlanArguments& arguments, const Changes& assumed, bool full_rows = false);
// The recipe with changes of the command line, which begins with `command`: "plan", or "train" and its flags.
// `arguments` outlive it.
Variants variants_of(const std::string& command, const PlanArguments& arguments);

// plan/ways_text.cc
// Lines under a refusal, each begun by a line break; empty without ways.
std::string ways_text(const std::vector<Way>& ways);
// The same, and what an event of the error has of them.
std::string told_ways(const std::vector<Way>& ways);
nlohmann::ordered_json ways_json(const std::vector<Way>& ways);

ExitCode run_compare(const PlanArguments& arguments);
ExitCode run_explain(const PlanArguments& arguments);
ExitCode run_sweep(const PlanArguments& arguments);
ExitCode run_max(const PlanArguments& arguments);

}  // namespace plimsoll
