// The nine tasks of GLUE (gluebenchmark.com/tasks): their classes, and how the benchmark's own files are
// written. Class numbers are those of the data sets on the Hugging Face hub.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/loss/sequence_loss.h"

namespace plimsoll {

struct GlueTask {
  std::string_view name;
  std::vector<std::string> labels;  // of the classes, in the order of their numbers; none of numbers
  ClassProblem problem = ClassProblem::one_of;
  std::string label = "label";           // the column of its .tsv files; on the hub "label"
  std::vector<std::string> header = {};  // the columns of its .tsv files, where those do not name them
};

std::span<const GlueTask> glue_tasks();
// Nullptr for a name that is not one of theirs.
const GlueTask* find_glue_task(std::string_view name);

}  // namespace plimsoll
