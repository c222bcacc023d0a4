#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/error.h"
#include "data/batch/effective_batch.h"
#include "data/batch/micro_steps.h"

namespace plimsoll {
namespace {

using testing::Each;
using testing::ElementsAre;

Example example_of(std::vector<int32_t> ids, std::vector<int32_t> labels) {
  Example example{std::move(ids), std::move(labels), 0, 0};
  example.whole_length = static_cast<int64_t>(example.ids.size());
  for (size_t i = 1; i < example.labels.size(); ++i)
    example.targets += example.labels[i] == kIgnoreLabel ? 0 : 1;
  return example;
}

TEST(MicroBatch, lays_sequences_on_one_axis_and_shifts_labels) {
  MicroBatch batch(3, 3);
  batch.append(std::vector<int32_t>{5, 6, 7}, std::vector<int32_t>{-100, 6, 7}, 4);
  batch.append(std::vector<int32_t>{8, 9}, std::vector<int32_t>{8, 9}, 5);
  EXPECT_THAT(batch.input_ids, ElementsAre(5, 6, 7, 8, 9, 0, 0, 0, 0));
  EXPECT_THAT(batch.labels, ElementsAre(6, 7, -100, 9, -100, -100, -100, -100, -100));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 0, 1, 0, 0, 0, 0));
  EXPECT_THAT(batch.seq_starts, ElementsAre(0, 3, 5, 5));
  EXPECT_THAT(batch.sample_in_batch, ElementsAre(4, 5, 0));
  EXPECT_EQ(batch.live_tokens, 5);
  EXPECT_EQ(batch.live_sequences, 2);
  EXPECT_EQ(batch.target_tokens, 3);
  EXPECT_EQ(batch.bytes(), (3 * 9 + 4 + 2 * 3) * 4);
}

TEST(MicroBatch, clearing_leaves_nothing_of_the_last_step) {
  MicroBatch batch(1, 2);
  batch.append(std::vector<int32_t>{5, 6}, std::vector<int32_t>{5, 6}, 3);
  batch.clear();
  EXPECT_THAT(batch.input_ids, Each(0));
  EXPECT_THAT(batch.labels, Each(kIgnoreLabel));
  EXPECT_THAT(batch.seq_starts, Each(0));
  EXPECT_EQ(batch.target_tokens, 0);
}

TEST(MicroBatch, a_sequence_that_does_not_fit_is_our_own_bug) {
  MicroBatch batch(2, 2);
  const std::vector<int32_t> two = {1, 2};
  EXPECT_THROW(batch.append(std::vector<int32_t>(5, 1), std::vector<int32_t>(5, 1), 0), InternalError);
  batch.append(two, two, 0);
  batch.append(two, two, 1);
  EXPECT_THROW(batch.append(two, two, 2), InternalError);
}

// The contract: however the effective batch is split, the same sequences come with the same numbers.
TEST(EffectiveBatch, every_split_gives_the_same_sequences) {
  EffectiveBatch batch(5, 4);
  for (int32_t i = 0; i < 5; ++i) batch.add(example_of({i, i + 1, i + 2}, {-100, i + 1, i + 2}));
  EXPECT_EQ(batch.target_tokens(), 10);
  for (const int64_t micro : {1, 2, 3, 5, 7}) {
    MicroSteps steps({micro}, {4, 1}, 5);
    steps.cut(batch);
    std::vector<int32_t> tokens;
    std::vector<int32_t> samples;
    int64_t targets = 0;
    for (int64_t step = 0; step < steps.count(); ++step) {
      const MicroBatch& out = steps.fill(step);
      targets += out.target_tokens;
      tokens.insert(tokens.end(), out.input_ids.begin(), out.input_ids.begin() + out.live_tokens);
      samples.insert(samples.end(), out.sample_in_batch.begin(),
                     out.sample_in_batch.begin() + out.live_sequences);
    }
    EXPECT_THAT(tokens, ElementsAre(0, 1, 2, 1, 2, 3, 2, 3, 4, 3, 4, 5, 4, 5, 6)) << micro;
    EXPECT_THAT(samples, ElementsAre(0, 1, 2, 3, 4)) << micro;
    EXPECT_EQ(targets, batch.target_tokens()) << micro;
  }
}

