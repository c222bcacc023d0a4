// Finds models of the built-in catalogue by name, and compares a config.json with the catalogue's.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/shapes.h"
#include "recipe/model_files.h"

namespace plimsoll {

// A folder that stands for a model of the catalogue: `files` hold its config.json, and nothing else is there. A
// model of that name in the Hugging Face cache goes before it. Nothing for a name that the catalogue lacks.
// Throws UsageError for a model that is known and not trained, and for a repository of quantised weights
// whose base is known.
std::optional<std::string> model_of_catalogue(const std::string& name, ModelFiles& files);
// The name of a model for messages: of one of the catalogue its name, of others the path as a recipe has it.
std::string shown_model(const std::filesystem::path& model);
// The same of its config.json; of the catalogue the entry that stands for one.
std::string shown_config(const std::filesystem::path& model);

// Looks up the model in a folder by its name on the hub or that of the folder.
struct KnownModel {
  NamedShape named;
  bool is_built_in = false;                 // the catalogue's own shape, of no file
  std::vector<ConfigDifference> differing;  // of a config.json in a file, which counts
};
std::optional<KnownModel> known_model(const std::filesystem::path& folder, ModelFiles& files);

// ", nor is it in the catalogue of known models, where the nearest are A, B".
std::string nearest_words(std::string_view name);
// "Lightning-AI/litgpt": the first source of a shape's numbers.
std::string source_words(const ModelShape& shape);

}  // namespace plimsoll
