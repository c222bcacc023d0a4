#include "train/run_tally.h"

namespace plimsoll {

RunTally::RunTally(int64_t steps, const TaskSpec& task, std::vector<std::string> classes)
    : seen(task, std::move(classes)) {
  times.reserve(steps);
}

void RunTally::add(const EffectiveBatch& batch, const OptimizerStep::Result& done) {
  work.micro_steps += done.micro_steps;
  work.tokens += batch.tokens();
  work.passed += done.tokens;
}

std::string RunTally::crowding(int threads) {
  constexpr double kSeconds = 20;
  if (crowding_told || seconds_since(start) < kSeconds) return "";
  crowding_told = true;
  return crowded_note(lost.share(), threads);
}

}  // namespace plimsoll
