// Metrics of how well a classifier's answers agree with the labels, those that are not a mean over rows and
// so need all rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tasks/task.h"

namespace plimsoll {

// As scikit-learn 1.9 and scipy 1.17 define them. One class of two: f1 of the second, of more: f1's mean over
// the classes that occur (macro), and matthews_correlation. Any of several: accuracy (all of a row right), f1
// over all of them (micro). One number: pearson, spearmanr. A metric that is not defined is left out.
class ClassMetrics : public RowMetrics {
 public:
  explicit ClassMetrics(const TaskSpec& task) : task_(task) {}

  static int64_t planned_bytes(const TaskSpec& task, int64_t rows);

  // Targets are the class; 0 or 1 for each class; or the numbers.
  void add(std::span<const float> scores, std::span<const float> targets) override;
  [[nodiscard]] Metrics metrics() const override;

 private:
  [[nodiscard]] Metrics of_classes() const;
  [[nodiscard]] Metrics of_sets() const;
  [[nodiscard]] Metrics of_numbers() const;

  TaskSpec task_;
  // A value for each row, or for each row and class.
  std::vector<float> said_, true_;
};

}  // namespace plimsoll
