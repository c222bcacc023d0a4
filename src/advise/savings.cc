#include "advise/savings.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "base/units.h"
#include "prepare/allowed.h"

namespace plimsoll {
namespace {

// The length of the other rows if few rows are much longer than all others; else half of the longest.
std::pair<int64_t, std::string> shorter_length(const Plan& plan) {
  const int64_t longest = plan.request.workload.experiment.max_length;
  const auto& data = plan.request.workload.data;
  if (data && data->rows_longer > 0 && 3 * data->common_length <= 2 * longest)
    return {data->common_length, formatted("length {}, which {} of {}{}", format_count(data->common_length),
                                           format_count(data->rows_longer), format_count(data->rows),
                                           data->rows_longer == 1 ? " rows exceeds" : " rows exceed")};
  return {longest / 2, "length " + format_count(longest / 2)};
}

// A micro-step that is as large as the longest row stays so.
Variant with_rows_of(const Variant& variant, const Experiment& now, const Experiment& then) {
  Variant changed = variant;
  for (int64_t* tokens : {&changed.micro_tokens, &changed.eval_micro_tokens})
    if (*tokens > 0 && *tokens == now.longest_row().tokens) *tokens = then.longest_row().tokens;
  return changed;
}

}  // namespace

std::vector<Saving> not_allowed_savings(const PlanInput& input, const Recipe& recipe, const Plan& plan) {
  constexpr double kWorthTelling = 0.01;  // of the arena
  std::vector<Saving> savings;
  // Both by one estimate: a layout may take more.
  const int64_t now = device_bytes_at_least(plan.request, plan.variant);
  const auto add = [&](const std::string& name, const Recipe& changed) {
    const auto bytes = if_possible([&] {
      const PlanRequest request =
          plan_request(resolve_as(input.resolved, changed), input.machine, input.data.get());
      return device_bytes_at_least(
          request, with_rows_of(plan.variant, plan.request.workload.experiment, request.workload.experiment));
    });
    if (!bytes) return;
    const int64_t saved = now - *bytes;
    if (static_cast<double>(saved) > kWorthTelling * static_cast<double>(plan.arena_bytes()))
      savings.push_back({name, plan.arena_share_bytes() - saved});
  };
  const auto& allowed = recipe.memory.allow;
  for (const char* means : {"adamw8bit", "bf16-states", "nf4"}) {
    if (std::find(allowed.begin(), allowed.end(), means) != allowed.end()) continue;
    if (const auto changed = with_means(recipe, means)) add(means, *changed);
  }
  if (const auto [length, words] = shorter_length(plan); length > 0) {
    Recipe shorter = recipe;
    shorter.data.max_length = length;
    add(words, shorter);
  }
  return savings;
}

}  // namespace plimsoll
