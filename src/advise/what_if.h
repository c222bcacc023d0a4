// Plans of a recipe with other values of some keys: what advice is made of, and never done by itself.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "plan/search/depth_model.h"
#include "prepare/plan_input.h"

namespace plimsoll {

// A key of the recipe with another value.
struct KeyChange {
  std::string key;    // "method.type"
  std::string value;  // "lora", as a recipe writes it
  [[nodiscard]] std::string assignment() const { return formatted("{}={}", key, value); }
  friend bool operator==(const KeyChange&, const KeyChange&) = default;
};
using Changes = std::vector<KeyChange>;

// The recipe with the changes, and all inputs of its plan. Throws what reading it throws.
using WhatIf = std::function<PlanInput(const Changes&)>;

// The most work that suggestions may be, of planning_work(): what a busy machine offers is what an idle one
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

// The plan with the changes, where it is possible and fits.
// `measured`: of searches of the same workload on the same device.
std::optional<Plan> fitting_plan(const WhatIf& what_if, const Changes& changes,
                                 const std::shared_ptr<KnownModels>& measured = {});

}  // namespace plimsoll
