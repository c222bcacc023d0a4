// The metrics of an evaluation: those of its sums, and those that need the scores of all rows.
#pragma once

#include <memory>
#include <span>

#include "data/batch/micro_batch.h"
#include "tasks/task.h"

namespace plimsoll {

class EvaluatedRows {
 public:
  explicit EvaluatedRows(const TaskSpec& task);

  // Host bytes for that many rows; 0 where the task needs no scores of all rows.
  static int64_t planned_bytes(const TaskSpec& task, int64_t rows);

  [[nodiscard]] bool needs_scores() const { return rows_ != nullptr; }
  // The live rows of a micro-batch, with the scores [B, outputs] of all its rows.
  void add(std::span<const float> scores, const MicroBatch& micro);
  // One row's scores [outputs] and targets.
  void add_row(std::span<const float> scores, std::span<const float> targets) { rows_->add(scores, targets); }
  [[nodiscard]] Metrics of(std::span<const double> sums) const;

 private:
  TaskSpec task_;
  std::unique_ptr<RowMetrics> rows_;
};

}  // namespace plimsoll
