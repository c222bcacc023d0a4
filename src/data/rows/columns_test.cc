#include "data/rows/columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "files/test_folder.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Column> texts(std::initializer_list<const char*> names) {
  std::vector<Column> columns;
  for (const char* name : names) columns.push_back({name, ColumnKind::text, "string"});
  return columns;
}

TEST(Columns, formats_are_known_by_their_columns) {
  EXPECT_THAT(bind_columns(texts({"id", "prompt", "response"}), {}, {}, "d").columns,
              ElementsAre("prompt", "response"));
  EXPECT_THAT(bind_columns(texts({"output", "instruction"}), {}, {}, "d").columns,
              ElementsAre("instruction", "output"));
  EXPECT_THAT(bind_columns(texts({"question", "answer"}), {}, {}, "d").columns,
              ElementsAre("question", "answer"));
  EXPECT_THAT(bind_columns(texts({"completion", "prompt"}), {}, {}, "d").columns,
              ElementsAre("prompt", "completion"));
  EXPECT_THAT(bind_columns(texts({"response", "query"}), {}, {}, "d").columns,
              ElementsAre("query", "response"));
  EXPECT_THAT(bind_columns(texts({"output", "input"}), {}, {}, "d").columns, ElementsAre("input", "output"));
  EXPECT_EQ(bind_columns(texts({"text"}), {}, {}, "d").format, RowFormat::text);
  EXPECT_EQ(bind_columns(texts({"text", "messages"}), {}, {}, "d").format, RowFormat::text);
  EXPECT_EQ(bind_columns(texts({"id", "messages"}), {}, {}, "d").format, RowFormat::messages)
      << "the JSON text of a list";
  std::vector<Column> ready = {{"input_ids", ColumnKind::ids, "list"}};
  EXPECT_THAT(bind_columns(ready, {}, {}, "d").columns, ElementsAre("input_ids"));
  ready.push_back({"labels", ColumnKind::ids, "list"});
  EXPECT_THAT(bind_columns(ready, {}, {}, "d").columns, ElementsAre("input_ids", "labels"));
}

TEST(Columns, named_columns_win) {
  const auto columns = texts({"prompt", "response", "q", "a"});
  const ColumnBinding binding = bind_columns(columns, {}, {{"prompt", "q"}, {"response", "a"}}, "d");
  EXPECT_EQ(binding.format, RowFormat::prompt_response);
  EXPECT_THAT(binding.columns, ElementsAre("q", "a"));
  EXPECT_THAT(bind_columns(columns, RowFormat::text, {{"text", "q"}}, "d").columns, ElementsAre("q"));
}

TEST(Columns, what_does_not_fit_names_the_columns_that_exist) {
  EXPECT_THAT(message_of<UsageError>([] {
                bind_columns(texts({"x", "y"}), {}, {}, "d.parquet");
              }),
              HasSubstr("d.parquet: no known format has the columns x (string), y (string)."));
  EXPECT_THAT(message_of<UsageError>([] { bind_columns(texts({"x"}), RowFormat::text, {}, "d"); }),
              HasSubstr("has no column 'text'; it has 'x'."));
  EXPECT_THAT(message_of<UsageError>([] {
                bind_columns(texts({"x"}), {}, {{"text", "z"}}, "d");
              }),
              HasSubstr("has no column 'z'; it has 'x'."));
  const std::vector<Column> number = {{"text", ColumnKind::other, "int64"}};
  EXPECT_THAT(message_of<UsageError>([&] { bind_columns(number, {}, {}, "d"); }),
              HasSubstr("column 'text' is int64, text is expected."));
  EXPECT_THAT(message_of<UsageError>([] {
                bind_columns(texts({"text"}), {}, {{"text", "text"}, {"promt", "q"}}, "d");
              }),
              HasSubstr("the format text has no part 'promt'; it has text."));
}

TEST(Columns, unknown_names_come_with_a_command_that_names_them) {
  const auto said = [](const std::vector<Column>& columns) {
    return message_of<UsageError>([&] { bind_columns(columns, {}, {}, "d"); });
  };
  EXPECT_THAT(
      said(texts({"Frage ", "Antwort"})),
      HasSubstr(
          "the columns \"Frage \" (string), Antwort (string). Which is the prompt and which the response is "
          "not known: say\n  --set 'data.columns={prompt: \"Frage \", response: Antwort}'\n  or\n"));
  EXPECT_THAT(said(texts({"pregunta", "respuésta"})),
              HasSubstr("--set 'data.columns={prompt: respuésta, response: pregunta}'"));
  EXPECT_THAT(said(texts({"a: b", "#"})), HasSubstr("{prompt: \"a: b\", response: \"#\"}"));
  EXPECT_THAT(said(texts({"content"})), HasSubstr("--set 'data.columns={text: content}'"));
  EXPECT_THAT(said({{"n", ColumnKind::plain, "int64"}}), HasSubstr("None of them is text that can be named"));
  EXPECT_THAT(said(texts({"it's"})), HasSubstr("None of them is text that can be named"));
}

