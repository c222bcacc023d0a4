// Reads recipes, and the files that recipes of other tools name, as trees.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "recipe/document/document.h"
#include "recipe/document/problems.h"
#include "recipe/shell/training.h"

namespace plimsoll {

// The text of standard input, read once, up to one byte more than a document may have. Throws UsageError.
const std::string& standard_input();
// JSON where the name ends in .json, YAML otherwise; of standard input (kStandardInput) what it is. Throws UsageError that names file and line.
Node read_tree(const std::string& file);
// The same, or the training that a shell script starts.
struct RecipeText {
  Node root;
  std::optional<ShellTraining> training;
};
// `train.sh:12`: of a script that starts several trainings the one that begins in line 12.
struct NamedTraining {
  std::string file;
  std::optional<int> line;
};
NamedTraining named_training(const std::string& file);
RecipeText read_recipe_text(const NamedTraining& named);
// YAML; `source` names it in errors.
Node read_yaml_of(std::string_view text, const Source& source);

}  // namespace plimsoll
