#include "text/tokenizer.h"

#include <gmock/gmock.h>

#include <fstream>
#include <thread>

#include "base/error.h"
#include "text/json_part.h"
#include "text/special_tokens.h"
#include "text/stream_decoder.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kQwen = "tests/golden/tokenizers/qwen2.json";

Json qwen_json() {
  Json json;
  std::ifstream(kQwen) >> json;
  return json;
}
Tokenizer load(const Json& json) { return Tokenizer::from_json(json.dump(), "t.json"); }

TEST(Tokenizer, decoding_an_encoded_text_gives_its_nfc) {
  const Tokenizer tokenizer = Tokenizer::from_file(kQwen);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("Ångström: e\u0301 \u4F60\u597D \U0001F6A2", false), false),
            "Ångström: \u00E9 \u4F60\u597D \U0001F6A2");
}

TEST(Tokenizer, a_megabyte_without_a_break_takes_linear_time) {
  const Tokenizer tokenizer = Tokenizer::from_file(kQwen);
  for (const char* unit : {"a", " ", "\n", "\u0301", "'", "\U0001F6A2", "e\u0301"}) {
    std::string text;
    const size_t size = *unit == 'a' ? 1 << 20 : 1 << 17;
    while (text.size() < size) text += unit;
    const auto ids = tokenizer.encode(text, false);
    EXPECT_GT(ids.size(), 1000U);
  }
}

TEST(Tokenizer, ids_do_not_depend_on_the_thread_or_the_cache) {
  const Tokenizer tokenizer = Tokenizer::from_file(kQwen);
  const Tokenizer other = Tokenizer::from_file("tests/golden/tokenizers/gpt2.json");
  const std::string text = "The ship's load line shows how deep she may lie. 12 ships, 12 lines.";
  const auto expected = tokenizer.encode(text, false);
  const auto expected_other = other.encode(text, false);
  ASSERT_NE(expected, expected_other);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        EXPECT_EQ(tokenizer.encode(text, false), expected);
        EXPECT_EQ(other.encode(text, false), expected_other);
      }
    });
}

TEST(Tokenizer, tokens_and_ids_name_each_other) {
  const Tokenizer tokenizer = Tokenizer::from_file(kQwen);
  const auto end = tokenizer.token_id("<|im_end|>");
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(tokenizer.token(*end), "<|im_end|>");
  EXPECT_TRUE(tokenizer.is_special(*end));
  EXPECT_FALSE(tokenizer.is_special(0));
  EXPECT_EQ(tokenizer.token_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.token(-1), "");
  EXPECT_EQ(tokenizer.token(1'000'000), "");
  EXPECT_EQ(tokenizer.vocab_size(), static_cast<int64_t>(qwen_json()["added_tokens"].back()["id"]) + 1);
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{-5, *end, 1'000'000}, false), "<|im_end|>");
}

