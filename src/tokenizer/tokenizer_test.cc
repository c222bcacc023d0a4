#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>

#include <ctime>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "tokenizer/files/json_part.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/stream_decoder.h"

namespace plimsoll {
namespace {

using Json = nlohmann::json;

Tokenizer with_post_processor(const char* json) {
  return Tokenizer::from_json(
      R"({"added_tokens": [], "model": {"type": "WordLevel", "vocab": {"a": 0, "[C]": 1,
    "[S]": 2}, "unk_token": "a"}, "post_processor": )" +
          std::string(json) + "}",
      "test");
}

TEST(PostProcessor, says_what_stands_around_two_texts) {
  const auto pair_of = [](const char* json) { return with_post_processor(json).affixes().pair; };
  const auto bert = pair_of(R"({"type": "BertProcessing", "cls": ["[C]", 1], "sep": ["[S]", 2]})");
  ASSERT_TRUE(bert);
  EXPECT_EQ(bert->between, std::vector<int32_t>{2});
  EXPECT_EQ(bert->second_type, 1);
  const auto roberta = pair_of(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"},
    {"type": "RobertaProcessing", "cls": ["[C]", 1], "sep": ["[S]", 2]}]})");
  ASSERT_TRUE(roberta);
  EXPECT_EQ(roberta->between, (std::vector<int32_t>{2, 2}));
  EXPECT_EQ(roberta->second_type, 0);
  const auto by_template = [&](const std::string& parts) {
    return pair_of(
        (R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}], "pair": [)" +
         parts + R"(], "special_tokens": {"[S]": {"id": "[S]", "ids": [2], "tokens": ["[S]"]}}})")
            .c_str());
  };
  const std::string a = R"({"Sequence": {"id": "A", "type_id": 0}},)",
                    b = R"({"Sequence": {"id": "B", "type_id": 1}})";
  const std::string sep = R"({"SpecialToken": {"id": "[S]", "type_id": 0}},)";
  EXPECT_EQ(by_template(a + sep + b)->between, std::vector<int32_t>{2});
  EXPECT_FALSE(by_template(b + "," + sep + a.substr(0, a.size() - 1))) << "the second text first";
  EXPECT_FALSE(by_template(a + b + "," + sep.substr(0, sep.size() - 1))) << "type 0 behind type 1";
}

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kQwen = "tests/golden/tokenizers/qwen2.json";

Json qwen_json() {
  Json json;
  std::ifstream(kQwen) >> json;
  return json;
}
Tokenizer from_json(const Json& json) { return Tokenizer::from_json(json.dump(), "t.json"); }

TEST(Tokenizer, decoding_an_encoded_text_gives_its_nfc) {
  const Tokenizer tokenizer = Tokenizer::from_file(kQwen);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("Ångström: e\u0301 \u4F60\u597D \U0001F6A2", false), false),
            "Ångström: \u00E9 \u4F60\u597D \U0001F6A2");
}

// Seconds of the processor for this thread: other work on the machine does not count.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double encode_seconds(const Tokenizer& tokenizer, std::string_view unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  const double start = processor_seconds();
  EXPECT_GE(tokenizer.encode(text, false).size(), tokenizer.encode(unit, false).size());
  return processor_seconds() - start;
}

// Work that grows with the square of the length would take minutes here.
TEST(Tokenizer, text_without_a_break_takes_linear_time) {
  for (const char* name :
       {"qwen2", "llama2", "mistral", "gemma", "clip", "t5", "mt5", "xlmr", "bert", "word_level"}) {
    const Tokenizer tokenizer =
        Tokenizer::from_file("tests/golden/tokenizers/" + std::string(name) + ".json");
    for (const char* unit : {"a", " ", "\n", "\u0301", "'", "\U0001F6A2", "e\u0301", "\u2581", "\u4F60"}) {
      // Other programs may slow a single measurement; a function that is not linear is slow every time.
      bool linear = false;
      for (int attempt = 0; attempt < 5 && !linear; ++attempt)
        linear =
            encode_seconds(tokenizer, unit, 1 << 18) < 24 * encode_seconds(tokenizer, unit, 1 << 15) + 0.25;
      EXPECT_TRUE(linear) << name << ": " << unit;
    }
  }
  for (const char* name :
       {"qwen2.json", "llama2.json", "t5.json", "bert.json", "sp_bpe.model", "sp_unigram.model"})
    encode_seconds(Tokenizer::from_file("tests/golden/tokenizers/" + std::string(name)), "a", 1 << 20);
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

TEST(Tokenizer, tokens_are_found_in_a_text_by_the_bytes_that_they_stand_for) {
  for (const char* name : {"qwen2", "gpt2", "llama2", "bert"}) {
    const Tokenizer tokenizer =
        Tokenizer::from_file("tests/golden/tokenizers/" + std::string(name) + ".json");
    int found = 0;
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      std::string bytes;
      tokenizer.append_token_bytes(id, false, bytes);
      const size_t taken = tokenizer.token_bytes_in(id, bytes + "x");
      ASSERT_TRUE(taken == 0 || taken == bytes.size()) << name << ", token " << id;
      found += taken > 0 ? 1 : 0;
      if (bytes.empty()) continue;
      EXPECT_EQ(tokenizer.token_bytes_in(id, bytes.substr(0, bytes.size() - 1)), 0U) << name << ", " << id;
      bytes.back() = static_cast<char>(bytes.back() ^ 1);
      EXPECT_EQ(tokenizer.token_bytes_in(id, bytes), 0U) << name << ", " << id;
    }
    const bool bytes_alone = std::string_view(name) == "qwen2" || std::string_view(name) == "gpt2";
    EXPECT_TRUE(!bytes_alone || found == tokenizer.vocab_size()) << name << ": " << found;
  }
}

