// Tests of the memory that a card of this machine leaves a run, and of its measurements.
#include "prepare/planned_card.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/units.h"
#include "calibrate/card_cache.h"
#include "models/test_specs.h"
#include "prepare/fitting_plan.h"
#include "prepare/memory_budget.h"
#include "prepare/setup.h"

namespace plimsoll {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(CardBudget, what_is_free_bounds_an_open_budget_and_leaves_a_stated_one) {
  Budget open;
  open.device_bytes = 20 * kGiB;
  open.device_source = "RTX 4090 24GB";
  limit_to_free(true, 9 * kGiB, open);
  EXPECT_EQ(open.device_bytes, 9 * kGiB);
  EXPECT_EQ(open.device_free_bytes, 9 * kGiB);
  EXPECT_EQ(open.device_source, "RTX 4090 24GB, of which 9.00 GiB are free for an arena now");
  Budget stated;
  stated.device_bytes = 20 * kGiB;
  limit_to_free(false, 9 * kGiB, stated);
  EXPECT_EQ(stated.device_bytes, 20 * kGiB);
  EXPECT_EQ(stated.device_free_bytes, 9 * kGiB);
  Budget idle;
  idle.device_bytes = 20 * kGiB;
  limit_to_free(true, 22 * kGiB, idle);
  EXPECT_EQ(idle.device_bytes, 20 * kGiB);
  EXPECT_EQ(idle.device_source, "");
}

PlanRequest small_request() {
  PlanRequest request;
  request.workload.experiment.model = test_spec({});
  request.workload.experiment.max_length = 64;
  request.workload.experiment.effective_batch = 8;
  request.target.device = reference_description();
  request.target.own_memory = true;
  request.target.budget.free_bytes = 100 * kGiB;
  return request;
}

TEST(CardBudget, an_arena_that_is_more_than_is_free_of_the_card_is_refused_before_the_start) {
  Plan plan = make_plan(small_request());
  std::vector<std::string> notes;
  plan.request.target.budget.device_free_bytes = plan.arena_bytes();
  require_fit(plan, notes);
  plan.request.target.budget.device_free_bytes = plan.arena_bytes() - 1;
  EXPECT_THAT([&] { require_fit(plan, notes); },
              ThrowsMessage<DoesNotFitError>(AllOf(HasSubstr("does not fit   the arena needs"),
                                                   HasSubstr("are free on the card; short by"),
                                                   HasSubstr("memory: auto"))));
}

// The host's memory has what the host needs, however large the card's arena is.
TEST(CardBudget, a_cards_arena_takes_nothing_of_the_host) {
  Plan plan = make_plan(small_request());
  EXPECT_EQ(plan.process_peak_bytes(), plan.host_bytes());
  EXPECT_LT(plan.process_peak_bytes(), plan.arena_bytes() + plan.host_bytes());
  std::vector<std::string> notes;
  plan.request.target.budget.free_bytes = plan.host_bytes();
  require_fit(plan, notes);
  plan.request.target.budget.free_bytes = plan.host_bytes() - 1;
  EXPECT_THAT([&] { require_fit(plan, notes); },
              ThrowsMessage<DoesNotFitError>(HasSubstr("are free on this machine; short by")));
  plan.request.target.own_memory = false;
  EXPECT_EQ(plan.process_peak_bytes(), plan.arena_bytes() + plan.host_bytes());
}

TEST(PlannedCard, what_was_measured_of_it_is_read_from_the_cache) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "planned_card_test";
  std::filesystem::remove_all(folder);
  setenv("PLIMSOLL_CACHE_DIR", folder.c_str(), 1);
  Recipe recipe;
  recipe.memory.gpu = "RTX 3060 12GB";
  EXPECT_EQ(planned_card(recipe).known(), nullptr);
  save_card(folder, {.name = "RTX 3060 12GB",
                     .uuid = "GPU-7",
                     .driver = 13000,
                     .kernels = "kernels 1",
                     .memory_bytes = std::nullopt,
                     .process_bytes = 150 * kMiB,
                     .host_bytes = std::nullopt,
                     .rates = std::nullopt});
  ASSERT_NE(planned_card(recipe).known(), nullptr);
  EXPECT_EQ(planned_card(recipe).known()->process_bytes, 150 * kMiB);
  recipe.memory.gpu = "RTX 3060 Ti 8GB";
  EXPECT_EQ(planned_card(recipe).known(), nullptr);
  std::filesystem::remove_all(folder);  // other tests find nothing there
}

}  // namespace
}  // namespace plimsoll
