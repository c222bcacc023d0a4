#include "fleet/queue/packing/packing.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/error.h"
#include "fleet/queue/packing/ladder.h"
#include "fleet/queue/packing/simulation.h"

namespace plimsoll::queue {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Need on_cards(int devices, int64_t bytes) { return {devices, bytes, 0, 1}; }
Need on_host(int64_t bytes, int threads = 1) { return {0, 0, bytes, threads}; }
Machine two_cards() { return {1000, 100, {{"a", 100, 0}, {"b", 100, 0}}}; }

Waiting entry(int64_t id, Need need, double seconds = 100, int priority = 0, double submitted = 0) {
  return {id, priority, seconds, submitted, std::nullopt, need};
}

std::vector<int64_t> started(const Packing& packing) {
  std::vector<int64_t> ids;
  for (const Placement& one : packing.starts) ids.push_back(one.id);
  return ids;
}

TEST(Packing, PriorityGoesFirstThenTheLongestThenTheOldest) {
  const Machine machine{30, 8, {}};
  EXPECT_THAT(started(pack(machine,
                           {entry(1, on_host(10), 5), entry(2, on_host(10), 50), entry(3, on_host(10), 50),
                            entry(4, on_host(10), 1, 7)},
                           {}, 0)),
              ElementsAre(4, 2, 3));
}

TEST(Packing, ARunGoesToTheFullestCardThatHasRoom) {
  const Packing packing =
      pack(two_cards(), {entry(1, on_cards(1, 30))}, {{9, 0, 100, on_cards(1, 60), {1}}}, 0);
  ASSERT_EQ(packing.starts.size(), 1u);
  EXPECT_THAT(packing.starts[0].cards, ElementsAre(1));
}

TEST(Packing, SeveralDevicesAreTakenTogetherOrNotAtAll) {
  const std::vector<Running> one_busy = {{9, 0, 100, on_cards(1, 60), {1}}};
  EXPECT_THAT(started(pack(two_cards(), {entry(1, on_cards(2, 50))}, one_busy, 0)), IsEmpty());
  const Packing packing = pack(two_cards(), {entry(1, on_cards(2, 40))}, one_busy, 0);
  ASSERT_EQ(packing.starts.size(), 1u);
  EXPECT_EQ(packing.starts[0].cards.size(), 2u);
}

// Two small cards, and a large one that is twice as fast.
Machine unlike_cards() {
  return {1000, 100, {{"a", 100, 0, "", "small"}, {"b", 100, 0, "", "small"}, {"c", 300, 0, "", "large"}}};
}
Waiting planned_twice(int64_t id) {
  Waiting run = entry(id, {1, 40, 10, 1, "large"}, 50);
  run.elsewhere = {{10, 100, 1, 60, "small"}};
  return run;
}

TEST(Packing, APlanIsForTheCardsThatItWasMadeFor) {
  const Machine machine = unlike_cards();
  EXPECT_THAT(started(pack(machine,
                           {entry(1, {1, 90, 0, 1, "small"}), entry(2, {1, 90, 0, 1, "small"}),
                            entry(3, {1, 90, 0, 1, "small"})},
                           {}, 0)),
              ElementsAre(1, 2))
      << "the large card has room and is another one";
  EXPECT_THAT(never_fits(machine, {1, 200, 0, 1, "small"}), HasSubstr("(small), the largest has 100 B"));
  EXPECT_THAT(never_fits(machine, {1, 1, 0, 1, "huge"}), HasSubstr("1 device (huge), the queue has 0"));
  const Packing one = pack(machine, {entry(1, {1, 90, 0, 1, "b"})}, {}, 0);
  EXPECT_THAT(one.starts.at(0).cards, ElementsAre(1)) << "of that name";
  Machine unknown = machine;
  unknown.cards[0].model.clear();
  EXPECT_EQ(never_fits(unknown, {1, 1, 0, 1, "huge"}), "") << "a card whose model nobody knows may be it";
}

TEST(Packing, RunsOfOnePlanShareTheCardsEvenly) {
  std::map<int, int> runs;
  std::vector<Waiting> waiting;
  for (int64_t id = 1; id <= 4; ++id) waiting.push_back(entry(id, {1, 20, 10, 1, "small"}));
  for (const Placement& one : pack(unlike_cards(), waiting, {}, 0).starts) ++runs[one.cards.at(0)];
  EXPECT_EQ(runs, (std::map<int, int>{{0, 2}, {1, 2}}));
}

TEST(Packing, ARunGoesToTheCardWhereItEndsFirst) {
  std::vector<Waiting> waiting;
  for (int64_t id = 1; id <= 4; ++id) waiting.push_back(planned_twice(id));
  const Packing packing = pack(unlike_cards(), waiting, {}, 0);
  ASSERT_EQ(packing.starts.size(), 4u);
  // Alone or two of them the fast card is no slower; the third would take 150 there, and 100 on another.
  std::vector<int> cards;
  for (const Placement& one : packing.starts) cards.push_back(one.cards.at(0));
  EXPECT_THAT(cards, ElementsAre(2, 2, 0, 1));
  EXPECT_EQ(packing.starts[0].need.device_bytes, 40);
  EXPECT_EQ(packing.starts[2].need, (Need{1, 60, 10, 1, "small"}));
  EXPECT_EQ(packing.starts[2].seconds, 100);
}

TEST(Packing, AFasterCardIsWaitedForWhereItIsFreeSoon) {
  const Machine machine = unlike_cards();
  const auto with_end = [&](double end) {
    return pack(machine, {planned_twice(1)}, {{9, 0, end, {1, 280, 0, 1}, {2}}}, 0);
  };
  EXPECT_THAT(with_end(40).starts, IsEmpty()) << "40 and 50 seconds are less than 100";
  EXPECT_EQ(with_end(40).promise->time, 40);
  ASSERT_EQ(with_end(60).starts.size(), 1u);
  EXPECT_EQ(with_end(60).starts[0].need.card, "small");
  Waiting late = planned_twice(1);
  late.promised = -1;
  EXPECT_EQ(pack(machine, {late}, {{9, 0, 40, {1, 280, 0, 1}, {2}}}, 0).starts.size(), 1u);
}

TEST(Packing, HostMemoryAndThreadsBoundRunsOnCardsToo) {
  Machine machine = two_cards();
  machine.threads = 3;
  Need need{1, 10, 600, 1};
  EXPECT_THAT(started(pack(machine, {entry(1, need), entry(2, need)}, {}, 0)), ElementsAre(1));
  need = {1, 10, 10, 2};
  EXPECT_THAT(started(pack(machine, {entry(1, need), entry(2, need)}, {}, 0)), ElementsAre(1));
}

TEST(Packing, ACapOfRunsHoldsWhereMemoryWouldAllowMore) {
  Machine machine = two_cards();
  machine.cards[0].max_runs = 2;
  machine.cards[1].max_runs = 1;
  std::vector<Waiting> waiting;
  for (int64_t id = 1; id <= 6; ++id) waiting.push_back(entry(id, on_cards(1, 1)));
  std::map<int, int> runs;
  for (const Placement& one : pack(machine, waiting, {}, 0).starts) ++runs[one.cards.at(0)];
  EXPECT_EQ(runs, (std::map<int, int>{{0, 2}, {1, 1}}));
}

TEST(Packing, OthersOvertakeOnlyWhereTheyDoNotPutOffTheFirstThatWaits) {
  const Machine machine{100, 10, {}};
  const std::vector<Running> running = {{9, 0, 50, on_host(60), {}}};
  // 1 fits at 50. 2 is over by then; 3 is not, and would need what 1 needs; 4 fits next to 1.
  const Packing packing = pack(machine,
                               {entry(1, on_host(80), 100), entry(2, on_host(20), 40),
                                entry(3, on_host(20), 60), entry(4, on_host(10), 90)},
                               running, 0);
  EXPECT_THAT(started(packing), ElementsAre(4, 2));
  ASSERT_TRUE(packing.promise);
  EXPECT_EQ(packing.promise->id, 1);
  EXPECT_EQ(packing.promise->time, 50);
}

TEST(Packing, NobodyOvertakesARunWhosePromiseWasBroken) {
  const Machine machine{100, 10, {}};
  const std::vector<Running> running = {{9, 0, 50, on_host(60), {}}};
  std::vector<Waiting> waiting = {entry(1, on_host(80), 100), entry(2, on_host(20), 1)};
  EXPECT_THAT(started(pack(machine, waiting, running, 60)), ElementsAre(2));
  waiting[0].promised = 50;
  EXPECT_THAT(started(pack(machine, waiting, running, 60)), IsEmpty());
}

TEST(Packing, WhatNeverFitsIsSaidAndHoldsNobodyUp) {
  EXPECT_EQ(never_fits(two_cards(), on_cards(1, 100)), "");
  EXPECT_THAT(never_fits(two_cards(), on_cards(1, 101)), HasSubstr("the largest has 100 B"));
  EXPECT_THAT(never_fits(two_cards(), on_cards(3, 1)), HasSubstr("3 devices, the queue has 2"));
  EXPECT_THAT(never_fits(two_cards(), on_host(1001)), HasSubstr("on the host"));
  EXPECT_THAT(never_fits(two_cards(), on_host(1, 101)), HasSubstr("101 threads"));
  EXPECT_THAT(started(pack(two_cards(), {entry(1, on_cards(1, 101), 500), entry(2, on_cards(1, 5))}, {}, 0)),
              ElementsAre(2));
}

TEST(Ladder, NeverTheSameImpossibleAttemptTwice) {
  const Machine machine{0, 4, {{"a", 100, 0}, {"b", 80, 0}}};
  EXPECT_EQ(need_after_memory_ran_out(machine, on_cards(1, 40), 30)->device_bytes, 40) << "others took it";
  EXPECT_EQ(need_after_memory_ran_out(machine, on_cards(1, 40), 40)->device_bytes, 60);
  EXPECT_EQ(need_after_memory_ran_out(machine, on_cards(1, 40), 72)->device_bytes, 90);
  EXPECT_EQ(need_after_memory_ran_out(machine, on_cards(1, 90), 95)->device_bytes, 100);
  EXPECT_EQ(need_after_memory_ran_out(machine, on_cards(2, 70), 75)->device_bytes, 80) << "two cards have it";
  EXPECT_FALSE(need_after_memory_ran_out(machine, on_cards(1, 100), 100));
}

// ---- Properties, over random machines and streams of arrivals with wrong predictions.

struct Stream {
  explicit Stream(uint64_t seed) : random(seed) {}
  std::mt19937_64 random;
  int64_t draw(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  }

