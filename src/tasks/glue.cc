#include "tasks/glue.h"

#include <algorithm>

namespace plimsoll {

std::span<const GlueTask> glue_tasks() {
  static const std::vector<GlueTask> tasks = {
      {.name = "cola",
       .labels = {"unacceptable", "acceptable"},
       .header = {"source", "label", "mark", "sentence"}},
      {.name = "sst2", .labels = {"negative", "positive"}},
      {.name = "mrpc", .labels = {"not_equivalent", "equivalent"}, .label = "Quality"},
      {.name = "qqp", .labels = {"not_duplicate", "duplicate"}, .label = "is_duplicate"},
      {.name = "stsb", .labels = {}, .problem = ClassProblem::numbers, .label = "score"},
      {.name = "mnli", .labels = {"entailment", "neutral", "contradiction"}, .label = "gold_label"},
      {.name = "qnli", .labels = {"entailment", "not_entailment"}},
      {.name = "rte", .labels = {"entailment", "not_entailment"}},
      {.name = "wnli", .labels = {"not_entailment", "entailment"}},
  };
  return tasks;
}

const GlueTask* find_glue_task(std::string_view name) {
  const auto tasks = glue_tasks();
  const auto found = std::find_if(tasks.begin(), tasks.end(), [&](const auto& t) { return t.name == name; });
  return found == tasks.end() ? nullptr : &*found;
}

}  // namespace plimsoll
