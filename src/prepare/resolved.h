// A recipe with what the files and the GPU that it names say of it: made once, so that what comes after takes
// what it needs of this and opens nothing again.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/spec.h"
#include "passes/adapter_rules.h"
#include "passes/quantise.h"
#include "prepare/model_paths.h"
#include "prepare/planned_card.h"
#include "recipe/model_files.h"
#include "recipe/recipe.h"
#include "tasks/task.h"

namespace plimsoll {

// Rows that do not exist yet, as the command line states them; tokens are those of a row on average.
struct StatedRows {
  int64_t rows = 0, tokens = 0;
};

struct Resolved {
  Recipe recipe;
  ModelPaths paths;
  std::shared_ptr<ModelFiles> files;
  ModelSpec model;  // with the head that the task asks of it
  TaskSpec task;
  std::vector<std::string> labels;  // names of the classes of task: classify; empty where nothing names them
  std::optional<PlannedCard> card;  // that memory.gpu names
  std::optional<StatedRows> stated = {};  // where the recipe names no rows

  // Null where the model has none. Read when it is first asked for: a plan without rows needs none.
  [[nodiscard]] std::shared_ptr<const Tokenizer> tokenizer() const { return files->tokenizer(paths.base); }
};

// Throws UsageError for a model that cannot be read, and for a task that it does not have.
Resolved resolve(Recipe recipe, std::shared_ptr<ModelFiles> files);
// A model that may be elsewhere than the recipe says: a copy, or the base of an adapter's folder.
Resolved resolve(Recipe recipe, const ModelPaths& paths, std::shared_ptr<ModelFiles> files);
// Another recipe of the same command, with the paths that it names: files that were read are not opened again.
Resolved resolve_as(const Resolved& resolved, Recipe recipe);

// The quantisation of the base model with qlora: as it is stored where it is stored so, else as the recipe gives
// it; method.unquantised counts in both cases. Throws UsageError where it is stored in other bits than the
// recipe says.
QuantiseOptions quantisation_of(const Resolved& resolved);

}  // namespace plimsoll
