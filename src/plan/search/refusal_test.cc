// A refusal as data.
#include "plan/search/refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.h"
#include "models/test_specs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

PlanRequest refused_request() {
  PlanRequest request;
  request.workload.experiment.model = test_spec({});
  request.workload.experiment.max_length = 64;
  request.workload.experiment.effective_batch = 8;
  request.target.device = reference_description();
  request.target.own_memory = true;
  request.target.budget.device_source = "a test";
  return request;
}

std::vector<std::string> assignments(const std::vector<HoldingKey>& keys) {
  std::vector<std::string> texts;
  for (const HoldingKey& key : keys) texts.push_back(key.assignment());
  return texts;
}

TEST(Refusal, says_what_is_short_by_how_much_and_where) {
  PlanRequest request = refused_request();
  request.target.budget.device_bytes = 1000;
  const Plan plan = make_plan(request);
  const Refusal refusal = refusal_of(plan);
  ASSERT_EQ(refusal.shortages.size(), 1U);
  ASSERT_NE(refusal.of_memory(), nullptr);
  EXPECT_EQ(refusal.of_memory()->of, Shortage::Of::device);
  EXPECT_EQ(refusal.of_memory()->needed, plan.memory_bytes());
  EXPECT_EQ(refusal.of_memory()->allowed, 1000);
  EXPECT_EQ(refusal.place, peak_place(plan));
  ASSERT_EQ(refusal.largest.size(), 3U);
  EXPECT_GE(refusal.largest[0].bytes, refusal.largest[1].bytes);
  EXPECT_EQ(refusal.smallest.memory_bytes, plan.memory_bytes()) << "the least is what is planned";
  EXPECT_FALSE(refusal.lacks_host());
  EXPECT_FALSE(refusal.lacks_disk());
  EXPECT_THAT(refusal.holding, IsEmpty());
  EXPECT_GT(refusal.persistent_bytes, 0);
  EXPECT_THAT(refusal_text(refusal, std::nullopt),
              HasSubstr("device needs " + format_bytes_up(plan.memory_bytes())));
}

TEST(Refusal, the_host_is_short_beside_the_device) {
  PlanRequest request = refused_request();
  request.target.host.components = {{"program", 50 * kMiB}};
  request.target.budget.device_bytes = 1000;
  request.target.budget.host_bytes = kMiB;
  const Refusal refusal = refusal_of(make_plan(request));
  ASSERT_EQ(refusal.shortages.size(), 2U);
  EXPECT_TRUE(refusal.lacks_host());
  EXPECT_EQ(refusal.shortage(Shortage::Of::host)->needed, refusal.planned.host_bytes);
  EXPECT_GE(refusal.smallest.host_bytes, 50 * kMiB);
}

TEST(Refusal, keys_hold_the_planner_and_are_let_go_one_after_the_other) {
  PlanRequest request = refused_request();
  request.choices.micro_batch = 8;
  request.choices.recompute = RecomputePoint::none;
  request.choices.loss_chunk = 512;
  const Plan open = make_plan(request);
  PlanRequest least = request;
  for (const Held what : {Held::micro_batch, Held::recompute, Held::loss_chunk}) let_go(least, what);
  EXPECT_THAT(holding_keys(least), IsEmpty());
  request.target.budget.device_bytes = open.memory_bytes() - 1;
  EXPECT_THAT(assignments(refusal_of(make_plan(request)).holding),
              ElementsAre("batch.micro=auto", "memory.recompute=auto", "memory.loss_chunk=auto"));
  const auto released = released_plan(request);
  ASSERT_TRUE(released);
  EXPECT_THAT(assignments(released->released), ElementsAre("batch.micro=auto"));
  EXPECT_LT(released->memory_bytes, open.memory_bytes());
  request.target.budget.device_bytes = 1000;
  EXPECT_FALSE(released_plan(request));
}

TEST(Refusal, a_tier_is_let_go_as_a_tier) {
  PlanRequest request = refused_request();
  request.choices.offload = OffloadParts{.states = true};
  EXPECT_THAT(assignments(holding_keys(request)), ElementsAre("memory.offload=auto"));
  request.choices.offload_of_tier = true;
  EXPECT_THAT(assignments(holding_keys(request)), ElementsAre("memory.tier=null"));
  request.choices.offload.reset();
  request.choices.targets.emplace();
  request.choices.prefetch = 2;
  EXPECT_THAT(assignments(holding_keys(request)),
              ElementsAre("memory.offload_to=auto", "memory.prefetch=auto"));
  for (const Held what : {Held::offload, Held::prefetch}) let_go(request, what);
  EXPECT_THAT(holding_keys(request), IsEmpty());
}

}  // namespace
}  // namespace plimsoll
