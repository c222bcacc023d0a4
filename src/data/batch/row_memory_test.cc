// A row's memory on its way to tokens stays within what is planned for its size, whatever it holds.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/heap_peak.h"
#include "data/batch/row_memory.h"
#include "data/batch/row_reader.h"
#include "data/encode/conversations.h"
#include "data/files/cell.h"
#include "data/rows/columns.h"
#include "data/rows/dataset.h"
#include "files/test_allocations.h"
#include "files/test_folder.h"

namespace plimsoll {
namespace {

constexpr int64_t kBytes = 256 * kKiB;  // of a hostile part: large compared with what every program takes

std::string times(int64_t count, std::string_view text) {
  std::string out;
  for (int64_t i = 0; i < count; ++i) out += text;
  return out;
}
// So many bytes of it, whole ones.
std::string full_of(std::string_view text) { return times(kBytes / std::ssize(text), text); }
std::string list_of(std::string_view item, std::string_view last) {
  return "[" + full_of(std::string(item) + ",") + std::string(last) + "]";
}
std::string members(int64_t count) {
  std::string out;
  for (int64_t i = 0; i < count; ++i) out += "\"k" + std::to_string(i) + "\":0,";
  return out;
}

struct HostileRow {
  std::string name;
  RowFormat format;
  std::string json;
};

std::string talk_of(const std::string& messages) { return R"({"messages":)" + messages + "}"; }
std::string said(const std::string& content) {
  return talk_of(R"([{"role":"user","content":")" + content + R"("},{"role":"assistant","content":"b"}])");
}

std::vector<HostileRow> texts() {
  std::vector<HostileRow> rows;
  for (const auto& [name, part] : std::vector<std::pair<std::string, std::string>>{
           {"one long word", "a"},
           {"words of a letter", "a "},
           {"a word and a token each", "x,"},
           {"spaces", " "},
           {"short escapes", "\\n"},
           {"long escapes", "\\u0041"},
           {"escapes of nothing", "\\u0000"},
           {"escaped emoji", "\\ud83d\\ude00"},
           {"emoji", "\xF0\x9F\x98\x80"},
           {"Korean", "\xEA\xB0\x81"},
           {"ligatures of many letters", "\uFDFA"},
           {"marks on letters", "e\u0301\u0327"},
           {"bytes of UTF-8 that are none of a vocabulary", "\u07FF"},
           {"special tokens", "<|im_end|>"}}) {
    rows.push_back({"text: " + name, RowFormat::text, R"({"text":")" + full_of(part) + "\"}"});
    rows.push_back({"prompt: " + name, RowFormat::prompt_response,
                    R"({"prompt":")" + full_of(part) + R"(","response":"b"})"});
    rows.push_back({"talk: " + name, RowFormat::messages, said(full_of(part))});
  }
  return rows;
}

std::vector<HostileRow> structures() {
  const std::string turn = R"({"role":"user","content":"a"},{"role":"assistant","content":"b"})";
  const std::string deep = times(50, "[") + times(50, "]"), texts = R"("prompt":"a","response":"b","x":)";
  const auto calls = [](const std::string& arguments) {
    return talk_of(
        R"([{"role":"user","content":"a"},{"role":"assistant","content":"b","tool_calls":[{"function":)"
        R"({"name":"f","arguments":)" +
        arguments + "}}]}]");
  };
  const auto sharegpt_call = [](const std::string& value) {
    return talk_of(R"([{"from":"human","value":"a"},{"from":"function_call","value":)" + value +
                   R"(},{"from":"observation","value":"r"},{"from":"gpt","value":"b"}])");
  };
  const auto with_tools = [&](const std::string& tools) {
    return R"({"messages":[)" + turn + R"(],"tools":)" + tools + "}";
  };
  const std::string empties = list_of("{}", "{}");
  std::string as_text = nlohmann::json(empties).dump();
  return {
      {"empty objects beside", RowFormat::prompt_response, "{" + texts + empties + "}"},
      {"deep lists beside", RowFormat::prompt_response, "{" + texts + list_of(deep, "0") + "}"},
      {"many keys beside", RowFormat::prompt_response,
       "{" + members(4000) + R"("prompt":"a","response":"b"})"},
      {"empty objects in the place of messages", RowFormat::messages, talk_of(empties)},
      {"empty objects as a text in the place of messages", RowFormat::messages, talk_of(as_text)},
      {"empty texts", RowFormat::messages, talk_of(list_of("\"\"", "\"\""))},
      {"deep lists", RowFormat::messages, talk_of(list_of(deep, "0"))},
      {"many keys of a message", RowFormat::messages,
       talk_of("[{" + members(4000) + R"("role":"user","content":"a"},{"role":"assistant","content":"b"}])")},
      {"too many keys of a message", RowFormat::messages,
       talk_of("[{" + members(20'000) + R"("role":"user","content":"a"}])")},
      {"empty objects in a message", RowFormat::messages,
       talk_of(R"([{"role":"user","content":"a","x":)" + empties +
               R"(},{"role":"assistant","content":"b"}])")},
      {"short parts of a content", RowFormat::messages,
       talk_of(R"([{"role":"user","content":)" + list_of(R"("a")", R"("a")") +
               R"(},{"role":"assistant","content":"b"}])")},
      {"empty messages", RowFormat::messages,
       talk_of("[" + full_of(R"({"role":"user","content":""},)") + R"({"role":"assistant","content":"b"}])")},
      {"ShareGPT", RowFormat::messages,
       talk_of("[" + full_of(R"({"from":"human","value":""},)") + R"({"from":"gpt","value":"b"}])")},
      {"thoughts", RowFormat::messages,
       talk_of(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b","thinking":")" +
               full_of("a ") + "\"}]")},
      {"calls of ShareGPT", RowFormat::messages,
       sharegpt_call(R"({"name":"f","arguments":)" + empties + "}")},
      {"calls of ShareGPT as a text", RowFormat::messages,
       sharegpt_call(nlohmann::json(R"({"name":"f","arguments":)" + empties + "}").dump())},
      {"arguments", RowFormat::messages, calls(empties)},
      {"arguments as a text", RowFormat::messages, calls(nlohmann::json(R"({"a":)" + empties + "}").dump())},
      {"tools", RowFormat::messages, with_tools(empties)},
      {"tools as a text", RowFormat::messages, with_tools(as_text)},
      {"tools of many keys", RowFormat::messages, with_tools("[{" + members(4000) + R"("name":"f"}])")}};
}

struct Reader {
  ColumnBinding binding;
  ExampleEncoder encoder;
};

Reader reader_of(const HostileRow& row, const Dataset& dataset, const std::string& tokenizer_name) {
  static std::map<std::string, std::shared_ptr<const Tokenizer>> known;
  auto& tokenizer = known[tokenizer_name];
  if (!tokenizer)
    tokenizer = std::make_shared<const Tokenizer>(
        Tokenizer::from_file("tests/golden/tokenizers/" + tokenizer_name + ".json"));
  const ColumnBinding binding = bind_columns(dataset.columns(), row.format, {}, "rows");
  RowEncoding rows{.columns = binding, .samples = {.max_length = 128}, .model = {.vocab_size = 1 << 20}};
  rows.texts.tokenize = [tokenizer](std::string_view text, std::vector<int32_t>& ids) {
    tokenizer->encode_into(text, false, ids);
  };
  if (row.format == RowFormat::messages)
    rows.converse = conversation_encoder(
        tokenizer, ChatTemplate::builtin("chatml", "demo/model", std::nullopt), {.max_length = 128});
  return {binding, ExampleEncoder(rows)};
}

// Bytes of memory for each byte of its size that a row took, in a file of its own.
double times_its_size(const HostileRow& row, const std::string& tokenizer) {
  const TestFolder folder;
  const auto path = folder.write("rows.jsonl", row.json + "\n");
  reset_heap_peak();
  int64_t before = heap_bytes();
  Dataset dataset = Dataset::open(std::vector{path});
  int64_t peak = heap_peak() - before;  // its columns were found
  Reader reader = reader_of(row, dataset, tokenizer);
  dataset.select(reader.binding.columns, reader.binding.read_as());
  const size_t unit = 0;
  dataset.hold(std::span(&unit, 1));
  const auto [block, local] = dataset.find(0);
  Row cells;
  Example example;
  before = heap_bytes();
  reset_heap_peak();
  encode_row_of(*block, local, {}, RowErrors::skip, reader.encoder, cells, example);
  peak = std::max(peak, heap_peak() - before);
  return static_cast<double>(peak) / static_cast<double>(std::max(dataset.longest_row(), example.size));
}

TEST(RowMemory, stays_within_what_is_planned_whatever_a_row_holds) {
  for (const char* tokenizer : {"llama2", "qwen2", "bert", "mt5"}) {
    // The memory that a thread keeps from its first row on.
    times_its_size({"", RowFormat::text, R"({"text":"a"})"}, tokenizer);
    auto rows = texts();
    if (std::string(tokenizer) == "qwen2")
      for (HostileRow& row : structures()) rows.push_back(std::move(row));
    for (const HostileRow& row : rows) {
      const double taken = times_its_size(row, tokenizer);
      if (std::getenv("SHOW_ROWS")) std::printf("%5.1f %s %s\n", taken, tokenizer, row.name.c_str());
      EXPECT_LT(taken, static_cast<double>(kRowTimes)) << tokenizer << ": " << row.name;
    }
  }
}

// A long row takes what was counted of it, whatever was read before, and an ordinary text far less than the bound.
TEST(RowMemory, of_a_long_row_is_counted) {
  if (!HeapPeak::counts()) GTEST_SKIP() << "sanitizers answer for operator new";
  std::string text;
  for (int64_t i = 0; std::ssize(text) < 4 * kMiB; ++i)
    text += "word" + std::to_string(i * i % 977) + " of it ";
  const TestFolder folder;
  const auto path = folder.write("rows.jsonl", R"({"text":"a"})"
                                               "\n"
                                               R"({"text":")" +
                                                   text +
                                                   "\"}\n"
                                                   R"({"text":")" +
                                                   full_of("a") + "\"}\n");
  Dataset dataset = Dataset::open(std::vector{path});
  for (const char* tokenizer : {"llama2", "qwen2", "bert", "mt5"}) {
    Reader reader = reader_of({"", RowFormat::text, ""}, dataset, tokenizer);
    dataset.select(reader.binding.columns, reader.binding.read_as());
    std::vector<size_t> units(dataset.units().size());
    for (size_t i = 0; i < units.size(); ++i) units[i] = i;
    dataset.hold(units);
    Row cells;
    Example example;
    std::vector<int64_t> counted;
    for (const int64_t row : {1, 0, 2, 1}) {
      const auto [block, local] = dataset.find(row);
      counted.push_back(encode_counted(*block, local, {}, RowErrors::skip, reader.encoder, cells, example));
    }
    EXPECT_EQ(counted[0], counted[3]) << tokenizer;
    EXPECT_EQ(counted[1], 0);
    EXPECT_GT(counted[0], std::ssize(text));
    EXPECT_LT(counted[0], 9 * std::ssize(text)) << tokenizer;
    // A reader that has read others before takes as much.
    const auto [block, local] = dataset.find(1);
    forget_long(cells);
    forget_long(example);
    const HeapPeak peak;
    encode_row_of(*block, local, {}, RowErrors::skip, reader.encoder, cells, example);
    EXPECT_LE(peak.bytes(), counted[0] + kOrdinaryRowBytes) << tokenizer;
    EXPECT_GE(peak.bytes(), counted[0] - 512 * kKiB) << tokenizer;
  }
}

}  // namespace
}  // namespace plimsoll
