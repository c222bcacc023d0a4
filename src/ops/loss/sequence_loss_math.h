// pair_loss and class_loss, for the CPU's elements and the GPU's.
#pragma once

#include "ops/binding.h"
#include "ops/loss/loss_math.h"
#include "ops/loss/sequence_loss.h"
#include "ops/step_values.h"

namespace plimsoll {

// LossOperands of either loss, for scores of type T.
template <class T>
struct LossOperands {
  using at = operand::class_loss_grad;  // pair_loss_grad has margins for targets; the losses alone have all
                                        // but the last

  explicit LossOperands(const Binding& b)
      : scores(b.input<T>(at::scores)),
        targets(b.input<float>(at::targets)),
        step(b.input<double>(at::step)),
        sums(b.output<double>(at::sums)),
        d_scores(b.output<T>(at::d_scores)),
        rows(b.input_tensor(at::scores).shape[0]),
        width(b.input_tensor(at::scores).shape[1]),
        axis(b.op().axis) {}

  [[nodiscard]] PLIMSOLL_BOTH int64_t live() const { return live_tokens(step, axis); }
  [[nodiscard]] PLIMSOLL_BOTH bool overwrites() const {
    return step_value(step, StepValue::first_micro_step) == 1.0;
  }
  [[nodiscard]] PLIMSOLL_BOTH double scale() const { return step_value(step, StepValue::loss_scale); }
  PLIMSOLL_BOTH void set_gradient(int64_t i, double value) const {
    if (d_scores != nullptr) set_rounded(d_scores[i], value * scale());
  }
  PLIMSOLL_BOTH void clear_beyond_live() const {
    for (int64_t i = live() * width; d_scores != nullptr && i < rows * width; ++i) d_scores[i] = T{};
  }

  const T* scores;
  const float* targets;
  const double* step;
  double* sums;
  T* d_scores;
  int64_t rows, width;
  AxisId axis;
};

PLIMSOLL_BOTH inline double& at(double* sums, PairSum which) { return sums[static_cast<size_t>(which)]; }

PLIMSOLL_BOTH inline double lesser(double a, double b) { return b < a ? b : a; }

template <class T>
PLIMSOLL_BOTH void run_pairs(const LossOperands<T>& o, double centering) {
  constexpr double kInfinity = __builtin_huge_val();
  double* const sums = o.sums;
  if (o.overwrites()) {
    for (int64_t i = 0; i < kNumPairSums; ++i) sums[i] = 0.0;
    at(sums, PairSum::least) = kInfinity;
    at(sums, PairSum::most) = -kInfinity;
  }
  for (int64_t i = 0; i + 1 < o.live(); i += 2) {
    const double chosen = as_f64(o.scores[i]), rejected = as_f64(o.scores[i + 1]);
    const double apart = chosen - rejected - as_f64(o.targets[i]);
    const double together = chosen + rejected;
    at(sums, PairSum::loss) += softplus(-apart) + centering * together * together;
    at(sums, PairSum::pairs) += 1;
    at(sums, PairSum::right) += chosen > rejected ? 1 : 0;
    at(sums, PairSum::chosen) += chosen;
    at(sums, PairSum::rejected) += rejected;
    at(sums, PairSum::least) = lesser(at(sums, PairSum::least), lesser(chosen, rejected));
    at(sums, PairSum::most) = -lesser(-at(sums, PairSum::most), lesser(-chosen, -rejected));
    const double pull = sigmoid(-apart), centre = 2.0 * centering * together;
    o.set_gradient(i, centre - pull);
    o.set_gradient(i + 1, centre + pull);
  }
  o.clear_beyond_live();
}

// The loss of one row; sets its gradient. Its class must be one.
template <class T>
PLIMSOLL_BOTH double one_of(const LossOperands<T>& o, int64_t row, double& right) {
  const T* const scores = o.scores + row * o.width;
  const auto wanted = static_cast<int64_t>(o.targets[row]);
  int64_t best = 0;
  for (int64_t c = 1; c < o.width; ++c)
    if (as_f64(scores[c]) > as_f64(scores[best])) best = c;
  if (best == wanted) right += 1;
  const double highest = as_f64(scores[best]);
  double sum = 0;
  for (int64_t c = 0; c < o.width; ++c) sum += std::exp(as_f64(scores[c]) - highest);
  for (int64_t c = 0; c < o.width; ++c)
    o.set_gradient(row * o.width + c,
                   std::exp(as_f64(scores[c]) - highest) / sum - (c == wanted ? 1.0 : 0.0));
  return std::log(sum) + highest - as_f64(scores[wanted]);
}

template <class T>
PLIMSOLL_BOTH double each(const LossOperands<T>& o, int64_t row, ClassProblem problem) {
  const auto width = static_cast<double>(o.width);
  double loss = 0;
  for (int64_t i = row * o.width; i < (row + 1) * o.width; ++i) {
    const double score = as_f64(o.scores[i]), target = as_f64(o.targets[i]);
    if (problem == ClassProblem::any_of) {
      loss += softplus(score) - target * score;
      o.set_gradient(i, (sigmoid(score) - target) / width);
    } else {
      loss += (score - target) * (score - target);
      o.set_gradient(i, 2.0 * (score - target) / width);
    }
  }
  return loss / width;
}

// Returns true if the classes of the rows exist.
template <class T>
PLIMSOLL_BOTH bool has_classes(const LossOperands<T>& o, ClassProblem problem) {
  bool all = true;
  for (int64_t row = 0; problem == ClassProblem::one_of && row < o.live(); ++row)
    all = all && o.targets[row] >= 0 && o.targets[row] < static_cast<float>(o.width);
  return all;
}

template <class T>
PLIMSOLL_BOTH void run_classes(const LossOperands<T>& o, ClassProblem problem) {
  for (int64_t i = 0; o.overwrites() && i < kNumClassSums; ++i) o.sums[i] = 0.0;
  double loss = 0, right = 0;
  for (int64_t row = 0; row < o.live(); ++row)
    loss += problem == ClassProblem::one_of ? one_of(o, row, right) : each(o, row, problem);
  o.sums[static_cast<size_t>(ClassSum::loss)] += loss;
  o.sums[static_cast<size_t>(ClassSum::rows)] += static_cast<double>(o.live());
  o.sums[static_cast<size_t>(ClassSum::right)] += right;
  o.clear_beyond_live();
}

}  // namespace plimsoll