  Machine machine() {
    Machine made{draw(50, 200), static_cast<int>(draw(2, 8)), {}};
    for (int64_t i = draw(0, 4); i > 0; --i)
      made.cards.push_back({"card", draw(50, 150), static_cast<int>(draw(0, 3))});
    return made;
  }
  Need need(const Machine& machine) {
    for (;;) {
      Need one;
      one.devices = static_cast<int>(draw(0, static_cast<int64_t>(machine.cards.size())));
      one.device_bytes = one.devices > 0 ? draw(1, 150) : 0;
      one.host_bytes = draw(0, 100);
      one.threads = static_cast<int>(draw(0, 4));
      if (never_fits(machine, one).empty()) return one;
    }
  }
};

void expect_within(const Machine& machine, const std::vector<Running>& running) {
  const Free free = free_of(machine, running);
  EXPECT_GE(free.host_bytes, 0);
  EXPECT_GE(free.threads, 0);
  for (const int64_t bytes : free.card_bytes) EXPECT_GE(bytes, 0);
  for (const int runs : free.card_runs) EXPECT_GE(runs, 0);
  for (const Running& run : running) {
    EXPECT_EQ(run.cards.size(), static_cast<size_t>(run.need.devices));
    std::vector<int> cards = run.cards;
    std::sort(cards.begin(), cards.end());
    EXPECT_EQ(std::unique(cards.begin(), cards.end()), cards.end()) << "each card once";
  }
}

// A stream in which short, small, urgent runs never stop arriving, with predictions far too short: the one
// that needs everything starts all the same.
TEST(Packing, ReservationsStayWithinTheMachineAndEveryRunStarts) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Stream stream(seed);
    const Machine machine = stream.machine();
    constexpr double kPatience = 200;
    std::vector<Waiting> waiting;
    std::vector<Running> running;
    std::map<int64_t, double> ends;
    int64_t next = 1;
    double longest_wait = 0;
    for (double now = 0; now < 6000; now += 5) {
      if (now < 3000)
        for (int64_t count = stream.draw(0, 2); count > 0; --count)
          waiting.push_back(entry(next++, stream.need(machine), static_cast<double>(stream.draw(0, 40)),
                                  static_cast<int>(stream.draw(0, 3)), now));
      std::erase_if(running, [&](const Running& run) { return ends[run.id] <= now; });
      const Packing packing = pack(machine, waiting, running, now, kPatience);
      for (const Placement& start : packing.starts) {
        const auto found = std::find_if(waiting.begin(), waiting.end(),
                                        [&](const Waiting& one) { return one.id == start.id; });
        ASSERT_NE(found, waiting.end()) << "nothing starts twice";
        longest_wait = std::max(longest_wait, now - found->submitted);
        running.push_back({found->id, now, found->seconds, found->need, start.cards});
        ends[found->id] = now + static_cast<double>(stream.draw(1, 25));
        waiting.erase(found);
      }
      expect_within(machine, running);
      if (packing.promise)
        for (Waiting& one : waiting)
          if (one.id == packing.promise->id && !one.promised) one.promised = packing.promise->time;
    }
    for (double now = 6000; !waiting.empty() && now < 60000; now += 5) {
      std::erase_if(running, [&](const Running& run) { return ends[run.id] <= now; });
      for (const Placement& start : pack(machine, waiting, running, now, kPatience).starts) {
        const auto found = std::find_if(waiting.begin(), waiting.end(),
                                        [&](const Waiting& one) { return one.id == start.id; });
        running.push_back({found->id, now, found->seconds, found->need, start.cards});
        ends[found->id] = now + 5;
        waiting.erase(found);
      }
    }
    EXPECT_TRUE(waiting.empty()) << "seed " << seed;
  }
}

