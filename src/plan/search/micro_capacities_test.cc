// Capacities in tokens: what rows as they are make of them, and what a search weighs and promises.
#include "plan/search/micro_capacities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/test_specs.h"
#include "plan/search/search.h"

namespace plimsoll {
namespace {

constexpr int64_t kDeep = 8;  // layers of a model whose capacities lie between whole numbers too

// Rows like instructions: many short ones, few long.
std::vector<RowSize> uneven() {
  std::vector<RowSize> sizes;
  for (int64_t i = 0; i < 200; ++i) sizes.push_back({i % 50 == 0 ? 700 : 40 + (i * 37) % 160, 0});
  return sizes;
}

PlanRequest request_with(std::vector<RowSize> sizes, int64_t layers = 2) {
  PlanRequest request;
  request.workload.experiment.model = test_spec({.hidden = 64, .mlp = 128, .layers = layers, .vocab = 256});
  request.workload.experiment.lora = true;
  request.workload.experiment.effective_batch = 16;
  request.workload.experiment.max_length = 700;
  request.target.device = reference_description();
  double tokens = 0;
  for (const RowSize& size : sizes)
    tokens += static_cast<double>(size.tokens) * 16 / static_cast<double>(sizes.size());
  request.workload.run = RunSteps{.steps = 10, .tokens = tokens, .targets = tokens, .row_length = 150};
  request.workload.run->sizes = std::make_shared<const std::vector<RowSize>>(std::move(sizes));
  return request;
}

TEST(MicroCapacities, are_smaller_for_each_more_micro_step_down_to_the_longest_row) {
  const PlanRequest request = request_with(uneven());
  const auto capacities = micro_capacities(request);
  ASSERT_GE(capacities.size(), 3);
  EXPECT_EQ(capacities.back().tokens, 700);
  for (size_t i = 1; i < capacities.size(); ++i) EXPECT_LT(capacities[i].tokens, capacities[i - 1].tokens);
  EXPECT_LT(capacities.front().tokens, 16 * 700 / 2)
      << "one micro-step of rows as they are, not of longest ones";
  for (const MicroCapacity& capacity : capacities) {
    const auto estimate =
        estimate_micro_steps(request.workload.experiment, capacity, *request.workload.run->sizes);
    EXPECT_LE(estimate.most_rows, capacity.samples) << "a bound on rows that would cost micro-steps";
    EXPECT_LE(estimate.steps, static_cast<double>(most_micro_steps(request.workload.experiment, capacity)));
  }
  EXPECT_LE(
      estimate_micro_steps(request.workload.experiment, capacities.front(), *request.workload.run->sizes)
          .steps,
      1.05);
}

// One micro-step and two are a factor of two in memory apart; rows that mostly fit into one lie between.
TEST(MicroCapacities, lie_between_whole_numbers_of_few_micro_steps) {
  const PlanRequest request = request_with(uneven(), kDeep);
  const auto capacities = micro_capacities(request);
  double before = 1;
  int between = 0;
  for (const MicroCapacity& capacity : capacities) {
    const double steps =
        estimate_micro_steps(request.workload.experiment, capacity, *request.workload.run->sizes).steps;
    if (&capacity != &capacities.back()) {  // which is that of the longest row, whatever steps it makes
      EXPECT_LE(steps - before, before < 2 ? 0.4 : before < 4 ? 0.7 : 16) << capacity.tokens;
    }
    between += steps > 1.1 && steps < 1.95 ? 1 : 0;
    before = steps;
  }
  EXPECT_GE(between, 2);
  EXPECT_LE(capacities.size(), 16);
}

// If starting ops takes all of a step, its time goes by the number of micro-steps alone: what lies between
// two sizes is the most that a stated one may gain.
TEST(MicroCapacities, leave_no_stated_size_that_is_faster) {
  PlanRequest request = request_with(uneven(), kDeep);
  constexpr double kBetweenSizes = 1.15;
  request.choices.tie = 0;
  request.target.device.rates.op_overhead = 2e-4;
  request.target.own_memory = true;
  const int64_t smallest = make_plan(request).smallest.arena_bytes;
  for (const int64_t percent : {105, 115, 130, 150, 170, 190, 220, 260, 300, 350}) {
    request.choices.micro_tokens.reset();
    request.target.budget.device_bytes = smallest * percent / 100;
    const Plan plan = make_plan(request);
    ASSERT_TRUE(plan.fits()) << percent;
    for (int64_t tokens = 700; tokens < 3200; tokens += 100) {
      request.choices.micro_tokens = tokens;
      const Plan stated = make_plan(request);
      EXPECT_FALSE(stated.fits() && stated.seconds_per_step * kBetweenSizes < plan.seconds_per_step)
          << percent << " " << tokens;
    }
  }
}

TEST(MicroCapacities, are_in_rows_where_rows_are_alike_or_unknown_packed_or_asked_for) {
  const auto in_rows = [](const PlanRequest& request) {
    std::vector<int64_t> samples;
    for (const MicroCapacity& capacity : micro_capacities(request)) {
      EXPECT_FALSE(capacity.by_tokens());
      samples.push_back(capacity.samples);
    }
    return samples;
  };
  PlanRequest request = request_with(std::vector<RowSize>(20, RowSize{700, 0}));
  EXPECT_THAT(in_rows(request), testing::ElementsAre(16, 8, 6, 4, 3, 2, 1));
  request = request_with(uneven());
  request.workload.experiment.documents = 8;
  EXPECT_THAT(in_rows(request), testing::SizeIs(7));
  request = request_with(uneven());
  request.workload.run.reset();
  EXPECT_THAT(in_rows(request), testing::SizeIs(7));
  request = request_with(uneven());
  request.choices.micro_batch = 3;
  EXPECT_THAT(in_rows(request), testing::ElementsAre(3));
}

TEST(MicroCapacities, hold_a_whole_batch_for_sure_where_weights_may_be_updated_on_the_way) {
  PlanRequest request = request_with(uneven());
  request.workload.experiment.lora = false;
  request.workload.experiment.optimizer.max_grad_norm = 0;
  EXPECT_EQ(micro_capacities(request).front(), MicroCapacity{16});
  for (const Variant& variant : Search(request).all())
    EXPECT_EQ(variant.update_in_backward, variant.micro_batch == 16 && variant.micro_tokens == 0);
}

// Whatever rows come, no step needs more micro-steps than the plan reckons with.
TEST(MicroCapacities, never_need_more_micro_steps_than_the_bound) {
  Experiment experiment = request_with(uneven()).workload.experiment;
  for (const auto& sizes :
       {std::vector<int64_t>{700}, {351, 350, 1}, {400, 301, 300}, {1, 700}, {235, 233, 2}}) {
    for (const int64_t tokens : {700, 705, 1050, 1400, 5000}) {
      for (const int64_t samples : {1, 2, 5, 16}) {
        const MicroCapacity capacity = experiment.capacity(samples, tokens);
        if (!capacity.by_tokens()) continue;
        MicroPacker packer(capacity, 16);
        for (size_t i = 0; i < 16; ++i) packer.add({sizes[i % sizes.size()], 0});
        EXPECT_LE(packer.pack(), most_micro_steps(experiment, capacity)) << tokens << " " << samples;
      }
    }
  }
}

// Rows that are 200 tokens of a system prompt and at most 500 of their own.
TEST(MicroCapacities, have_what_all_rows_begin_with_once) {
  std::vector<RowSize> sizes = uneven();
  for (RowSize& size : sizes) size.tokens = 200 + size.tokens * 5 / 7;
  PlanRequest request = request_with(sizes);
  const auto of_apart = micro_capacities(request);
  request.workload.experiment.shares_prefixes = true;
  request.workload.experiment.common_begin = 200;
  EXPECT_EQ(request.workload.experiment.capacity_of({300, 0}).tokens, 100);
  EXPECT_EQ(request.workload.experiment.capacity_of({900, 0}).tokens, 500) << "no more than the longest";
  EXPECT_EQ(request.workload.experiment.tokens_of(16), 200 + 16 * 500);
  EXPECT_EQ(request.workload.experiment.batch_shape(request.workload.experiment.capacity(16), 1).tokens,
            200 + 16 * 500);
  const auto capacities = micro_capacities(request);
  ASSERT_GE(capacities.size(), 2);
  EXPECT_EQ(capacities.back().tokens, 700);
  EXPECT_LT(capacities.front().tokens, of_apart.front().tokens - 14 * 200) << "in one micro-step";
  for (const MicroCapacity& capacity : capacities) {
    EXPECT_EQ(capacity.begin, 200);
    const auto estimate = estimate_micro_steps(request.workload.experiment, capacity, sizes);
    EXPECT_LE(estimate.steps, static_cast<double>(most_micro_steps(request.workload.experiment, capacity)));
    EXPECT_LE(estimate.steps, estimate_micro_steps(request_with(sizes).workload.experiment,
                                                   {capacity.samples, capacity.tokens}, sizes)
                                  .steps);
  }
  request.workload.experiment.common_begin = 700;
  EXPECT_EQ(request.workload.experiment.tokens_of(16), 700) << "rows that are all the same";
}

TEST(MicroCapacities, targets_beside_sources_have_room_as_the_longest_row_has_them) {
  Experiment experiment;
  experiment.model = test_spec({.hidden = 64, .mlp = 128, .layers = 2, .vocab = 256});
  experiment.model.encoder_decoder.emplace();
  experiment.task.task = Task::seq2seq;
  experiment.max_length = 100;
  experiment.target_length = 40;
  experiment.effective_batch = 8;
  EXPECT_EQ(experiment.capacity(8, 250), (MicroCapacity{8, 250, 100}));
  EXPECT_EQ(experiment.capacity(2, 250), MicroCapacity{2}) << "two longest ones fit";
  const BatchShape shape = experiment.batch_shape(experiment.capacity(8, 250), 1);
  EXPECT_EQ(experiment.logit_rows(experiment.capacity(8, 250)), 100);
  EXPECT_EQ(shape.tokens, 250);
}

// Sources of 100 and 50 tokens whose targets have 10 and 40.
TEST(Filling, of_sources_and_targets_is_of_each_axis_with_what_their_attention_meets) {
  Experiment experiment;
  experiment.model = test_spec({.hidden = 64, .mlp = 128, .layers = 2, .vocab = 256});
  experiment.model.encoder_decoder.emplace();
  experiment.task.task = Task::seq2seq;
  experiment.max_length = 100;
  experiment.target_length = 40;
  experiment.effective_batch = 8;
  RunSteps run{.steps = 10, .tokens = 8 * 101, .targets = 8 * 25, .row_length = 77};
  run.sizes = std::make_shared<const std::vector<RowSize>>(std::vector<RowSize>{{100, 10}, {50, 40}});
  Variant variant;
  variant.micro_batch = 4;
  variant.accumulation = 2;
  const Filling filling = filling_of(experiment, run, variant);
  EXPECT_DOUBLE_EQ(filling.axes[0].rows, 75.0 / 100);
  EXPECT_DOUBLE_EQ(filling.axes[1].rows, 25.0 / 40);
  EXPECT_DOUBLE_EQ(filling.axes[0].length, (100.0 * 100 + 50 * 50) / 150);
  EXPECT_DOUBLE_EQ(filling.axes[1].length, (10.0 * 10 + 40 * 40) / 50);
  EXPECT_DOUBLE_EQ(filling.axes[1].keys, (10.0 * 100 + 40 * 50) / 50) << "long targets have short sources";
  EXPECT_DOUBLE_EQ(filling.targets, 25.0 / 40) << "of the rows that have logits, which are the decoder's";
  EXPECT_DOUBLE_EQ(filling.micro_steps, 2);
  run.sizes = {};
  const Filling unknown = filling_of(experiment, run, variant);
  EXPECT_DOUBLE_EQ(unknown.axes[0].rows, unknown.axes[1].rows) << "as far as both together tell";
}

// Packed two to a sequence of 700 tokens.
TEST(Filling, of_rows_that_share_goes_by_how_many_a_micro_step_has) {
  PlanRequest request = request_with(uneven());
  request.workload.run->rows = 32;
  request.workload.run->shared = {0, 0.2, 0.4, 0.6, 0.7};
  request.workload.experiment.shares_prefixes = true;
  request.workload.experiment.documents = 87;
  Variant variant;
  variant.micro_batch = 4;
  variant.accumulation = 4;
  const Filling filling = filling_of(request.workload.experiment, request.workload.run, variant);
  EXPECT_DOUBLE_EQ(filling.tokens, 0.4 * request.workload.run->tokens / (16 * 700)) << "eight rows";
}

TEST(Filling, of_one_text_is_that_of_every_axis) {
  const PlanRequest request = request_with(uneven());
  Variant variant;
  variant.micro_batch = 16;
  const Filling filling = filling_of(request.workload.experiment, request.workload.run, variant);
  for (const AxisFilling& axis : filling.axes) {
    EXPECT_DOUBLE_EQ(axis.rows, request.workload.run->tokens / (16 * 700));
    EXPECT_DOUBLE_EQ(axis.length, 150);
    EXPECT_DOUBLE_EQ(axis.keys, 0);
  }
}

TEST(MicroCapacities, a_plan_says_how_full_they_are_and_how_many) {
  const PlanRequest request = request_with(uneven());
  const Plan plan = make_plan(request);
  ASSERT_GT(plan.variant.micro_tokens, 0);
  EXPECT_GT(plan.fill, 0.7);
  EXPECT_NEAR(plan.fill * plan.micro_steps * static_cast<double>(plan.variant.micro_tokens),
              request.workload.run->tokens, 1e-6);
  PlanRequest rows = request;
  rows.choices.micro_batch = 4;
  const Plan in_rows = make_plan(rows);
  EXPECT_LT(in_rows.fill, 0.3);
  EXPECT_LT(plan.arena_bytes(), in_rows.arena_bytes());
}

}  // namespace
}  // namespace plimsoll
