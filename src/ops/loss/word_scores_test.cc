#include "ops/loss/word_scores.h"

#include <gmock/gmock.h>

#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

// Five rows of which four are live; a head of 19 words, three of which are asked for, the last among them.
const char* const kInputs = "tensor x %[5,16] input\ntensor w %[19,16] trainable\n";
const std::map<StepValue, double> kFour = {{StepValue::live_tokens, 4}};
const std::map<StepValue, double> kFourLater = {{StepValue::live_tokens, 4},
                                                {StepValue::first_micro_step, 0}};

std::string backward(const std::string& outputs, const std::string& accumulate,
                     const std::string& type = "f32") {
  return std::string(kInputs) + "tensor d_scores %[5,3] input\ntensor g " + type + "[19,16] gradient\n" +
         outputs + " = word_scores_grad(x, w, d_scores, step) {accumulate=" + accumulate +
         ", words='7 0 18'} @h backward\n";
}

[[maybe_unused]] const bool kWordScoresCases = register_cases({
    {.name = "word_scores",
     .body = std::string(kInputs) + "y %[5,3] = word_scores(x, w, step) {words='7 0 18'} @h forward\n",
     .step = kFour},
    {.name = "word_scores_grad", .body = backward("d_x %[5,16], g", "0"), .step = kFour},
    {.name = "word_scores_grad_adds_in_later_micro_steps",
     .body = backward("d_x %[5,16], g", "0"),
     .step = kFourLater},
    {.name = "word_scores_grad_adds_as_second_writer",
     .body = backward("d_x %[5,16], g", "1", "%"),
     .step = kFour},
    {.name = "word_scores_grad_of_a_frozen_head", .body = backward("d_x %[5,16], -", "0"), .step = kFour},
});

TEST(WordScores, words_are_written_and_read_back) {
  Op op;
  op.attrs = {{"words", words_text(std::vector<int32_t>{3681, 0, 8178})}};
  EXPECT_THAT(words_of(op), testing::ElementsAre(3681, 0, 8178));
}

}  // namespace
}  // namespace plimsoll::harness
