// Tests of what is made of answers: BLEU, and texts that end them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/strings.h"
#include "infer/bleu.h"
#include "tokenizer/stop_strings.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

struct Pair {
  const char* answer;
  const char* reference;
};
const std::vector<Pair> kPairs = {{"The cat sat on the mat.", "The cat sat on the mat."},
                                  {"It costs 1,234.50 dollars, i.e. 3-4 pounds & more",
                                   "It costs 1,234.50 dollars i.e. 3 - 4 pounds &amp; less."},
                                  {"El niño comió 2.5 kg; ¿no?", "El niño comió 2,5 kg, ¿no?"},
                                  {"line one\nline-\ntwo (x/y)", "line one linetwo ( x / y )"},
                                  {"日本語 の 文。  終わり", "日本語\u3000の\u00a0文。 終わり"},
                                  {"", "empty answer here"},
                                  {"a..b,,c 5-6-7 <skipped>ok", "a . . b , , c 5 - 6 - 7 ok"}};

BleuScore score_of(const std::vector<Pair>& pairs) {
  CorpusBleu bleu;
  for (const Pair& pair : pairs) bleu.add(pair.answer, pair.reference);
  return bleu.score();
}

// The numbers are those of sacrebleu 2.6.0: BLEU().corpus_score(answers, [references]).
TEST(Bleu, equals_sacrebleu) {
  const BleuScore score = score_of(kPairs);
  EXPECT_NEAR(score.score, 77.92368995742412, 1e-9);
  EXPECT_NEAR(score.precisions[0], 92.72727272727273, 1e-9);
  EXPECT_NEAR(score.precisions[1], 85.71428571428571, 1e-9);
  EXPECT_NEAR(score.precisions[2], 79.06976744186046, 1e-9);
  EXPECT_NEAR(score.precisions[3], 72.97297297297297, 1e-9);
  EXPECT_NEAR(score.brevity_penalty, 0.9469154662674888, 1e-12);
  EXPECT_EQ(score.answer_words, 55);
  EXPECT_EQ(score.reference_words, 58);
}

TEST(Bleu, smooths_orders_without_a_match_and_is_zero_without_four_words) {
  EXPECT_NEAR(score_of({{"one two three four six", "one two three five six"}}).score, 42.72870063962342,
              1e-9);
  EXPECT_EQ(score_of({{"nothing here matches x", "other words are there"}}).score, 0.0);
  EXPECT_EQ(score_of({{"the the the", "the cat"}}).score, 0.0);
  EXPECT_EQ(score_of({}).score, 0.0);
}

TEST(Bleu, words_are_those_of_mteval_13a) {
  EXPECT_EQ(join(bleu_words("It costs 1,234.50 dollars, i.e. 3-4 pounds &lt; more\n"), "|"),
            "It|costs|1,234.50|dollars|,|i|.|e|.|3|-|4|pounds|<|more");
  EXPECT_THAT(bleu_words(" \u2003\n"), ElementsAre());
}

// Everything that comes out for these pieces.
std::string streamed(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopStrings stream(stops);
  std::string text;
  for (const std::string& piece : pieces) text += stream.push(piece);
  return text + stream.finish();
}

TEST(StopStrings, a_stop_is_found_across_pieces_and_not_shown) {
  StopStrings stream({"\n\nUser:", "###"});
  EXPECT_EQ(stream.push("Lima.\n"), "Lima.");
  EXPECT_EQ(stream.push("\nUs"), "");
  EXPECT_FALSE(stream.found());
  EXPECT_EQ(stream.push("er: and"), "");
  EXPECT_TRUE(stream.found());
  EXPECT_EQ(stream.push("more"), "");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StopStrings, what_only_began_a_stop_is_shown_in_the_end) {
  EXPECT_EQ(streamed({"###"}, {"a#", "#b#", "#"}), "a##b##");
  EXPECT_EQ(streamed({"aab"}, {"a", "a", "a", "b", "c"}), "a");
  EXPECT_EQ(streamed({"", "x"}, {"abc"}), "abc");
}

TEST(StopStrings, the_first_one_counts_and_characters_stay_whole) {
  EXPECT_EQ(streamed({"end", "nd"}, {"the e", "nd"}), "the ");
  StopStrings stream({"é!"});
  EXPECT_EQ(stream.push("caf\u00e9"), "caf");
  EXPECT_EQ(stream.push("?"), "\u00e9?");
}

}  // namespace
}  // namespace plimsoll
