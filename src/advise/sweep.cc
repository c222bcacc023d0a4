#include "advise/sweep.h"

#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "plan/search/depth_model.h"
#include "plan/search/fitting_plans.h"

namespace plimsoll {
namespace {

constexpr int kBudgets = 16;

}  // namespace

SweptMemory read_sweep(const std::string& text) {
  const size_t equals = text.find('=');
  const size_t dots = text.find("..");
  if (text.substr(0, equals) != "memory" || dots == std::string::npos || equals == std::string::npos)
    throw UsageError(formatted("--sweep: '{}' is not memory=SIZE..SIZE, such as memory=2GiB..24GiB", text));
  SweptMemory swept{text.substr(equals + 1, dots - equals - 1), text.substr(dots + 2), {}};
  const int64_t from = parse_bytes(swept.low, "--sweep"), to = parse_bytes(swept.high, "--sweep");
  if (from <= 0 || from >= to)
    throw UsageError(formatted("--sweep: '{}' does not go from a smaller size to a larger one", text));
  const double ratio = static_cast<double>(to) / static_cast<double>(from);
  for (int i = 0; i + 1 < kBudgets; ++i)
    swept.budgets.push_back(
        static_cast<int64_t>(static_cast<double>(from) * std::pow(ratio, i / (kBudgets - 1.0))));
  swept.budgets.push_back(to);
  return swept;
}

Sweep sweep(const PlanRequest& given, const std::vector<int64_t>& budgets) {
  PlanRequest request = given;
  request.measured = std::make_shared<KnownModels>();
  FittingPlans plans(request);
  Sweep swept;
  const int64_t sharing = request.target.own_memory ? 1 : request.target.budget.sharing;
  for (const int64_t budget : budgets) {
    PlanRequest limited = request;
    limit_memory(limited, budget / sharing);
    auto plan = plans.within(limited.target.budget);
    if (!plan) continue;
    if (swept.points.empty() || swept.points.back().plan.variant != plan->variant)
      swept.points.push_back({budget, sharing * plan->memory_bytes(), *std::move(plan)});
  }
  swept.smallest_bytes = sharing * memory_bytes(request, make_plan(request).smallest);
  return swept;
}

}  // namespace plimsoll
