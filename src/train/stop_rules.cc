#include "train/stop_rules.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "tasks/task.h"

namespace plimsoll {

StopRules::StopRules(const StopLimits& stop, std::string goal, Shuffle shuffle,
                     std::optional<SeenTargets> seen)
    : stop_(stop),
      goal_(std::move(goal)),
      shuffle_(shuffle),
      guard_(stop.loss),
      patience_(stop),
      seen_(std::move(seen)) {}

void StopRules::read_step(const nlohmann::json& line) {
  if (!line["loss"].is_number()) return;
  guard_.add(line["loss"].get<double>());
  patience_.add_loss(line["loss"].get<double>());
}

void StopRules::read_evaluation(const nlohmann::json& line) {
  const auto value = line.find(goal_);
  const bool known = value != line.end() && value->is_number();
  patience_.add_evaluation(known ? cost_of(goal_, value->get<double>()) : std::nan(""));
}

void StopRules::add_evaluation(const TrainerState& evaluated) {
  patience_.add_evaluation(cost_of(goal_, evaluated.evaluated(goal_).value_or(std::nan(""))));
}

StopRules::Verdict StopRules::weigh(const StepMetrics& metrics, const EffectiveBatch& batch) {
  guard_.add(metrics.loss);
  patience_.add_loss(metrics.loss);
  if (seen_) seen_->add(batch, metrics.loss);
  // A step without targets changed nothing, whatever its numbers.
  if (batch.target_tokens() == 0) return {};
  // Gradients of f16 overflow where the loss is scaled too far: that is no lost loss.
  const bool finite = std::isfinite(metrics.loss) && (metrics.loss_scale || std::isfinite(metrics.grad_norm));
  if (finite && patience_.above())
    return {.lost = formatted("the loss is above {} in {} steps in a row (stop.above)",
                              std::to_string(*stop_.above), stop_.above_steps),
            .unseen = {}};
  if (finite && !guard_.diverged()) return {};
  if (!finite)
    return {.lost = formatted("the loss is {}, the gradient norm {}", std::to_string(std::fabs(metrics.loss)),
                              std::to_string(std::fabs(metrics.grad_norm))),  // not "-nan"
            .unseen = {}};
  const std::string above =
      formatted("the mean loss of {} steps is {}, above {} (stop.loss)", LossGuard::kWindow,
                std::to_string(guard_.mean()), std::to_string(guard_.limit()));
  const std::string unseen = seen_ ? seen_->unseen(guard_.limit()) : "";
  if (unseen.empty()) return {.lost = above, .unseen = {}};
  return {.lost = {}, .unseen = unseen_words(metrics.step, above, unseen)};
}

std::string StopRules::unseen_words(int64_t step, const std::string& above, const std::string& unseen) const {
  return formatted(
      "step {}: {}: {}. The rows are sorted, and data.shuffle: {} visits them in parts; the optimizer did not diverge\n  a new run with --set data.shuffle=full --overwrite mixes them; --resume --set stop.loss=1e9 continues in this order",
      step, above, unseen, shuffle_ == Shuffle::off ? "false" : "window");
}

std::string StopRules::patience_words() const {
  return formatted("{} evaluations without {} (stop.patience)", stop_.patience,
                   goal_ == kLossGoal ? "a lower loss" : "more " + goal_);
}

}  // namespace plimsoll
