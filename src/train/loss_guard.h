// Decides whether a run's loss is lost for good, over a window of steps, as single batches may be hard.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "recipe/run_values.h"

namespace plimsoll {

// `stop.loss: auto` stops where the mean loss of 20 steps is more than twice the lowest such mean, plus 1: a
// model that trains well does not get there, one that broke down does (from 2.0 beyond 5, when guessing
// blindly over a vocabulary of 32,000 costs 10.4). A number is a limit to the same mean. Allocates nothing.
class LossGuard {
 public:
  explicit LossGuard(const StopLoss& stop) : stop_(stop) {}

  // The loss of the next step; NaN, that of a step without targets, is passed over.
  void add(double loss);
  // Loss that the mean of a full window may not exceed; infinite without a limit.
  [[nodiscard]] double limit() const;
  [[nodiscard]] double mean() const;
  [[nodiscard]] bool diverged() const { return count_ >= kWindow && mean() > limit(); }
  // Some step of the window is above the limit: checkpoints of before may be the last good ones.
  [[nodiscard]] bool rising() const;

  static constexpr int64_t kWindow = 20;

 private:
  StopLoss stop_;
  std::array<double, kWindow> losses_{};
  int64_t count_ = 0;
  double lowest_mean_ = 0;  // 0: none yet
};

// stop.above and stop.patience: single losses above a limit, and evaluations that are no better. A resumed
// run is fed what was logged before. Allocates nothing.
class PatienceGuard {
 public:
  explicit PatienceGuard(const StopLimits& stop) : stop_(stop) {}

  void add_loss(double loss);
  void add_evaluation(double cost);  // cost_of the run's goal; NaN, where it is not defined, is no better
  [[nodiscard]] bool above() const { return stop_.above && above_ >= stop_.above_steps; }
  [[nodiscard]] bool out_of_patience() const { return stop_.patience > 0 && worse_ >= stop_.patience; }

 private:
  StopLimits stop_;
  int64_t above_ = 0;  // losses in a row
  int64_t worse_ = 0;  // evaluations in a row
  std::optional<double> lowest_;
};

}  // namespace plimsoll
