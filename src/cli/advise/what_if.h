// Plans of a recipe with changes, for suggestions that the report makes in addition to the plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/advise/plan_command.h"
#include "plan/search/depth_model.h"

namespace plimsoll {

// How much work suggestions may be, of planning_work(): what a busy machine offers is what an idle one
// offers.
class Patience {
 public:
  explicit Patience(int64_t work) : end_(planning_work() + work) {}
  [[nodiscard]] bool ended() const { return planning_work() > end_; }

 private:
  int64_t end_;
};

// Returns the result of `suggest`, or nothing where the changed recipe is not possible (4 bits with a PiSSA
// start, rows without a target): a report never fails on what it only suggests.
template <class Suggest>
auto if_possible(const Suggest& suggest) -> std::optional<decltype(suggest())> {
  try {
    return suggest();
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The plan under other assumptions ("method.type=full"), where it is possible and fits.
std::optional<Plan> fitting_plan(const PlanArguments& arguments, const std::vector<std::string>& what_if);

}  // namespace plimsoll
