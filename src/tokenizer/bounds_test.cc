// Files and texts made to cost time or memory: their answers, which without bounds would take hours.
#include <gtest/gtest.h>
#include <unicode/bytestream.h>
#include <unicode/uniset.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tokenizer/steps/unicode_form.h"
#include "tokenizer/tokenizer.h"
#include "unicode/text_error.h"

namespace plimsoll {
namespace {

using Json = nlohmann::json;

constexpr size_t kMiB = size_t{1} << 20;

Json token(const std::string& content, int32_t id, const Json& more = Json::object()) {
  Json json = {{"content", content}, {"id", id}, {"special", true}, {"normalized", false}};
  json.update(more);
  return json;
}

// Words are unknown (id 0) but for "a" (1) and "b" (2); added tokens begin at 3.
Json file_with(const Json& parts) {
  Json file = {
      {"model",
       {{"type", "WordLevel"}, {"vocab", {{"[UNK]", 0}, {"a", 1}, {"b", 2}}}, {"unk_token", "[UNK]"}}}};
  file.update(parts);
  return file;
}

Tokenizer tokenizer_with(const Json& parts) {
  return Tokenizer::from_json(file_with(parts).dump(), "tokenizer.json");
}

Json split_by(const std::string& expression) {
  return {
      {"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}};
}

TEST(Bounds, unknown_expressions_take_long_words) {
  // A loop over groups: it fills the stack of the compiled expression within some 2,000 letters.
  const Tokenizer tokenizer =
      tokenizer_with({{"pre_tokenizer", split_by("(?:\\p{L}\\p{M}?)+|\\p{N}+|\\s+")}});
  for (const size_t letters : {size_t{1}, size_t{2000}, size_t{20'000}, size_t{100'000}})
    EXPECT_EQ(tokenizer.encode(std::string(letters, 'q') + " b 7", false),
              (std::vector<int32_t>{0, 0, 2, 0, 0}))
        << letters;
}

TEST(Bounds, an_expression_that_gives_up_is_the_texts_fault) {
  const Tokenizer tokenizer = tokenizer_with({{"pre_tokenizer", split_by("(?:a|aa)+c|.")}});
  EXPECT_THROW(tokenizer.encode(std::string(200, 'a'), false), TextError);
  EXPECT_EQ(tokenizer.encode("ab", false), (std::vector<int32_t>{1, 2}));
}

// (a+)+b takes twice as long for each further letter, here 8 million backtracks for each 23 bytes.
TEST(Bounds, an_expression_has_a_bound_for_a_whole_text) {
  const Tokenizer tokenizer = tokenizer_with({{"pre_tokenizer", split_by("(a+)+b|.")}});
  std::string text;
  for (int i = 0; i < 2000; ++i) text += std::string(22, 'a') + "c";
  EXPECT_THROW(tokenizer.encode(text, false), TextError);
  text.clear();
  for (int i = 0; i < 2000; ++i) text += std::string(5, 'a') + "c";  // cheap matches are not counted
  EXPECT_EQ(tokenizer.encode(text, false).size(), 12'000U);
}

TEST(Bounds, marks_in_any_order_take_linear_time) {
  std::string marks, sorted;
  constexpr size_t kMarks = 200'000;  // ordered one by one they take minutes
  for (size_t i = 0; i < kMarks; ++i) marks += i % 2 == 0 ? "\u0345" : "\u0327";
  for (size_t i = 0; i < kMarks; ++i) sorted += i < kMarks / 2 ? "\u0327" : "\u0345";
  for (const char* form : {"NFC", "NFD", "NFKC", "NFKD"}) {
    const UnicodeFormKind kind = form == std::string_view("NFC")    ? UnicodeFormKind::nfc
                                 : form == std::string_view("NFD")  ? UnicodeFormKind::nfd
                                 : form == std::string_view("NFKC") ? UnicodeFormKind::nfkc
                                                                    : UnicodeFormKind::nfkd;
    NormalText normal;
    const std::string text = "a" + marks + "b";
    normal.reset(text, true);
    UnicodeForm(kind).apply(normal);
    EXPECT_TRUE(normal.text() == "a" + sorted + "b") << form;
  }
}

// The way for many marks against ICU's own, by texts that have fewer of them behind each character.
TEST(Bounds, many_marks_become_what_few_do) {
  const std::vector<std::string> parts = {"\u0301", "\u0345", "\u0327", "\u0344", "\u0F73",
                                          "\u0F71", "\u3099", "\uFF9E", "\u1DF9", "\u08D3",
                                          "e",      "\u00E9", "\u1161", "\u11A8"};
  uint64_t random = 1;
  const auto draw = [&] {
    return random = random * 6364136223846793005U + 1442695040888963407U, random >> 33U;
  };
  for (int round = 0; round < 200; ++round) {
    std::string text = "a";
    const uint64_t rare = 1 + draw() % 40;
    for (int i = 0; i < 600; ++i) text += parts[draw() % (draw() % rare == 0 ? parts.size() : 10)];
    for (const UnicodeFormKind kind :
         {UnicodeFormKind::nfc, UnicodeFormKind::nfd, UnicodeFormKind::nfkc, UnicodeFormKind::nfkd}) {
      UErrorCode status = U_ZERO_ERROR;
      const icu::Normalizer2* form = kind == UnicodeFormKind::nfc   ? icu::Normalizer2::getNFCInstance(status)
                                     : kind == UnicodeFormKind::nfd ? icu::Normalizer2::getNFDInstance(status)
                                     : kind == UnicodeFormKind::nfkc
                                         ? icu::Normalizer2::getNFKCInstance(status)
                                         : icu::Normalizer2::getNFKDInstance(status);
      const icu::UnicodeSet known(icu::UnicodeString("[:age=9.0:]"), status);
      const icu::FilteredNormalizer2 filtered(*form, known);
      std::string expected;
      icu::StringByteSink<std::string> sink(&expected);
      filtered.normalizeUTF8(0, text, sink, nullptr, status);
      ASSERT_TRUE(U_SUCCESS(status));
      NormalText normal;
      normal.reset(text, true);
      UnicodeForm(kind).apply(normal);
      ASSERT_EQ(normal.text(), expected) << static_cast<int>(kind) << ", round " << round;
    }
  }
}

TEST(Bounds, normalizers_do_not_multiply_text) {
  const Json replace = {
      {"type", "Replace"}, {"pattern", {{"String", "x"}}}, {"content", std::string(kMiB, 'x')}};
  const Json prepend = {{"type", "Prepend"}, {"prepend", std::string(32 << 10, 'y')}};
  for (const Json& normalizer : {replace, prepend}) {
    const Tokenizer tokenizer =
        tokenizer_with({{"normalizer", normalizer}, {"added_tokens", Json::array({token("<t>", 3)})}});
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += "x<t>";
    EXPECT_THROW(tokenizer.encode(text, false), TextError);
    EXPECT_EQ(tokenizer.encode("a", false).size(), 1U);
  }
}

TEST(Bounds, a_decoder_does_not_multiply_text) {
  const Json replace = {
      {"type", "Replace"}, {"pattern", {{"String", "x"}}}, {"content", std::string(kMiB, 'y')}};
  const Tokenizer tokenizer = tokenizer_with(
      {{"decoder", replace}, {"added_tokens", Json::array({token(std::string(kMiB, 'x'), 3)})}});
  EXPECT_THROW((void)tokenizer.decode(std::vector<int32_t>{3}, false), TextError);
}

TEST(Bounds, components_have_few_steps) {
  const Json lower = {{"type", "Lowercase"}};
  Json inner = {{"type", "Sequence"}, {"normalizers", Json(std::vector<Json>(20, lower))}};
  EXPECT_NO_THROW(tokenizer_with({{"normalizer", inner}}));
  const Json outer = {{"type", "Sequence"}, {"normalizers", Json(std::vector<Json>(20, inner))}};
  EXPECT_THROW(tokenizer_with({{"normalizer", outer}}), UsageError);
}

TEST(Bounds, pieces_and_added_tokens_have_a_longest) {
  EXPECT_THROW(tokenizer_with({{"added_tokens", Json::array({token(std::string(5 * kMiB, 'x'), 3)})}}),
               UsageError);
  Json unigram = {
      {"model",
       {{"type", "Unigram"},
        {"unk_id", 0},
        {"vocab", Json::array({Json::array({"<unk>", 0}), Json::array({std::string(5000, 'x'), -1})})}}}};
  EXPECT_THROW(Tokenizer::from_json(unigram.dump(), "tokenizer.json"), UsageError);
}

TEST(Bounds, added_tokens_are_found_in_linear_time) {
  // At every place of the text a walk would go through a megabyte before it fails.
  const Tokenizer tokenizer = tokenizer_with(
      {{"added_tokens", Json::array({token(std::string(kMiB, 'x') + "!", 3), token("xx", 4)})}});
  const std::vector<int32_t> ids = tokenizer.encode(std::string(4 * kMiB, 'x'), false);
  EXPECT_EQ(ids.size(), 2 * kMiB);
  EXPECT_EQ(ids.front(), 4);
  EXPECT_EQ(tokenizer.encode(std::string(kMiB, 'x') + "!", false), (std::vector<int32_t>{3}));
  EXPECT_EQ(tokenizer.encode(std::string(kMiB + 1, 'x') + "!", false).size(), kMiB / 2 + 1);
}

TEST(Bounds, white_space_beside_added_tokens_is_walked_once) {
  const Tokenizer tokenizer =
      tokenizer_with({{"added_tokens", Json::array({token(" ", 3, {{"lstrip", true}, {"rstrip", true}})})}});
  EXPECT_EQ(tokenizer.encode(std::string(kMiB, ' '), false).size(), kMiB);
}

// Tokens of few letters, so that they overlap in all ways; some longer than 64 bytes, so that both searches
// run.
TEST(Bounds, both_searches_find_the_leftmost_longest_tokens) {
  std::mt19937 random(7);
  const auto word = [&](size_t most) {
    std::string text(1 + random() % most, ' ');
    for (char& c : text) c = "xyz"[random() % 3];
    return text;
  };
  for (int round = 0; round < 50; ++round) {
    Json list = Json::array();
    std::vector<std::string> tokens;
    for (int i = 0; i < 20; ++i) {
      const std::string content = i == 0 ? std::string(70, 'x') + word(30) : word(i < 10 ? 3 : 12);
      if (std::find(tokens.begin(), tokens.end(), content) != tokens.end()) continue;
      list.push_back(token(content, static_cast<int32_t>(3 + tokens.size())));
      tokens.push_back(content);
    }
    const Tokenizer tokenizer = tokenizer_with({{"added_tokens", list}});
    std::string text;
    while (text.size() < 3000) text += random() % 20 == 0 ? std::string(random() % 200, 'x') : word(5) + "-";
    std::vector<int32_t> expected;
    bool in_word = false;
    for (size_t i = 0; i < text.size();) {
      size_t best = 0;
      int32_t id = -1;
      for (size_t k = 0; k < tokens.size(); ++k)
        if (tokens[k].size() > best && text.compare(i, tokens[k].size(), tokens[k]) == 0) {
          best = tokens[k].size();
          id = static_cast<int32_t>(3 + k);
        }
      if (id >= 0)
        expected.push_back(id);
      else if (!in_word)
        expected.push_back(0);
      in_word = id < 0;
      i += id >= 0 ? best : 1;
    }
    ASSERT_EQ(tokenizer.encode(text, false), expected) << round;
  }
}

}  // namespace
}  // namespace plimsoll