TEST(Tokenizer, lengths_of_tokens_tell_where_they_begin_or_say_nothing) {
  const auto starts_in = [](const char* name, std::string_view text) {
    const Tokenizer tokenizer =
        Tokenizer::from_file("tests/golden/tokenizers/" + std::string(name) + ".json");
    const std::vector<int32_t> ids = tokenizer.encode(text, false);
    const std::vector<size_t> starts = tokenizer.starts_by_lengths(text, ids);
    for (size_t i = 0; i + 1 < starts.size(); ++i)
      EXPECT_EQ(tokenizer.token_bytes_in(ids[i], text.substr(starts[i])), starts[i + 1] - starts[i]) << name;
    EXPECT_TRUE(starts.empty() || starts.size() == ids.size() + 1) << name;
    return starts;
  };
  constexpr std::string_view kPlain = "Of tokens  and\n\tplaces<|im_end|> 1234";
  EXPECT_GT(starts_in("qwen2", kPlain).size(), 5U);
  EXPECT_THAT(starts_in("qwen2", "Cafe\u0301"), testing::IsEmpty());  // a normaliser makes other bytes of it
  EXPECT_FALSE(starts_in("gpt2", "Cafe\u0301 \u4f60").empty());
  EXPECT_THAT(starts_in("gpt2", "broken \xff"), testing::IsEmpty());
  EXPECT_THAT(starts_in("llama2", "Metaspace"), testing::IsEmpty());
  EXPECT_THAT(starts_in("bert", "Words"), testing::IsEmpty());
  const Tokenizer gpt2 = Tokenizer::from_file("tests/golden/tokenizers/gpt2.json");
  EXPECT_THAT(gpt2.starts_by_lengths("more than ids", gpt2.encode("more", false)), testing::IsEmpty());
  EXPECT_THAT(gpt2.starts_by_lengths("", std::vector<int32_t>{-1}), testing::IsEmpty());
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
  for (const char* name : {"qwen2.json", "llama2.json", "t5.json", "xlmr.json", "bert.json",
                           "word_level.json", "sp_unigram.model", "sp_bpe.model"}) {
    const std::string file = "tests/golden/tokenizers/" + std::string(name);
    const int64_t resident = Tokenizer::from_file(file).resident_bytes();
    EXPECT_GT(resident, 1 << 20);
    EXPECT_LE(resident, Tokenizer::estimated_bytes(file)) << name;
  }
  EXPECT_THROW(Tokenizer::estimated_bytes("no/such/file"), UsageError);
}

TEST(Tokenizer, a_stream_gives_out_a_character_of_byte_tokens_when_it_is_complete) {
  const Tokenizer tokenizer = Tokenizer::from_file("tests/golden/tokenizers/llama2.json");
  const auto id = [&](const char* token) { return tokenizer.token_id(token).value(); };
  const std::vector<int32_t> ids = {id("<0xE4>"), id("<0xBD>"), id("<0xA0>"), id("<0xFF>"), id("<0x41>")};
  StreamDecoder decoder(tokenizer);
  std::vector<std::string> parts;
  for (const int32_t token : ids) parts.push_back(decoder.push(token));
  EXPECT_THAT(parts, ElementsAre("", "", "\u4F60", "", ""));
  EXPECT_EQ(decoder.finish(), "\uFFFD\uFFFD");
  // All at once the whole run is broken, byte by byte.
  EXPECT_EQ(tokenizer.decode(ids, true), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(decoder.push(id("<0x41>")), "A") << "after finish a text starts anew";
}

TEST(Tokenizer, truncation_and_padding_are_ignored_and_said_so) {
  Json json = qwen_json();
  json["truncation"] = {{"max_length", 2}};
  const Tokenizer tokenizer = from_json(json);
  EXPECT_THAT(tokenizer.notes(), ElementsAre(HasSubstr("truncation")));
  EXPECT_GT(tokenizer.encode("a b c d e", false).size(), 2U);
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
