// Parts of a run that need no model: the loss guard, logs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <string>

#include "base/error.h"
#include "files/file.h"
#include "files/test_folder.h"
#include "ops/loss/sequence_loss.h"
#include "ranks/thread_group.h"
#include "runs/metrics.h"
#include "runs/seen_targets.h"
#include "runs/stopped_batch.h"
#include "runs/trainer_state.h"
#include "train/gradient_sums.h"
#include "train/loss_guard.h"
#include "weights/row_io.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;

void add(LossGuard& guard, int count, double loss) {
  for (int i = 0; i < count; ++i) guard.add(loss);
}

TEST(LossGuard, one_hard_batch_is_no_divergence_and_twenty_are) {
  LossGuard guard{StopLoss{}};
  add(guard, 30, 2.0);
  EXPECT_EQ(guard.limit(), 5.0);
  guard.add(40.0);
  EXPECT_FALSE(guard.diverged());
  EXPECT_TRUE(guard.rising());  // until it has left the window
  add(guard, 20, 2.0);
  EXPECT_FALSE(guard.rising());
  add(guard, 15, 5.2);
  EXPECT_FALSE(guard.diverged());
  add(guard, 5, 5.2);
  EXPECT_TRUE(guard.diverged());
}

TEST(LossGuard, a_run_that_breaks_down_within_its_first_steps_is_noticed) {
  LossGuard guard{StopLoss{}};
  add(guard, 5, 2.0);
  add(guard, 15, 9.0);
  EXPECT_TRUE(guard.diverged());
}

TEST(LossGuard, learning_and_steps_without_targets_are_no_divergence) {
  LossGuard guard{StopLoss{}};
  for (int i = 0; i < 100; ++i) {
    guard.add(10.0 * std::exp(-i / 20.0));
    guard.add(std::nan(""));
    EXPECT_FALSE(guard.diverged());
  }
}

TEST(LossGuard, the_limit_is_the_recipes) {
  LossGuard at_three{StopLoss{StopLoss::Kind::limit, 3.0}};
  LossGuard never{StopLoss{StopLoss::Kind::never}};
  for (LossGuard* guard : {&at_three, &never}) add(*guard, 20, 3.5);
  EXPECT_TRUE(at_three.diverged());
  add(never, 20, 1e30);
  EXPECT_FALSE(never.diverged());
}

EffectiveBatch batch_of(const std::vector<int32_t>& targets) {
  EffectiveBatch batch(4, 64);
  Example example;
  example.ids = example.labels = targets;
  example.targets = std::ssize(targets);
  batch.add(example, 0);
  return batch;
}

// A class's answer is one token in addition to one that all rows have.
TEST(SeenTargets, a_class_that_comes_late_is_no_divergence) {
  SeenTargets seen({}, 100);
  for (int i = 0; i < 200; ++i) seen.add(batch_of({7, 7, 1}), 0.02);
  EXPECT_EQ(seen.unseen(1.04), "");
  for (int i = 0; i < 5; ++i) seen.add(batch_of({8, 8, 1}), 8.4);
  const std::string told = seen.unseen(1.04);
  EXPECT_THAT(told, HasSubstr("the loss rose from 0.020000 to 8.400000 within one step, 4 steps ago"));
  EXPECT_THAT(told,
              HasSubstr("67 % of what they teach are target tokens that no earlier step had (0 % in the 20 "
                        "steps before)"));
}

TEST(SeenTargets, a_divergence_over_targets_that_were_seen_is_one) {
  SeenTargets seen({}, 1000);
  for (int i = 0; i < 60; ++i) seen.add(batch_of({i % 10, 1, 2}), 2.0);
  for (int i = 0; i < 20; ++i) seen.add(batch_of({i % 10, 1, 2}), 9.0);
  EXPECT_EQ(seen.unseen(5.0), "");
  SeenTargets always_new({}, 1000);  // as many new ones before as after
  for (int i = 0; i < 80; ++i) always_new.add(batch_of({10 + i, 1, 2}), i < 60 ? 2.0 : 9.0);
  EXPECT_EQ(always_new.unseen(5.0), "");
  SeenTargets at_the_start({}, 1000);
  for (int i = 0; i < 20; ++i) at_the_start.add(batch_of({i, i + 100}), i < 5 ? 2.0 : 9.0);
  EXPECT_EQ(at_the_start.unseen(5.0), "");
}

TEST(LineLog, goes_on_after_the_last_whole_line_of_the_step_resumed) {
  const TestFolder folder;
  const auto path = folder.write("log.jsonl", "{\"step\": 1}\n{\"step\": 2}\n{\"step\": 3}\n{\"st");
  int64_t seen = 0;
  LineLog(path, 2, [&](const nlohmann::json& line) {
    seen += line["step"].get<int64_t>();
  }).write("{\"step\": 3, \"new\": true}");
  EXPECT_EQ(seen, 3);
  EXPECT_EQ(read_text(path, 1000), "{\"step\": 1}\n{\"step\": 2}\n{\"step\": 3, \"new\": true}\n");
}

