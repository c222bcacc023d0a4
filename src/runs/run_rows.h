// Describes the rows of a run in words: what they are, and which of them it trained on in part or not at all.
#pragma once

#include <string>
#include <vector>

#include "data/batch/effective_batch.h"
#include "plan/search/plan.h"
#include "tasks/task.h"

namespace plimsoll {

// Lines for the start of a run: the data's statistics, how its rows become text.
std::vector<std::string> row_lines(const Plan& plan);

struct RowCounts {
  int64_t truncated = 0;
  int64_t without_targets = 0;
  int64_t damaged = 0;
};

class SkippedRows {
 public:
  // Returns a message about the batch's damaged rows, for the first few batches that have some; else "".
  std::string add(const EffectiveBatch& batch);
  [[nodiscard]] const RowCounts& counts() const { return counts_; }

 private:
  RowCounts counts_;
  int told_ = 0;
};

// The classes that had rows to be trained by.
class SeenClasses {
 public:
  // `names` of the classes, as far as they have any.
  SeenClasses(const TaskSpec& task, std::vector<std::string> names);
  void add(const EffectiveBatch& batch);
  // A message about classes that no row had; "" where each had some, or the task has no classes.
  [[nodiscard]] std::string missing() const;

 private:
  ClassProblem problem_;
  std::vector<std::string> names_;
  std::vector<char> seen_;  // by class; empty without classes
};

// "3 truncated, 1 damaged": what is not zero; "" where all is.
std::string words(const RowCounts& counts);

}  // namespace plimsoll
