#include "prepare/allowed.h"

#include <bit>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/system_memory.h"
#include "base/units.h"
#include "plan/search/fitting_plans.h"

namespace plimsoll {
namespace {

// Every set of the allowed means, those of few first.
std::vector<std::vector<std::string>> subsets(const std::vector<std::string>& allowed) {
  std::vector<std::vector<std::string>> sets;
  for (size_t size = 1; size <= allowed.size(); ++size) {
    for (unsigned mask = 1; mask < 1U << allowed.size(); ++mask) {
      if (static_cast<size_t>(std::popcount(mask)) != size) continue;
      auto& set = sets.emplace_back();
      for (size_t i = 0; i < allowed.size(); ++i)
        if ((mask >> i & 1U) != 0) set.push_back(allowed[i]);
    }
  }
  return sets;
}

// Plans a recipe with lossy options; none: nothing fits.
using Planner = std::function<std::optional<Plan>(const Recipe&, std::vector<std::string>)>;

// As few of the allowed means as will do; of equally many, the fastest.
std::optional<AllowedPlan> fitting_lossy(const Recipe& recipe, const Planner& planner) {
  std::optional<AllowedPlan> best;
  for (const std::vector<std::string>& set : subsets(recipe.memory.allow)) {
    if (best && best->plan.request.lossy.size() < set.size()) break;
    std::optional<Recipe> changed = recipe;
    for (const std::string& means : set)
      if (changed) changed = with_means(*std::move(changed), means);
    if (!changed) continue;
    std::optional<Plan> plan;
    try {
      plan = planner(*changed, set);
    } catch (const UsageError&) {
      continue;  // not possible for this model, as NF4 for odd widths
    }
    if (plan && (!best || plan->seconds_per_step < best->plan.seconds_per_step))
      best = {*std::move(changed), *std::move(plan)};
  }
  return best;
}

// The stages that memory.shard: auto may take instead: the same recipe with gradients divided too, and with weights.
// Nothing where it is stated, or cannot.
std::vector<Recipe> dividing_more(const Recipe& recipe, const PlannedMachine& machine) {
  if (recipe.memory.shard != ShardStage::automatic || shard_stage(recipe) != ShardStage::states) return {};
  const bool has_weights = needs_whole_weights(recipe).empty() && needs_no_division(recipe, machine).empty();
  std::vector<Recipe> recipes(has_weights ? 2 : 1, recipe);
  recipes.front().memory.shard = ShardStage::gradients;
  if (recipes.size() > 1) recipes.back().memory.shard = ShardStage::weights;
  return recipes;
}

// Dividing more may keep on cards what they would fetch through their links to the host in every step.
bool may_be_faster_divided(const Plan& plan) {
  return plan.request.target.own_memory && plan.variant.offload.any();
}

// Returns whether a plan that divides more is better. A plan that does not fit is the smallest of its stage.
bool is_better(const Plan& divided, const Plan& than) {
  if (!than.fits()) return divided.fits() || divided.memory_bytes() < than.memory_bytes();
  return divided.fits() && divided.seconds_per_step < (1 - than.request.choices.tie) * than.seconds_per_step;
}

}  // namespace

std::optional<Recipe> with_means(Recipe recipe, const std::string& means) {
  const bool full = recipe.method.type == MethodType::full;
  if (means == "adamw8bit") {
    const bool bf16_states =
        recipe.precision.states != DType::f32 && recipe.precision.gradients == DType::f32;
    if (recipe.optimizer.name != OptimizerKind::adamw || bf16_states) return std::nullopt;
    recipe.precision.states = DType::f32;  // of what stays beside the 8 bits: scales, small weights
    recipe.optimizer.name = OptimizerKind::adamw8bit;
  } else if (means == "bf16-states") {
    // Adapters' states are f32 whatever the precision says.
    if (!full || recipe.optimizer.name != OptimizerKind::adamw || recipe.precision.states != DType::f32)
      return std::nullopt;
    recipe.precision.states = DType::bf16;
    recipe.precision.rounding = Rounding::stochastic;
  } else {
    if (recipe.method.type != MethodType::lora) return std::nullopt;
    recipe.method.type = MethodType::qlora;
  }
  return recipe;
}

namespace {

// In a group with little room, weighing variants may take more than there is.
template <class Plan>
Plan plan_in_group(const PlanRequest& request, Plan (*plan)(const PlanRequest&)) {
  const GrowthWithinCgroups room;
  try {
    return plan(request);
  } catch (const std::bad_alloc&) {
    if (!room.bytes()) throw;
    throw DoesNotFitError(
        formatted("does not fit   planning alone takes more than the {} that this process's cgroup leaves "
                  "free",
                  format_bytes(*room.bytes())));
  }
}

// In the stage of memory.shard that is the fastest of those that fit, or takes least where none does: the next one is
// looked at where it may be better.
AllowedPlan lossless_plan(const Recipe& recipe, const PlannedMachine& machine,
                          const std::function<Plan(const Recipe&, std::vector<std::string>)>& planned) {
  AllowedPlan best{recipe, planned(recipe, {})};
  for (Recipe& divided : dividing_more(recipe, machine)) {
    if (best.plan.fits() && !may_be_faster_divided(best.plan)) break;
    Plan plan = planned(divided, {});
    if (is_better(plan, best.plan)) best = {std::move(divided), std::move(plan)};
  }
  return best;
}

}  // namespace

AllowedPlan plan_lossless(const Resolved& resolved, const PlannedMachine& machine, const DataSetup* data) {
  return lossless_plan(resolved.recipe, machine, [&](const Recipe& changed, std::vector<std::string>) {
    return plan_in_group<Plan>(plan_request(resolve_as(resolved, changed), machine, data), make_plan);
  });
}

AllowedPlan plan_allowed(const Resolved& resolved, const PlannedMachine& machine, const DataSetup* data,
                         const LayoutOptions& layout, bool names_knee,
                         const std::function<void(size_t, size_t)>& progress) {
  const Recipe& recipe = resolved.recipe;
  const auto request_for = [&](const Recipe& changed, std::vector<std::string> lossy) {
    PlanRequest request = plan_request(resolve_as(resolved, changed), machine, data);
    request.target.layout.reuse = layout.reuse;
    request.names_knee = names_knee;
    request.progress = progress;
    request.lossy = std::move(lossy);
    return request;
  };
  const auto planned = [&](const Recipe& changed, std::vector<std::string> lossy) {
    return plan_in_group<Plan>(request_for(changed, std::move(lossy)), make_plan);
  };
  const auto fitting = [&](const Recipe& changed, std::vector<std::string> lossy) {
    return plan_in_group<std::optional<Plan>>(request_for(changed, std::move(lossy)), plan_where_it_fits);
  };
  // The least memory without loss is looked for where nothing else is to be planned, or nothing fits.
  const bool lossless_first = !recipe.memory.allow.empty() && dividing_more(recipe, machine).empty();
  if (lossless_first)
    if (auto plan = fitting(recipe, {})) return {recipe, *std::move(plan)};
  std::optional<AllowedPlan> lossless;
  if (!lossless_first) lossless = lossless_plan(recipe, machine, planned);
  if (lossless && lossless->plan.fits()) return *std::move(lossless);
  if (auto lossy = fitting_lossy(recipe, fitting)) return *std::move(lossy);
  return lossless ? *std::move(lossless) : AllowedPlan{recipe, planned(recipe, {})};
}

std::optional<Plan> fitting_allowed(const Resolved& resolved, const PlannedMachine& machine,
                                    const DataSetup* data, const std::shared_ptr<KnownModels>& measured) {
  const Planner planner = [&](const Recipe& changed, std::vector<std::string> lossy) {
    PlanRequest request = plan_request(resolve_as(resolved, changed), machine, data);
    // Lossy means change the programs.
    if (lossy.empty()) request.measured = measured;
    request.lossy = std::move(lossy);
    return FittingPlans(request).within(request.target.budget);
  };
  auto lossless = planner(resolved.recipe, {});
  for (const Recipe& divided : dividing_more(resolved.recipe, machine)) {
    if (lossless && !may_be_faster_divided(*lossless)) break;
    auto plan = planner(divided, {});
    if (plan && (!lossless || is_better(*plan, *lossless))) lossless = std::move(plan);
  }
  if (lossless) return lossless;
  auto lossy = fitting_lossy(resolved.recipe, planner);
  return lossy ? std::optional(std::move(lossy->plan)) : std::nullopt;
}

}  // namespace plimsoll
