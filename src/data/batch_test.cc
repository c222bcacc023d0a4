#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "data/effective_batch.h"

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
    MicroBatch out(micro, 4);
    std::vector<int32_t> tokens;
    std::vector<int32_t> samples;
    int64_t targets = 0;
    for (int64_t step = 0; step < batch.micro_steps(micro); ++step) {
      batch.fill(step, out);
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
  EXPECT_EQ(batch.micro_steps(4), 0);
  EXPECT_EQ(batch.skipped_rows(), 0);
}

}  // namespace
}  // namespace plimsoll