// Rows of 5, 1, 4, 2 and 3 tokens.
EffectiveBatch uneven_batch() {
  EffectiveBatch batch(5, 8);
  int32_t id = 0;
  for (const int length : {5, 1, 4, 2, 3}) {
    std::vector<int32_t> ids(static_cast<size_t>(length));
    for (int32_t& one : ids) one = ++id;
    Example row = example_of(ids, ids);
    row.targets = 1;  // a row of one token has none by itself
    batch.add(row);
  }
  return batch;
}

TEST(MicroSteps, in_tokens_hold_the_longest_rows_first_and_each_row_once) {
  const EffectiveBatch batch = uneven_batch();
  MicroSteps steps({5, 8}, {8, 1}, 5);
  steps.cut(batch);
  ASSERT_EQ(steps.count(), 2);
  EXPECT_THAT(steps.fill(0).input_ids, ElementsAre(1, 2, 3, 4, 5, 13, 14, 15));
  EXPECT_THAT(steps.fill(0).sample_in_batch, ElementsAre(0, 4, 0, 0, 0));
  EXPECT_THAT(steps.fill(1).input_ids, ElementsAre(6, 7, 8, 9, 10, 11, 12, 0));
  EXPECT_THAT(steps.fill(1).sample_in_batch, ElementsAre(1, 2, 3, 0, 0)) << "in the order in which they came";
}

TEST(MicroSteps, in_tokens_have_room_for_so_many_rows_too) {
  const EffectiveBatch batch = uneven_batch();
  MicroSteps steps({2, 15}, {8, 1}, 5);
  steps.cut(batch);
  ASSERT_EQ(steps.count(), 3);
  EXPECT_EQ(steps.fill(0).live_tokens, 9);
  EXPECT_EQ(steps.fill(2).live_tokens, 1);
}

TEST(MicroSteps, sources_and_targets_have_room_of_their_own) {
  EffectiveBatch batch(3, {12, 2});
  for (int i = 0; i < 3; ++i) {
    Example two;
    append_source({1, 2, 3}, two);
    append_target({4, 5, 6, 7}, {}, two);
    two.targets = 4;
    batch.add(two);
  }
  MicroSteps by_targets({3, 9, 8}, {12, 2}, 3);
  by_targets.cut(batch);
  ASSERT_EQ(by_targets.count(), 2) << "the targets of two fill 8";
  EXPECT_EQ(by_targets.fill(0).live_tokens, 16) << "with the token that each target begins with";
  MicroSteps by_sources({3, 3, 12}, {12, 2}, 3);
  by_sources.cut(batch);
  EXPECT_EQ(by_sources.count(), 3);
}

TEST(MicroSteps, a_row_longer_than_their_room_is_our_own_bug) {
  MicroSteps steps({5, 4}, {8, 1}, 5);
  EXPECT_THROW(steps.cut(uneven_batch()), InternalError);
}

// The contents of micro-steps: their live ids, one after the other.
using Parts = std::vector<std::vector<int32_t>>;
Parts parts_of(const EffectiveBatch& batch, const MicroCapacity& capacity, const Rank& rank) {
  MicroSteps steps(capacity, {8, 1}, 5, rank);
  steps.cut(batch);
  Parts parts;
  for (int64_t step = 0; step < steps.count(); ++step) {
    const MicroBatch& out = steps.fill(step);
    parts.emplace_back(out.input_ids.begin(), out.input_ids.begin() + out.live_tokens);
  }
  return parts;
}

