// Plans for suggestions, made only where they fit.
#pragma once

#include <memory>
#include <optional>

#include "plan/search/plan.h"

namespace plimsoll {

// The plans of make_plan where they fit, and nothing else: no least memory is looked for, and nothing is laid
// out where estimates say that nothing fits. Budgets of one request share what was measured.
class FittingPlans {
 public:
  explicit FittingPlans(const PlanRequest& request);
  FittingPlans(FittingPlans&&) noexcept;
  FittingPlans& operator=(FittingPlans&&) noexcept;
  FittingPlans(const FittingPlans&) = delete;
  FittingPlans& operator=(const FittingPlans&) = delete;
  ~FittingPlans();
  std::optional<Plan> within(const Budget& budget);
  // Returns false where estimates say that nothing fits: `within` finds no plan then, after more work.
  bool may_fit(const Budget& budget);

 private:
  struct State;
  State& state_within(const Budget& budget);
  std::optional<Plan> fastest(const Budget& budget);

  PlanRequest request_;
  bool is_possible_ = true;  // not where frozen blocks' outputs are to be kept and cannot be
  std::unique_ptr<State> state_;
};

}  // namespace plimsoll
