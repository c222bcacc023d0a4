#include "tasks/class_metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace plimsoll {
namespace {

constexpr float kYes = 0.5F;

// Pairs of a predicted and a true class, as counts.
struct Counts {
  double right = 0, said = 0, expected = 0;
  [[nodiscard]] double f1() const { return said + expected > 0 ? 2 * right / (said + expected) : 0; }
};

std::vector<Counts> counts_by_class(std::span<const float> said, std::span<const float> expected,
                                    int64_t classes) {
  std::vector<Counts> counts(static_cast<size_t>(classes));
  for (size_t i = 0; i < said.size(); ++i) {
    counts[static_cast<size_t>(said[i])].said += 1;
    counts[static_cast<size_t>(expected[i])].expected += 1;
    if (said[i] == expected[i]) counts[static_cast<size_t>(said[i])].right += 1;
  }
  return counts;
}

double macro_f1(std::span<const Counts> counts) {
  double sum = 0, occurring = 0;
  for (const Counts& one : counts) {
    if (one.said + one.expected == 0) continue;
    sum += one.f1();
    occurring += 1;
  }
  return sum / occurring;
}

// Gorodkin's coefficient for any number of classes; 0 where all is one class.
double matthews(std::span<const Counts> counts, double rows) {
  double right = 0, both = 0, said = 0, expected = 0;
  for (const Counts& one : counts) {
    right += one.right;
    both += one.said * one.expected;
    said += one.said * one.said;
    expected += one.expected * one.expected;
  }
  const double scale = std::sqrt((rows * rows - said) * (rows * rows - expected));
  return scale > 0 ? (right * rows - both) / scale : 0;
}

// NaN where one of them is constant.
double correlation(std::span<const double> a, std::span<const double> b) {
  const auto count = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / count;
  const double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / count;
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return ab / std::sqrt(aa * bb);
}

// Equal values share the mean of their ranks.
std::vector<double> ranks(std::span<const float> values) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto value = [&](int64_t i) { return values[static_cast<size_t>(i)]; };
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return value(a) < value(b); });
  std::vector<double> result(values.size());
  for (size_t first = 0; first < order.size();) {
    size_t end = first + 1;
    while (end < order.size() && value(order[end]) == value(order[first])) ++end;
    for (size_t i = first; i < end; ++i)
      result[static_cast<size_t>(order[i])] = static_cast<double>(first + end - 1) / 2.0;
    first = end;
  }
  return result;
}

}  // namespace

int64_t ClassMetrics::planned_bytes(const TaskSpec& task, int64_t rows) {
  const int64_t values = task.problem == ClassProblem::one_of ? 1 : task.outputs;
  // Vectors that grow may be twice as large, and lie next to what they were; ranks, their order, or doubles.
  constexpr int64_t kGrowth = 3, kBeside = 48;
  return rows * (2 * kGrowth * values * static_cast<int64_t>(sizeof(float)) + kBeside);
}

void ClassMetrics::add(std::span<const float> scores, std::span<const float> targets) {
  if (task_.problem == ClassProblem::one_of) {
    said_.push_back(static_cast<float>(std::max_element(scores.begin(), scores.end()) - scores.begin()));
    true_.push_back(targets[0]);
    return;
  }
  for (size_t i = 0; i < scores.size(); ++i) {
    said_.push_back(task_.problem == ClassProblem::any_of ? (scores[i] > 0 ? 1.0F : 0.0F) : scores[i]);
    true_.push_back(targets[i]);
  }
}

Metrics ClassMetrics::metrics() const {
  if (said_.empty()) return {};
  switch (task_.problem) {
    case ClassProblem::one_of:
      return of_classes();
    case ClassProblem::any_of:
      return of_sets();
    case ClassProblem::numbers:
      return of_numbers();
  }
  throw InternalError("ClassMetrics: no such problem");
}

Metrics ClassMetrics::of_classes() const {
  const auto counts = counts_by_class(said_, true_, task_.outputs);
  Metrics result;
  result.add({"f1", task_.outputs == 2 ? counts[1].f1() : macro_f1(counts)});
  result.add({"matthews_correlation", matthews(counts, static_cast<double>(said_.size()))});
  return result;
}

Metrics ClassMetrics::of_sets() const {
  const auto width = static_cast<size_t>(task_.outputs);
  Counts all;
  double right = 0;
  for (size_t row = 0; row < said_.size(); row += width) {
    bool same = true;
    for (size_t i = row; i < row + width; ++i) {
      const bool said = said_[i] > kYes, expected = true_[i] > kYes;
      all.said += said ? 1 : 0;
      all.expected += expected ? 1 : 0;
      all.right += said && expected ? 1 : 0;
      same = same && said == expected;
    }
    right += same ? 1 : 0;
  }
  Metrics result;
  result.add({"accuracy", right / static_cast<double>(said_.size() / width)});
  result.add({"f1", all.f1()});
  return result;
}

Metrics ClassMetrics::of_numbers() const {
  Metrics result;
  if (task_.outputs != 1) return result;
  const std::vector<double> said(said_.begin(), said_.end()), expected(true_.begin(), true_.end());
  const double pearson = correlation(said, expected);
  if (!std::isfinite(pearson)) return result;
  result.add({"pearson", pearson});
  result.add({"spearmanr", correlation(ranks(said_), ranks(true_))});
  return result;
}

}  // namespace plimsoll
