// Learning rate by step, as transformers' schedules have it.
#pragma once

#include "recipe/recipe.h"

namespace plimsoll {

// For optimizer step `step`, counted from 0, of `total`: rises from 0 over the warm-up, then falls.
double learning_rate(const Recipe& recipe, int64_t step, int64_t total);

}  // namespace plimsoll
