#include "prepare/run/run_output.h"

#include "base/error.h"
#include "base/format.h"
#include "data/files/data_files.h"
#include "files/places.h"
#include "runs/run_files.h"
#include "weights/weights.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& output, const std::string& how, const std::string& what) {
  throw UsageError(formatted("output: {} {} {}, which a run must not write to. Choose a folder of its own",
                             output.string(), how, what));
}

void require_apart(const fs::path& output, const std::string& key, const fs::path& folder) {
  std::error_code failed;
  if (!fs::exists(folder, failed)) return;  // the error comes when it is opened
  const fs::path other = real_path(folder);
  const std::string what = formatted("{}, {}", key, folder.string());
  const bool inside = is_within(output, other), above = is_within(other, output);
  if (inside && above) refuse(output, "is", what);
  if (above) refuse(output, "holds", what);
  if (inside && fs::is_directory(other)) refuse(output, "lies in", what);
}

void require_apart_from_data(const fs::path& output, const std::string& key, const std::string& path) {
  require_apart(output, key, path);
  std::error_code failed;
  if (fs::is_directory(path, failed)) return;  // its files lie in it
  for (const fs::path& file : data_files(path)) require_apart(output, key, file);
}

// The recipe that the run in the folder saved, with its result or in a checkpoint.
bool is_saved_recipe(const fs::path& output, const fs::path& file) {
  const fs::path place = file.parent_path();
  const bool in_checkpoint = checkpoint_step(place.filename().string()) && place.parent_path() == output;
  return file.filename() == "recipe.yaml" && (place == output || in_checkpoint);
}

// The names that a run of this recipe writes into its folder, other than those that it makes up while it
// runs.
std::vector<std::string> written_names(const Recipe& recipe, bool profile) {
  std::vector<std::string> names = {"recipe.yaml",  "metrics.jsonl", "eval.jsonl",
                                    "events.jsonl", "run.json",      "chat_template.jinja"};
  if (profile) names.emplace_back("trace.json");
  const bool full = recipe.method.type == MethodType::full;
  if (recipe.memory.keep_frozen != KeepFrozen::off) names.emplace_back(kFrozenFile);
  if (const auto files = rule_of(recipe.task).files)
    for (const std::string_view name : files(full)) names.emplace_back(name);
  names.emplace_back(full ? "config.json" : "adapter_config.json");
  names.emplace_back(full ? "model.safetensors" : "adapter_model.safetensors");
  for (const std::string& name : copied_files(recipe.model)) names.push_back(name);
  return names;
}

}  // namespace

void require_place(const Recipe& recipe, const OutputWish& wish) {
  const fs::path output = real_path(*recipe.output);
  require_apart(output, "the model", recipe.model);
  if (recipe.adapter) require_apart(output, "the adapter", *recipe.adapter);
  for (const TrainSource& source : recipe.data.train)
    require_apart_from_data(output, "data.train", source.path);
  if (recipe.data.eval.kind == EvalSource::Kind::path)
    require_apart_from_data(output, "data.eval", recipe.data.eval.path);
  std::error_code failed;
  if (!fs::is_regular_file(wish.recipe_file, failed)) return;
  const fs::path file = real_path(wish.recipe_file);
  if (is_within(file, output) && !(wish.resume && is_saved_recipe(output, file)))
    refuse(output, "holds", "the recipe, " + wish.recipe_file.string());
}

RunFolder open_output(const Recipe& recipe, const OutputWish& wish) {
  require_place(recipe, wish);
  RunFolder folder(*recipe.output);
  if (folder.holds_run() && !wish.resume && !wish.overwrite)
    throw UsageError(
        formatted("output: {} holds a run already; continue it with --resume, or replace it by --overwrite",
                  folder.path().string()));
  folder.require_free(written_names(recipe, wish.profile));
  if (wish.overwrite) folder.require_clearable();
  return folder;
}

}  // namespace plimsoll
