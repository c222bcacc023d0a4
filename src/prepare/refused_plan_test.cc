// A refusal between two processes.
#include "prepare/refused_plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "models/test_specs.h"

namespace plimsoll {
namespace {

Plan refused_plan(bool holds) {
  PlanRequest request;
  request.workload.experiment.model = test_spec({});
  request.workload.experiment.max_length = 64;
  request.workload.experiment.effective_batch = 8;
  request.target.device = reference_description();
  request.target.own_memory = true;
  request.target.host.components = {{"program", 50 * kMiB}};
  request.target.budget.device_source = "a test";
  request.target.budget.host_bytes = kGiB;
  request.target.budget.of_free = true;
  request.target.budget.free_bytes = 12345;
  if (holds) {
    request.choices.micro_batch = 8;
    request.choices.recompute = RecomputePoint::none;
    request.choices.loss_chunk = 512;
  }
  request.target.budget.device_bytes = holds ? make_plan(request).memory_bytes() - 1 : 1000;
  return make_plan(request);
}

TEST(RefusedPlan, is_the_same_after_a_text) {
  for (const bool holds : {false, true}) {
    const Plan plan = refused_plan(holds);
    ASSERT_FALSE(plan.fits());
    const auto released = released_plan(plan.request);
    EXPECT_EQ(released.has_value(), holds);
    const RefusedPlan refused(refusal_of(plan), released);
    const RefusedPlan read = read_refused_plan(nlohmann::json::parse(written(refused).dump()));
    EXPECT_STREQ(read.what(), refused.what());
    EXPECT_EQ(read.what(), refusal_text(plan));
    EXPECT_EQ(written(read), written(refused));
    EXPECT_EQ(read.refusal.smallest.variant, plan.smallest.variant);
    EXPECT_EQ(read.refusal.holding.size(), holds ? 3U : 0U);
    EXPECT_EQ(read.refusal.host_limit, kGiB);
    EXPECT_FALSE(read.refusal.disk_limit);
  }
}

}  // namespace
}  // namespace plimsoll
