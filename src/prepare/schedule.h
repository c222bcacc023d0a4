// Learning rate by step, as transformers' schedules have it.
#pragma once

#include <string>

#include "recipe/recipe.h"

namespace plimsoll {

class LearningRate {
 public:
  explicit LearningRate(const Recipe& recipe) : schedule_(recipe.schedule), peak_(recipe.optimizer.lr) {}

  // For optimizer step `step`, counted from 0, of `total`: rises from 0 over the warm-up, then falls.
  [[nodiscard]] double at(int64_t step, int64_t total) const;

 private:
  Recipe::Schedule schedule_;
  double peak_;
};

// Says that a run of so many steps trains nothing: its only one is the first of a warm-up, whose rate is 0. Empty where
// that is not so.
std::string still_note(const Recipe& recipe, int64_t steps);

}  // namespace plimsoll
