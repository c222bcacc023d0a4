// Evaluates a run's model on its evaluation rows.
#pragma once

#include <functional>
#include <optional>

#include "runs/observer.h"
#include "runs/run_log.h"
#include "runs/trainer_state.h"
#include "train/run_programs.h"
#include "train/stop_rules.h"

namespace plimsoll {

class Evaluator {
 public:
  Evaluator(const RunPlace& place, DataSource source) : evaluation_(place, std::move(source)) {}

  [[nodiscard]] Loader& loader() { return evaluation_.loader(); }
  // Notes the evaluation in the state, its log and the rules. Nothing is noted where it was interrupted:
  // a resumed run makes up for it.
  void run(const std::function<bool()>& interrupted, TrainerState& current, StopRules& stop, RunLog& log,
           RunObserver& observer);
  // The loss of this process's last evaluation.
  [[nodiscard]] std::optional<double> last_loss() const { return last_loss_; }

 private:
  RunEvaluation evaluation_;
  std::optional<double> last_loss_;
};

}  // namespace plimsoll
