#include "ops/sequence_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu_dispatch.h"
#include "ops/cpu_elements.h"

namespace plimsoll {
namespace {

// log(1 + exp(x)) without overflow.
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }
double sigmoid(double x) { return x >= 0 ? 1.0 / (1.0 + std::exp(-x)) : std::exp(x) / (1.0 + std::exp(x)); }

// LossOperands of either loss, for scores of type T.
template <class T>
struct LossOperands {
  explicit LossOperands(const CpuBinding& b)
      : scores(b.input<T>(0)),
        targets(b.input<float>(1)),
        step(b.input<double>(2)),
        sums(b.output<double>(0)),
        d_scores(b.output<T>(1)),
        rows(b.input_tensor(0).shape[0]),
        width(b.input_tensor(0).shape[1]),
        axis(b.op().axis) {}

  [[nodiscard]] int64_t live() const { return live_tokens(step, axis); }
  [[nodiscard]] bool overwrites() const { return step_value(step, StepValue::first_micro_step) == 1.0; }
  [[nodiscard]] double scale() const { return step_value(step, StepValue::loss_scale); }
  void set_gradient(int64_t i, double value) const {
    if (d_scores != nullptr) set_rounded(d_scores[i], value * scale());
  }
  void clear_beyond_live() const {
    if (d_scores != nullptr) std::fill(d_scores + live() * width, d_scores + rows * width, T{});
  }

  const T* scores;
  const float* targets;
  const double* step;
  double* sums;
  T* d_scores;
  int64_t rows, width;
  AxisId axis;
};

double& at(double* sums, PairSum which) { return sums[static_cast<size_t>(which)]; }

template <class T>
void run_pairs(const LossOperands<T>& o, double centering) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double* const sums = o.sums;
  if (o.overwrites()) {
    std::fill(sums, sums + kNumPairSums, 0.0);
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
    at(sums, PairSum::least) = std::min({at(sums, PairSum::least), chosen, rejected});
    at(sums, PairSum::most) = std::max({at(sums, PairSum::most), chosen, rejected});
    const double pull = sigmoid(-apart), centre = 2.0 * centering * together;
    o.set_gradient(i, centre - pull);
    o.set_gradient(i + 1, centre + pull);
  }
  o.clear_beyond_live();
}

// The loss of one row; sets its gradient.
template <class T>
double one_of(const LossOperands<T>& o, int64_t row, double& right) {
  const T* const scores = o.scores + row * o.width;
  const auto wanted = static_cast<int64_t>(o.targets[row]);
  check_internal(wanted >= 0 && wanted < o.width, "class_loss: a class is out of range");
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
double each(const LossOperands<T>& o, int64_t row, ClassProblem problem) {
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

template <class T>
void run_classes(const LossOperands<T>& o, ClassProblem problem) {
  if (o.overwrites()) std::fill(o.sums, o.sums + kNumClassSums, 0.0);
  double loss = 0, right = 0;
  for (int64_t row = 0; row < o.live(); ++row)
    loss += problem == ClassProblem::one_of ? one_of(o, row, right) : each(o, row, problem);
  o.sums[static_cast<size_t>(ClassSum::loss)] += loss;
  o.sums[static_cast<size_t>(ClassSum::rows)] += static_cast<double>(o.live());
  o.sums[static_cast<size_t>(ClassSum::right)] += right;
  o.clear_beyond_live();
}

BoundCall bind_pairs(const CpuBinding& b) {
  return with_element_type(b, b.input_tensor(0).dtype, [&](auto zero) -> BoundCall {
    const LossOperands<decltype(zero)> operands(b);
    return [=, centering = b.op().attr_float("centering")] { run_pairs(operands, centering); };
  });
}

BoundCall bind_classes(const CpuBinding& b) {
  return with_element_type(b, b.input_tensor(0).dtype, [&](auto zero) -> BoundCall {
    const LossOperands<decltype(zero)> operands(b);
    return [=, problem = static_cast<ClassProblem>(b.op().attr_int("problem"))] {
      run_classes(operands, problem);
    };
  });
}

}  // namespace

BoundCall bind_pair_loss(const CpuBinding& b) { return bind_pairs(b); }
BoundCall bind_pair_loss_grad(const CpuBinding& b) { return bind_pairs(b); }
BoundCall bind_class_loss(const CpuBinding& b) { return bind_classes(b); }
BoundCall bind_class_loss_grad(const CpuBinding& b) { return bind_classes(b); }

}  // namespace plimsoll
