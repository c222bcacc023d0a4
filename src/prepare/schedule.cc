#include "prepare/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace plimsoll {

double LearningRate::at(int64_t step, int64_t total) const {
  // DeepSpeed's schedules (runtime/lr_schedules.py: WarmupLR, WarmupDecayLR) start after the first step, and take two
  // steps of warm-up at least.
  const bool of_deepspeed = schedule_.warmup.rise != Warmup::Rise::even;
  const int64_t said = schedule_.warmup.steps_of(total);
  const int64_t warmup = of_deepspeed ? std::max<int64_t>(2, said) : said;
  if (schedule_.warmup.rise == Warmup::Rise::deepspeed && step <= warmup)
    return step < 2 ? 0.0
                    : peak_ * std::log(static_cast<double>(step)) / std::log(static_cast<double>(warmup));
  if (of_deepspeed) step = std::max<int64_t>(0, step - 1);
  if (step < warmup)
    return peak_ * static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, warmup));
  const double progress =
      static_cast<double>(step - warmup) / static_cast<double>(std::max<int64_t>(1, total - warmup));
  double factor = 1.0;
  if (schedule_.name == ScheduleName::cosine) factor = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  if (schedule_.name == ScheduleName::linear) factor = std::max(0.0, 1.0 - progress);
  if (schedule_.name != ScheduleName::constant)
    factor = schedule_.min_ratio + (1.0 - schedule_.min_ratio) * factor;
  return peak_ * factor;
}

std::string still_note(const Recipe& recipe, int64_t steps) {
  if (steps != 1 || recipe.optimizer.lr == 0 || LearningRate(recipe).at(0, 1) > 0) return "";
  return "the only step has learning rate 0, as warm-up begins there: nothing is trained. Take more steps (--epochs "
         "10), or no warm-up (--set schedule.warmup=0)";
}

}  // namespace plimsoll
