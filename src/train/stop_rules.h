// Decides whether a run continues or stops: its loss is lost, its evaluations are no better, or rows of a new
// kind came.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "recipe/run_values.h"
#include "runs/metrics.h"
#include "runs/seen_targets.h"
#include "runs/trainer_state.h"
#include "tasks/rows.h"
#include "train/loss_guard.h"

namespace plimsoll {

class StopRules {
 public:
  // `goal`: what the best evaluation is found by. `seen`: where the order may meet a kind of rows late.
  StopRules(const StopLimits& stop, std::string goal, Shuffle shuffle, std::optional<SeenTargets> seen);

  // Lines of the logs that a run continues.
  void read_step(const nlohmann::json& line);
  void read_evaluation(const nlohmann::json& line);

  // The reason why the run stops after a step; both are empty where it continues.
  struct Verdict {
    std::string lost;    // with its loss, so that nothing is saved
    std::string unseen;  // the model is as good as before, and its state is saved
  };
  Verdict weigh(const StepMetrics& metrics, const EffectiveBatch& batch);
  void add_evaluation(const TrainerState& evaluated);

  [[nodiscard]] bool out_of_patience() const { return patience_.out_of_patience(); }
  [[nodiscard]] std::string patience_words() const;
  // The loss is above what it may be: no older checkpoint goes, which may be the last good one.
  [[nodiscard]] bool rising() const { return guard_.rising(); }
  [[nodiscard]] const std::string& goal() const { return goal_; }

 private:
  [[nodiscard]] std::string unseen_words(int64_t step, const std::string& above,
                                         const std::string& unseen) const;

  StopLimits stop_;
  std::string goal_;
  Shuffle shuffle_;
  LossGuard guard_;
  PatienceGuard patience_;
  std::optional<SeenTargets> seen_;
};

}  // namespace plimsoll
