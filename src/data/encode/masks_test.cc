#include "data/encode/masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "data/batch/loader.h"
#include "data/rows/test_data.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int32_t kMask = 3, kBegin = 1, kEnd = 2;

// Rows of text between kBegin and kEnd; ids below 32 are special.
RowEncoding masked(int64_t max_length = 4096) {
  RowEncoding rows{.columns = {.format = RowFormat::text},
                   .samples = {.task = {.task = Task::mlm}, .max_length = max_length},
                   .texts = {.tokenize = tokenize_bytes}};
  rows.model = {.vocab_size = 256, .around = Affixes{{kBegin}, {kEnd}, {}}};
  rows.masks = MaskRules{.mask_token = kMask, .vocab_size = 256, .seed = 7};
  rows.is_special = [](int32_t id) { return id < 32; };
  return rows;
}

Example encoded(const RowEncoding& rows, const Row& row) {
  Example example;
  ExampleEncoder(rows).encode(
      row, [] { return std::string("d.jsonl:7"); }, example);
  return example;
}
Row text_of(const std::string& text) { return {{text, {}}}; }

Example drawn(const RowEncoding& rows, const std::string& text, const RowVisit& visit) {
  const ExampleEncoder encoder(rows);
  Example example;
  encoder.encode(
      text_of(text), [] { return std::string("d.jsonl:7"); }, example);
  encoder.draw(visit, example);
  return example;
}

TEST(Masks, words_are_candidates_and_special_tokens_are_not) {
  const Example example = encoded(masked(), text_of("ab\x05"
                                                    "c"));
  EXPECT_THAT(example.ids, ElementsAre(kBegin, 'a', 'b', 5, 'c', kEnd));
  EXPECT_THAT(example.labels, ElementsAre(-100, 'a', 'b', -100, 'c', -100));
  EXPECT_EQ(example.candidates, 3);
  EXPECT_TRUE(example.learns());
  EXPECT_FALSE(encoded(masked(), text_of("")).learns());
}

TEST(Masks, a_text_is_cut_between_what_stands_around_it) {
  RowEncoding rows = masked(4);
  EXPECT_THAT(encoded(rows, text_of("abcd")).ids, ElementsAre(kBegin, 'a', 'b', kEnd));
  EXPECT_EQ(encoded(rows, text_of("abcd")).whole_length, 6);
  rows.truncation = Truncation::left;
  EXPECT_THAT(encoded(rows, text_of("abcd")).ids, ElementsAre(kBegin, 'c', 'd', kEnd));
  rows.truncation = Truncation::drop;
  EXPECT_TRUE(encoded(rows, text_of("abcd")).ids.empty());
  rows.truncation = Truncation::refuse;
  EXPECT_THROW(encoded(rows, text_of("abcd")), DamagedError);
  EXPECT_THROW(encoded(masked(2), text_of("abcd")), UsageError);
}

TEST(Masks, ids_with_labels_are_masked_already) {
  RowEncoding rows = masked();
  rows.columns.format = RowFormat::input_ids;
  const ExampleEncoder encoder(rows);
  Row row(2);
  row[0].ids = {40, kMask, 42};
  row[1].ids = {-100, 41, -100};
  Example example;
  encoder.encode(
      row, [] { return std::string(); }, example);
  encoder.draw({}, example);
  EXPECT_THAT(example.ids, ElementsAre(40, kMask, 42));
  EXPECT_THAT(example.labels, ElementsAre(-100, 41, -100));
  EXPECT_EQ(example.targets, 1);
  row.resize(1);
  encoder.encode(
      row, [] { return std::string(); }, example);
  EXPECT_THAT(example.labels, ElementsAre(40, -100, 42));  // the mask is no word
}

TEST(Masks, other_rows_than_texts_are_refused) {
  RowEncoding rows = masked();
  rows.columns.format = RowFormat::prompt_response;
  EXPECT_THAT(message_of<UsageError>([&] { ExampleEncoder{rows}; }),
              HasSubstr("these rows are prompt-response"));
}

