#include <gmock/gmock.h>

#include <random>

#include "base/error.h"
#include "tokenizer/files/piece_table.h"
#include "tokenizer/models/bpe_merge.h"
#include "tokenizer/models/word_cache.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;

TEST(BpeMerge, ties_go_to_the_leftmost_pair) {
  MergeTable merges(2);  // 0 = "a", 1 = "aa", 2 = "aaa"
  merges.insert(0, 0, {0, 1});
  merges.insert(1, 0, {1, 2});
  std::vector<int32_t> word(5, 0);
  merge_symbols(merges, word);
  EXPECT_THAT(word, ElementsAre(1, 2));
}

TEST(BpeMerge, the_heap_and_the_scan_agree) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    MergeTable merges(60);
    for (int32_t rank = 0; rank < 60; ++rank)
      merges.insert(static_cast<int32_t>(random() % 12), static_cast<int32_t>(random() % 12),
                    {rank, static_cast<int32_t>(random() % 12)});
    std::vector<int32_t> word(random() % kScanLimit + 1);
    for (int32_t& id : word) id = static_cast<int32_t>(random() % 6);
    std::vector<int32_t> by_heap = word;
    merge_by_scan(merges, word);
    merge_by_heap(merges, by_heap);
    ASSERT_EQ(word, by_heap);
  }
}

TEST(PieceTable, pieces_and_ids_find_each_other) {
  const std::vector<PieceId> pieces = {{"a", 0}, {"b", 3}, {"ab", 1}};
  const PieceTable table(pieces, "t.json");
  EXPECT_EQ(table.find("ab"), 1);
  EXPECT_EQ(table.find("c"), std::nullopt);
  EXPECT_EQ(table.piece(3), "b");
  EXPECT_EQ(table.piece(2), "");
  EXPECT_EQ(table.piece(-1), "");
  EXPECT_EQ(table.size(), 3);
  EXPECT_EQ(table.end_id(), 4);
}

TEST(PieceTable, contradictions_are_damage) {
  EXPECT_THROW(PieceTable(std::vector<PieceId>{{"a", 0}, {"b", 0}}, "t.json"), DamagedError);
  EXPECT_THROW(PieceTable(std::vector<PieceId>{{"a", -1}}, "t.json"), DamagedError);
  EXPECT_THROW(PieceTable(std::vector<PieceId>{{"a", 2'000'000'000}}, "t.json"), DamagedError);
}

TEST(WordCache, another_owner_finds_it_empty) {
  const std::vector<int32_t> ids = {4, 5};
  WordCache::of_thread(1'000'001).put("word", ids);
  EXPECT_THAT(WordCache::of_thread(1'000'001).find("word"), ElementsAre(4, 5));
  EXPECT_THAT(WordCache::of_thread(1'000'001).find("work"), ElementsAre());
  EXPECT_THAT(WordCache::of_thread(1'000'002).find("word"), ElementsAre());
}

}  // namespace
}  // namespace plimsoll