TEST(Packing, ARunThatNeedsEverythingStartsThoughUrgentOnesNeverStopArriving) {
  const Machine machine{100, 10, {}};
  std::vector<Waiting> waiting = {entry(0, on_host(100), 500)};
  std::vector<Running> running;
  std::map<int64_t, double> ends;
  int64_t next = 1;
  for (double now = 0; now < 5000; now += 1) {
    waiting.push_back(entry(next++, on_host(10), 1, 4, now));  // "over in a second"
    std::erase_if(running, [&](const Running& run) { return ends[run.id] <= now; });
    const Packing packing = pack(machine, waiting, running, now, 100);
    for (const Placement& start : packing.starts) {
      if (start.id == 0) return;
      running.push_back({start.id, now, 1, on_host(10), {}});
      ends[start.id] = now + 30;  // and takes thirty
      std::erase_if(waiting, [&](const Waiting& one) { return one.id == start.id; });
    }
    for (Waiting& one : waiting)
      if (packing.promise && one.id == packing.promise->id && !one.promised)
        one.promised = packing.promise->time;
  }
  FAIL() << "it starved";
}

// ---- The simulation.

TEST(Simulation, TwoThatFitTogetherRunTogetherAndPollingOverbooksWhatStillGrows) {
  Workload workload{{1000, 100, {{"gpu0", 100, 0}}}, 0, 0, {}};
  for (int i = 0; i < 4; ++i) {
    Job job{"job", 0, i * 31.0, 600, 600, on_cards(1, 50), 50, 300, 0};
    job.need.threads = 0;
    workload.jobs.push_back(job);
  }
  const Outcome packed = simulate(workload, Policy::packed);
  EXPECT_EQ(packed.crashes, 0);
  EXPECT_EQ(packed.makespan, 31 + 600 + 600);
  EXPECT_EQ(packed.most_at_once, 2);
  EXPECT_EQ(packed.most_reserved, 100);
  EXPECT_GT(simulate(workload, Policy::polled).crashes, 0);
  const Outcome alone = simulate(workload, Policy::one_a_card);
  EXPECT_EQ(alone.crashes, 0);
  EXPECT_EQ(alone.makespan, 2400);
}

