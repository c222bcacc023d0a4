#include "data/encode/messages.h"
#include "chat/conversation.h"
#include "data/files/cell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/rows/columns.h"
#include "data/rows/dataset.h"
#include "data/rows/test_data.h"

namespace plimsoll {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

Conversation read(const std::string& messages, const std::string& tools = "null") {
  return read_conversation(ordered_json::parse(messages), ordered_json::parse(tools),
                           [] { return std::string("d.jsonl:7"); });
}

std::string error_of(const std::string& messages, const std::string& tools = "null") {
  return message_of<DamagedError>([&] { read(messages, tools); });
}

TEST(Messages, both_forms_become_one) {
  const char* const kOpenAi = R"([{"role": "system", "content": "s"}, {"role": "user", "content": "q"},
                                  {"role": "assistant", "content": "a", "name": "x"}])";
  const char* const kShareGpt = R"([{"from": "system", "value": "s"}, {"from": "human", "value": "q"},
                                    {"from": "gpt", "value": "a", "name": "x"}])";
  EXPECT_EQ(read(kOpenAi).messages, ordered_json::parse(kOpenAi));
  EXPECT_EQ(read(kShareGpt).messages, ordered_json::parse(kOpenAi));
  EXPECT_EQ(read(ordered_json(kShareGpt).dump()).messages,
            ordered_json::parse(kOpenAi));  // JSON within a text
}

TEST(Messages, tools_may_be_a_list_or_its_text) {
  EXPECT_EQ(read(R"([{"role": "user", "content": "q"}])", R"("[{\"b\": 1, \"a\": 2}]")").tools.dump(),
            R"([{"b":1,"a":2}])");
  EXPECT_TRUE(read(R"([{"role": "user", "content": "q"}])", "[]").tools.is_null());
  EXPECT_THAT(error_of(R"([{"role": "user", "content": "q"}])", "5"),
              HasSubstr("d.jsonl:7: the tools are a number"));
}

TEST(Messages, a_system_message_of_its_own_column_begins_those_that_have_none) {
  const auto read_row = [](const std::string& messages, const std::string& system) {
    Row row(2);
    row[0].json = ordered_json::parse(messages);
    row[1].json = ordered_json::parse(system);
    return read_messages(row, {"messages", "system"}, [] { return std::string("d.jsonl:7"); }, {}).messages;
  };
  const char* const kQuestion = R"([{"from": "human", "value": "q"}])";
  EXPECT_EQ(read_row(kQuestion, R"("s")"),
            ordered_json::parse(R"([{"role": "system", "content": "s"}, {"role": "user", "content": "q"}])"));
  EXPECT_EQ(read_row(kQuestion, R"("")"), read_row(kQuestion, "null"));
  EXPECT_EQ(read_row(R"([{"role": "system", "content": "own"}])", R"("s")").front()["content"], "own");
  EXPECT_THAT(message_of<DamagedError>([&] { read_row(kQuestion, "5"); }),
              HasSubstr("d.jsonl:7: 'system' is a number"));
}

TEST(Messages, a_speaker_of_function_calls_is_the_assistant_who_calls) {
  const char* const kCall = R"({"role": "assistant", "tool_calls": [{"type": "function",
                               "function": {"name": "f", "arguments": {"b": 1, "a": 2}}}]})";
  const auto said = [](const std::string& value) {
    return read(R"([{"from": "human", "value": "q"}, {"from": "function_call", "value": )" + value +
                R"(}, {"from": "observation", "value": "r"}, {"from": "gpt", "value": "a"}])")
        .messages;
  };
  EXPECT_EQ(said(R"("{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": 2}}")")[1],
            ordered_json::parse(kCall));
  EXPECT_EQ(said(R"({"name": "f", "arguments": {"b": 1, "a": 2}})")[1], ordered_json::parse(kCall));
  EXPECT_EQ(
      said(R"("[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]")")[1]
                                                                                               ["tool_calls"]
                                                                                                   .size(),
      2U);
  EXPECT_EQ(said(R"({"name": "f", "arguments": {}})")[2]["role"], "tool");
  EXPECT_THAT(error_of(R"([{"from": "function_call", "value": "f 1"
}])"),
              HasSubstr("message 1: the call"));
  std::string many = "[0";
  for (int64_t i = 0; i < kMostRowValues; ++i) many += ",0";
  EXPECT_THAT(error_of(R"([{"from": "function_call", "value": ")" + many + R"(]"}])"),
              HasSubstr("message 1: the call: has more than 1,000,000 values"));
  EXPECT_THAT(error_of(R"([{"from": "function_call", "value": "{}"}])"), HasSubstr("'name' and 'arguments'"));
}