TEST(MicroSteps, of_all_ranks_have_every_row_once_and_are_level) {
  const EffectiveBatch batch = uneven_batch();
  int64_t tokens = 0, longest = 0;
  for (int64_t sequence = 0; sequence < batch.sequences(); ++sequence) {
    tokens += std::ssize(batch.ids(sequence));
    longest = std::max<int64_t>(longest, std::ssize(batch.ids(sequence)));
  }
  for (const MicroCapacity& capacity :
       {MicroCapacity{1}, MicroCapacity{2}, MicroCapacity{5}, MicroCapacity{5, 8}, MicroCapacity{2, 6}}) {
    std::vector<int32_t> whole;
    for (const auto& part : parts_of(batch, capacity, {}))
      whole.insert(whole.end(), part.begin(), part.end());
    std::sort(whole.begin(), whole.end());
    for (const int64_t ranks : {2, 3, 7}) {
      std::vector<int32_t> together;
      int64_t least = tokens, most = 0;
      for (int64_t number = 0; number < ranks; ++number) {
        const Parts own = parts_of(batch, capacity, {number, ranks});
        EXPECT_EQ(own, parts_of(batch, capacity, {number, ranks})) << "the same rows every time";
        int64_t of_rank = 0;
        for (const auto& part : own) {
          EXPECT_FALSE(part.empty()) << "no micro-step without rows";
          of_rank += std::ssize(part);
          together.insert(together.end(), part.begin(), part.end());
        }
        least = std::min(least, of_rank);
        most = std::max(most, of_rank);
      }
      std::sort(together.begin(), together.end());
      EXPECT_EQ(together, whole) << ranks;
      EXPECT_LE(most - least, longest) << "the longest row is dealt first";
      EXPECT_EQ(least == 0, ranks > batch.sequences());
    }
  }
}

TEST(MicroSteps, no_rank_has_more_rows_than_its_share) {
  // By tokens alone one rank would have all short rows.
  EffectiveBatch batch(6, 8);
  for (const int64_t length : {8, 1, 1, 1, 1, 1}) {
    const std::vector<int32_t> ids(static_cast<size_t>(length), 1);
    Example row = example_of(ids, ids);
    row.targets = 1;
    batch.add(row);
  }
  for (const int64_t number : {0, 1}) {
    MicroSteps steps({3}, {8, 1}, 6, {number, 2});
    steps.cut(batch);
    EXPECT_EQ(steps.count(), 1);
    EXPECT_EQ(steps.fill(0).live_sequences, 3);
  }
}

TEST(MicroSteps, rows_of_a_rank_have_their_numbers_in_the_whole_batch) {
  const EffectiveBatch batch = uneven_batch();
  std::vector<int32_t> samples;
  int64_t targets = 0;
  for (const int64_t number : {1, 0}) {
    MicroSteps steps({2}, {8, 1}, 5, {number, 2});
    steps.cut(batch);
    EXPECT_EQ(steps.count(), number == 0 ? 2 : 1);
    for (int64_t step = 0; step < steps.count(); ++step) {
      const MicroBatch& out = steps.fill(step);
      targets += out.target_tokens;
      samples.insert(samples.end(), out.sample_in_batch.begin(),
                     out.sample_in_batch.begin() + out.live_sequences);
    }
  }
  EXPECT_THAT(samples, ElementsAre(2, 4, 0, 1, 3));
  MicroSteps whole({5}, {8, 1}, 5);
  whole.cut(batch);
  EXPECT_EQ(targets, whole.fill(0).target_tokens) << "what the loss is divided by is of all ranks";
  EXPECT_THROW(MicroSteps({2}, {8, 1}, 5, {2, 2}), InternalError);
}

// Rows of several prompts, each with as many tokens of its own as it has.
struct Prompted {
  int32_t prompt;
  int32_t own;
};
constexpr int32_t kPrompt = 6;  // tokens of a prompt; all prompts begin with two of them
EffectiveBatch prompted_batch(const std::vector<Prompted>& rows) {
  EffectiveBatch batch(std::ssize(rows), {40, 1});
  int32_t next = 100;
  for (const auto& [prompt, own] : rows) {
    std::vector<int32_t> ids = {1, 2, prompt, prompt, prompt, prompt};
    for (int32_t i = 0; i < own; ++i) ids.push_back(next++);
    batch.add(example_of(ids, ids));
  }
  return batch;
}

