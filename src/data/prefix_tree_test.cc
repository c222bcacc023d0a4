#include "data/prefix_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "data/example.h"
#include "data/micro_batch.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<int32_t>;

constexpr int32_t kNone = kIgnoreLabel;

// Sequences whose tokens are learnt from `learnt` on.
MicroBatch batch_of(const std::vector<Ids>& sequences, size_t learnt = 1000) {
  MicroBatch batch(static_cast<int64_t>(sequences.size()), 64);
  for (size_t i = 0; i < sequences.size(); ++i) {
    Ids labels(sequences[i].size(), kNone);
    for (size_t at = learnt; at < labels.size(); ++at) labels[at] = sequences[i][at];
    batch.append(sequences[i], labels, static_cast<int32_t>(i));
  }
  return batch;
}

PrefixTree tree_of(const MicroBatch& batch, SharedLabels labels = SharedLabels::weighed) {
  PrefixTree tree(std::ssize(batch.sample_in_batch), std::ssize(batch.input_ids));
  tree.build(batch, labels);
  return tree;
}

// Segments as sequence, begin, end and parent.
std::vector<Ids> segments(const PrefixTree& tree) {
  std::vector<Ids> all;
  for (const PrefixTree::Segment& s : tree.order()) all.push_back({s.sequence, s.begin, s.end, s.parent});
  return all;
}

// The ids of a sequence, by its segments.
Ids path(const MicroBatch& batch, const PrefixTree& tree, int64_t sequence) {
  Ids ids;
  for (int32_t i = tree.last_of(sequence); i >= 0; i = tree.order()[static_cast<size_t>(i)].parent) {
    const PrefixTree::Segment& s = tree.order()[static_cast<size_t>(i)];
    const auto from = batch.input_ids.begin() + batch.seq_starts[static_cast<size_t>(s.sequence)];
    ids.insert(ids.begin(), from + s.begin, from + s.end);
  }
  return ids;
}

TEST(PrefixTree, sequences_part_where_their_tokens_do) {
  const MicroBatch batch = batch_of({{1, 2, 3, 4}, {1, 2, 5}, {9, 8}, {1, 2, 3, 7, 7}});
  const PrefixTree tree = tree_of(batch);
  EXPECT_THAT(segments(tree), ElementsAre(Ids{0, 0, 2, -1}, Ids{0, 2, 3, 0}, Ids{0, 3, 4, 1}, Ids{3, 3, 5, 1},
                                          Ids{1, 2, 3, 0}, Ids{2, 0, 2, -1}));
  EXPECT_EQ(tree.tokens(), 9);
  EXPECT_EQ(tree.order()[3].start, 4);
  EXPECT_EQ(tree.order()[3].last_row(), 5);
}

TEST(PrefixTree, a_sequence_may_end_within_another_or_be_the_same) {
  const MicroBatch batch = batch_of({{1, 2, 3, 4}, {1, 2}, {1, 2, 3, 4}});
  const PrefixTree tree = tree_of(batch);
  EXPECT_THAT(segments(tree), ElementsAre(Ids{0, 0, 2, -1}, Ids{0, 2, 4, 0}));
  EXPECT_EQ(tree.last_of(0), 1);
  EXPECT_EQ(tree.last_of(1), 0);
  EXPECT_EQ(tree.last_of(2), 1);
}

// Two answers that begin alike are learnt apart, their prompt is not; a third sequence that learns nothing
// shares what another learns.
TEST(PrefixTree, a_token_that_two_sequences_learn_is_theirs_apart) {
  const MicroBatch batch = batch_of({{1, 2, 3, 4, 6}, {1, 2, 3, 5, 6}}, 2);
  EXPECT_THAT(segments(tree_of(batch, SharedLabels::of_one)),
              ElementsAre(Ids{0, 0, 2, -1}, Ids{0, 2, 5, 0}, Ids{1, 2, 5, 0}));
  EXPECT_THAT(segments(tree_of(batch)), ElementsAre(Ids{0, 0, 3, -1}, Ids{0, 3, 5, 0}, Ids{1, 3, 5, 0}));
  MicroBatch mixed(3, 64);
  mixed.append(Ids{1, 2, 3}, Ids{kNone, kNone, kNone}, 0);
  mixed.append(Ids{1, 2, 3}, Ids{kNone, 2, 3}, 1);
  mixed.append(Ids{1, 2, 3}, Ids{kNone, kNone, 3}, 2);
  EXPECT_THAT(segments(tree_of(mixed, SharedLabels::of_one)),
              ElementsAre(Ids{0, 0, 2, -1}, Ids{0, 2, 3, 0}, Ids{2, 2, 3, 0}));
}

TEST(PrefixTree, what_two_sequences_of_a_sample_share_is_counted_as_the_tree_shares_it) {
  const MicroBatch batch = batch_of({{1, 2, 3, 4, 6}, {1, 2, 3, 5, 6}}, 2);
  const Ids first{1, 2, 3, 4, 6}, second{1, 2, 3, 5, 6};
  const Ids learnt{kNone, kNone, 3, 4, 6}, also{kNone, kNone, 3, 5, 6}, none(5, kNone);
  EXPECT_EQ(common_tokens(first, learnt, second, also), 2);
  EXPECT_EQ(10 - tree_of(batch, SharedLabels::of_one).tokens(), 2);
  EXPECT_EQ(common_tokens(first, learnt, second, none), 3);
}

TEST(PrefixTree, every_sequence_is_its_path_whatever_the_sequences_are) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Ids> sequences(1 + random() % 12);
    for (Ids& ids : sequences) {
      ids.resize(1 + random() % 9);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % 2);
    }
    const MicroBatch batch = batch_of(sequences, random() % 6);
    std::set<Ids> prefixes;
    for (const Ids& ids : sequences)
      for (auto end = ids.begin() + 1; end <= ids.end(); ++end) prefixes.insert({ids.begin(), end});
    for (const SharedLabels labels : {SharedLabels::weighed, SharedLabels::of_one}) {
      const PrefixTree tree = tree_of(batch, labels);
      for (size_t i = 0; i < sequences.size(); ++i)
        EXPECT_EQ(path(batch, tree, static_cast<int64_t>(i)), sequences[i]);
      if (labels == SharedLabels::weighed) {
        EXPECT_EQ(tree.tokens(), std::ssize(prefixes));
      }
      EXPECT_LT(std::ssize(tree.order()), 2 * std::ssize(sequences));
      int32_t end = 0;
      for (const PrefixTree::Segment& s : tree.order()) {
        EXPECT_EQ(s.start, end);
        end += s.tokens();
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
