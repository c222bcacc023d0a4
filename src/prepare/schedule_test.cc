// Tests of the learning rate by step.
#include "prepare/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace plimsoll {
namespace {

std::vector<double> rates(ScheduleName name, Warmup warmup, int64_t steps) {
  Recipe recipe;
  recipe.optimizer.lr = 1.0;
  recipe.schedule.name = name;
  recipe.schedule.warmup = warmup;
  std::vector<double> all;
  for (int64_t step = 0; step < steps; ++step) all.push_back(LearningRate(recipe).at(step, steps));
  return all;
}

Warmup warmup_of(int64_t steps, Warmup::Rise rise) { return {Warmup::Unit::steps, 0.0, steps, rise}; }

using testing::DoubleNear;
using testing::ElementsAre;
using Rise = Warmup::Rise;

const auto is_near = [](double value) { return DoubleNear(value, 1e-12); };

TEST(Schedule, a_warm_up_rises_evenly_from_0) {
  EXPECT_THAT(rates(ScheduleName::linear, warmup_of(2, Rise::even), 6),
              ElementsAre(0.0, 0.5, 1.0, 0.75, 0.5, 0.25));
}

// The rates of deepspeed.runtime.lr_schedules for warmup_num_steps=4, total_num_steps=8: the engine steps it behind each
// step, so that the first two have a rate of 0.
TEST(Schedule, deepspeeds_warm_up_rises_as_a_logarithm_and_a_step_late) {
  const double third = std::log(3.0) / std::log(4.0);
  EXPECT_THAT(rates(ScheduleName::linear, warmup_of(4, Rise::deepspeed), 8),
              ElementsAre(0.0, 0.0, is_near(0.5), is_near(third), 1.0, 1.0, is_near(0.75), is_near(0.5)));
  EXPECT_THAT(rates(ScheduleName::constant, warmup_of(0, Rise::deepspeed), 5),
              ElementsAre(0.0, 0.0, 1.0, 1.0, 1.0));  // two steps at least
  EXPECT_THAT(rates(ScheduleName::constant, warmup_of(4, Rise::deepspeed_linear), 7),
              ElementsAre(0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0));
}

}  // namespace
}  // namespace plimsoll