TEST(Simulation, AJobThatTakesMoreThanItSaidIsTriedAgainWithMore) {
  Workload workload{{1000, 100, {{"gpu0", 100, 0}}}, 0, 0, {}};
  workload.jobs.push_back({"liar", 0, 0, 300, 300, {1, 40, 0, 0}, 70, 60, 0});
  workload.jobs.push_back({"honest", 0, 0, 300, 300, {1, 60, 0, 0}, 60, 0, 0});
  const Outcome packed = simulate(workload, Policy::packed);
  EXPECT_EQ(packed.crashes, 1);
  EXPECT_EQ(packed.lost_jobs, 0);
  workload.jobs[0].peak_bytes = 101;
  EXPECT_EQ(simulate(workload, Policy::packed).lost_jobs, 1) << "no device has it";
}

TEST(FitNextToOthers, ARaisedReservationGetsWhatOthersLeaveAndAnAskedOneWaits) {
  const Machine beside{1000, 8, {{"gpu0", 75, 0}}};
  const auto fit = [&](int64_t need, const std::vector<Tried>& tried) {
    const FitNextToOthers found = fit_next_to_others(beside, on_cards(1, need), tried);
    return std::pair(found.fit, found.need.device_bytes);
  };
  EXPECT_EQ(fit(70, {}), std::pair(Fit::fits, int64_t{70}));
  EXPECT_EQ(fit(90, {}), std::pair(Fit::none, int64_t{90})) << "that was asked for";
  EXPECT_EQ(fit(90, {{on_cards(1, 90)}}), std::pair(Fit::none, int64_t{90})) << "it was never raised";
  EXPECT_EQ(fit(90, {{on_cards(1, 60)}}), std::pair(Fit::less, int64_t{75}));
  EXPECT_EQ(fit(120, {{on_cards(1, 60)}, {on_cards(1, 80)}}), std::pair(Fit::too_little, int64_t{120}));
  // The next step has run out of nothing: it may have what was asked for at first, and waits for that.
  EXPECT_EQ(fit(120, {{on_cards(1, 60), false}, {on_cards(1, 80), false}}),
            std::pair(Fit::less, int64_t{75}));
  EXPECT_EQ(fit(120, {{on_cards(1, 80), false}}), std::pair(Fit::less, int64_t{80}));
  EXPECT_EQ(fit(80, {{on_cards(1, 80), false}}), std::pair(Fit::none, int64_t{80}));
}

