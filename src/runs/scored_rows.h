// The evaluated rows of all ranks, in the order in which one process has them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ranks/group.h"
#include "runs/evaluated_rows.h"

namespace plimsoll {

class ScoredRows {
 public:
  ScoredRows(Group& group, const TaskSpec& task) : group_(group), task_(task), rows_(task) {}

  // Host bytes for that many rows at each of several ranks, in addition to EvaluatedRows'.
  static int64_t planned_bytes(const TaskSpec& task, int64_t rows, int64_t ranks);

  [[nodiscard]] bool needs_scores() const { return rows_.needs_scores(); }
  // The live rows of a micro-batch, with the scores [B, outputs] of all its rows; `before`: the rows of
  // earlier batches.
  void add(std::span<const float> scores, const MicroBatch& micro, int64_t before);
  // The metrics of all ranks, by the sums of all.
  [[nodiscard]] Metrics metrics(std::span<const double> sums);

 private:
  void gather();

  Group& group_;
  TaskSpec task_;
  EvaluatedRows rows_;
  // The rows of this rank, where there are several.
  std::vector<int64_t> numbers_;
  std::vector<float> values_;  // of each row its scores and its targets
};

}  // namespace plimsoll
