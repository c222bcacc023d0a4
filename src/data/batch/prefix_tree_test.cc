#include "data/batch/prefix_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "data/batch/common_begin.h"
#include "data/batch/longest_alike.h"
#include "data/batch/micro_batch.h"
#include "data/encode/example.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<int32_t>;

constexpr int32_t kNone = kIgnoreLabel;

// Sequences that are trained from their token number `learnt`.
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

// Two answers that begin alike are trained separately, their prompt is not trained; a third sequence without
// labels shares what another is trained on.
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

// Each sample has two sequences, as preferences have them: answers are trained, and in some samples the
// chosen one's prompt, too. A micro-step has room for what all begin with and for what each sample does not
// share.
TEST(PrefixTree, takes_no_more_than_samples_take_one_by_one_beside_what_all_begin_with) {
  std::mt19937 random(11);
  const auto draw = [&](size_t most) {
    Ids ids(random() % (most + 1));
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 2);
    return ids;
  };
  for (int trial = 0; trial < 2000; ++trial) {
    const Ids start = draw(4);
    const size_t samples = 1 + random() % 5;
    const bool learns_prompts = trial % 3 == 0;
    MicroBatch batch(MicroCapacity{static_cast<int64_t>(samples)}, {64, 2});
    CommonBegin begin(SharedLabels::of_one);
    int64_t apart = 0, alone = 0;
    for (size_t i = 0; i < samples; ++i) {
      Ids prompt = start;
      for (const int32_t id : draw(4)) prompt.push_back(id);
      prompt.push_back(2);
      Example pair;
      std::vector<Ids> ids, labels;
      for (const bool chosen : {true, false}) {
        Ids one = prompt;
        for (const int32_t id : draw(4)) one.push_back(id);
        one.push_back(3);
        Ids learnt(one.size(), kNone);
        for (size_t at = learns_prompts && chosen ? 0 : prompt.size(); at < one.size(); ++at)
          learnt[at] = one[at];
        pair.ids.insert(pair.ids.end(), one.begin(), one.end());
        pair.labels.insert(pair.labels.end(), learnt.begin(), learnt.end());
        pair.ends.push_back(std::ssize(pair.ids));
        batch.append(one, learnt, static_cast<int32_t>(i));
        ids.push_back(one);
        labels.push_back(learnt);
      }
      begin.add(pair);
      const int64_t own = std::ssize(pair.ids) - common_tokens(ids[0], labels[0], ids[1], labels[1]);
      apart += own;
      alone = std::max(alone, own);
    }
    const int64_t tokens = tree_of(batch, SharedLabels::of_one).tokens();
    EXPECT_LE(tokens, apart - static_cast<int64_t>(samples - 1) * begin.tokens()) << trial;
    EXPECT_GE(tokens, alone);
    if (!learns_prompts) {
      EXPECT_GE(begin.tokens(), std::ssize(start));
    }
  }
}

// Among 20,000 beginnings, many of which differ in a bit of one id, next to none have the same number; each
// bit is as often set as not.
TEST(PrefixHashes, are_of_all_ids_up_to_a_token_and_well_mixed) {
  const Ids ids{5, 0, 5, 7};
  Ids all(4), rest(2), other(4);
  write_prefix_hashes(ids, all);
  write_prefix_hashes(ids, rest, 2);
  EXPECT_THAT(rest, ElementsAre(all[2], all[3])) << "from any token on";
  write_prefix_hashes(Ids{5, 0, 6, 7}, other);
  EXPECT_THAT(other, ElementsAre(all[0], all[1], testing::Ne(all[2]), testing::Ne(all[3])));
  std::set<int32_t> met;
  std::vector<int64_t> set_bits(32);
  int64_t numbers = 0;
  for (int32_t i = 0; i < 5000; ++i) {
    Ids some(4);
    write_prefix_hashes(Ids{i, 0, i ^ 1, 1}, some);
    for (const int32_t hash : some) {
      met.insert(hash);
      ++numbers;
      for (size_t bit = 0; bit < set_bits.size(); ++bit) set_bits[bit] += hash >> bit & 1;
    }
  }
  EXPECT_GE(std::ssize(met), numbers - 2);
  for (const int64_t set : set_bits)
    EXPECT_NEAR(static_cast<double>(set) / static_cast<double>(numbers), 0.5, 0.03);
}