// A workload of random jobs on cards and on the host, where others come, go and stay.
Workload random_situation(std::mt19937& random) {
  const auto pick = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  Workload workload;
  workload.machine = {pick(50, 200), static_cast<int>(pick(2, 8)), {}};
  workload.patience_seconds = static_cast<double>(pick(30, 300));
  for (int64_t i = pick(1, 3); i > 0; --i)
    workload.machine.cards.push_back({"gpu" + std::to_string(i), pick(50, 100), 0});
  for (size_t i = 0; i <= workload.machine.cards.size(); ++i) {
    workload.others.emplace_back();
    for (int64_t j = pick(0, 3); j > 0; --j) {
      const auto from = static_cast<double>(pick(0, 400));
      const double until = pick(0, 2) == 0 ? 0 : from + static_cast<double>(pick(10, 400));
      workload.others.back().push_back({pick(5, 90), from, until});
    }
  }
  for (int64_t i = pick(1, 5); i > 0; --i) {
    const int64_t requested = pick(10, 50), peak = requested * pick(50, 300) / 100;
    Need need = pick(0, 3) == 0 ? Need{0, 0, requested, 1} : on_cards(1, requested);
    const auto seconds = static_cast<double>(pick(5, 200));
    Job job{"job", 0,    static_cast<double>(pick(0, 100)), seconds, seconds,
            need,  peak, static_cast<double>(pick(0, 20)),  0};
    for (int64_t j = pick(0, 2); j > 0; --j) job.steps.push_back({peak * j / 4, 2 * seconds});
    if (never_fits(workload.machine, job.need).empty()) workload.jobs.push_back(job);
  }
  return workload;
}

