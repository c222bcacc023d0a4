// The ids and texts of tests/golden/tokenizers, written by scripts/make_tokenizer_goldens.py with the
// reference.
#include <gtest/gtest.h>

#include <fstream>

#include "tokenizer/files/json_part.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

using Json = nlohmann::json;

std::string golden_file(const std::string& name) { return "tests/golden/tokenizers/" + name; }

std::string text_of(const Json& test_case) {
  if (test_case.contains("text")) return test_case.at("text").get<std::string>();
  std::string text;
  if (test_case.contains("repeat")) {
    for (int i = 0; i < test_case.at("times").get<int>(); ++i)
      text += test_case.at("repeat").get<std::string>();
    return text;
  }
  const auto hex = test_case.at("hex").get<std::string>();
  for (size_t i = 0; i < hex.size(); i += 2)
    text.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return text;
}

std::vector<int32_t> ids_of(const Json& test_case) {
  if (test_case.contains("ids")) return test_case.at("ids").get<std::vector<int32_t>>();
  std::vector<int32_t> ids;
  for (const auto& [id, count] : test_case.at("runs").get<std::vector<std::pair<int32_t, size_t>>>())
    ids.insert(ids.end(), count, id);
  return ids;
}

class TokenizerGolden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::ifstream(golden_file(GetParam() + ".cases.json")) >> cases_;
    ASSERT_GT(cases_.size(), 100U);
  }
  Tokenizer tokenizer_ = Tokenizer::from_file(golden_file(GetParam() + ".json"));
  Json cases_;
};

TEST_P(TokenizerGolden, ids_are_those_of_the_reference) {
  for (const Json& c : cases_) {
    const std::string text = text_of(c);
    const std::vector<int32_t> ids = ids_of(c);
    ASSERT_EQ(tokenizer_.encode(text, false), ids) << c.dump().substr(0, 200);
    ASSERT_EQ(tokenizer_.encode(text, false), ids) << "the second time, from the word cache";
    if (c.contains("repeat")) continue;
    ASSERT_EQ(tokenizer_.encode(text, true), c.value("special_ids", ids)) << c.dump().substr(0, 200);
  }
}

TEST_P(TokenizerGolden, decoded_texts_are_those_of_the_reference) {
  for (const Json& c : cases_) {
    if (c.contains("repeat")) continue;
    const std::vector<int32_t> ids = ids_of(c);
    const std::string decoded = c.contains("decoded") ? c.at("decoded").get<std::string>() : text_of(c);
    ASSERT_EQ(tokenizer_.decode(ids, false), decoded) << c.dump().substr(0, 200);
    ASSERT_EQ(tokenizer_.decode(ids, true), c.value("skipped", decoded)) << c.dump().substr(0, 200);
  }
}

TEST_P(TokenizerGolden, the_stream_decoder_gives_the_same_text_in_whole_characters) {
  for (const Json& c : cases_) {
    const std::vector<int32_t> ids = ids_of(c);
    StreamDecoder decoder(tokenizer_, false);
    std::string text;
    for (const int32_t id : ids) {
      const std::string part = decoder.push(id);
      ASSERT_TRUE(is_valid_utf8(part));
      text += part;
    }
    ASSERT_EQ(text + decoder.finish(), tokenizer_.decode(ids, false));
  }
}

INSTANTIATE_TEST_SUITE_P(Files, TokenizerGolden,
                         testing::Values("gpt2", "qwen2", "qwen35", "llama3", "tekken", "other", "llama2",
                                         "mistral", "gemma", "chatlm", "clip", "t5", "mt5", "xlmr", "bert",
                                         "bert_cased", "word_level"),
                         [](const auto& info) { return info.param; });

class SentencePieceGolden : public testing::TestWithParam<std::string> {};

TEST_P(SentencePieceGolden, ids_are_those_of_sentence_piece) {
  const Tokenizer tokenizer = Tokenizer::from_file(golden_file(GetParam() + ".model"));
  Json cases;
  std::ifstream(golden_file(GetParam() + ".cases.json")) >> cases;
  ASSERT_GT(cases.size(), 100U);
  for (const Json& c : cases) {
    const std::vector<int32_t> ids = ids_of(c);
    ASSERT_EQ(tokenizer.encode(text_of(c), false), ids) << c.dump().substr(0, 200);
    StreamDecoder decoder(tokenizer, false);
    std::string text;
    for (const int32_t id : ids) text += decoder.push(id);
    ASSERT_EQ(text + decoder.finish(), tokenizer.decode(ids, false));
  }
}

INSTANTIATE_TEST_SUITE_P(Files, SentencePieceGolden, testing::Values("sp_unigram", "sp_bpe"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace plimsoll
