// Distinguishes divergence from a loss that rises because rows of a kind came that the run had not trained on
// yet, for runs whose order visits sorted rows in parts (data.shuffle: window or false).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "data/batch/effective_batch.h"
#include "tasks/task.h"

namespace plimsoll {

class SeenTargets {
 public:
  // The targets that a model of `vocab` tokens is trained on by such a task: tokens, or classes.
  SeenTargets(const TaskSpec& task, int64_t vocab);

  void add(const EffectiveBatch& batch, double loss);
  // An explanation where the first of the latest steps above `limit` begins rows whose targets were new; else
  // "". Steps from before this process are not known.
  [[nodiscard]] std::string unseen(double limit) const;

  static int64_t planned_bytes(const TaskSpec& task, int64_t vocab);

 private:
  static constexpr int64_t kBefore = 20;              // steps that a rise is compared with
  static constexpr int64_t kSteps = 2 * kBefore + 1;  // that are remembered
  struct Step {
    double loss = 0;
    int64_t targets = 0;
    // Targets that were first seen so many steps before; older ones are in `targets` alone.
    std::array<int64_t, kSteps> by_age{};
  };

  void take(int64_t target, Step& step);
  [[nodiscard]] const Step& at(int64_t step) const { return steps_[static_cast<size_t>(step % kSteps)]; }
  // The share of the targets of steps [first, end) that no step before `first` had.
  [[nodiscard]] double share_new(int64_t first, int64_t end) const;

  TaskSpec task_;
  std::vector<int32_t> first_step_;  // of each target; -1: never
  std::array<Step, kSteps> steps_{};
  int64_t count_ = 0;
};

}  // namespace plimsoll
