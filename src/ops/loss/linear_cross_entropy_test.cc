#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

// Seven targets: two chunks of three and one of one.
const Values kLabels = {4, -100, 0, 18, 7, -100, -100, 7, 2, 11};
const Values kNone(10, -100);

const char* const kForward =
    "tensor x %[10,16] input\n"
    "tensor w %[19,16] trainable\n"
    "tensor labels i32[10] input\n"
    "tensor loss f64[2] metric\n"
    "loss = linear_cross_entropy(x, w, labels, step) {chunk=3} @h forward\n";
const char* const kInputs =
    "tensor x %[10,16] input\n"
    "tensor w %[19,16] trainable\n"
    "tensor labels i32[10] input\n"
    "tensor loss f64[2] metric\n"
    "tensor g f32[19,16] gradient\n";

std::string with_gradients(int accumulate) {
  return std::string(kInputs) +
         "loss, d_x %[10,16], g = linear_cross_entropy_grad(x, w, labels, step) {accumulate=" +
         std::to_string(accumulate) + ", chunk=3} @h backward\n";
}

// More rows, tokens and values than the tiles that kernels for GPUs take at a time.
OpCase of_several_tiles() {
  constexpr int64_t kRows = 80, kVocab = 140, kHidden = 72;
  Values labels(kRows), weight(kVocab * kHidden);
  for (size_t i = 0; i < labels.size(); ++i)
    labels[i] = i % 9 == 4 ? -100 : static_cast<double>(i * 37 % kVocab);
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<double>(i * 101 % 97) / 97 - 0.5;
  return {.name = "cross_entropy_grad_of_several_tiles",
          .body =
              "tensor x %[80,72] input\n"
              "tensor w %[140,72] trainable\n"
              "tensor labels i32[80] input\n"
              "tensor loss f64[2] metric\n"
              "tensor g %[140,72] gradient\n"
              "loss, d_x %[80,72], g = linear_cross_entropy_grad(x, w, labels, step) {accumulate=0, "
              "chunk=66} @h backward\n",
          .given = {{"labels", labels}, {"w", weight}},
          .slack = 8};
}

// With an adapter of rank 3.
const char* const kAdapter =
    "tensor t %[10,3] input\n"
    "tensor b %[19,3] trainable\n"
    "tensor g_b f32[19,3] gradient\n";

// With a number that is added to each token's logit.
const char* const kBiased =
    "tensor bias %[19] trainable\n"
    "tensor g_bias f32[19] gradient\n";

// bf16 logits of size 10 have errors of 0.02 to 0.04, which go into the probabilities.
constexpr double kSlack = 8;

// As rows that share prefixes have it: three labels ask row 2, where branches part, and several count for
// more than one row.
const char* const kShared = "tensor label_rows i32[10] input\ntensor label_weights f32[10] input\n";
const Values kLabelRows = {0, 0, 1, 2, 2, 5, 6, 2, 7, 8};
const Values kLabelWeights = {3, 0, 3, 1, 2, 0, 0, 1, 1, 1};

