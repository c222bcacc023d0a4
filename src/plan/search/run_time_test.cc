#include "plan/search/run_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.h"
#include "models/test_specs.h"
#include "plan/program/time_model.h"
#include "plan/report/report_parts.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;

TEST(RunTime, durations_are_what_people_say) {
  EXPECT_EQ(duration_words(0.042), "42 ms");
  EXPECT_EQ(duration_words(42), "42 s");
  EXPECT_EQ(duration_words(125), "2 min 5 s");
  EXPECT_EQ(duration_words(42 * 60), "42 min");
  EXPECT_EQ(duration_words(3 * 3600 + 20 * 60), "3 h 20 min");
  EXPECT_EQ(duration_words(4 * 3600 - 1), "4 h");
  EXPECT_EQ(duration_words(2 * 86400 + 4 * 3600), "2 days 4 h");
  EXPECT_EQ(duration_words(213 * 86400.0), "213 days");
  EXPECT_EQ(duration_words(3.4 * 365 * 86400), "3.4 years");
  EXPECT_EQ(duration_words(1e300), "more than 1,000 years");
}

TEST(RunTime, slow_speeds_are_seconds_a_token_and_never_one_or_none_a_second) {
  EXPECT_EQ(speed_words(1560.4), "1,560 tokens/s");
  EXPECT_EQ(speed_words(4.26), "4.3 tokens/s");
  EXPECT_EQ(speed_words(1.2), "833 ms a token");
  EXPECT_EQ(speed_words(0.1), "10 s a token");
  EXPECT_EQ(speed_words(1.0 / 300), "5 min a token");
}

PlanRequest request() {
  PlanRequest request;
  request.workload.experiment.model = test_spec({.hidden = 64, .mlp = 128, .vocab = 256});
  request.workload.experiment.effective_batch = 8;
  request.workload.experiment.max_length = 256;
  request.choices.micro_batch = 4;
  return request;
}

TEST(RunTime, full_rows_take_what_the_time_model_says) {
  PlanRequest with = request();
  with.workload.run = RunSteps{.steps = 10, .tokens = 8 * 256, .targets = 8 * 256, .row_length = 256};
  const Plan plan = make_plan(with);
  EXPECT_DOUBLE_EQ(plan.seconds_per_step,
                   predict_step_seconds(plan.programs, plan.variant, with.target.device.rates));
  EXPECT_DOUBLE_EQ(plan.run_seconds(), 10 * plan.seconds_per_step);
}

// A quarter of the tokens: the matrix products, attention and loss shrink, the rest does not.
TEST(RunTime, short_rows_are_faster_and_take_the_same_bytes) {
  const PlanRequest full = request();
  PlanRequest with = full;
  with.workload.run = RunSteps{.steps = 10, .tokens = 2 * 256, .targets = 256, .row_length = 64};
  const Plan of_full = make_plan(full);
  const Plan of_short = make_plan(with);
  EXPECT_EQ(plan_variant(with, of_full.variant).arena_bytes(), of_full.arena_bytes());
  EXPECT_LE(of_short.seconds_per_step,
            (1 + with.choices.tie) * plan_variant(with, of_full.variant).seconds_per_step);
  EXPECT_LT(of_short.seconds_per_step, 0.8 * of_full.seconds_per_step);
  EXPECT_GT(of_short.seconds_per_step, 0.1 * of_full.seconds_per_step);
  EXPECT_DOUBLE_EQ(of_short.tokens_per_second() * of_short.seconds_per_step, 2 * 256);
  EXPECT_DOUBLE_EQ(plan_variant(with, of_short.variant).seconds_per_step, of_short.seconds_per_step);
}

TEST(RunTime, evaluations_are_part_of_the_run) {
  PlanRequest with = request();
  with.workload.experiment.evaluates = true;
  with.workload.run = RunSteps{.steps = 10, .tokens = 8 * 256, .targets = 8 * 256, .row_length = 256};
  const double without = make_plan(with).run_seconds();
  with.workload.run->evaluations = 3;
  with.workload.run->eval_rows = 40;
  const Plan plan = make_plan(with);
  EXPECT_GT(plan.seconds_per_evaluation, 0);
  EXPECT_DOUBLE_EQ(plan.run_seconds(), without + 3 * plan.seconds_per_evaluation);
}

TEST(RunTime, the_first_three_lines_are_for_everybody) {
  PlanRequest with = request();
  EXPECT_THAT(verdict_text(make_plan(with)), HasSubstr("\n       1,000 steps take about "));
  with.workload.run = RunSteps{.steps = 938, .epochs = 3, .tokens = 2048, .targets = 1024, .row_length = 200};
  with.workload.data = DataSummary{.rows = 5000};
  const Plan plan = make_plan(with);
  EXPECT_THAT(verdict_text(plan),
              HasSubstr("\n       938 steps in about " + duration_words(plan.run_seconds()) +
                        " (3 epochs of 5,000 rows)\n"));
  EXPECT_THAT(verdict_text(plan), HasSubstr(" a step, " + speed_words(plan.tokens_per_second())));
}

}  // namespace
}  // namespace plimsoll
