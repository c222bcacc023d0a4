#include "advise/faster.h"

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "plan/search/fitting_plans.h"

namespace plimsoll {
namespace {

constexpr double kDay = 86400;
constexpr double kFasterThan = 0.97;  // of the time as it is
// A plan of a huge model may take many seconds; people wait for the report.
constexpr int64_t kFasterPatience = 10'000'000;  // of planning_work(): some seconds

// A change to weigh, and what it does to the result.
struct FasterChange {
  Changes changes;
  std::string effect;
};

std::string percent_words(double share) {
  const double percent = share * 100.0;
  return (percent < 1.0 ? "below 1" : std::to_string(std::lround(percent))) + " %";
}

// Rows cut to half of the longest.
void add_shorter_rows(int64_t longest, std::vector<FasterChange>& changes) {
  constexpr int64_t kShortest = 16;
  if (longest >= kShortest) changes.push_back({{{"data.max_length", std::to_string(longest / 2)}}, "cuts "});
}

// Rows that share a sequence: as many to a step as before.
void add_packing(const Recipe& recipe, const DataSummary& data, std::vector<FasterChange>& changes) {
  const double mean = static_cast<double>(data.tokens) / static_cast<double>(std::max<int64_t>(1, data.rows));
  const auto together = static_cast<int64_t>(static_cast<double>(recipe.data.max_length) / mean);
  if (recipe.data.packing || recipe.data.joined || together < 2) return;
  const int64_t effective = std::max<int64_t>(1, recipe.batch.effective / together);
  changes.push_back({{{"data.packing", "true"}, {"batch.effective", std::to_string(effective)}},
                     "rows are packed into sequences: about as many rows per step, grouped differently"});
}

std::vector<FasterChange> changes_of(const Recipe& recipe, const Plan& plan) {
  std::vector<FasterChange> changes;
  if (const auto& budget = memory_budget(plan.request); budget && !plan.request.target.budget.of_free) {
    PlanRequest open = plan.request;
    limit_memory(open, std::nullopt);
    open.target.budget.host_bytes.reset();
    const auto fastest = FittingPlans(open).within(open.target.budget);
    const int64_t enough = fastest ? round_up(fastest->memory_bytes(), kMiB) / kMiB : 0;
    if (enough * kMiB > *budget)
      changes.push_back({{{"memory.device", std::to_string(enough) + "MiB"}}, "more memory, same result"});
  }
  if (plan.request.workload.data) {
    add_shorter_rows(plan.request.workload.experiment.max_length, changes);
    add_packing(recipe, *plan.request.workload.data, changes);
  }
  if (recipe.method.type == MethodType::full) {
    changes.push_back({{{"method.type", "lora"}}, "adapters on a frozen model: other method"});
    if (!recipe.method.freeze.empty()) changes.back().changes.push_back({"method.freeze", "null"});
  } else if (recipe.method.r >= 8 && !recipe.adapter) {
    changes.push_back({{{"method.r", std::to_string(recipe.method.r / 2)}}, "adapters of half the rank"});
  }
  if (recipe.schedule.epochs > 1 && !recipe.schedule.max_steps)
    changes.push_back({{{"schedule.epochs", "1"}}, "every row once"});
  return changes;
}

// The gain of a change; nullopt where it is not possible or does not fit.
std::optional<Faster> weigh(const WhatIf& what_if, const FasterChange& change) {
  const std::optional<Plan> plan = fitting_plan(what_if, change.changes);
  if (!plan) return std::nullopt;
  std::string effect = change.effect;
  if (effect == "cuts ")
    effect += percent_words(plan->request.workload.data->truncated_share) + " of the rows";
  Faster faster{{}, effect, plan->run_seconds(), plan->memory_bytes()};
  for (const KeyChange& one : change.changes) faster.sets.push_back(one.assignment());
  return faster;
}

}  // namespace

std::vector<Faster> faster_runs(const WhatIf& what_if, const Recipe& recipe, const Plan& plan) {
  std::vector<Faster> found;
  if (!plan.fits() || plan.run_seconds() < kDay) return found;
  const Patience patience(kFasterPatience);
  for (const FasterChange& change : changes_of(recipe, plan)) {
    if (patience.ended()) break;
    if (auto faster = weigh(what_if, change);
        faster && faster->run_seconds < kFasterThan * plan.run_seconds())
      found.push_back(*std::move(faster));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Faster& a, const Faster& b) { return a.run_seconds < b.run_seconds; });
  return found;
}

}  // namespace plimsoll
