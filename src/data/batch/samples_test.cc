// Samples of tasks that score whole sequences: pairs that stay together, and texts with labels.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/batch/effective_batch.h"
#include "data/batch/micro_steps.h"
#include "data/encode/dialogue.h"
#include "data/encode/row_encoder.h"
#include "data/files/cell.h"

namespace plimsoll {
namespace {

using nlohmann::ordered_json;
constexpr int32_t kSampleEos = 9;

void letters(std::string_view text, std::vector<int32_t>& ids) {
  for (const char c : text) ids.push_back(c - 'a' + 10);
}

Row cells(const std::vector<ordered_json>& values) {
  Row row(values.size());
  for (size_t i = 0; i < values.size(); ++i) row[i].json = values[i];
  return row;
}

Example encode(const RowEncoding& rows, const std::vector<ordered_json>& values) {
  Example example;
  ExampleEncoder(rows).encode(
      cells(values), [] { return std::string("here"); }, example);
  return example;
}

RowEncoding pairs(int64_t max_length = 16, Truncation truncation = Truncation::right) {
  RowEncoding options;
  options.columns.format = RowFormat::preference;
  options.samples.max_length = max_length;
  options.truncation = truncation;
  options.texts = {.tokenize = letters, .eos = kSampleEos};
  options.columns.parts = {"chosen", "rejected", "prompt", "margin"};
  options.samples.task.task = Task::reward;
  return options;
}

RowEncoding labelled(ClassProblem problem, int64_t outputs, std::vector<std::string> names = {}) {
  RowEncoding options;
  options.columns.format = RowFormat::sentence_label;
  options.columns.parts = {"sentence", "label", "sentence2"};
  options.samples = {{.task = Task::classify, .outputs = outputs, .problem = problem}, 16};
  options.texts.tokenize = letters;
  options.labels = std::move(names);
  return options;
}

TEST(Samples, a_pair_is_two_sequences_with_the_prompt_before_each) {
  const Example pair = encode(pairs(), {"bc", "d", "a", 0.5});
  EXPECT_EQ(pair.ids, (std::vector<int32_t>{10, 11, 12, kSampleEos, 10, 13, kSampleEos}));
  EXPECT_EQ(pair.ends, (std::vector<int64_t>{4, 7}));
  EXPECT_EQ(pair.values, (std::vector<float>{0.5F, 0.0F}));
  EXPECT_EQ(pair.targets, 1);
  EXPECT_FALSE(pair.truncated());
}

TEST(Samples, alpaca_s_input_stands_behind_a_pair_s_prompt) {
  RowEncoding options = pairs();
  options.columns.parts = {"chosen", "rejected", "prompt", "input"};
  std::vector<int32_t> lines;
  letters("\n", lines);
  const int32_t line = lines.front();
  const auto first_of = [&](const ordered_json& prompt, const ordered_json& input) {
    const Example pair = encode(options, {"d", "e", prompt, input});
    return std::vector<int32_t>(pair.ids.begin(), pair.ids.begin() + pair.ends.front());
  };
  EXPECT_EQ(first_of("a", "b"), (std::vector<int32_t>{10, line, 11, 13, kSampleEos}));
  EXPECT_EQ(first_of("a", ""), (std::vector<int32_t>{10, 13, kSampleEos}));
  EXPECT_EQ(first_of("a", nullptr), (std::vector<int32_t>{10, 13, kSampleEos}));
  EXPECT_EQ(first_of(nullptr, "b"), (std::vector<int32_t>{11, 13, kSampleEos}));
  EXPECT_THROW(encode(options, {"d", "e", "a", 7}), DamagedError);
}

TEST(Samples, each_answer_of_a_pair_is_cut_by_itself_and_a_pair_is_dropped_whole) {
  const Example cut = encode(pairs(3), {"bcd", "e", "a", nullptr});
  EXPECT_EQ(cut.ids, (std::vector<int32_t>{10, 11, 12, 10, 14, kSampleEos}));
  EXPECT_EQ(cut.whole_length, 5);
  EXPECT_TRUE(cut.truncated());
  const Example dropped = encode(pairs(3, Truncation::drop), {"e", "bcd", "a", nullptr});
  EXPECT_TRUE(dropped.ids.empty());
  EXPECT_EQ(dropped.targets, 0);
  EXPECT_GT(dropped.whole_length, 3);
}

TEST(Samples, a_pair_without_a_difference_has_no_target) {
  EXPECT_EQ(encode(pairs(), {"bc", "bc", nullptr, nullptr}).targets, 0);
  EXPECT_EQ(encode(pairs(2), {"bca", "bcd", nullptr, nullptr}).targets, 0) << "the same once they are cut";
}

TEST(Samples, what_is_no_pair_is_damaged_and_says_where) {
  EXPECT_THROW(encode(pairs(), {7, "a", nullptr, nullptr}), DamagedError);
  EXPECT_THROW(encode(pairs(), {"a", "b", nullptr, "much"}), DamagedError);
  EXPECT_THROW(encode(pairs(), {"a", "b", ordered_json::array(), nullptr}), DamagedError);
  EXPECT_THROW(encode(pairs(), {ordered_json::array(), "b", nullptr, nullptr}), UsageError) << "no template";
}

TEST(Samples, labels_are_classes_by_number_or_name) {
  const auto one = [](const ordered_json& label, std::vector<std::string> names = {}) {
    return encode(labelled(ClassProblem::one_of, 3, std::move(names)), {"ab", label, nullptr}).values;
  };
  EXPECT_EQ(one(2), std::vector<float>{2});
  EXPECT_EQ(one("2"), std::vector<float>{2}) << "as CSV has it";
  EXPECT_EQ(one(1.0), std::vector<float>{1});
  EXPECT_EQ(one("no", {"yes", "no", "maybe"}), std::vector<float>{1});
  for (const ordered_json& bad : {ordered_json(3), ordered_json(-1), ordered_json("no"), ordered_json(0.5),
                                  ordered_json(nullptr), ordered_json::array({1})})
    EXPECT_THROW(one(bad), DamagedError) << bad.dump();
}

TEST(Dialogue, turns_become_messages_and_answers_part_behind_the_last_word_assistant_that_both_have) {
  const std::string begin = "\n\nHuman: What is it?\n\nAssistant: A stone.\n\nHuman: Why?\n\nAssistant:";
  EXPECT_TRUE(is_dialogue(begin));
  EXPECT_FALSE(is_dialogue("Human: What?\n\nAssistant: A stone."));
  EXPECT_FALSE(is_dialogue("\n\nHuman: What?"));
  EXPECT_EQ(shared_dialogue(begin + " I know.", begin + " I do not."), begin.size());
  const std::string one = "\n\nHuman: Hi\n\nAssistant:";
  EXPECT_EQ(shared_dialogue(one + " A.\n\nHuman: B", one + " A.\n\nHuman: C\n\nAssistant: D"), one.size());
  EXPECT_EQ(dialogue_messages(begin + " So.\n", "role", "content"),
            ordered_json::parse(R"([{"role": "user", "content": "What is it?"},
                                    {"role": "assistant", "content": "A stone."},
                                    {"role": "user", "content": "Why?"},
                                    {"role": "assistant", "content": "So."}])"));
}

// [CLS] 1, [SEP] 2, as BERT has them.
RowEncoding framed(int64_t max_length = 16, Truncation truncation = Truncation::right) {
  RowEncoding options = labelled(ClassProblem::one_of, 3);
  options.samples.max_length = max_length;
  options.truncation = truncation;
  options.model.around = Affixes{{1}, {2}, PairAffixes{{1}, {2}, {2}, 1}};
  options.model.token_types = 2;
  options.model.padding = 0;
  return options;
}

TEST(Samples, an_encoder_reads_what_its_tokenizer_puts_around_texts) {
  const Example one = encode(framed(), {"ab", 0, nullptr});
  EXPECT_EQ(one.ids, (std::vector<int32_t>{1, 10, 11, 2}));
  EXPECT_EQ(one.second, -1);
  const Example two = encode(framed(), {"ab", 0, "c"});
  EXPECT_EQ(two.ids, (std::vector<int32_t>{1, 10, 11, 2, 12, 2}));
  EXPECT_EQ(two.second, 4);
  EXPECT_FALSE(two.truncated());
}

TEST(Samples, the_longer_of_two_texts_is_cut_first_and_what_stands_around_them_stays) {
  const auto ids = [](int64_t length, Truncation truncation, const char* a, const char* b) {
    return encode(framed(length, truncation), {a, 0, b}).ids;
  };
  EXPECT_EQ(ids(8, Truncation::right, "abcdef", "ab"), (std::vector<int32_t>{1, 10, 11, 12, 2, 10, 11, 2}));
  EXPECT_EQ(ids(8, Truncation::left, "ab", "abcdef"), (std::vector<int32_t>{1, 10, 11, 2, 13, 14, 15, 2}));
  EXPECT_EQ(ids(8, Truncation::right, "abcd", "abcd"), (std::vector<int32_t>{1, 10, 11, 2, 10, 11, 12, 2}))
      << "an odd one is the second's";
  EXPECT_TRUE(ids(5, Truncation::drop, "abcd", "abcd").empty());
  EXPECT_EQ(encode(framed(8), {"abcdef", 0, "ab"}).whole_length, 11);
  EXPECT_THROW(ids(2, Truncation::right, "a", "b"), UsageError);
  EXPECT_THROW(ids(8, Truncation::refuse, "abcdef", "abc"), DamagedError);
  RowEncoding options = framed();
  options.model.token_types = 1;
  EXPECT_THROW(encode(options, {"a", 0, "b"}), UsageError) << "the model has one type";
  options.model.around->pair.reset();
  EXPECT_THROW(encode(options, {"a", 0, "b"}), UsageError);
}

TEST(Samples, ready_ids_of_an_encoder_have_types_and_lose_their_padding) {
  RowEncoding options = framed();
  options.columns.ready = true;
  options.columns.parts = {"sentence", "label", "token_type_ids"};
  options.model.vocab_size = 20;
  const Example one = encode(options, {{1, 9, 2, 8, 2, 0, 0}, 0, {0, 0, 0, 1, 1, 0, 0}});
  EXPECT_EQ(one.ids, (std::vector<int32_t>{1, 9, 2, 8, 2}));
  EXPECT_EQ(one.second, 3);
  EXPECT_THROW(encode(options, {{1, 9, 2}, 0, {0, 1, 0}}), DamagedError);
  EXPECT_THROW(encode(options, {{1, 9, 2}, 0, {0, 2, 2}}), DamagedError);
  EXPECT_THROW(encode(options, {{1, 9, 2}, 0, {0, 1}}), DamagedError);
  options.samples.max_length = 3;
  EXPECT_EQ(encode(options, {{1, 9, 2, 8}, 0, {0, 0, 0, 1}}).second, -1) << "cut off";
  options.truncation = Truncation::left;
  EXPECT_EQ(encode(options, {{1, 9, 2, 8}, 0, {0, 0, 0, 1}}).second, 2);
}

TEST(Samples, what_no_score_is_made_of_is_left_out) {
  RowEncoding options = labelled(ClassProblem::one_of, 3);
  options.model.padding = 12;
  const Example one = encode(options, {"abcc", 0, nullptr});
  EXPECT_EQ(one.ids, (std::vector<int32_t>{10, 11}));
  EXPECT_FALSE(one.truncated());
  EXPECT_EQ(encode(options, {"accb", 0, nullptr}).ids, (std::vector<int32_t>{10, 12, 12, 11}));
  EXPECT_EQ(encode(options, {"ccc", 0, nullptr}).ids, std::vector<int32_t>{12}) << "padding alone";
  options.samples.max_length = 2;
  EXPECT_TRUE(encode(options, {"acb", 0, nullptr}).truncated());
}

TEST(Samples, labels_are_sets_or_numbers_where_the_problem_says_so) {
  EXPECT_EQ(encode(labelled(ClassProblem::any_of, 3), {"ab", {0, 2}, "c"}).values,
            (std::vector<float>{1, 0, 1}));
  EXPECT_EQ(encode(labelled(ClassProblem::numbers, 1), {"ab", 2.5, nullptr}).values,
            std::vector<float>{2.5F});
  EXPECT_EQ(encode(labelled(ClassProblem::numbers, 1), {"ab", "2.5", nullptr}).values,
            std::vector<float>{2.5F});
  EXPECT_EQ(encode(labelled(ClassProblem::numbers, 2), {"ab", {1, 2}, nullptr}).values,
            (std::vector<float>{1, 2}));
  EXPECT_THROW(encode(labelled(ClassProblem::any_of, 3), {"ab", 1, nullptr}), DamagedError);
  EXPECT_THROW(encode(labelled(ClassProblem::numbers, 2), {"ab", 1, nullptr}), DamagedError);
}

TEST(Samples, a_pair_of_texts_is_read_as_one) {
  EXPECT_EQ(encode(labelled(ClassProblem::one_of, 2), {"ab", 0, "c"}).ids,
            (std::vector<int32_t>{10, 11, 12}));
}

Example two_texts(std::string source, std::string target, Truncation truncation = Truncation::right) {
  RowEncoding options;
  options.columns.format = RowFormat::prompt_response;
  options.samples = {{.task = Task::seq2seq}, 4, 3};
  options.model.decoder = {7, 0};
  options.texts = {.tokenize = letters, .eos = kSampleEos};
  options.truncation = truncation;
  Row row(2);
  row[0].text = std::move(source);
  row[1].text = std::move(target);
  Example example;
  ExampleEncoder(options).encode(
      row, [] { return std::string("here"); }, example);
  return example;
}

TEST(Samples, a_source_and_its_target_are_two_sequences_each_of_its_own_length) {
  const Example both = two_texts("ab", "c");
  EXPECT_EQ(both.ids, (std::vector<int32_t>{10, 11, kSampleEos, 7, 12, kSampleEos}));
  EXPECT_EQ(both.ends, (std::vector<int64_t>{3, 6}));
  EXPECT_EQ(both.labels, (std::vector<int32_t>{-100, -100, -100, -100, 12, kSampleEos}));
  EXPECT_EQ(both.targets, 2);
  EXPECT_FALSE(both.truncated());
  // A text that is cut keeps its end of text.
  const Example cut = two_texts("abcdef", "abc");
  EXPECT_EQ(cut.ids, (std::vector<int32_t>{10, 11, 12, kSampleEos, 7, 10, 11, kSampleEos}));
  EXPECT_TRUE(cut.truncated());
  EXPECT_EQ(two_texts("abcdef", "a", Truncation::left).ids,
            (std::vector<int32_t>{13, 14, 15, kSampleEos, 7, 10, kSampleEos}));
}

TEST(Samples, what_is_no_target_is_read_as_padding_and_not_as_the_start_as_transformers_shifts_labels) {
  Example example;
  append_target({4, kIgnoreLabel, 6}, {.start = 3, .pad = 0}, example);
  EXPECT_EQ(example.ids, (std::vector<int32_t>{3, 4, 0, 6}));
  EXPECT_EQ(example.labels, (std::vector<int32_t>{kIgnoreLabel, 4, kIgnoreLabel, 6}));
  EXPECT_EQ(example.targets, 2);
}

TEST(Samples, a_target_that_is_empty_or_dropped_leaves_nothing_to_learn) {
  EXPECT_EQ(two_texts("ab", "").targets, 0);
  EXPECT_EQ(two_texts("abcdef", "a", Truncation::drop).targets, 0);
  EXPECT_THROW(two_texts("abcdef", "a", Truncation::refuse), DamagedError);
}

TEST(Samples, a_micro_batch_never_splits_a_pair) {
  const SequenceShape shape{8, 2, 1};
  EffectiveBatch batch(3, shape);
  for (const char* chosen : {"ab", "cde", "f"}) batch.add(encode(pairs(4), {chosen, "zz", nullptr, 0.25}), 7);
  EXPECT_EQ(batch.packed_sequences(), 3);
  EXPECT_EQ(batch.sequences(), 6);
  EXPECT_EQ(batch.target_tokens(), 3);
  MicroSteps steps({2}, shape, 3);
  steps.cut(batch);
  ASSERT_EQ(steps.count(), 2);
  const MicroBatch& micro = steps.fill(0);
  EXPECT_EQ(micro.live_sequences, 4);
  EXPECT_EQ(micro.seq_starts, (std::vector<int32_t>{0, 3, 6, 10, 13}));
  EXPECT_EQ(micro.targets, (std::vector<float>{0.25F, 0, 0.25F, 0}));
  steps.fill(1);
  EXPECT_EQ(micro.live_sequences, 2);
  EXPECT_EQ(micro.seq_starts, (std::vector<int32_t>{0, 2, 5, 5, 5}));
  EXPECT_EQ(micro.targets, (std::vector<float>{0.25F, 0, 0, 0})) << "nothing of the pairs before";
}

}  // namespace
}  // namespace plimsoll