TEST(Simulation, ItEndsWhateverOthersHaveOfTheCardsAndNothingWaitsForWhatCannotCome) {
  std::mt19937 random(7);
  int held = 0, lost = 0, done = 0, stepped = 0;
  for (int i = 0; i < 1000; ++i) {
    const Workload workload = random_situation(random);
    SCOPED_TRACE(i);
    const Outcome outcome = simulate(workload, Policy::packed);  // throws where it has no end
    ASSERT_EQ(outcome.done_jobs + outcome.lost_jobs, static_cast<int>(workload.jobs.size()));
    ASSERT_LE(outcome.held_jobs, outcome.lost_jobs);
    // No job waits beyond the patience, once for each thing that a job may come to.
    ASSERT_LE(outcome.longest_blocked, workload.patience_seconds + 10);
    // Jobs that others never leave room for are held, and no other is.
    const bool alone = std::all_of(workload.others.begin(), workload.others.end(),
                                   [](const auto& pool) { return pool.empty(); });
    if (alone) {
      ASSERT_EQ(outcome.held_jobs, 0);
    }
    held += outcome.held_jobs;
    lost += outcome.lost_jobs - outcome.held_jobs;
    done += outcome.done_jobs;
    stepped += outcome.steps_taken;
  }
  EXPECT_GT(held, 20);
  EXPECT_GT(lost, 20);
  EXPECT_GT(done, 1000);
  EXPECT_GT(stepped, 100);
}

TEST(Simulation, AWorkloadIsReadWithItsMistakesNamed) {
  const auto problem = [](const std::string& text) {
    try {
      read_workload(text, "w.json");
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(problem("{"), HasSubstr("w.json: no JSON"));
  EXPECT_THAT(problem("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(problem(R"({"jobs": []})"), HasSubstr("'machine' is missing"));
  EXPECT_THAT(problem(R"({"machine": {"devices": [{}]}, "jobs": []})"),
              HasSubstr("device 1: 'bytes' is missing"));
  const std::string machine = R"("machine": {"devices": [{"bytes": "100MiB"}]})";
  EXPECT_THAT(problem("{" + machine + R"(, "jobs": [{"bytes": 1}]})"), HasSubstr("job 1: 'seconds'"));
  EXPECT_THAT(problem("{" + machine + R"(, "jobs": [{"seconds": 1, "byte": 1}]})"),
              HasSubstr("unknown key 'byte'"));
  EXPECT_THAT(problem("{" + machine + R"(, "jobs": [{"seconds": 1, "bytes": "1GiB"}]})"),
              HasSubstr("fits never"));
  EXPECT_EQ(problem("{" + machine + R"(, "jobs": [{"seconds": 1, "bytes": "1MiB"}]})"), "");
  EXPECT_THAT(
      problem(R"({"machine": {"devices": [{"bytes": 9, "others": [{"from": 5, "until": 5}]}]}, "jobs": []})"),
      HasSubstr("device 1: others 1: 'until'"));
  const Workload workload = read_workload(
      R"({"machine": {"patience": 50, "devices": [{"bytes": 9, "others": [{"bytes": 4, "from": 5}]}]},
          "jobs": [{"seconds": 1, "bytes": 1, "steps": [{"peak_bytes": 1, "seconds": 2}]}]})",
      "w.json");
  EXPECT_EQ(beside_others(workload, workload.machine, 4).cards[0].bytes, 9);
  EXPECT_EQ(beside_others(workload, workload.machine, 5).cards[0].bytes, 5);
  EXPECT_EQ(workload.patience_seconds, 50);
  EXPECT_EQ(workload.jobs[0].steps[0].seconds, 2);
}

}  // namespace
}  // namespace plimsoll::queue