TEST(LongestAlike, is_the_longest_sequence_that_begins_as_a_token_s_own_does) {
  const std::vector<Ids> rows = {{1, 2, 3}, {1, 2, 4, 4, 4}, {9, 9}, {1, 2}, {1, 2, 3, 5, 5, 5, 5}, {9, 9}};
  EffectiveBatch batch(6, SequenceShape{16, 1});
  for (const Ids& ids : rows) {
    Example example{.ids = ids, .labels = ids, .targets = std::ssize(ids) - 1};
    example.ends = {std::ssize(ids)};
    ASSERT_TRUE(batch.add(example));
  }
  LongestAlike longest(6, 6 * 16);
  for (int again = 0; again < 2; ++again) {
    longest.set(batch);
    const auto of = [&](int64_t document) {
      return Ids(longest.of(document).begin(), longest.of(document).end());
    };
    EXPECT_THAT(of(0), ElementsAre(7, 7, 7));
    EXPECT_THAT(of(1), ElementsAre(7, 7, 5, 5, 5));
    EXPECT_THAT(of(2), ElementsAre(2, 2));
    EXPECT_THAT(of(3), ElementsAre(7, 7));
    EXPECT_THAT(of(4), ElementsAre(7, 7, 7, 7, 7, 7, 7));
  }
}

TEST(CommonBegin, ends_where_one_differs_ends_or_learns_alone) {
  const auto begin_of = [](SharedLabels labels, const std::vector<std::pair<Ids, Ids>>& rows) {
    CommonBegin all(labels), first(labels), others(labels);
    for (size_t i = 0; i < rows.size(); ++i) {
      Example example{.ids = rows[i].first, .labels = rows[i].second};
      all.add(example);
      (i == 0 ? first : others).add(example);
    }
    others.add(first);
    EXPECT_EQ(others.tokens(), all.tokens()) << "in whatever order they are told";
    return all.tokens();
  };
  const Ids none(4, kNone);
  EXPECT_EQ(begin_of(SharedLabels::weighed, {}), 0);
  EXPECT_EQ(begin_of(SharedLabels::weighed, {{{1, 2, 3, 4}, {1, 2, 3, 4}}}), 4);
  EXPECT_EQ(
      begin_of(SharedLabels::weighed, {{{1, 2, 3, 4}, none}, {{1, 2, 3, 5}, none}, {{1, 2}, {kNone, 2}}}), 2);
  EXPECT_EQ(begin_of(SharedLabels::of_one, {{{1, 2, 3, 4}, {1, kNone, kNone, 4}}, {{1, 2, 3, 4}, none}}), 3);
  EXPECT_EQ(begin_of(SharedLabels::of_one, {{{9, 2, 3, 4}, none}, {{1, 2, 3, 4}, none}}), 0);
}

// Rows of ids with labels of their own: one token, which several learn to be something else.
TEST(PrefixTree, a_token_is_not_shared_where_what_is_learnt_is_not_that_token) {
  MicroBatch batch(3, 64);
  const Ids ids = {7, 7, 7};
  batch.append(ids, Ids{7, 7, 7}, 0);
  batch.append(ids, Ids{9, 7, 9}, 1);  // the first token has no label
  batch.append(ids, Ids{kNone, kNone, 8}, 2);
  EXPECT_THAT(segments(tree_of(batch)),
              ElementsAre(Ids{0, 0, 2, -1}, Ids{0, 2, 3, 0}, Ids{1, 2, 3, 0}, Ids{2, 2, 3, 0}));
  CommonBegin begin(SharedLabels::weighed);
  begin.add({.ids = ids, .labels = {7, 7, 9}});
  EXPECT_EQ(begin.tokens(), 2);
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
