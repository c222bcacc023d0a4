#include "train/evaluator.h"

#include "base/format.h"
#include "base/units.h"
#include "runs/metrics.h"
#include "train/run_clock.h"

namespace plimsoll {

void Evaluator::run(const std::function<bool()>& interrupted, TrainerState& current, StopRules& stop,
                    RunLog& log, RunObserver& observer) {
  const auto start = RunClock::now();
  const auto result = evaluation_.run(interrupted);
  if (!result) return;
  current.eval_loss = last_loss_ = result->loss;
  for (const Metric& metric : result->metrics) current.eval_metrics.emplace_back(metric.name, metric.value);
  stop.add_evaluation(current);
  log.evaluation({current.step, result->loss, result->target_tokens, seconds_since(start), result->metrics});
  observer.event(formatted("eval    step {}  loss {}{}", format_count(current.step),
                           std::to_string(result->loss), metric_words(result->metrics)));
}

}  // namespace plimsoll
