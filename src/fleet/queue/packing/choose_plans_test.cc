#include "fleet/queue/packing/choose_plans.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

namespace plimsoll::queue {
namespace {

using ::testing::ElementsAre;

Machine host(int64_t bytes, int threads = 8) { return {bytes, threads, {}}; }
Waiting recipe(int64_t id, int64_t bytes, double seconds, std::vector<SmallerPlan> smaller = {}) {
  return {id, 0, seconds, 0, std::nullopt, {0, 0, bytes, 1}, std::move(smaller)};
}
// Bytes by id.
std::vector<int64_t> bytes_of(const ChosenPlans& chosen) {
  std::vector<Waiting> waiting = chosen.waiting;
  std::sort(waiting.begin(), waiting.end(), [](const Waiting& a, const Waiting& b) { return a.id < b.id; });
  std::vector<int64_t> bytes;
  for (const Waiting& one : waiting) bytes.push_back(one.need.host_bytes);
  return bytes;
}

TEST(PredictedEnd, is_when_the_last_run_ends_as_they_would_be_packed) {
  EXPECT_EQ(predicted_end(host(10), {}, {}, 5), 5);
  EXPECT_EQ(predicted_end(host(10), {recipe(1, 6, 100), recipe(2, 6, 50)}, {}, 5), 155);
  EXPECT_EQ(predicted_end(host(12), {recipe(1, 6, 100), recipe(2, 6, 50)}, {}, 5), 105);
  // Behind what runs, also where that is late.
  EXPECT_EQ(predicted_end(host(10), {recipe(1, 6, 100)}, {{9, 0, 30, {0, 0, 6, 1}, {}}}, 5), 130);
  EXPECT_EQ(predicted_end(host(10), {recipe(1, 6, 100)}, {{9, 0, 30, {0, 0, 6, 1}, {}}}, 40), 200);
  // A run that never fits is not waited for.
  EXPECT_EQ(predicted_end(host(10), {recipe(1, 60, 100), recipe(2, 6, 50)}, {}, 0), 50);
}

TEST(ChoosePlans, two_run_side_by_side_where_that_ends_the_whole_sooner) {
  const ChosenPlans chosen = choose_plans(
      host(10), {recipe(1, 6, 100, {{5, 110}, {2, 180}}), recipe(2, 6, 100, {{5, 110}, {2, 180}})}, {}, 0);
  EXPECT_EQ(chosen.seconds_before, 200);
  EXPECT_EQ(chosen.seconds, 110);
  EXPECT_THAT(bytes_of(chosen), ElementsAre(5, 5));
}

TEST(ChoosePlans, on_cards_the_largest_plan_is_taken_that_others_leave_room_for) {
  Machine machine = host(1000);
  machine.cards = {{"a", 90, 0, "", "small"}, {"b", 300, 0, "", "large"}};
  Waiting run{1, 0, 50, 0, std::nullopt, {1, 200, 10, 1, "large"}, {}};
  run.smaller = {{10, 60, 1, 150, "large"}, {11, 100, 1, 80, "small"}, {12, 120, 1, 40, "small"}};
  const auto chosen = [&] { return choose_plans(machine, {run, run}, {}, 0).waiting.front(); };
  EXPECT_EQ(chosen().need, run.need) << "two do not fit beside each other, and would share what it computes";
  EXPECT_THAT(chosen().elsewhere, ElementsAre(run.smaller[1]));
  machine.cards = {{"a", 50, 0, "", "small"}, {"b", 160, 0, "", "large"}};
  EXPECT_EQ(chosen().need, (Need{1, 150, 10, 1, "large"}));
  EXPECT_EQ(chosen().seconds, 60);
  EXPECT_THAT(chosen().elsewhere, ElementsAre(run.smaller[2]));
  machine.cards[1].bytes = 100;
  EXPECT_EQ(chosen().need, (Need{1, 40, 12, 1, "small"})) << "nothing fits the large card now";
  machine.cards[0].bytes = 10;
  EXPECT_EQ(chosen().need, run.need) << "it waits";
}

TEST(ChoosePlans, nobody_is_slower_where_it_ends_nothing_sooner) {
  // The smaller plans are too slow.
  EXPECT_THAT(
      bytes_of(choose_plans(host(10), {recipe(1, 6, 100, {{5, 201}}), recipe(2, 6, 100, {{5, 201}})}, {}, 0)),
      ElementsAre(6, 6));
  // They fit side by side already.
  EXPECT_THAT(
      bytes_of(choose_plans(host(12), {recipe(1, 6, 100, {{5, 101}}), recipe(2, 6, 100, {{5, 101}})}, {}, 0)),
      ElementsAre(6, 6));
  // One is enough; the longer run keeps its plan.
  EXPECT_THAT(
      bytes_of(choose_plans(host(10), {recipe(1, 6, 300, {{4, 400}}), recipe(2, 6, 100, {{4, 150}})}, {}, 0)),
      ElementsAre(6, 4));
  // Memory is not what is short.
  EXPECT_THAT(bytes_of(choose_plans(host(10, 1),
                                    {recipe(1, 6, 100, {{5, 101}}), recipe(2, 6, 100, {{5, 101}})}, {}, 0)),
              ElementsAre(6, 6));
  // Less than a hundredth.
  EXPECT_THAT(
      bytes_of(choose_plans(host(10), {recipe(1, 6, 100, {{5, 199}}), recipe(2, 6, 100, {{5, 199}})}, {}, 0)),
      ElementsAre(6, 6));
}

Waiting of_two_threads(int64_t id, double seconds, std::vector<SmallerPlan> smaller) {
  return {id, 0, seconds, 0, std::nullopt, {0, 0, 4, 2}, std::move(smaller)};
}

TEST(ChoosePlans, fewer_threads_let_two_run_side_by_side) {
  const auto chosen = choose_plans(
      host(10, 2), {of_two_threads(1, 100, {{4, 160, 1}}), of_two_threads(2, 100, {{4, 160, 1}})}, {}, 0);
  EXPECT_EQ(chosen.seconds_before, 200);
  EXPECT_EQ(chosen.seconds, 160);
  for (const Waiting& one : chosen.waiting) EXPECT_EQ(one.need.threads, 1);
  // Less than a twentieth: what threads bring is not known so well.
  EXPECT_EQ(
      choose_plans(host(10, 2),
                   {of_two_threads(1, 100, {{4, 195, 1}}), of_two_threads(2, 100, {{4, 195, 1}})}, {}, 0)
          .seconds,
      200);
  // One alone has all threads.
  EXPECT_EQ(choose_plans(host(10, 2), {of_two_threads(1, 100, {{4, 160, 1}})}, {}, 0).seconds, 100);
  // Both capacities count: with one thread each, but no memory for two, nothing is won.
  EXPECT_EQ(
      choose_plans(host(6, 2), {of_two_threads(1, 100, {{4, 160, 1}}), of_two_threads(2, 100, {{4, 160, 1}})},
                   {}, 0)
          .seconds,
      200);
  EXPECT_EQ(choose_plans(host(6, 2),
                         {of_two_threads(1, 100, {{4, 160, 1}, {3, 170, 1}}),
                          of_two_threads(2, 100, {{4, 160, 1}, {3, 170, 1}})},
                         {}, 0)
                .seconds,
            170);
}

TEST(ChoosePlans, what_runs_counts) {
  const std::vector<Running> running = {{9, 0, 1000, {0, 0, 6, 1}, {}}};
  EXPECT_THAT(bytes_of(choose_plans(host(10), {recipe(1, 6, 100, {{4, 150}})}, running, 0)), ElementsAre(4));
  EXPECT_THAT(bytes_of(choose_plans(host(10), {recipe(1, 6, 100, {{5, 150}})}, running, 0)), ElementsAre(6));
}

TEST(ChoosePlans, a_run_whose_own_plan_never_fits_has_the_largest_that_does) {
  const ChosenPlans chosen =
      choose_plans(host(10), {recipe(1, 60, 100, {{12, 110}, {9, 150}, {4, 300}})}, {}, 0);
  EXPECT_THAT(bytes_of(chosen), ElementsAre(9));
  EXPECT_EQ(chosen.seconds, 150);
  EXPECT_THAT(bytes_of(choose_plans(host(2), {recipe(1, 60, 100, {{4, 300}})}, {}, 0)), ElementsAre(60));
}

TEST(ChoosePlans, nothing_is_chosen_while_nothing_can_start) {
  const std::vector<Running> running = {{9, 0, 1000, {0, 0, 8, 1}, {}}};
  const ChosenPlans chosen =
      choose_plans(host(10), {recipe(1, 6, 100, {{3, 110}}), recipe(2, 6, 100, {{3, 110}})}, running, 0);
  EXPECT_THAT(bytes_of(chosen), ElementsAre(6, 6));
  EXPECT_EQ(chosen.seconds_before, 0);
  const ChosenPlans later =
      choose_plans(host(10), {recipe(1, 6, 100, {{3, 110}}), recipe(2, 6, 100, {{3, 110}})}, {}, 0);
  EXPECT_EQ(later.seconds, 110);
}

TEST(ChoosePlans, commands_and_more_runs_than_are_considered_stay_as_they_are) {
  std::vector<Waiting> waiting;
  for (int i = 0; i < 100; ++i) waiting.push_back(recipe(i, 6, 100));
  EXPECT_EQ(choose_plans(host(10), waiting, {}, 0).waiting.size(), 100u);
  for (Waiting& one : waiting) one.smaller = {{5, 110}};
  const ChosenPlans chosen = choose_plans(host(10), waiting, {}, 0);
  const std::vector<int64_t> bytes = bytes_of(chosen);
  ASSERT_EQ(bytes.size(), 100u);
  EXPECT_EQ(bytes.front(), 5);
  EXPECT_EQ(bytes.back(), 6);
}

TEST(ChoosePlans, never_end_later_and_are_always_plans_that_the_run_has) {
  std::mt19937 random(7);
  const auto below = [&](int most) { return 1 + static_cast<int>(random() % static_cast<unsigned>(most)); };
  int sooner = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<Waiting> waiting;
    const int runs = below(8);
    for (int i = 0; i < runs; ++i) {
      Waiting one = recipe(i, 20 + below(80), 10 + below(500));
      SmallerPlan plan{one.need.host_bytes, one.seconds};
      for (int more = below(4); more > 1; --more) {
        plan = {plan.host_bytes * 8 / 10, plan.seconds * (1 + below(30) / 100.0)};
        one.smaller.push_back(plan);
      }
      waiting.push_back(one);
    }
    const ChosenPlans chosen = choose_plans(host(120, 4), waiting, {}, 0);
    ASSERT_EQ(chosen.waiting.size(), waiting.size());
    for (const Waiting& one : chosen.waiting) {
      const Waiting& was = waiting[static_cast<size_t>(one.id)];
      const SmallerPlan plan{one.need.host_bytes, one.seconds};
      EXPECT_TRUE(plan == (SmallerPlan{was.need.host_bytes, was.seconds}) ||
                  std::find(was.smaller.begin(), was.smaller.end(), plan) != was.smaller.end());
    }
    if (chosen.seconds_before == 0) continue;
    EXPECT_EQ(chosen.seconds_before, predicted_end(host(120, 4), waiting, {}, 0));
    EXPECT_EQ(chosen.seconds, predicted_end(host(120, 4), chosen.waiting, {}, 0));
    EXPECT_LE(chosen.seconds, chosen.seconds_before);
    sooner += chosen.seconds < chosen.seconds_before ? 1 : 0;
  }
  EXPECT_GT(sooner, 20);
}

// A run on two to four of these cards, which does not become faster in proportion.
Waiting on_two_to_four(int64_t id, double seconds = 100) {
  Waiting run{id, 0, seconds, 0, std::nullopt, {4, 50, 40, 4, "T4 16GB", 4}, {}};
  run.smaller = {{30, 1.2 * seconds, 3, 60, "T4 16GB", 3}, {20, 1.6 * seconds, 2, 80, "T4 16GB", 2}};
  return run;
}
Machine four_cards() {
  Machine machine = host(1000);
  for (const char* name : {"a", "b", "c", "d"}) machine.cards.push_back({name, 100, 0, "", "T4 16GB"});
  return machine;
}

TEST(ChoosePlans, a_run_on_a_number_of_cards_takes_as_many_as_end_the_whole_soonest) {
  const Machine machine = four_cards();
  const auto devices = [](const ChosenPlans& chosen) {
    std::vector<int> numbers;
    for (const Waiting& one : chosen.waiting) numbers.push_back(one.need.devices);
    return numbers;
  };
  EXPECT_THAT(devices(choose_plans(machine, {on_two_to_four(1)}, {}, 0)), ElementsAre(4)) << "it is alone";
  const ChosenPlans two = choose_plans(machine, {on_two_to_four(1), on_two_to_four(2)}, {}, 0);
  EXPECT_THAT(devices(two), ElementsAre(2, 2)) << "160 s side by side, not 200 s";
  EXPECT_EQ(two.waiting[0].need, (Need{2, 80, 20, 2, "T4 16GB", 2}));
  EXPECT_EQ(two.seconds, 160);
  // Two cards are taken for long: it does not wait for them.
  const std::vector<Running> long_one = {{9, 0, 1000, {2, 60, 10, 2}, {0, 1}}};
  EXPECT_THAT(devices(choose_plans(machine, {on_two_to_four(1)}, long_one, 0)), ElementsAre(2));
  // For a moment: it waits, as four end it sooner.
  const std::vector<Running> short_one = {{9, 0, 20, {2, 60, 10, 2}, {0, 1}}};
  EXPECT_THAT(devices(choose_plans(machine, {on_two_to_four(1)}, short_one, 0)), ElementsAre(4));
}

TEST(ChoosePlans, cards_of_another_kind_keep_their_numbers) {
  Machine machine = four_cards();
  machine.cards[0].model = machine.cards[1].model = "A2 16GB";
  Waiting run = on_two_to_four(1);
  run.smaller.push_back({21, 300, 2, 70, "A2 16GB", 2});
  const ChosenPlans chosen = choose_plans(machine, {run}, {}, 0);
  EXPECT_EQ(chosen.waiting[0].need, (Need{2, 80, 20, 2, "T4 16GB", 2})) << "there are no four of one kind";
  EXPECT_THAT(chosen.waiting[0].elsewhere, ElementsAre(run.smaller.back()));
  const Packing packing = pack(machine, chosen.waiting, {{9, 0, 5000, {2, 90, 1, 1}, {2, 3}}}, 0);
  ASSERT_EQ(packing.starts.size(), 1u);
  EXPECT_EQ(packing.starts[0].need, (Need{2, 70, 21, 2, "A2 16GB", 2}));
  EXPECT_THAT(packing.starts[0].cards, ElementsAre(0, 1));
}

TEST(ChoosePlans, processes_on_a_host_share_its_threads_by_their_number) {
  Waiting run{1, 0, 100, 0, std::nullopt, {0, 0, 60, 4, "", 4}, {{30, 150, 2, 0, "", 2}}};
  Waiting other = run;
  other.id = 2;
  EXPECT_EQ(choose_plans(host(100, 4), {run}, {}, 0).waiting[0].need, run.need);
  const ChosenPlans chosen = choose_plans(host(100, 4), {run, other}, {}, 0);
  EXPECT_EQ(chosen.seconds, 150);
  EXPECT_EQ(chosen.waiting[0].need, (Need{0, 0, 30, 2, "", 2}));
}

}  // namespace
}  // namespace plimsoll::queue
