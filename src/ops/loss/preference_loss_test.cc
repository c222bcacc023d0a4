#include "ops/loss/preference_loss.h"

#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

// Four pairs, of which three are live. Rows beyond the live ones hold what may not count.
const Values kLogps = {-9.5, -3, -7.25, -2,   -4.5, -6, -12, -1.5,  //
                       -2.5, 0,  -3.5,  -0.5, 99,   99, 99,  99};
const Values kTokens = {4, 3, 3, 2, 2, 5, 6, 1, 1, 0, 2, 1, 9, 9, 9, 9};
const Values kReference = {-8, -3, -8.5, -2, -5.5, -6, -10, -1.5, -2.75, 0, -3, -0.5, 77, 77, 77, 77};
const Values kGiven = {-8, -8.5, -5.5, -10, -2.75, -3, 77, 77};
const std::map<StepValue, double> kLive = {{StepValue::live_tokens, 6}};
const std::map<StepValue, double> kLater = {{StepValue::live_tokens, 6}, {StepValue::first_micro_step, 0}};

struct Setting {
  PreferenceLoss loss = PreferenceLoss::sigmoid;
  const char* beta = "0.5";
  const char* smoothing = "0.0";
  const char* nll = "0.0";
  int64_t reference = kNumReference;
  static constexpr int64_t kNumReference = 2;
};

OpCase of(const char* name, const Setting& s, bool gradient,
          const std::map<StepValue, double>& step = kLive) {
  const bool given = s.reference == 1;
  const std::string reference = s.reference == 0 ? "-" : "reference";
  const std::string attrs = ", step) {beta=" + std::string(s.beta) + ", label_smoothing=" + s.smoothing +
                            ", loss=" + std::to_string(static_cast<int>(s.loss)) + ", nll=" + s.nll + "} @h ";
  OpCase result{
      .name = name,
      .body = "tensor logps f32[8,2] input\ntensor tokens f32[8,2] input\n" +
              (s.reference == 0 ? std::string()
                                : "tensor reference f32[8," + std::to_string(s.reference) + "] input\n") +
              "tensor sums f64[10] metric\n" +
              (gradient ? "sums, d_logps f32[8,2] = preference_loss_grad" : "sums = preference_loss") +
              "(logps, tokens, " + reference + attrs + (gradient ? "backward\n" : "forward\n"),
      .given = {{"logps", kLogps}, {"tokens", kTokens}},
      .step = step,
      .dtypes = {DType::f32}};
  if (s.reference > 0) result.given["reference"] = given ? kGiven : kReference;
  return result;
}

constexpr Setting kSigmoid = {};
constexpr Setting kSmoothed = {.beta = "0.1", .smoothing = "0.2", .nll = "0.3"};
constexpr Setting kNormed = {.loss = PreferenceLoss::sigmoid_norm, .beta = "2.0", .reference = 1};
constexpr Setting kIpo = {.loss = PreferenceLoss::ipo};
constexpr Setting kOrpo = {.loss = PreferenceLoss::orpo, .beta = "0.1", .nll = "1.0", .reference = 0};

[[maybe_unused]] const bool kPreferenceLossCases = register_cases({
    of("preference_loss_sigmoid", kSigmoid, false),
    of("preference_loss_adds", kSigmoid, false, kLater),
    of("preference_loss_smoothed", kSmoothed, false),
    of("preference_loss_sigmoid_norm", kNormed, false),
    of("preference_loss_ipo", kIpo, false),
    of("preference_loss_orpo", kOrpo, false),
    of("preference_loss_grad_sigmoid", kSigmoid, true),
    of("preference_loss_grad_smoothed", kSmoothed, true, kLater),
    of("preference_loss_grad_sigmoid_norm", kNormed, true),
    of("preference_loss_grad_ipo", kIpo, true),
    of("preference_loss_grad_orpo", kOrpo, true),
});

}  // namespace
}  // namespace plimsoll::harness
