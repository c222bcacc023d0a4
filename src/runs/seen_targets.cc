#include "runs/seen_targets.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"

namespace plimsoll {
namespace {

int64_t kinds_of(const TaskSpec& task, int64_t vocab) {
  const int64_t classes = classes_of(task);
  return classes > 0 ? classes : vocab;
}

std::string percent(double share) { return std::to_string(std::lround(share * 100)) + " %"; }

}  // namespace

SeenTargets::SeenTargets(const TaskSpec& task, int64_t vocab)
    : task_(task), first_step_(static_cast<size_t>(kinds_of(task, vocab)), -1) {}

int64_t SeenTargets::planned_bytes(const TaskSpec& task, int64_t vocab) {
  return kinds_of(task, vocab) * int64_t{sizeof(int32_t)} + int64_t{sizeof(SeenTargets)};
}

void SeenTargets::take(int64_t target, Step& step) {
  if (target < 0 || target >= std::ssize(first_step_)) return;
  int32_t& first = first_step_[static_cast<size_t>(target)];
  if (first < 0) first = static_cast<int32_t>(count_);
  ++step.targets;
  if (const int64_t age = count_ - first; age < kSteps) ++step.by_age[static_cast<size_t>(age)];
}

void SeenTargets::add(const EffectiveBatch& batch, double loss) {
  if (batch.target_tokens() == 0) return;
  Step& step = steps_[static_cast<size_t>(count_ % kSteps)];
  step = {.loss = loss};
  for (int64_t row = 0; row < batch.sequences(); ++row) {
    const std::span<const float> classes = batch.targets(row);
    if (classes_of(task_) == 0) {
      for (const int32_t label : batch.labels(row)) take(label, step);
    } else if (task_.problem == ClassProblem::one_of) {
      if (!classes.empty()) take(static_cast<int64_t>(classes[0]), step);
    } else {
      for (size_t i = 0; i < classes.size(); ++i)
        if (classes[i] > 0.0F) take(static_cast<int64_t>(i), step);
    }
  }
  ++count_;
}

double SeenTargets::share_new(int64_t first, int64_t end) const {
  int64_t targets = 0, is_new = 0;
  for (int64_t step = first; step < end; ++step) {
    targets += at(step).targets;
    for (int64_t age = 0; age <= step - first; ++age) is_new += at(step).by_age[static_cast<size_t>(age)];
  }
  return targets == 0 ? 0 : static_cast<double>(is_new) / static_cast<double>(targets);
}

std::string SeenTargets::unseen(double limit) const {
  constexpr double kShare = 0.25, kTimes = 4;
  constexpr int64_t kFewest = 4;  // steps of before
  const int64_t oldest = std::max<int64_t>(0, count_ - kBefore);
  int64_t rise = oldest;
  while (rise < count_ && !(at(rise).loss > limit)) ++rise;
  // The later half of a run's first steps: at the start every target is new.
  const int64_t before = std::min(kBefore, rise / 2);
  if (rise == count_ || before < kFewest) return "";
  const double new_after = share_new(rise, count_), new_before = share_new(rise - before, rise);
  if (new_after < kShare || new_after < kTimes * new_before) return "";
  return formatted(
      "the loss rose from {} to {} within one step, {} steps ago, with rows of a kind that the run had "
      "not seen: {} of what they teach {} that no earlier step had ({} in the {} steps before)",
      std::to_string(at(rise - 1).loss), std::to_string(at(rise).loss), format_count(count_ - rise - 1),
      percent(new_after), classes_of(task_) > 0 ? "are classes" : "are target tokens", percent(new_before),
      format_count(before));
}

}  // namespace plimsoll
