#include "ops/loss/linear_log_prob.h"

#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

// Four sequences: an answer of two tokens behind a prompt that is trained too (-105 is token 4, -119 token
// 18), one of four without a prompt, one without a label, and one that is not live.
const Values kLabels = {-105, -119, 0, 7, 7, 2, 11, 18, -100, -100};
const Values kNone(10, -100);
const Values kStarts = {0, 4, 8, 10, 10};
// Slopes of the answers and prompts.
const Values kSlopes = {0.5, -0.25, -1, 0.75, 2, 3, 4, 5};

const char* const kInputs =
    "tensor x %[10,16] input\n"
    "tensor w %[19,16] trainable\n"
    "tensor labels i32[10] input\n"
    "tensor starts i32[5] input\n";
const char* const kForward =
    "logps f32[4,2], tokens f32[4,2] = linear_log_prob(x, w, labels, starts) {chunk=3} @h forward\n";

std::string backward(const std::string& outputs, const std::string& attributes) {
  return std::string(kInputs) + "tensor slopes f32[4,2] input\ntensor g f32[19,16] gradient\n" + outputs +
         " = linear_log_prob_grad(x, w, labels, starts, slopes, step) {accumulate=" + attributes +
         "} @h backward\n";
}

// As of linear_cross_entropy.
constexpr double kSlack = 8;

// As sequences that share prefixes have it: labels come in no order of sequences, and three ask row 3, where
// their answers part.
const char* const kShared = "tensor label_rows i32[10] input\ntensor label_sequences i32[10] input\n";
const Values kLabelRows = {0, 1, 2, 3, 3, 5, 6, 3, 8, 9};
const Values kLabelSequences = {1, 1, 0, 2, 0, 0, 3, 1, 0, 0};

[[maybe_unused]] const bool kLinearLogProbCases = register_cases({
    {.name = "log_prob_of_shared_rows",
     .body = std::string(kInputs) + kShared +
             "logps f32[4,2], tokens f32[4,2] = linear_log_prob(x, w, labels, starts, -, -, label_rows, "
             "label_sequences) {chunk=3, sequences=4} @h forward\n",
     .given = {{"labels", kLabels},
               {"starts", kStarts},
               {"label_rows", kLabelRows},
               {"label_sequences", kLabelSequences}},
     .slack = kSlack},
    {.name = "log_prob_grad_of_shared_rows",
     .body = std::string(kInputs) + kShared +
             "tensor slopes f32[4,2] input\ntensor g f32[19,16] gradient\n"
             "d_x %[10,16], g = linear_log_prob_grad(x, w, labels, starts, slopes, step, -, -, label_rows, "
             "label_sequences) {accumulate=0, chunk=3, sequences=4} @h backward\n",
     .given = {{"labels", kLabels},
               {"starts", kStarts},
               {"slopes", kSlopes},
               {"label_rows", kLabelRows},
               {"label_sequences", kLabelSequences}},
     .slack = kSlack},
    {.name = "log_prob_of_scaled_logits_below_a_cap",
     .body = std::string(kInputs) +
             "logps f32[4,2], tokens f32[4,2] = linear_log_prob(x, w, labels, starts) {chunk=3, factor=0.5, "
             "softcap=2.0} @h forward\n",
     .given = {{"labels", kLabels}, {"starts", kStarts}},
     .slack = kSlack},
    {.name = "log_prob_grad_of_scaled_logits_below_a_cap",
     .body = backward("d_x %[10,16], g", "0, chunk=3, factor=0.5, softcap=2.0"),
     .given = {{"labels", kLabels}, {"starts", kStarts}, {"slopes", kSlopes}},
     .slack = kSlack},
    {.name = "log_prob",
     .body = std::string(kInputs) + kForward,
     .given = {{"labels", kLabels}, {"starts", kStarts}},
     .slack = kSlack},
    {.name = "log_prob_without_labels",
     .body = std::string(kInputs) + kForward,
     .given = {{"labels", kNone}, {"starts", kStarts}}},
    {.name = "log_prob_of_an_adapted_head",
     .body = std::string(kInputs) +
             "tensor t %[10,3] input\ntensor b %[19,3] trainable\n"
             "logps f32[4,2], tokens f32[4,2] = linear_log_prob(x, w, labels, starts, t, b) {chunk=3, "
             "scale=2.0} @h forward\n",
     .given = {{"labels", kLabels}, {"starts", kStarts}},
     .slack = kSlack},
    {.name = "log_prob_grad_of_an_adapted_head",
     .body =
         std::string(kInputs) +
         "tensor slopes f32[4,2] input\ntensor t %[10,3] input\ntensor b %[19,3] trainable\n"
         "tensor g_b f32[19,3] gradient\n"
         "d_x %[10,16], -, d_t %[10,3], g_b = linear_log_prob_grad(x, w, labels, starts, slopes, step, t, "
         "b) {accumulate=0, chunk=3, scale=2.0} @h backward\n",
     .given = {{"labels", kLabels}, {"starts", kStarts}, {"slopes", kSlopes}},
     .slack = kSlack},
    {.name = "log_prob_grad",
     .body = backward("d_x %[10,16], g", "0, chunk=3"),
     .given = {{"labels", kLabels}, {"starts", kStarts}, {"slopes", kSlopes}},
     .slack = kSlack},
    {.name = "log_prob_grad_adds_in_later_micro_steps",
     .body = backward("d_x %[10,16], g", "0, chunk=3"),
     .given = {{"labels", kLabels}, {"starts", kStarts}, {"slopes", kSlopes}},
     .step = {{StepValue::first_micro_step, 0}},
     .slack = kSlack},
    {.name = "log_prob_grad_adds_as_second_writer",
     .body = backward("d_x %[10,16], g", "1, chunk=64"),
     .given = {{"labels", kLabels}, {"starts", kStarts}, {"slopes", kSlopes}},
     .slack = kSlack},
    {.name = "log_prob_grad_without_labels_clears",
     .body = backward("d_x %[10,16], g", "0, chunk=3"),
     .given = {{"labels", kNone}, {"starts", kStarts}, {"slopes", kSlopes}}},
    {.name = "log_prob_grad_of_a_frozen_head",
     .body = backward("d_x %[10,16], -", "0, chunk=64"),
     .given = {{"labels", kLabels}, {"starts", kStarts}, {"slopes", kSlopes}},
     .slack = kSlack},
});

}  // namespace
}  // namespace plimsoll::harness
