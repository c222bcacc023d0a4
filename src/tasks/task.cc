#include "tasks/task.h"

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

int64_t targets_of(const TaskSpec& task) {
  const TaskRule& rule = rule_of(task.task);
  return rule.targets == nullptr ? 0 : rule.targets(task);
}

Metrics metrics_of(const TaskSpec& task, std::span<const double> sums) {
  const TaskRule& rule = rule_of(task.task);
  return rule.metrics == nullptr || sums[1] <= 0 ? Metrics{} : rule.metrics(task, sums);
}

Graph with_sequence_loss(const LossRequest& request, OpKind loss, int64_t targets, int64_t sums,
                         Attrs attrs) {
  ScoredGraph scored = build_scores(request.model, request.shape, request.dtype, request.task.outputs,
                                    request.mode, request.scores_name);
  Graph& graph = scored.graph;
  const TensorId given = graph.add_tensor({graph.axis_input(kSequenceAxis, "targets"),
                                           {request.shape.sequences, targets},
                                           DType::f32,
                                           Role::input});
  const TensorId sum = graph.add_tensor({request.loss_name, {sums}, DType::f64, Role::metric});
  Op op;
  op.kind = loss;
  op.inputs = {scored.scores, given, graph.find(kStepTensor)};
  op.outputs = {sum};
  op.attrs = std::move(attrs);
  op.scope = "score";
  op.axis = kSequenceAxis;
  emit(graph, std::move(op), "");
  return std::move(scored.graph);
}

}  // namespace plimsoll
