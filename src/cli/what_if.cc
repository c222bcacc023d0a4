#include "cli/what_if.h"

#include <ctime>

#include "train/allowed.h"

namespace plimsoll {

double Patience::processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::optional<Plan> fitting_plan(const PlanArguments& arguments, const std::vector<std::string>& what_if) {
  const auto planned = if_possible([&] {
    const PlanInput input = plan_input(arguments, what_if);
    return fitting_allowed(input.recipe, input.cpu, input.data.get());
  });
  return planned.value_or(std::nullopt);
}

}  // namespace plimsoll