TEST(Tokenizer, an_unfinished_character_at_the_end_of_a_stream_is_replaced) {
  const Tokenizer tokenizer = Tokenizer::from_file("tests/golden/tokenizers/gpt2.json");
  auto ids = tokenizer.encode("\U00020000", false);
  ids.pop_back();
  StreamDecoder decoder(tokenizer);
  for (const int32_t id : ids) EXPECT_EQ(decoder.push(id), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(Tokenizer, the_estimate_bounds_what_is_resident) {
  const int64_t resident = Tokenizer::from_file(kQwen).resident_bytes();
  EXPECT_GT(resident, 1 << 20);
  EXPECT_LE(resident, Tokenizer::estimated_bytes(kQwen));
  EXPECT_THROW(Tokenizer::estimated_bytes("no/such/file"), UsageError);
}

TEST(Tokenizer, truncation_and_padding_are_ignored_and_said_so) {
  Json json = qwen_json();
  json["truncation"] = {{"max_length", 2}};
  const Tokenizer tokenizer = load(json);
  EXPECT_THAT(tokenizer.notes(), ElementsAre(HasSubstr("truncation")));
  EXPECT_GT(tokenizer.encode("a b c d e", false).size(), 2U);
}

TEST(Tokenizer, what_is_not_supported_is_refused_by_name) {
  const auto expect_refusal = [](auto change, const std::string& name) {
    Json json = qwen_json();
    change(json);
    EXPECT_THAT([&] { load(json); }, ThrowsMessage<UsageError>(HasSubstr(name)));
  };
  expect_refusal([](Json& j) { j["model"] = Json::parse(R"({"type":"Unigram","vocab":[["a",-1.5]]})"); },
                 "Unigram");
  expect_refusal([](Json& j) { j["model"]["type"] = "WordPiece"; }, "WordPiece");
  expect_refusal([](Json& j) { j["model"]["byte_fallback"] = true; }, "byte_fallback");
  expect_refusal([](Json& j) { j["model"]["dropout"] = 0.1; }, "dropout");
  expect_refusal([](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, "end_of_word_suffix");
  expect_refusal([](Json& j) { j["normalizer"]["type"] = "Precompiled"; }, "Precompiled");
  expect_refusal([](Json& j) { j["pre_tokenizer"] = {{"type", "Metaspace"}}; }, "Metaspace");
  expect_refusal([](Json& j) { j["pre_tokenizer"] = nullptr; }, "without a ByteLevel");
  expect_refusal(
      [](Json& j) {
        std::swap(j["pre_tokenizer"]["pretokenizers"][0], j["pre_tokenizer"]["pretokenizers"][1]);
      },
      "after ByteLevel");
  expect_refusal([](Json& j) { j["decoder"] = {{"type", "WordPiece"}}; }, "WordPiece");
  expect_refusal([](Json& j) { j["post_processor"] = {{"type", "Other"}}; }, "Other");
  expect_refusal([](Json& j) { j["added_tokens"][0]["id"] = 5; }, "<|endoftext|>");
}

TEST(Tokenizer, damaged_files_are_errors_that_name_the_place) {
  const auto expect_damage = [](const std::string& text, const std::string& what) {
    EXPECT_THAT([&] { Tokenizer::from_json(text, "t.json"); },
                ThrowsMessage<DamagedError>(testing::AllOf(HasSubstr("t.json"), HasSubstr(what))));
  };
  expect_damage("", "tokenizer.json");
  expect_damage("[1]", "model");
  expect_damage(std::string(100'000, '['), "nested");
  expect_damage(R"({"model":{"vocab":{"a":"b"}}})", "id of the piece");
  expect_damage(R"({"model":{"vocab":{"a":{}}}})", "\"a\"");
  expect_damage(R"({"model":{"vocab":{"a":3000000000}}})", "3000000000");
  expect_damage(R"({"model":{"vocab":{},"merges":[["a"]]}})", "pair");
  expect_damage(R"({"model":{"vocab":{},"merges":["abc"]}})", "abc");
  expect_damage(R"({"model":{"vocab":{},"merges":[{}]}})", "pair");
  expect_damage(R"({"model":{"vocab":{},"merges":[7]}})", "string");
  expect_damage(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]},"pre_tokenizer":)"
                R"({"type":"ByteLevel","add_prefix_space":false}})",
                "\"b\"");
  std::ifstream stream(kQwen);
  const std::string whole((std::istreambuf_iterator<char>(stream)), {});
  for (size_t size = 0; size < whole.size() - 1; size += 97) expect_damage(whole.substr(0, size), "t.json");
  EXPECT_THROW(Tokenizer::from_file("no/such/tokenizer.json"), UsageError);
}

class SpecialTokensTest : public testing::Test {
 protected:
  SpecialTokensTest() { std::filesystem::create_directories(folder_); }
  ~SpecialTokensTest() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  SpecialTokens read() const { return read_special_tokens(folder_, tokenizer_); }
  [[nodiscard]] int32_t id(const char* token) const { return tokenizer_.token_id(token).value(); }

  std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) /
                                  testing::UnitTest::GetInstance()->current_test_info()->name();
  Tokenizer tokenizer_ = Tokenizer::from_file(kQwen);
};

TEST_F(SpecialTokensTest, names_come_from_the_tokenizer_and_eos_ids_from_the_generation_config) {
  write("tokenizer_config.json", R"({"eos_token":{"content":"<|im_end|>"},"bos_token":null})");
  write("special_tokens_map.json", R"({"eos_token":"<|endoftext|>","pad_token":"<|endoftext|>"})");
  write("generation_config.json", R"({"eos_token_id":[7,9]})");
  write("config.json", R"({"eos_token_id":3,"bos_token_id":4})");
  const SpecialTokens tokens = read();
  EXPECT_EQ(tokens.end_of_text, id("<|im_end|>"));
  EXPECT_EQ(tokens.pad, id("<|endoftext|>"));
  EXPECT_EQ(tokens.bos, 4);
  EXPECT_THAT(tokens.eos, ElementsAre(7, 9));
}

TEST_F(SpecialTokensTest, a_token_ends_generation_where_no_id_says_so) {
  write("tokenizer_config.json", R"({"eos_token":"<|im_end|>"})");
  EXPECT_THAT(read().eos, ElementsAre(id("<|im_end|>")));
}

TEST_F(SpecialTokensTest, an_empty_folder_names_nothing) {
  const SpecialTokens tokens = read();
  EXPECT_FALSE(tokens.bos || tokens.pad || tokens.end_of_text || !tokens.eos.empty());
}

TEST_F(SpecialTokensTest, tokens_the_tokenizer_lacks_are_damage) {
  write("tokenizer_config.json", R"({"eos_token":"</missing>"})");
  EXPECT_THAT([&] { read(); }, ThrowsMessage<DamagedError>(HasSubstr("</missing>")));
  write("tokenizer_config.json", "{");
  EXPECT_THAT([&] { read(); }, ThrowsMessage<DamagedError>(HasSubstr("tokenizer_config.json")));
  write("tokenizer_config.json", R"({"eos_token":7})");
  EXPECT_THROW(read(), DamagedError);
}

}  // namespace
}  // namespace plimsoll
