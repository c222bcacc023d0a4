#include "ops/loss/sequence_loss.h"

#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

// Rows of each loss beyond the live ones hold what may not count.
std::string pairs(const std::string& centering, bool gradient) {
  return "tensor scores %[8,1] input\n"
         "tensor margins f32[8,1] input\n"
         "tensor sums f64[7] metric\n" +
         std::string(gradient ? "sums, d_scores %[8,1] = pair_loss_grad" : "sums = pair_loss") +
         "(scores, margins, step) {centering=" + centering + "} @score " +
         (gradient ? "backward" : "forward") + "\n";
}

std::string classes(int width, ClassProblem problem, bool gradient) {
  const std::string c = std::to_string(width);
  const bool one = problem == ClassProblem::one_of;
  return "tensor scores %[5," + c + "] input\n" + "tensor targets f32[5," + (one ? "1" : c) + "] input\n" +
         "tensor sums f64[3] metric\n" +
         (gradient ? "sums, d_scores %[5," + c + "] = class_loss_grad" : std::string("sums = class_loss")) +
         "(scores, targets, step) {problem=" + std::to_string(static_cast<int>(problem)) + "} @score " +
         (gradient ? "backward" : "forward") + "\n";
}

const Values kMargins = {0.5, 0, -0.25, 0, 0, 0, 9, 9};
const std::map<StepValue, double> kLive = {{StepValue::live_tokens, 6}};
const std::map<StepValue, double> kLater = {{StepValue::live_tokens, 6}, {StepValue::first_micro_step, 0}};
const std::map<StepValue, double> kFour = {{StepValue::live_tokens, 4}};
const std::map<StepValue, double> kFourLater = {{StepValue::live_tokens, 4},
                                                {StepValue::first_micro_step, 0}};
const Values kClasses = {2, 0, 1, 2, 0};
const Values kSets = {1, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0};

[[maybe_unused]] const bool kSequenceLossCases = register_cases({
    {.name = "pair_loss_overwrites",
     .body = pairs("0.0", false),
     .given = {{"margins", kMargins}},
     .step = kLive},
    {.name = "pair_loss_adds", .body = pairs("0.0", false), .given = {{"margins", kMargins}}, .step = kLater},
    {.name = "pair_loss_centred",
     .body = pairs("0.01", false),
     .given = {{"margins", kMargins}},
     .step = kLive},
    {.name = "pair_loss_grad", .body = pairs("0.0", true), .given = {{"margins", kMargins}}, .step = kLive},
    {.name = "pair_loss_grad_adds",
     .body = pairs("0.0", true),
     .given = {{"margins", kMargins}},
     .step = kLater},
    {.name = "pair_loss_grad_centred",
     .body = pairs("0.01", true),
     .given = {{"margins", kMargins}},
     .step = kLive},
    {.name = "class_loss_one_of",
     .body = classes(3, ClassProblem::one_of, false),
     .given = {{"targets", kClasses}},
     .step = kFour},
    {.name = "class_loss_any_of",
     .body = classes(3, ClassProblem::any_of, false),
     .given = {{"targets", kSets}},
     .step = kFourLater},
    {.name = "class_loss_numbers", .body = classes(1, ClassProblem::numbers, false), .step = kFour},
    {.name = "class_loss_grad_one_of",
     .body = classes(3, ClassProblem::one_of, true),
     .given = {{"targets", kClasses}},
     .step = kFourLater},
    {.name = "class_loss_grad_any_of",
     .body = classes(3, ClassProblem::any_of, true),
     .given = {{"targets", kSets}},
     .step = kFour},
    {.name = "class_loss_grad_numbers", .body = classes(3, ClassProblem::numbers, true), .step = kFour},
});

}  // namespace
}  // namespace plimsoll::harness
