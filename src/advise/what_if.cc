#include "advise/what_if.h"

#include "prepare/allowed.h"

namespace plimsoll {

std::optional<Plan> fitting_plan(const WhatIf& what_if, const Changes& changes,
                                 const std::shared_ptr<KnownModels>& measured) {
  const auto planned = if_possible([&] {
    const PlanInput input = what_if(changes);
    return fitting_allowed(input.resolved, input.machine, input.data.get(), measured);
  });
  return planned.value_or(std::nullopt);
}

}  // namespace plimsoll
