#include "cli/advise/what_if.h"

#include "prepare/allowed.h"

namespace plimsoll {

std::optional<Plan> fitting_plan(const PlanArguments& arguments, const std::vector<std::string>& what_if) {
  const auto planned = if_possible([&] {
    const PlanInput input = plan_input(arguments, what_if);
    return fitting_allowed(input.resolved, input.machine, input.data.get());
  });
  return planned.value_or(std::nullopt);
}

}  // namespace plimsoll