[[maybe_unused]] const bool kLinearCrossEntropyCases = register_cases({
    of_several_tiles(),
    {.name = "cross_entropy_of_shared_rows",
     .body = std::string("tensor x %[10,16] input\ntensor w %[19,16] trainable\ntensor labels i32[10] input\n"
                         "tensor loss f64[2] metric\n") +
             kShared +
             "loss = linear_cross_entropy(x, w, labels, step, -, -, label_rows, label_weights) {chunk=3} @h "
             "forward\n",
     .given = {{"labels", kLabels}, {"label_rows", kLabelRows}, {"label_weights", kLabelWeights}},
     .slack = kSlack},
    {.name = "cross_entropy_grad_of_shared_rows_and_an_adapted_head",
     .body = std::string("tensor x %[10,16] input\ntensor w %[19,16] trainable\ntensor labels i32[10] input\n"
                         "tensor loss f64[2] metric\n") +
             kAdapter + kShared +
             "loss, d_x %[10,16], -, d_t %[10,3], g_b = linear_cross_entropy_grad(x, w, labels, step, t, b, "
             "label_rows, label_weights) {accumulate=0, chunk=3, scale=2.0} @h backward\n",
     .given = {{"labels", kLabels}, {"label_rows", kLabelRows}, {"label_weights", kLabelWeights}},
     .slack = kSlack},
    {.name = "cross_entropy_of_scaled_logits_below_a_cap",
     .body =
         "tensor x %[10,16] input\n"
         "tensor w %[19,16] trainable\n"
         "tensor labels i32[10] input\n"
         "tensor loss f64[2] metric\n"
         "loss = linear_cross_entropy(x, w, labels, step) {chunk=3, factor=0.5, softcap=2.0} @h forward\n",
     .given = {{"labels", kLabels}},
     .slack = kSlack},
    {.name = "cross_entropy_grad_of_capped_logits_and_an_adapted_head",
     .body = std::string("tensor x %[10,16] input\ntensor w %[19,16] trainable\ntensor labels i32[10] input\n"
                         "tensor loss f64[2] metric\n") +
             kAdapter + kShared +
             "loss, d_x %[10,16], -, d_t %[10,3], g_b = linear_cross_entropy_grad(x, w, labels, step, t, b, "
             "label_rows, label_weights) {accumulate=0, chunk=3, scale=2.0, softcap=3.0} @h backward\n",
     .given = {{"labels", kLabels}, {"label_rows", kLabelRows}, {"label_weights", kLabelWeights}},
     .slack = kSlack},
    {.name = "cross_entropy_grad_of_scaled_logits",
     .body = std::string(kInputs) +
             "loss, d_x %[10,16], g = linear_cross_entropy_grad(x, w, labels, step) {accumulate=0, chunk=3, "
             "factor=0.125} @h backward\n",
     .given = {{"labels", kLabels}},
     .slack = kSlack},
    {.name = "cross_entropy_of_biased_logits",
     .body = "tensor x %[10,16] input\n"
             "tensor w %[19,16] trainable\n"
             "tensor bias %[19] trainable\n"
             "tensor labels i32[10] input\n"
             "tensor loss f64[2] metric\n"
             "loss = linear_cross_entropy(x, w, labels, step, -, -, -, -, bias) {chunk=3} @h forward\n",
     .given = {{"labels", kLabels}},
     .slack = kSlack},
    {.name = "cross_entropy_grad_of_biased_logits",
     .body =
         std::string(kInputs) + kBiased +
         "loss, d_x %[10,16], g, -, -, g_bias = linear_cross_entropy_grad(x, w, labels, step, -, -, -, -, bias) "
         "{accumulate=0, chunk=3} @h backward\n",
     .given = {{"labels", kLabels}},
     .slack = kSlack},
    {.name = "cross_entropy_grad_of_biased_logits_adds",
     .body = std::string(kInputs) + kBiased +
             "loss, -, -, -, -, g_bias = linear_cross_entropy_grad(x, w, labels, step, -, -, -, -, bias) "
             "{accumulate=0, chunk=64} @h backward\n",
     .given = {{"labels", kLabels}},
     .step = {{StepValue::first_micro_step, 0}},
     .slack = kSlack},
    {.name = "cross_entropy_grad_of_a_bias_alone_adds",
     .body =
         std::string(kInputs) + kBiased +
         "loss, d_x %[10,16], g, -, -, g_bias = linear_cross_entropy_grad(x, w, labels, step, -, -, -, -, bias) "
         "{accumulate=0, accumulate_bias=1, chunk=3} @h backward\n",
     .given = {{"labels", kLabels}},
     .slack = kSlack},
    {.name = "cross_entropy_grad_of_a_weight_alone_adds_without_targets",
     .body =
         std::string(kInputs) + kBiased +
         "loss, d_x %[10,16], g, -, -, g_bias = linear_cross_entropy_grad(x, w, labels, step, -, -, -, -, bias) "
         "{accumulate=1, accumulate_bias=0, chunk=3} @h backward\n",
     .given = {{"labels", kNone}}},
    {.name = "cross_entropy_grad_of_biased_logits_without_targets_clears",
     .body =
         std::string(kInputs) + kBiased +
         "loss, d_x %[10,16], g, -, -, g_bias = linear_cross_entropy_grad(x, w, labels, step, -, -, -, -, bias) "
         "{accumulate=0, chunk=3} @h backward\n",
     .given = {{"labels", kNone}}},
    {.name = "cross_entropy_grad_of_a_frozen_bias_and_an_adapted_head",
     .body =
         std::string(kInputs) + kAdapter + "tensor bias %[19] trainable\n" +
         "loss, d_x %[10,16], -, d_t %[10,3], g_b, - = linear_cross_entropy_grad(x, w, labels, step, t, b, -, -, "
         "bias) {accumulate=0, chunk=3, scale=2.0} @h backward\n",
     .given = {{"labels", kLabels}},
     .slack = kSlack},
    {.name = "cross_entropy_overwrites", .body = kForward, .given = {{"labels", kLabels}}, .slack = kSlack},
    {.name = "cross_entropy_adds",
     .body = kForward,
     .given = {{"labels", kLabels}},
     .step = {{StepValue::first_micro_step, 0}},
     .slack = kSlack},
    {.name = "cross_entropy_without_targets", .body = kForward, .given = {{"labels", kNone}}},
    {.name = "cross_entropy_grad_overwrites",
     .body = with_gradients(0),
     .given = {{"labels", kLabels}},
     .slack = kSlack},
    {.name = "cross_entropy_grad_adds_in_later_micro_steps",
     .body = with_gradients(0),
     .given = {{"labels", kLabels}},
     .step = {{StepValue::first_micro_step, 0}},
     .slack = kSlack},
    {.name = "cross_entropy_grad_adds_as_second_writer",
     .body = with_gradients(1),
     .given = {{"labels", kLabels}},
     .slack = kSlack},
    {.name = "cross_entropy_grad_without_targets_clears",
     .body = with_gradients(0),
     .given = {{"labels", kNone}}},
    {.name = "cross_entropy_grad_without_targets_keeps_what_is_there",
     .body = with_gradients(0),
     .given = {{"labels", kNone}},
     .step = {{StepValue::first_micro_step, 0}}},
    {.name = "cross_entropy_grad_of_a_frozen_head",
     .body = std::string(kInputs) +
             "loss, d_x %[10,16], - = linear_cross_entropy_grad(x, w, labels, step) {accumulate=0, chunk=64} "
             "@h backward\n",
     .given = {{"labels", kLabels}},
     .slack = kSlack},
    {.name = "cross_entropy_grad_of_the_weight_only",
     .body =
         std::string(kInputs) +
         "loss, -, g = linear_cross_entropy_grad(x, w, labels, step) {accumulate=0, chunk=3} @h backward\n",
     .given = {{"labels", kLabels}},
     .slack = kSlack},
    {.name = "cross_entropy_of_an_adapted_head",
     .body = "tensor x %[10,16] input\n"
             "tensor w %[19,16] trainable\n"
             "tensor labels i32[10] input\n"
             "tensor t %[10,3] input\n"
             "tensor b %[19,3] trainable\n"
             "tensor loss f64[2] metric\n"
             "loss = linear_cross_entropy(x, w, labels, step, t, b) {chunk=3, scale=2.0} @h forward\n",
     .given = {{"labels", kLabels}},
     .slack = kSlack},
    {.name = "cross_entropy_grad_of_an_adapted_head",
     .body = std::string(kInputs) + kAdapter +
             "loss, d_x %[10,16], -, d_t %[10,3], g_b = linear_cross_entropy_grad(x, w, labels, step, t, b) "
             "{accumulate=0, chunk=3, scale=2.0} @h backward\n",
     .given = {{"labels", kLabels}},
     .slack = kSlack},
    {.name = "cross_entropy_grad_of_an_adapted_head_without_targets_clears",
     .body = std::string(kInputs) + kAdapter +
             "loss, d_x %[10,16], -, d_t %[10,3], g_b = linear_cross_entropy_grad(x, w, labels, step, t, b) "
             "{accumulate=0, chunk=3, scale=2.0} @h backward\n",
     .given = {{"labels", kNone}}},
    {.name = "cross_entropy_grad_of_an_adapted_head_adds",
     .body = std::string(kInputs) + kAdapter +
             "loss, d_x %[10,16], -, -, g_b = linear_cross_entropy_grad(x, w, labels, step, t, b) "
             "{accumulate=0, chunk=64, scale=0.5} @h backward\n",
     .given = {{"labels", kLabels}},
     .step = {{StepValue::first_micro_step, 0}},
     .slack = kSlack},
});

}  // namespace
}  // namespace plimsoll::harness
