#include "tokenizer/steps/split.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "unicode/regex.h"
#include "unicode/scanners.h"

namespace plimsoll {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using Words = std::vector<std::string_view>;

Words scanned(KnownRegex regex, std::string_view text) {
  Words words;
  scan(regex, text, words);
  return words;
}

TEST(Scanners, spaces_leave_their_last_one_to_the_next_word) {
  EXPECT_THAT(scanned(KnownRegex::gpt2, "a  b  "), ElementsAre("a", " ", " b", "  "));
  EXPECT_THAT(scanned(KnownRegex::qwen2, "a   \n  b"), ElementsAre("a", "   \n", " ", " b"));
}

TEST(Scanners, contractions_follow_the_case_rule_of_their_model) {
  EXPECT_THAT(scanned(KnownRegex::gpt2, "it's IT'S"), ElementsAre("it", "'s", " IT", "'", "S"));
  EXPECT_THAT(scanned(KnownRegex::qwen2, "'\u017Fab"), ElementsAre("'\u017F", "ab"));
  EXPECT_THAT(scanned(KnownRegex::llama3, "we'LLgo"), ElementsAre("we", "'LL", "go"));
}

TEST(Scanners, digits_come_alone_or_by_three) {
  EXPECT_THAT(scanned(KnownRegex::qwen2, "123"), ElementsAre("1", "2", "3"));
  EXPECT_THAT(scanned(KnownRegex::llama3, "1234567"), ElementsAre("123", "456", "7"));
}

TEST(Scanners, marks_join_letters_in_qwen35_only) {
  EXPECT_THAT(scanned(KnownRegex::qwen35, "e\u0301a"), ElementsAre("e\u0301a"));
  EXPECT_THAT(scanned(KnownRegex::qwen2, "e\u0301a"), ElementsAre("e", "\u0301a"));
}

TEST(Scanners, tekken_splits_where_lower_case_turns_upper) {
  EXPECT_THAT(scanned(KnownRegex::tekken, "camelCase HTMLParser"),
              ElementsAre("camel", "Case", " HTMLParser"));
  EXPECT_THAT(scanned(KnownRegex::tekken, "!!/\n/a"), ElementsAre("!!/\n/", "a"));
}

Words split_by_x(SplitBehavior behavior, std::string_view text) {
  std::vector<Span> matches;
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == 'x') matches.push_back({i, i + 1, true});
  Words words;
  apply_split(behavior, text, fill_gaps(matches, text.size()),
              [&](std::string_view word) { words.push_back(word); });
  return words;
}

TEST(Split, behaviors_keep_matches_where_their_name_says) {
  EXPECT_THAT(split_by_x(SplitBehavior::isolated, "axxb"), ElementsAre("a", "x", "x", "b"));
  EXPECT_THAT(split_by_x(SplitBehavior::removed, "axxb"), ElementsAre("a", "b"));
  EXPECT_THAT(split_by_x(SplitBehavior::contiguous, "axxb"), ElementsAre("a", "xx", "b"));
  EXPECT_THAT(split_by_x(SplitBehavior::merged_with_previous, "axxb"), ElementsAre("ax", "x", "b"));
  EXPECT_THAT(split_by_x(SplitBehavior::merged_with_next, "axxb"), ElementsAre("a", "x", "xb"));
  EXPECT_THROW(parse_split_behavior(JsonPart(Json("Sideways"), "t.json")), UsageError);
}

Words matches_of(std::string_view expression, std::string_view text) {
  Words words;
  Regex(expression, "t.json").for_each_match(text, [&](size_t begin, size_t end) {
    words.push_back(text.substr(begin, end - begin));
  });
  return words;
}

TEST(Regex, white_space_is_that_of_the_reference) {
  EXPECT_THAT(matches_of(R"(\s)", "a\u0085b\u180Ec\u001Cd\u3000"), ElementsAre("\u0085", "\u3000"));
  EXPECT_THAT(matches_of(R"([^\S\n]+)", " \n\t"), ElementsAre(" ", "\t"));
}

TEST(Regex, letters_younger_than_the_library_are_letters) {
  EXPECT_THAT(matches_of(R"(\p{L}+)", "1\U00031350b2"), ElementsAre("\U00031350b"));  // Unicode 15
  EXPECT_THAT(matches_of(R"([^\p{L}]+)", "1\U00010D4Ab2"), ElementsAre("1", "2"));    // Unicode 16
  EXPECT_THAT(matches_of(R"(\P{L}+)", "1\U00031350b2"), ElementsAre("1", "2"));
}

TEST(Regex, empty_matches_are_left_out) { EXPECT_THAT(matches_of("a*", "\u00E9aab"), ElementsAre("aa")); }

TEST(Regex, what_would_mean_something_else_is_refused_by_name) {
  for (const char* bad : {R"(\w+)", R"(\bx)", R"([a[bc]])", "[a-z&&b]", "(?m:a)", "a{1,2}+", "(", "\\"})
    EXPECT_THROW(Regex(bad, "t.json"), UsageError) << bad;
}

}  // namespace
}  // namespace plimsoll
