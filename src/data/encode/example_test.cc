#include "data/encode/row_encoder.h"
#include "data/files/cell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "data/batch/statistics.h"
#include "data/rows/test_data.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int32_t kEos = 7;

Example encode(RowEncoding rows, const Row& row) {
  rows.texts = {.tokenize = tokenize_bytes, .eos = kEos};
  if (rows.model.vocab_size == 0) rows.model.vocab_size = 256;
  Example example;
  ExampleEncoder(rows).encode(
      row, [] { return std::string("d.jsonl:7"); }, example);
  return example;
}

Row row_of(std::initializer_list<std::string> values) {
  Row row;
  for (const std::string& value : values) row.push_back({value, {}});
  return row;
}

TEST(Example, only_response_and_end_are_targets) {
  const Example example = encode({.columns = {.format = RowFormat::prompt_response}}, row_of({"ab", "c"}));
  EXPECT_THAT(example.ids, ElementsAre('a', 'b', 'c', kEos));
  EXPECT_THAT(example.labels, ElementsAre(-100, -100, 'c', kEos));
  EXPECT_EQ(example.targets, 2);
}

TEST(Example, the_prompt_is_a_target_when_asked_for) {
  const Example example = encode({.columns = {.format = RowFormat::prompt_response}, .train_on_prompt = true},
                                 row_of({"ab", "c"}));
  EXPECT_THAT(example.labels, ElementsAre('a', 'b', 'c', kEos));
  EXPECT_EQ(example.targets, 3);  // the first token has no label
}

TEST(Example, all_of_a_text_is_a_target) {
  const Example example = encode({.columns = {.format = RowFormat::text}}, row_of({"abc"}));
  EXPECT_THAT(example.labels, ElementsAre('a', 'b', 'c', kEos));
}

TEST(Example, a_text_that_ends_with_the_end_token_gets_no_second_one) {
  const std::string end(1, static_cast<char>(kEos));
  EXPECT_THAT(encode({.columns = {.format = RowFormat::text}}, row_of({"ab" + end})).ids,
              ElementsAre('a', 'b', kEos));
  EXPECT_THAT(encode({.columns = {.format = RowFormat::prompt_response}}, row_of({"a", "b" + end})).labels,
              ElementsAre(-100, 'b', kEos));
}

TEST(Example, truncation_takes_the_right_end) {
  const Example example =
      encode({.columns = {.format = RowFormat::prompt_response}, .samples = {.max_length = 3}},
             row_of({"ab", "cd"}));
  EXPECT_THAT(example.ids, ElementsAre('a', 'b', 'c'));
  EXPECT_THAT(example.labels, ElementsAre(-100, -100, 'c'));
  EXPECT_TRUE(example.truncated());
  EXPECT_EQ(example.whole_length, 5);
  EXPECT_FALSE(encode({.columns = {.format = RowFormat::text}, .samples = {.max_length = 4}}, row_of({"abc"}))
                   .truncated());
}

TEST(Example, a_prompt_that_fills_the_length_leaves_no_target) {
  const Example example =
      encode({.columns = {.format = RowFormat::prompt_response}, .samples = {.max_length = 2}},
             row_of({"abc", "d"}));
  EXPECT_EQ(example.targets, 0);
}

TEST(Example, ready_ids_are_their_own_labels_unless_given) {
  EXPECT_THAT(encode({.columns = {.format = RowFormat::input_ids}}, {{"", {1, 2, 3}}}).labels,
              ElementsAre(1, 2, 3));
  const Example masked =
      encode({.columns = {.format = RowFormat::input_ids}}, {{"", {1, 2, 3}}, {"", {-100, -100, 3}}});
  EXPECT_EQ(masked.targets, 1);
  EXPECT_EQ(encode({.columns = {.format = RowFormat::input_ids}}, {{"", {}}}).targets, 0);
}

TEST(Example, ids_the_model_does_not_have_are_refused_with_their_place) {
  const auto error = [](const Row& row) {
    return message_of<DamagedError>([&] { encode({.columns = {.format = RowFormat::input_ids}}, row); });
  };
  EXPECT_THAT(error({{"", {1, 256}}}),
              HasSubstr("d.jsonl:7: holds the token id 256, the model has the ids 0 to 255."));
  EXPECT_THAT(error({{"", {-1}}}), HasSubstr("token id -1"));
  EXPECT_THAT(error({{"", {1}}, {"", {-99}}}), HasSubstr("label -99"));
  EXPECT_THAT(error({{"", {1, 2}}, {"", {1}}}), HasSubstr("has 2 input_ids and 1 labels"));
}

TEST(Statistics, count_rows_tokens_and_what_truncation_takes) {
  const TestFolder folder;
  const auto path = folder.write("a.jsonl",
                                 "{\"prompt\": \"ab\", \"response\": \"c\"}\n"
                                 "{\"prompt\": \"ab\", \"response\": \"cdefg\"}\n"
                                 "{\"prompt\": \"abcdefgh\", \"response\": \"i\"}\n");
  Dataset dataset = Dataset::open(std::vector{path});
  dataset.select(std::vector<std::string>{"prompt", "response"});
  const ExampleEncoder encoder({.columns = {.format = RowFormat::prompt_response},
                                .samples = {.max_length = 5},
                                .texts = {.tokenize = tokenize_bytes, .eos = kEos}});
  const DataStatistics statistics = measure_data(dataset, RowSubset::all(3), encoder);
  EXPECT_EQ(statistics.rows, 3);
  EXPECT_EQ(statistics.tokens, 4 + 5);
  EXPECT_EQ(statistics.target_tokens, 2 + 3);
  EXPECT_EQ(statistics.longest, 10);
  EXPECT_EQ(statistics.skipped, 1);
  EXPECT_DOUBLE_EQ(statistics.share_truncated(), 2.0 / 3.0);
}

TEST(Example, a_tokenizer_of_another_model_is_refused_with_the_row) {
  EXPECT_THAT(message_of<UsageError>([] {
                encode({.columns = {.format = RowFormat::text}, .model = {.vocab_size = 98}},
                       row_of({"abc"}));
              }),
              HasSubstr("d.jsonl:7: the tokenizer gives the id 99, the model has the ids 0 to 97"));
}

}  // namespace
}  // namespace plimsoll
