// Sets up a recipe's task on its model: the head that scores, the words or classes that it decides between.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/spec.h"
#include "prepare/model_paths.h"
#include "recipe/recipe.h"
#include "tasks/task.h"

namespace plimsoll {

// The model of config.json with the head that the recipe's task asks of it: the words whose logits are the
// scores of task: classify (ModelSpec::words); the value head of task: reward (ModelSpec::value_head), where
// its file lies next to the adapter or the model, or the recipe asks for a new one. Throws UsageError where a
// model can have none, or its file is not one that is read.
ModelSpec model_of(const Recipe& recipe, const ModelPaths& paths, ModelFiles& files);

// Reads the recipe's task with this model. Throws UsageError where they do not go together.
TaskSpec read_task(const Recipe& recipe, const ModelSpec& model);

// The names of the classes: the recipe's, else id2label of the model's config.json; empty where neither is.
std::vector<std::string> label_names(const Recipe& recipe, const nlohmann::json& config);
// classify.problem as `config`, the config.json of a model that was trained so names it (problem_type).
std::optional<std::string> problem_of_head(const nlohmann::json& config);

}  // namespace plimsoll