// The prompts of each micro-step's rows, and its tokens, which pass through the model.
struct Step {
  std::multiset<int32_t> prompts;
  int64_t tokens = 0;
};
std::vector<Step> prompted_steps(const EffectiveBatch& batch, const MicroCapacity& capacity) {
  MicroSteps steps(capacity, {40, 1, 0, true}, batch.packed_sequences());
  steps.cut(batch);
  std::vector<Step> all;
  for (int64_t i = 0; i < steps.count(); ++i) {
    const MicroBatch& out = steps.fill(i);
    Step& step = all.emplace_back();
    step.tokens = out.tree->tokens();
    for (int64_t s = 0; s < out.live_sequences; ++s)
      step.prompts.insert(out.input_ids[static_cast<size_t>(out.seq_starts[static_cast<size_t>(s)]) + 2]);
  }
  return all;
}

TEST(MicroSteps, hold_rows_that_begin_alike_together) {
  const EffectiveBatch batch = prompted_batch({{7, 3}, {8, 3}, {7, 3}, {8, 3}, {7, 3}, {8, 3}});
  const auto in_tokens = prompted_steps(batch, {6, 16});
  ASSERT_EQ(in_tokens.size(), 2U) << "of 9 tokens each by itself: 6 micro-steps";
  EXPECT_THAT(in_tokens[0].prompts, ElementsAre(7, 7, 7));
  EXPECT_EQ(in_tokens[0].tokens, kPrompt + 9);
  const auto in_rows = prompted_steps(batch, {3});
  ASSERT_EQ(in_rows.size(), 2U);
  EXPECT_THAT(in_rows[1].prompts, ElementsAre(8, 8, 8));
}

// With room as a plan has it: for what all rows begin with once, and for the longest of them.
TEST(MicroSteps, hold_every_row_once_and_never_more_than_their_room) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<Prompted> rows(1 + random() % 12);
    int32_t longest = 0;
    int64_t own = 0;
    for (auto& [prompt, tokens] : rows) {
      prompt = static_cast<int32_t>(7 + random() % 3);
      tokens = static_cast<int32_t>(random() % 9);
      longest = std::max(longest, kPrompt + tokens);
      own += kPrompt + tokens - 2;
    }
    const MicroCapacity capacity{1 + static_cast<int64_t>(random() % 6),
                                 longest + static_cast<int64_t>(random() % 30), 0, 2};
    const auto steps = prompted_steps(prompted_batch(rows), capacity);
    std::multiset<int32_t> held, all;
    for (const auto& [prompt, tokens] : rows) all.insert(prompt);
    for (const Step& step : steps) {
      EXPECT_LE(step.tokens, capacity.tokens);
      EXPECT_LE(std::ssize(step.prompts), capacity.samples);
      held.insert(step.prompts.begin(), step.prompts.end());
    }
    EXPECT_EQ(held, all);
    MicroPacker apart(capacity, std::ssize(rows));
    for (const auto& [prompt, tokens] : rows) apart.add({kPrompt + tokens - 2, 0});
    EXPECT_LE(std::ssize(steps), apart.pack()) << "no more micro-steps than rows make by themselves";
  }
}

TEST(EffectiveBatch, rows_without_targets_are_counted_and_left_out) {
  EffectiveBatch batch(2, 4);
  batch.add(example_of({1, 2}, {-100, -100}));
  Example cut = example_of({1, 2}, {1, 2});
  cut.whole_length = 9;
  batch.add(cut);
  EXPECT_EQ(batch.sequences(), 1);
  EXPECT_EQ(batch.tokens(), 2);
  EXPECT_EQ(batch.skipped_rows(), 1);
  EXPECT_EQ(batch.truncated_rows(), 1);
  batch.clear();
  MicroSteps steps({4}, {4, 1}, 2);
  steps.cut(batch);
  EXPECT_EQ(steps.count(), 0);
  EXPECT_EQ(batch.skipped_rows(), 0);
}

}  // namespace
}  // namespace plimsoll
