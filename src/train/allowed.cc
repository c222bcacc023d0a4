#include "train/allowed.h"

#include <bit>

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

}  // namespace

std::optional<Recipe> with_means(Recipe recipe, const std::string& means) {
  const bool full = recipe.method.type == MethodType::full;
  if (means == "adamw8bit") {
    if (recipe.optimizer.name != OptimizerKind::adamw || recipe.precision.states != DType::f32)
      return std::nullopt;
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

AllowedPlan plan_allowed(const Recipe& recipe, const PlannedMachine& machine, const DataSetup* data,
                         const LayoutOptions& layout, const std::function<void(size_t, size_t)>& progress) {
  const auto planned = [&](const Recipe& changed, std::vector<std::string> lossy) {
    PlanRequest request = plan_request(changed, machine, data);
    request.layout = layout;
    request.progress = progress;
    request.lossy = std::move(lossy);
    return AllowedPlan{changed, make_plan(request)};
  };
  AllowedPlan lossless = planned(recipe, {});
  if (lossless.plan.fits()) return lossless;
  std::optional<AllowedPlan> best;
  for (const std::vector<std::string>& set : subsets(recipe.memory.allow)) {
    if (best && best->plan.request.lossy.size() < set.size()) break;
    std::optional<Recipe> changed = recipe;
    for (const std::string& means : set)
      if (changed) changed = with_means(*std::move(changed), means);
    if (!changed) continue;
    AllowedPlan found;
    try {
      found = planned(*changed, set);
    } catch (const UsageError&) {
      continue;  // not possible for this model, as NF4 for odd widths
    }
    if (found.plan.fits() && (!best || found.plan.seconds_per_step < best->plan.seconds_per_step))
      best = std::move(found);
  }
  return best ? *std::move(best) : lossless;
}

}  // namespace plimsoll
