// One text, and its class, its classes or its numbers, by as many scores.
#include "graph/op_kind.h"
#include "tasks/rules.h"

namespace plimsoll {
namespace {

Graph loss(const LossRequest& r) {
  const bool one = r.task.problem == ClassProblem::one_of;
  return with_sequence_loss(r, OpKind::class_loss, one ? 1 : r.task.outputs, kNumClassSums,
                            {{"problem", static_cast<int64_t>(r.task.problem)}});
}

int64_t targets(const TaskSpec& task) { return task.problem == ClassProblem::one_of ? 1 : task.outputs; }

Metrics metrics(const TaskSpec& task, std::span<const double> sums) {
  Metrics result;
  if (task.problem == ClassProblem::one_of)
    result.add(
        {"accuracy", sums[static_cast<size_t>(ClassSum::right)] / sums[static_cast<size_t>(ClassSum::rows)]});
  return result;
}

// With those over all rows (runs/agreement.h).
std::vector<std::string> goals(const TaskSpec& task) {
  if (task.problem == ClassProblem::one_of) return {"accuracy", "f1", "matthews_correlation"};
  if (task.problem == ClassProblem::any_of) return {"accuracy", "f1"};
  if (task.outputs == 1) return {"pearson", "spearmanr"};
  return {};
}

}  // namespace

const TaskRule classify_task{.task = Task::classify,
                             .scores = true,
                             .unit = "rows",
                             .loss = loss,
                             .targets = targets,
                             .metrics = metrics,
                             .goals = goals};

}  // namespace plimsoll