// 15 % of the words, of which 80 % are hidden and 10 % are others.
TEST(Masks, shares_are_those_of_the_rules) {
  const std::string text(2000, 'x');
  double targets = 0, hidden = 0, same = 0;
  constexpr int kRows = 50;
  for (int row = 0; row < kRows; ++row) {
    const Example example = drawn(masked(), text, {row, 0});
    int64_t labels = 0;
    for (size_t i = 0; i < example.ids.size(); ++i) {
      if (example.labels[i] == kIgnoreLabel) {
        EXPECT_NE(example.ids[i], kMask);
        continue;
      }
      EXPECT_EQ(example.labels[i], 'x');
      ++labels;
      hidden += example.ids[i] == kMask ? 1 : 0;
      same += example.ids[i] == 'x' ? 1 : 0;
    }
    EXPECT_EQ(labels, example.targets);
    targets += static_cast<double>(labels);
  }
  EXPECT_NEAR(targets / (kRows * 2000.0), 0.15, 0.004);
  EXPECT_NEAR(hidden / targets, 0.8, 0.012);
  EXPECT_NEAR(same / targets, 0.1, 0.01);
}

TEST(Masks, follow_from_seed_row_epoch_and_place) {
  const std::string text(200, 'x');
  const Example first = drawn(masked(), text, {5, 2});
  EXPECT_EQ(drawn(masked(), text, {5, 2}).ids, first.ids);
  EXPECT_NE(drawn(masked(), text, {5, 3}).labels, first.labels);
  EXPECT_NE(drawn(masked(), text, {6, 2}).labels, first.labels);
  EXPECT_NE(drawn(masked(), text, {5 + (int64_t{1} << 32), 2}).labels, first.labels);
  RowEncoding other = masked();
  other.masks->seed = 8;
  EXPECT_NE(drawn(other, text, {5, 2}).labels, first.labels);
  const Example longer = drawn(masked(), text + "yy", {5, 2});
  EXPECT_TRUE(std::equal(first.labels.begin(), first.labels.end() - 1, longer.labels.begin()));
}

// Ids, then labels, of each batch that the loader gives from a position on.
std::vector<std::vector<int32_t>> batches_of(const std::filesystem::path& path, const LoaderOptions& options,
                                             const DataPosition& from, std::vector<DataPosition>* positions) {
  Dataset dataset = Dataset::open(std::vector{path});
  dataset.select(std::vector<std::string>{"text"});
  const RowSubset subset = RowSubset::all(dataset.rows());
  RowEncoding rows = masked(16);
  rows.uncut = options.joined;
  Loader loader(std::move(dataset), subset, ExampleEncoder(rows), options);
  loader.start(from);
  std::vector<std::vector<int32_t>> batches;
  while (const EffectiveBatch* batch = loader.next()) {
    std::vector<int32_t> all;
    int64_t labels = 0;
    for (int64_t i = 0; i < batch->sequences(); ++i) {
      all.insert(all.end(), batch->ids(i).begin(), batch->ids(i).end());
      all.insert(all.end(), batch->labels(i).begin(), batch->labels(i).end());
      labels +=
          std::count_if(batch->labels(i).begin(), batch->labels(i).end(), [](int32_t l) { return l >= 0; });
    }
    EXPECT_EQ(batch->target_tokens(), labels);
    batches.push_back(std::move(all));
    if (positions != nullptr) positions->push_back(batch->next);
  }
  return batches;
}

TEST(Masks, a_resumed_run_draws_the_same_of_rows_and_of_joined_texts) {
  const TestFolder folder;
  std::string lines;
  for (int row = 0; row < 40; ++row)
    lines += R"({"text": "some words of row )" + std::to_string(row) + "\"}\n";
  const auto path = folder.write("a.jsonl", lines);
  for (const bool joined : {false, true}) {
    const LoaderOptions options{.effective = 4, .joined = joined, .epochs = 2, .order = {.seed = 3}};
    std::vector<DataPosition> positions;
    const auto whole = batches_of(path, options, {}, &positions);
    ASSERT_GT(whole.size(), 8U);
    for (const size_t stop : {2U, 6U}) {
      const auto rest = batches_of(path, options, positions[stop], nullptr);
      EXPECT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + static_cast<std::ptrdiff_t>(stop) + 1,
                             whole.end()));
    }
  }
}

TEST(Masks, labels_stay_in_place_in_a_micro_batch) {
  MicroBatch batch(2, SequenceShape{.tokens = 4, .labels_in_place = true});
  batch.append(std::vector<int32_t>{10, 11, 12}, std::vector<int32_t>{20, kIgnoreLabel, 22}, 0);
  EXPECT_EQ(batch.target_tokens, 2);
  EXPECT_THAT(batch.labels, ElementsAre(20, -100, 22, -100, -100, -100, -100, -100));
}

}  // namespace
}  // namespace plimsoll
