// Compares metrics with those of scikit-learn 1.9.1 and scipy 1.17.1 for the same rows.
#include "tasks/class_metrics.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <tuple>

namespace plimsoll {
namespace {

using Values = std::vector<float>;
constexpr size_t kRows = 60;

std::vector<int> draw(int modulus, uint32_t seed) {
  std::vector<int> out;
  for (size_t i = 0; i < kRows; ++i) {
    seed = seed * 1664525U + 1013904223U;
    out.push_back(static_cast<int>((seed >> 16U) % static_cast<uint32_t>(modulus)));
  }
  return out;
}

std::map<std::string, double> named(const ClassMetrics& of_classes) {
  std::map<std::string, double> result;
  const Metrics metrics = of_classes.metrics();
  for (const Metric& metric : metrics) result.emplace(metric.name, metric.value);
  return result;
}

TaskSpec classify(ClassProblem problem, int64_t outputs) {
  return {.task = Task::classify, .outputs = outputs, .problem = problem};
}

// Scores whose largest is that of the class.
Values scores_of(int label, int classes) {
  Values scores(static_cast<size_t>(classes), -1.0F);
  scores[static_cast<size_t>(label)] = 2.0F;
  return scores;
}

TEST(ClassMetrics, of_one_class_is_scikit_learns) {
  for (const auto& [classes, f1, matthews] : {std::tuple(2, 0.7142857142857143, 0.4659264410351009),
                                              std::tuple(4, 0.6146487920681469, 0.4933007732740341)}) {
    ClassMetrics of_classes(classify(ClassProblem::one_of, classes));
    const auto expected = draw(classes, 1), other = draw(classes, 2), kept = draw(97, 3);
    for (size_t i = 0; i < kRows; ++i)
      of_classes.add(scores_of(kept[i] % 3 != 0 ? expected[i] : other[i], classes),
                     Values{static_cast<float>(expected[i])});
    auto said = named(of_classes);
    EXPECT_NEAR(said["f1"], f1, 1e-12);
    EXPECT_NEAR(said["matthews_correlation"], matthews, 1e-12);
  }
}

TEST(ClassMetrics, of_any_of_several_classes_is_scikit_learns) {
  ClassMetrics of_classes(classify(ClassProblem::any_of, 3));
  const std::array expected = {draw(2, 1), draw(2, 2), draw(2, 3)},
                   said = {draw(2, 1), draw(2, 5), draw(2, 6)};
  for (size_t i = 0; i < kRows; ++i) {
    Values scores, targets;
    for (size_t c = 0; c < 3; ++c) {
      scores.push_back(said[c][i] == 1 ? 0.3F : -0.3F);
      targets.push_back(static_cast<float>(expected[c][i]));
    }
    of_classes.add(scores, targets);
  }
  auto metrics = named(of_classes);
  EXPECT_NEAR(metrics["accuracy"], 0.26666666666666666, 1e-12);
  EXPECT_NEAR(metrics["f1"], 0.6404494382022472, 1e-12);
}

TEST(ClassMetrics, of_numbers_is_scipys) {
  ClassMetrics of_classes(classify(ClassProblem::numbers, 1));
  const auto x = draw(9, 1), noise = draw(20, 7);
  for (size_t i = 0; i < kRows; ++i)
    of_classes.add(Values{static_cast<float>(x[i])}, Values{static_cast<float>(2 * x[i] + noise[i])});
  auto metrics = named(of_classes);
  EXPECT_NEAR(metrics["pearson"], 0.6939263320975306, 1e-12);
  EXPECT_NEAR(metrics["spearmanr"], 0.6639120351836056, 1e-12);
}

TEST(ClassMetrics, what_is_not_defined_is_left_out_or_zero) {
  ClassMetrics constant(classify(ClassProblem::numbers, 1));
  for (const float x : {1.0F, 2.0F, 3.0F}) constant.add(Values{x}, Values{5.0F});
  EXPECT_TRUE(named(constant).empty());
  ClassMetrics one(classify(ClassProblem::one_of, 2));
  for (int i = 0; i < 3; ++i) one.add(scores_of(0, 2), Values{0.0F});
  EXPECT_EQ(named(one)["f1"], 0.0);
  EXPECT_EQ(named(one)["matthews_correlation"], 0.0);
  EXPECT_TRUE(named(ClassMetrics(classify(ClassProblem::one_of, 2))).empty());
}

}  // namespace
}  // namespace plimsoll
