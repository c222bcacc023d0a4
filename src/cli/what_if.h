// Plans of a recipe with changes, for what the report offers beside the plan that was asked for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/plan_command.h"

namespace plimsoll {

// How long somebody waits for suggestions, in seconds of the processor: what a busy machine offers is what an
// idle one offers.
class Patience {
 public:
  explicit Patience(double seconds) : end_(processor_seconds() + seconds) {}
  [[nodiscard]] bool ended() const { return processor_seconds() > end_; }

 private:
  static double processor_seconds();  // of this process
  double end_;
};

// The plan under other assumptions ("method.type=full"), where it is possible and fits.
std::optional<Plan> fitting_plan(const PlanArguments& arguments, const std::vector<std::string>& what_if);

}  // namespace plimsoll
