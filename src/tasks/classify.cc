// One text, and its class, its classes or its numbers, by as many scores.
#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"
#include "graph/op_kind.h"
#include "tasks/class_metrics.h"
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

std::string answer_words(const TaskSpec& task, std::span<const float> values,
                         std::span<const std::string> names) {
  std::vector<std::string> words;
  const auto name = [&](size_t label) {
    return label < names.size() ? formatted("{} ({})", label, names[label]) : std::to_string(label);
  };
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    if (task.problem == ClassProblem::one_of)
      words.push_back(value >= 0 ? name(static_cast<size_t>(value)) : "none");
    else if (task.problem == ClassProblem::numbers)
      words.push_back(format_number("%.6g", value));
    else if (value > 0.5)
      words.push_back(name(i));
  }
  return words.empty() ? "none" : join(words, ", ");
}

// With those over all rows (tasks/class_metrics.h).
std::vector<std::string> goals(const TaskSpec& task) {
  if (task.problem == ClassProblem::one_of) return {"accuracy", "f1", "matthews_correlation"};
  if (task.problem == ClassProblem::any_of) return {"accuracy", "f1"};
  if (task.outputs == 1) return {"pearson", "spearmanr"};
  return {};
}

int64_t classes(const TaskSpec& task) { return task.problem == ClassProblem::numbers ? 0 : task.outputs; }

std::string_view problem_type(const TaskSpec& task) {
  return task.problem == ClassProblem::one_of   ? "single_label_classification"
         : task.problem == ClassProblem::any_of ? "multi_label_classification"
                                                : "regression";
}

constexpr RowMetricsRule kRowMetrics{.make = [](const TaskSpec& task) -> std::unique_ptr<RowMetrics> {
                                       return std::make_unique<ClassMetrics>(task);
                                     },
                                     .planned_bytes = ClassMetrics::planned_bytes};

}  // namespace

const TaskRule classify_task{.task = Task::classify,
                             .format = RowFormat::sentence_label,
                             .prompts = Prompts::whole,
                             .scores = true,
                             .classes = classes,
                             .answer_words = answer_words,
                             .unit = "rows",
                             .loss = loss,
                             .targets = targets,
                             .metrics = {metrics},
                             .row_metrics = &kRowMetrics,
                             .goals = goals,
                             .problem_type = problem_type,
                             .result = {"text-classification", "plimsoll classify prints its classes"}};

}  // namespace plimsoll