TEST(Messages, parts_of_text_are_one_text_and_others_are_refused) {
  EXPECT_EQ(read(R"([{"role": "user", "content": [{"type": "text", "text": "a"}, "b", {"text": "c"}]}])")
                .messages[0]["content"],
            "abc");
  EXPECT_EQ(read(R"([{"role": "user", "content": []}])").messages[0]["content"], "");
  EXPECT_THAT(error_of(R"([{"role": "user", "content": [{"type": "image", "image": "x.png"}]}])"),
              HasSubstr("d.jsonl:7: message 1: 'content' has a part of the type image"));
  EXPECT_THAT(error_of(R"([{"role": "user", "content": [{"type": "text", "text": 5}]}])"),
              HasSubstr("a part that is no text"));
  EXPECT_THAT(error_of(R"([{"role": "user", "content": [7]}])"), HasSubstr("a part that is no text"));
}

TEST(Messages, what_is_no_message_is_refused_with_its_place) {
  EXPECT_THAT(error_of("5"), HasSubstr("d.jsonl:7: the messages are a number"));
  EXPECT_THAT(error_of("[]"), HasSubstr("has no messages"));
  EXPECT_THAT(error_of("[5]"), HasSubstr("message 1 is a number, not an object"));
  EXPECT_THAT(error_of(R"([{"role": "user", "content": "q"}, {"content": "a"}])"),
              HasSubstr("message 2: has neither 'role' nor 'from'"));
  EXPECT_THAT(error_of(R"([{"role": 5, "content": "q"}])"), HasSubstr("'role' is a number"));
  EXPECT_THAT(error_of(R"([{"role": "user", "content": 5}])"), HasSubstr("'content' is a number"));
  EXPECT_THAT(error_of(R"([{"role": "user"}])"), HasSubstr("has no 'content'"));
  EXPECT_THAT(error_of(R"([{"from": "somebody", "value": "q"}])"), HasSubstr("'from' is 'somebody'"));
  EXPECT_THAT(error_of(R"([{"role": "assistant", "content": "a", "weight": 0.5}])"), HasSubstr("'weight'"));
  EXPECT_THAT(error_of(R"("[{")"), HasSubstr("d.jsonl:7: messages: is not valid JSON"));
  EXPECT_EQ(read(R"([{"role": "assistant", "content": null, "tool_calls": []}])").messages.size(), 1U);
}

ColumnBinding bound(const Dataset& dataset, std::optional<RowFormat> format = std::nullopt) {
  return bind_columns(dataset.columns(), format, {}, dataset.name());
}

TEST(Messages, are_found_in_json_lines_with_their_keys_in_order) {
  const TestFolder folder;
  const auto path =
      folder.write("a.jsonl",
                   "{\"prompt\": \"p\", \"response\": \"r\", \"messages\": [{\"z\": 1, \"role\": \"user\", "
                   "\"content\": \"q\"}], \"tools\": null}\n{\"messages\": \"[]\"}\n");
  Dataset dataset = Dataset::open(std::vector{path});
  const ColumnBinding binding = bound(dataset);
  EXPECT_EQ(binding.format, RowFormat::messages);
  EXPECT_THAT(binding.columns, ElementsAre("messages", "tools"));
  dataset.select(binding.columns, binding.read_as());
  dataset.hold(std::vector<size_t>{0});
  Row row;
  dataset.read(0, row);
  EXPECT_EQ(row[0].json.dump(), R"([{"z":1,"role":"user","content":"q"}])");
  dataset.read(1, row);
  EXPECT_EQ(row[0].json, "[]");
  EXPECT_TRUE(row[1].json.is_null());
}

std::shared_ptr<arrow::Array> message_lists() {
  auto role = std::make_shared<arrow::StringBuilder>();
  auto content = std::make_shared<arrow::StringBuilder>();
  const auto fields =
      arrow::struct_({arrow::field("role", arrow::utf8()), arrow::field("content", arrow::utf8())});
  auto message = std::make_shared<arrow::StructBuilder>(
      fields, arrow::default_memory_pool(), std::vector<std::shared_ptr<arrow::ArrayBuilder>>{role, content});
  arrow::ListBuilder list(arrow::default_memory_pool(), message);
  for (int row = 0; row < 3; ++row) {
    must(list.Append());
    for (int i = 0; i <= row; ++i) {
      must(message->Append());
      must(role->Append(i % 2 == 0 ? "user" : "assistant"));
      must(i == 2 ? content->AppendNull() : content->Append("c" + std::to_string(i)));
    }
  }
  return list.Finish().ValueOrDie();
}

TEST(Messages, are_read_from_lists_of_structs_in_parquet) {
  const TestFolder folder;
  const auto path = write_parquet(folder.path() / "a.parquet",
                                  {{"id", text_column(3, [](int64_t i) { return std::to_string(i); })},
                                   {"conversations", message_lists()}});
  Dataset dataset = Dataset::open(std::vector{path});
  const ColumnBinding binding = bound(dataset);
  EXPECT_EQ(binding.format, RowFormat::messages);
  dataset.select(binding.columns, binding.read_as());
  dataset.hold(std::vector<size_t>{0});
  Row row;
  dataset.read(1, row);
  EXPECT_EQ(row[0].json.dump(), R"([{"role":"user","content":"c0"},{"role":"assistant","content":"c1"}])");
  dataset.read(2, row);
  EXPECT_EQ(row[0].json[2].dump(), R"({"role":"user"})");  // null: the key is not there
}

}  // namespace
}  // namespace plimsoll
