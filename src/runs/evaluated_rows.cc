#include "runs/evaluated_rows.h"

namespace plimsoll {

EvaluatedRows::EvaluatedRows(const TaskSpec& task) : task_(task) {
  if (const RowMetricsRule* rule = rule_of(task.task).row_metrics) rows_ = rule->make(task);
}

int64_t EvaluatedRows::planned_bytes(const TaskSpec& task, int64_t rows) {
  const RowMetricsRule* rule = rule_of(task.task).row_metrics;
  return rule == nullptr ? 0 : rule->planned_bytes(task, rows);
}

void EvaluatedRows::add(std::span<const float> scores, const MicroBatch& micro) {
  const auto outputs = static_cast<size_t>(task_.outputs);
  const auto targets = static_cast<size_t>(targets_of(task_));
  for (size_t s = 0; s < static_cast<size_t>(micro.live_sequences); ++s)
    rows_->add(scores.subspan(s * outputs, outputs), std::span(micro.targets).subspan(s * targets, targets));
}

Metrics EvaluatedRows::of(std::span<const double> sums) const {
  Metrics result = metrics_of(task_, sums);
  if (rows_ == nullptr) return result;
  const Metrics of_all_rows = rows_->metrics();
  for (const Metric& metric : of_all_rows) result.add(metric);
  return result;
}

}  // namespace plimsoll
