#include "tasks/task.h"

#include <algorithm>

#include "ops/rule.h"
#include "ops/step_values.h"
#include "tasks/rules.h"

namespace plimsoll {

const TaskRule& rule_of(Task task) {
  static constexpr std::array kRules = {
#define TASK(name, meaning) &name##_task,
#include "tasks/tasks.def"
#undef TASK
  };
  return *kRules.at(static_cast<size_t>(task));
}

std::string_view to_string(Task task) {
  static constexpr std::array kNames = {
#define TASK(name, meaning) std::string_view(#name),
#include "tasks/tasks.def"
#undef TASK
  };
  return kNames.at(static_cast<size_t>(task));
}

int64_t classes_of(const TaskSpec& task) {
  const TaskRule& rule = rule_of(task.task);
  return rule.classes == nullptr ? 0 : rule.classes(task);
}

int64_t targets_of(const TaskSpec& task) {
  const TaskRule& rule = rule_of(task.task);
  return rule.targets == nullptr ? 0 : rule.targets(task);
}

Metrics metrics_of(const TaskSpec& task, std::span<const double> sums) {
  const TaskRule& rule = rule_of(task.task);
  return rule.metrics.of == nullptr || sums[1] <= 0 ? Metrics{} : rule.metrics.of(task, sums);
}

std::vector<std::string> goals_of(const TaskSpec& task) {
  std::vector<std::string> goals = {std::string(kLossGoal)};
  const TaskRule& rule = rule_of(task.task);
  if (rule.goals == nullptr) return goals;
  const std::vector<std::string> own = rule.goals(task);
  goals.insert(goals.end(), own.begin(), own.end());
  return goals;
}

bool is_goal(const TaskSpec& task, std::string_view name) {
  const std::vector<std::string> goals = goals_of(task);
  return std::find(goals.begin(), goals.end(), name) != goals.end();
}

std::vector<std::string> all_goals() {
  std::vector<std::string> all;
  for (const Task task : {
#define TASK(name, meaning) Task::name,
#include "tasks/tasks.def"
#undef TASK
       })
    for (const ClassProblem problem : {ClassProblem::one_of, ClassProblem::any_of, ClassProblem::numbers})
      for (const std::string& goal : goals_of({.task = task, .problem = problem}))
        if (std::find(all.begin(), all.end(), goal) == all.end()) all.push_back(goal);
  return all;
}

double cost_of(std::string_view goal, double value) { return goal == kLossGoal ? value : -value; }

Graph with_sequence_loss(const LossRequest& request, OpKind loss, int64_t targets, int64_t sums,
                         Attrs attrs) {
  ScoredGraph scored = build_scores(request.model, request.shape, request.dtype, request.task.outputs,
                                    request.mode, request.scores_name);
  Graph& graph = scored.graph;
  const AxisId axis = sequence_axis(request.model);
  const TensorId given = graph.add_tensor(
      {graph.axis_input(axis, "targets"), {request.shape.sequences, targets}, DType::f32, Role::input});
  const TensorId sum = graph.add_tensor({request.loss_name, {sums}, DType::f64, Role::metric});
  Op op;
  op.kind = loss;
  op.inputs = {scored.scores, given, graph.find(kStepTensor)};
  op.outputs = {sum};
  op.attrs = std::move(attrs);
  op.scope = "score";
  op.axis = axis;
  emit(graph, std::move(op), "");
  return std::move(scored.graph);
}

}  // namespace plimsoll