TEST(FindNotFinite, tells_the_first) {
  std::vector<float> values(5000, 1.0F);
  const auto bytes = [&] { return std::as_bytes(std::span<const float>(values)); };
  EXPECT_EQ(find_not_finite(bytes(), DType::f32), std::nullopt);
  values[4990] = -INFINITY;
  EXPECT_EQ(find_not_finite(bytes(), DType::f32), 4990);
  values[1023] = NAN;
  EXPECT_EQ(find_not_finite(bytes(), DType::f32), 1023);
  EXPECT_EQ(find_not_finite(bytes(), DType::i32), std::nullopt);
  const std::array<uint16_t, 2> halves = {0x7F7F, 0x7F80};  // the largest bf16 and infinity
  EXPECT_EQ(find_not_finite(std::as_bytes(std::span(halves)), DType::bf16), 1);
}

TEST(TrainerState, reads_back_and_what_no_run_writes_is_damage) {
  TrainerState state;
  state.step = 3;
  state.position = {1, 40};
  state.micro_batch = state.loss_chunk = 8;
  state.ranks = 3;
  state.shard = ShardStage::gradients;
  state.eval_loss = 0.1;
  state.fingerprint = "{}";
  state.eval_metrics = {{"accuracy", 0.75}, {"f1", 0.5}};
  const std::string text = to_text(state);
  const TrainerState read = parse_trainer_state(text, "s.json");
  EXPECT_EQ(to_text(read), text);
  EXPECT_EQ(read.evaluated("loss"), 0.1);
  EXPECT_EQ(read.evaluated("f1"), 0.5);
  EXPECT_EQ(read.evaluated("pearson"), std::nullopt);
  for (const auto& [was, now] :
       std::vector<std::pair<std::string, std::string>>{{"\"step\": 3", "\"step\": -3"},
                                                        {"\"step\": 3", "\"step\": 1e300"},
                                                        {"\"index\": 40", "\"index\": 18446744073709551615"},
                                                        {"\"micro_batch\": 8", "\"micro_batch\": 0"},
                                                        {"\"loss_chunk\": 8", "\"loss_chunk\": null"},
                                                        {"\"gradients\"", "\"auto\""},
                                                        {"\"epoch\"", "\"epic\""}}) {
    std::string damaged = text;
    damaged.replace(damaged.find(was), was.size(), now);
    EXPECT_THAT(message_of<DamagedError>([&] { parse_trainer_state(damaged, "s.json"); }),
                HasSubstr("s.json: "))
        << now;
  }
}

TEST(TrainerState, of_an_earlier_version_does_not_say_that_skipped_steps_kept_the_weights) {
  TrainerState state;
  state.micro_batch = state.loss_chunk = 8;
  state.loss_scale.emplace().take(true);
  const std::string text = to_text(state);
  EXPECT_TRUE(parse_trainer_state(text, "s.json").loss_scale->skips_keep_weights);
  nlohmann::json before = nlohmann::json::parse(text);
  before["loss_scale"].erase("skips_keep_weights");
  const TrainerState read = parse_trainer_state(before.dump(), "s.json");
  EXPECT_FALSE(read.loss_scale->skips_keep_weights);
  EXPECT_FALSE(parse_trainer_state(to_text(read), "s.json").loss_scale->skips_keep_weights);
  before["loss_scale"]["skipped_steps"] = 0;
  EXPECT_TRUE(parse_trainer_state(before.dump(), "s.json").loss_scale->skips_keep_weights);
}

TEST(StoppedBatch, keeps_rows_with_their_numbers) {
  const TestFolder folder;
  EffectiveBatch batch(2, 4);
  Example example;
  example.ids = {5, 6, 7};
  example.labels = {-100, 6, 7};
  example.targets = 2;
  batch.add(example, 41);
  RunFolder run(folder.path() / "run");
  run.begin();
  const auto path = save_stopped_batch(batch, run, 9);
  EXPECT_EQ(path.filename(), "stopped-at-step-9.jsonl");
  EXPECT_EQ(read_text(path, 1000), "{\"row\":41,\"input_ids\":[5,6,7],\"labels\":[-100,6,7]}\n");
  folder.write("run/stopped-at-step-10.jsonl", "a user's");
  EXPECT_THAT(stopped_batch_words(batch, run, 10), HasSubstr("could not be saved"));
  EXPECT_EQ(read_text(folder.path() / "run/stopped-at-step-10.jsonl", 100), "a user's");
}

TEST(LossSums, are_added_in_the_order_of_ranks) {
  run_as_threads(3, [&](Group& group) {
    std::vector<double> sums = {1.0 * group.rank(), 1e16, group.rank() == 2 ? -2e16 : 0.5};
    add_up_losses(group, {.task = Task::sft}, true, sums);
    EXPECT_THAT(sums, testing::ElementsAre(3, 3e16, -2e16 + 1.0));
  });
}

TEST(LossSums, the_least_and_the_largest_reward_are_those_of_any_rank) {
  const auto at = [](PairSum which) { return static_cast<size_t>(which); };
  run_as_threads(3, [&](Group& group) {
    const int rank = group.rank();
    std::vector<double> sums(kNumPairSums, 1.0);
    sums[at(PairSum::least)] = rank == 0 ? -0.5 : 0.25;
    sums[at(PairSum::most)] = rank == 0 ? 0.5 : 2.0;
    add_up_losses(group, {.task = Task::reward}, rank != 2, sums);  // rank 2 had no rows
    EXPECT_EQ(sums[at(PairSum::pairs)], 2.0);
    EXPECT_EQ(sums[at(PairSum::least)], -0.5);
    EXPECT_EQ(sums[at(PairSum::most)], 2.0);
  });
}

}  // namespace
}  // namespace plimsoll
