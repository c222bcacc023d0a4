// preference_loss and its gradient, for CPU and GPU alike.
#pragma once

#include "ops/binding.h"
#include "ops/loss/linear_log_prob.h"
#include "ops/loss/loss_math.h"
#include "ops/loss/preference_loss.h"
#include "ops/step_values.h"

namespace plimsoll {

// A mean log-probability that rounds to 0 would have infinite odds.
inline constexpr double kSurest = -1e-9;

struct PreferenceAnswer {
  double logp = 0, reference = 0, tokens = 1;
  [[nodiscard]] PLIMSOLL_BOTH double apart() const { return logp - reference; }
  [[nodiscard]] PLIMSOLL_BOTH double mean() const {
    return logp / tokens < kSurest ? logp / tokens : kSurest;
  }
};

// A loss between two answers, and its slopes by their log-probabilities.
struct PreferenceSlopes {
  double loss = 0, d_chosen = 0, d_rejected = 0;
  double log_odds = 0;  // of orpo
};

class PreferenceCall {
  using at = operand::preference_loss_grad;  // the loss alone has all but the last

 public:
  explicit PreferenceCall(const Binding& b)
      : logps_(b.input<float>(at::logps)),
        tokens_(b.input<float>(at::tokens)),
        reference_(b.input<float>(at::reference)),
        reference_width_(reference_ == nullptr ? 0 : b.input_tensor(at::reference).shape[1]),
        step_(b.input<double>(at::step)),
        sums_(b.output<double>(at::sums)),
        d_logps_(b.output<float>(at::d_logps)),
        rows_(b.input_tensor(at::logps).shape[0]),
        axis_(b.op().axis),
        loss_(static_cast<PreferenceLoss>(b.op().attr_int("loss"))),
        beta_(b.op().attr_float("beta")),
        smoothing_(b.op().attr_float("label_smoothing")),
        nll_(b.op().attr_float("nll")) {}

  PLIMSOLL_BOTH void operator()() const {
    if (step_value(step_, StepValue::first_micro_step) == 1.0)
      for (int64_t i = 0; i < kNumPreferenceSums; ++i) sums_[i] = 0.0;
    for (int64_t i = 0; d_logps_ != nullptr && i < rows_ * kNumLogProbs; ++i) d_logps_[i] = 0.0F;
    const int64_t live = live_tokens(step_, axis_);
    for (int64_t i = 0; i + 1 < live; i += 2) run_pair(i);
  }

 private:
  [[nodiscard]] PLIMSOLL_BOTH static double at_least_one(double x) { return x > 1.0 ? x : 1.0; }
  [[nodiscard]] PLIMSOLL_BOTH double logps(int64_t row, LogProbOf of) const {
    return static_cast<double>(logps_[row * kNumLogProbs + static_cast<int64_t>(of)]);
  }
  [[nodiscard]] PLIMSOLL_BOTH double tokens(int64_t row, LogProbOf of) const {
    return static_cast<double>(tokens_[row * kNumLogProbs + static_cast<int64_t>(of)]);
  }
  [[nodiscard]] PLIMSOLL_BOTH PreferenceAnswer answer(int64_t row) const {
    return {logps(row, LogProbOf::answer),
            reference_ == nullptr ? 0.0 : static_cast<double>(reference_[row * reference_width_]),
            at_least_one(tokens(row, LogProbOf::answer))};
  }

  // The slopes by the sigmoid of how far the chosen answer is ahead.
  [[nodiscard]] PLIMSOLL_BOTH PreferenceSlopes by_sigmoid(double ahead) const {
    const double z = beta_ * ahead;
    const double slope = beta_ * (smoothing_ * sigmoid(z) - (1 - smoothing_) * sigmoid(-z));
    return {(1 - smoothing_) * softplus(-z) + smoothing_ * softplus(z), slope, -slope};
  }

  [[nodiscard]] PLIMSOLL_BOTH PreferenceSlopes between(const PreferenceAnswer& c,
                                                       const PreferenceAnswer& r) const {
    PreferenceSlopes result;
    switch (loss_) {
      case PreferenceLoss::sigmoid:
        return by_sigmoid(c.apart() - r.apart());
      case PreferenceLoss::sigmoid_norm:
        result = by_sigmoid(c.apart() / c.tokens - r.apart() / r.tokens);
        break;
      case PreferenceLoss::ipo: {
        const double off = c.apart() / c.tokens - r.apart() / r.tokens - 1 / (2 * beta_);
        result = {off * off, 2 * off, -2 * off};
        break;
      }
      case PreferenceLoss::orpo: {
        const double improbable_c = -std::expm1(c.mean()), improbable_r = -std::expm1(r.mean());
        const double log_odds = c.mean() - r.mean() - std::log(improbable_c) + std::log(improbable_r);
        const double slope = -beta_ * sigmoid(-log_odds);
        result = {beta_ * softplus(-log_odds), slope / improbable_c, -slope / improbable_r, log_odds};
        break;
      }
    }
    result.d_chosen /= c.tokens;
    result.d_rejected /= r.tokens;
    return result;
  }

  PLIMSOLL_BOTH void add(PreferenceSum which, double value) const {
    sums_[static_cast<size_t>(which)] += value;
  }
  PLIMSOLL_BOTH void set_slope(int64_t row, LogProbOf of, double slope) const {
    if (d_logps_ == nullptr) return;
    d_logps_[row * kNumLogProbs + static_cast<int64_t>(of)] =
        static_cast<float>(slope * step_value(step_, StepValue::loss_scale));
  }

  PLIMSOLL_BOTH void run_pair(int64_t row) const {
    const PreferenceAnswer c = answer(row), r = answer(row + 1);
    const PreferenceSlopes pair = between(c, r);
    const double learnt = at_least_one(tokens(row, LogProbOf::answer) + tokens(row, LogProbOf::prompt));
    const double nll = -(c.logp + logps(row, LogProbOf::prompt)) / learnt;
    const bool odds = loss_ == PreferenceLoss::orpo;
    const auto reward = [&](const PreferenceAnswer& a) {
      return beta_ * (odds ? a.logp / a.tokens : a.apart());
    };
    const auto logp = [&](const PreferenceAnswer& a) { return odds ? a.logp / a.tokens : a.logp; };
    add(PreferenceSum::loss, pair.loss + nll_ * nll);
    add(PreferenceSum::pairs, 1);
    add(PreferenceSum::right, reward(c) > reward(r) ? 1 : 0);
    add(PreferenceSum::chosen_rewards, reward(c));
    add(PreferenceSum::rejected_rewards, reward(r));
    add(PreferenceSum::chosen_logps, logp(c));
    add(PreferenceSum::rejected_logps, logp(r));
    add(PreferenceSum::nll, nll);
    add(PreferenceSum::log_odds_chosen, pair.log_odds);
    add(PreferenceSum::log_odds_ratio, odds ? -softplus(-pair.log_odds) : 0.0);
    set_slope(row, LogProbOf::answer, pair.d_chosen - nll_ / learnt);
    set_slope(row, LogProbOf::prompt, -nll_ / learnt);
    set_slope(row + 1, LogProbOf::answer, pair.d_rejected);
  }

  const float* logps_;
  const float* tokens_;
  const float* reference_;
  int64_t reference_width_;
  const double* step_;
  double* sums_;
  float* d_logps_;
  int64_t rows_;
  AxisId axis_;
  PreferenceLoss loss_;
  double beta_, smoothing_, nll_;
};

}  // namespace plimsoll
