// Reads a Recipe from files and overrides. Later layers win: the file, then PLIMSOLL_SET, then --set. All
// errors are UsageErrors; one error names every problem found, one per line ("recipes/q.yaml:14: ...").
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe/document/document.h"
#include "recipe/model_files.h"
#include "recipe/recipe.h"
#include "recipe/translate/layer.h"

namespace plimsoll {

// Keeps what the recipes of one command are read from: recipes and the files of their models are opened once,
// whatever is asked of them.
struct RecipeSources {
  std::map<std::string, std::vector<std::pair<Node, Source>>> layers;  // by the recipe's file
  std::shared_ptr<ModelFiles> models = std::make_shared<ModelFiles>();
};
using SharedSources = std::shared_ptr<RecipeSources>;

struct Overrides {
  std::vector<std::string> sets;  // "method.r=8": the values of --set; the value is YAML
  std::string environment;        // PLIMSOLL_SET: such assignments with blanks between them
  // As `sets`, applied last. Earlier keys that have no meaning with them are left out: LoRA's rank where full
  // fine-tuning is planned.
  std::vector<std::string> what_if = {};
  std::string as_tool = {};  // --as: the tool and version that the file is written for
  // The file is one that a run saved, which states every key of its version: what it lacks is as it was then.
  bool of_run = false;
  SharedSources sources = {};  // of recipes that were read before; none: nothing was
};

struct LoadedRecipe {
  Recipe recipe;
  // "method.r = 8 (was 16)" for each key that holds another value because of PLIMSOLL_SET.
  std::vector<std::string> environment_changes;
  KeyReport other_tools;  // what became of other tools' keys
  // Names that are neither paths here nor in the Hugging Face cache, each with the command that fetches it.
  std::vector<std::string> missing;
  bool states_precision = false;  // some layer sets it, or a part of it
};

// Throws UsageError for names that are missing.
void require_present(const LoadedRecipe& loaded);

// Reads JSON where the name ends in .json, YAML otherwise. Paths in the file are relative to it, paths in
// overrides to the working directory.
LoadedRecipe load_recipe(const std::string& file, const Overrides& overrides = {});
// A recipe without a file; `model` must be among the overrides.
LoadedRecipe recipe_from_overrides(const Overrides& overrides);
// A recipe from YAML text; `name` stands for the file in errors, `folder` is where relative paths start.
Recipe parse_recipe(std::string_view text, const std::string& name, const std::filesystem::path& folder);

// "key=value" for Overrides::sets where the value is text to be taken as it is, such as an argument's path.
std::string assignment(std::string_view key, const std::string& text);

// Throws UsageError when something is missing that planning can do without: data.train, output.
void require_trainable(const Recipe& recipe);

}  // namespace plimsoll
