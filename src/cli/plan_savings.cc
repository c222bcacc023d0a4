// The report's line "would save": never done, only told.
#include <algorithm>

#include "base/error.h"
#include "cli/plan_command.h"
#include "train/allowed.h"

namespace plimsoll {

std::vector<Saving> not_allowed_savings(const Recipe& recipe, const PlanInput& input, const Plan& plan) {
  constexpr double kWorthTelling = 0.01;  // of the arena
  std::vector<Saving> savings;
  const auto add = [&](const std::string& name, const Recipe& changed) {
    const PlanRequest request = plan_request(changed, input.cpu, input.data.get());
    int64_t bytes = 0;
    try {
      bytes = device_bytes_at_least(request, plan.variant);
    } catch (const UsageError&) {
      return;  // not possible for this model, as NF4 for odd widths: nothing to suggest
    }
    const double saved = static_cast<double>(plan.layout.lower_bound_bytes() - bytes);
    if (saved > kWorthTelling * static_cast<double>(plan.arena_bytes())) savings.push_back({name, bytes});
  };
  const auto& allowed = recipe.memory.allow;
  for (const char* means : {"adamw8bit", "bf16-states", "nf4"}) {
    if (std::find(allowed.begin(), allowed.end(), means) != allowed.end()) continue;
    if (const auto changed = with_means(recipe, means)) add(means, *changed);
  }
  if (recipe.data.max_length > 1) {
    Recipe shorter = recipe;
    shorter.data.max_length /= 2;
    add("length " + format_count(shorter.data.max_length), shorter);
  }
  return savings;
}

}  // namespace plimsoll