TEST(Columns, a_third_column_of_alpaca_is_not_dropped_in_silence) {
  const auto columns = texts({"instruction", "input", "output"});
  EXPECT_THAT(message_of<UsageError>([&] { bind_columns(columns, RowFormat::prompt_response, {}, "d"); }),
              HasSubstr("has 'input' beside"));
  const ColumnBinding binding = bind_columns(columns, {}, {}, "d");
  EXPECT_EQ(binding.format, RowFormat::alpaca);
  EXPECT_THAT(binding.parts, ElementsAre("instruction", "output", "input"));
  EXPECT_THAT(bind_columns(columns, {}, {{"instruction", "instruction"}}, "d").parts,
              ElementsAre("instruction", "output"));
  EXPECT_THAT(bind_columns(columns, {}, {{"prompt", "instruction"}, {"response", "output"}}, "d").columns,
              ElementsAre("instruction", "output"));
}

TEST(Columns, rows_of_other_tasks_are_known_and_refused) {
  EXPECT_THAT(message_of<UsageError>([] {
                bind_columns(texts({"prompt", "chosen", "rejected"}), {}, {}, "d");
              }),
              HasSubstr("has rows of preferences"));
  const std::vector<Column> labels = {{"text", ColumnKind::text, "string"},
                                      {"label", ColumnKind::other, "int64"}};
  EXPECT_THAT(message_of<UsageError>([&] { bind_columns(labels, {}, {}, "d"); }),
              HasSubstr("has rows of labels"));
  EXPECT_EQ(bind_columns(labels, RowFormat::text, {}, "d").format, RowFormat::text);
  EXPECT_THAT(
      bind_columns(texts({"prompt", "chosen", "rejected"}), {}, {{"response", "chosen"}}, "d").columns,
      ElementsAre("prompt", "chosen"));
}

TEST(Columns, messages_beside_a_rejected_answer_are_the_chosen_conversation) {
  for (const char* rejected : {"rejected_response", "rejected_messages"})
    EXPECT_THAT(bind_columns(texts({"messages", rejected}), RowFormat::preference, {}, "d").columns,
                ElementsAre("messages", rejected));
}

TEST(Columns, a_question_beside_answers_of_preferences_is_their_prompt_or_refused) {
  const auto bound = [](std::initializer_list<const char*> names,
                        const std::map<std::string, std::string>& said = {}) {
    return bind_columns(texts(names), RowFormat::preference, said, "d");
  };
  EXPECT_THAT(bound({"instruction", "input", "chosen", "rejected"}).columns,
              ElementsAre("chosen", "rejected", "instruction", "input"));
  EXPECT_THAT(bound({"instruction", "chosen", "rejected"}).columns,
              ElementsAre("chosen", "rejected", "instruction"));
  EXPECT_THAT(bound({"prompt", "input", "chosen", "rejected"}).columns,
              ElementsAre("chosen", "rejected", "prompt"));
  for (const char* name : {"question", "query", "input"}) {
    EXPECT_THAT(message_of<UsageError>([&] {
                  bound({name, "chosen", "rejected"});
                }),
                HasSubstr("the answers would be trained without it"));
    EXPECT_THAT(bound({name, "chosen", "rejected"}, {{"chosen", "chosen"}}).columns,
                ElementsAre("chosen", "rejected"));
    EXPECT_THAT(bound({name, "chosen", "rejected"}, {{"prompt", name}}).columns,
                ElementsAre("chosen", "rejected", name));
    std::vector<Column> columns = texts({name, "chosen", "rejected"});
    for (size_t answer : {1, 2}) columns[answer].kind = ColumnKind::other;
    EXPECT_THAT(bind_columns(columns, RowFormat::preference, {}, "d").columns,
                ElementsAre("chosen", "rejected", name))
        << "messages";
  }
}

}  // namespace
}  // namespace plimsoll
