// Tests of the memory that runs may have on a GPU which others use too.
#include "fleet/queue/packing/card_capacity.h"

#include <gmock/gmock.h>
#include <unistd.h>

namespace plimsoll::queue {
namespace {

devices::Gpu card(int64_t used, std::vector<devices::GpuProcess> processes) {
  return {0, "GPU-a", "Card", 1000, used, std::move(processes), true, {}, {}, false, {}};
}

PromisedOnCard run(int64_t bytes, std::vector<pid_t> processes) {
  return {bytes, std::make_shared<const std::vector<pid_t>>(std::move(processes))};
}

CardShare share(const devices::Gpu& gpu, const CardRuns& runs, bool pids_known = true) {
  return share_of(gpu, 950, 950, runs, pids_known);
}

TEST(CardCapacity, LeavesOutTheHeadroomAndWhatOthersUse) {
  EXPECT_EQ(card_capacity(card(0, {})), 950);
  EXPECT_EQ(card_capacity(card(0, {}), 0.2), 800);
  EXPECT_EQ(share(card(0, {}), {}).free_bytes, 950);
  EXPECT_EQ(share(card(300, {{7, 250}}), {}).free_bytes, 650) << "with what is of no process";
  EXPECT_EQ(share(card(300, {{7, 250}}), {}).others, 300);
  EXPECT_EQ(share(card(990, {{7, 990}}), {}).free_bytes, 0) << "never less than none";
}

TEST(CardCapacity, AStatedSizeIsTheMostThatIsGivenAndWhatOthersUseIsOfTheWholeCard) {
  EXPECT_EQ(share_of(card(300, {}), 600, 1000, {}, true).free_bytes, 600);
  EXPECT_EQ(share_of(card(700, {}), 600, 1000, {}, true).free_bytes, 300);
}

TEST(CardCapacity, ARunCountsAsWhatItReservedUntilItHasMore) {
  const CardRuns runs{{run(400, {11, 12})}, {}, {}};
  EXPECT_EQ(share(card(0, {}), runs).free_bytes, 950) << "the reservation is taken off by the packing";
  EXPECT_EQ(share(card(350, {{11, 300}, {12, 50}}), runs).free_bytes, 950);
  EXPECT_EQ(share(card(350, {{11, 300}, {99, 50}}), runs).free_bytes, 900);
  EXPECT_EQ(share(card(500, {{11, 500}}), runs).free_bytes, 850) << "a hundred beyond what it reserved";
}

TEST(CardCapacity, RunsOfOtherQueuesCountOnce) {
  const CardRuns runs{{}, {run(400, {11})}, {}};
  EXPECT_EQ(share(card(0, {}), runs).free_bytes, 550);
  EXPECT_EQ(share(card(350, {{11, 350}}), runs).free_bytes, 550);
  EXPECT_EQ(share(card(350, {{11, 350}}), runs).others, 0);
  EXPECT_EQ(share(card(500, {{11, 500}}), runs).free_bytes, 450);
}

TEST(CardCapacity, WhereNobodySaysWhoHasWhatTheGreaterOfReservedAndUsedCounts) {
  const CardRuns runs{{run(400, {11})}, {run(100, {21})}, {}};
  const auto unknown = [&](int64_t used) { return card(used, {{11, {}}, {21, {}}}); };
  EXPECT_FALSE(share(unknown(0), runs).measured);
  EXPECT_EQ(share(unknown(0), runs).free_bytes, 850);
  EXPECT_EQ(share(unknown(500), runs).free_bytes, 850);
  EXPECT_EQ(share(unknown(600), runs).others, 100);
  EXPECT_EQ(share(unknown(600), runs).free_bytes, 750);
  CardRuns after_others = runs;
  after_others.idle_bytes = 250;
  EXPECT_EQ(share(unknown(300), after_others).free_bytes, 600)
      << "what was there before the runs is not theirs";
  EXPECT_EQ(share(unknown(50), after_others).free_bytes, 800) << "and may have gone";
  EXPECT_EQ(share(card(600, {}), runs, false).free_bytes, 750) << "numbers of another container";
  devices::Gpu unlisted = card(600, {});
  unlisted.processes_known = false;
  EXPECT_EQ(share(unlisted, runs).free_bytes, 750);
}

TEST(CardCapacity, ACardThatDoesNotAnswerOrIsCutUpHasNone) {
  devices::Gpu gpu = card(0, {});
  gpu.problem = "is lost";
  EXPECT_EQ(share(gpu, {}).free_bytes, 0);
  gpu = card(0, {});
  gpu.mig = true;
  EXPECT_EQ(share(gpu, {}).free_bytes, 0);
}

TEST(CardCapacity, WhatOtherQueuesClaimCannotOverflow) {
  const int64_t most = int64_t{1} << 50;
  CardRuns runs;
  for (int i = 0; i < 20'000; ++i) runs.of_other_queues.push_back(run(most, {}));
  EXPECT_EQ(share(card(0, {}), runs).free_bytes, 0);
  EXPECT_EQ(share(card(0, {}), runs, false).free_bytes, 0);
}

TEST(CardCapacity, WhatProcessesHaveIsUnknownWhereOneOfThemIs) {
  EXPECT_EQ(used_on(card(9, {{1, 5}, {2, 4}}), {1, 2}, true), 9);
  EXPECT_EQ(used_on(card(9, {{1, 5}, {2, {}}}), {1}, true), 5) << "what another has does not matter";
  EXPECT_EQ(used_on(card(9, {{1, 5}, {2, {}}}), {1, 2}, true), std::nullopt);
  EXPECT_EQ(used_on(card(9, {}), {1}, true), 0);
  EXPECT_EQ(used_on(card(9, {}), {1}, false), std::nullopt);
  EXPECT_TRUE(sees_our_processes({card(9, {{5, 1}})}, {5}));
}

}  // namespace
}  // namespace plimsoll::queue
