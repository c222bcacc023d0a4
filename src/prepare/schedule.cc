#include "prepare/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace plimsoll {

double learning_rate(const Recipe& recipe, int64_t step, int64_t total) {
  const Recipe::Schedule& schedule = recipe.schedule;
  const int64_t warmup = schedule.warmup.steps_of(total);
  if (step < warmup)
    return recipe.optimizer.lr * static_cast<double>(step) /
           static_cast<double>(std::max<int64_t>(1, warmup));
  const double progress =
      static_cast<double>(step - warmup) / static_cast<double>(std::max<int64_t>(1, total - warmup));
  double factor = 1.0;
  if (schedule.name == ScheduleName::cosine) factor = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  if (schedule.name == ScheduleName::linear) factor = std::max(0.0, 1.0 - progress);
  if (schedule.name != ScheduleName::constant)
    factor = schedule.min_ratio + (1.0 - schedule.min_ratio) * factor;
  return recipe.optimizer.lr * factor;
}

}  // namespace plimsoll
