#include "prepare/evaluation_rows.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/units.h"
#include "prepare/task_setup.h"
#include "recipe/load/load.h"
#include "weights/adapter_config.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunRecipe = "recipe.yaml";

bool is_run(const fs::path& folder) { return fs::exists(folder / kRunRecipe); }

// The run's own recipe, or one of the changes alone.
Recipe read_recipe(const fs::path& folder, const Overrides& overrides) {
  return overrides.of_run ? load_recipe((folder / kRunRecipe).string(), overrides).recipe
                          : recipe_from_overrides(overrides).recipe;
}

Overrides changes_of(const RowWish& wish) {
  Overrides overrides;
  overrides.sets = wish.sets;
  overrides.sources = wish.sources;
  overrides.of_run = is_run(wish.folder);
  if (wish.max_length) overrides.sets.push_back("data.max_length=" + std::to_string(*wish.max_length));
  return overrides;
}

// The recipe of an evaluation, model and rows: the run's own, or the defaults for a model folder.
Recipe recipe_to_evaluate(const RowWish& wish, const std::string& chat_template, const ModelPaths& paths) {
  Overrides overrides = changes_of(wish);
  const auto set = [&](const char* key, const std::string& value) {
    overrides.sets.push_back(assignment(key, value));
  };
  if (chat_template != "auto") set("data.template", chat_template);
  if (!overrides.of_run && !wish.data)
    throw UsageError(wish.folder.string() +
                     ": is no run with evaluation data of its own; name some with --data");
  if (!overrides.of_run) {
    set("model", paths.base.string());
    set("data.train", wish.data->string());
  }
  Recipe recipe = read_recipe(wish.folder, overrides);
  recipe.model = paths.base.string();
  if (wish.data) {
    recipe.data.train = {{wish.data->string()}};
    recipe.data.eval = {.kind = EvalSource::Kind::path, .path = wish.data->string()};
  } else if (recipe.data.eval.kind == EvalSource::Kind::none) {
    throw UsageError(formatted(
        "{}: the run had no evaluation data (data.eval); name some with --data{}",
        (wish.folder / kRunRecipe).string(),
        recipe.data.train.empty() ? "" : formatted("; it trained on {}", recipe.data.train.front().path)));
  }
  return recipe;
}

// The run's recipe, or the defaults with what the model's config says of its head.
Recipe recipe_to_score(const RowWish& wish, bool rewards, const ModelPaths& paths) {
  const Task task = rewards ? Task::reward : Task::classify;
  Overrides overrides = changes_of(wish);
  if (!overrides.of_run) {
    const bool given = std::any_of(wish.sets.begin(), wish.sets.end(), [](const std::string& set) {
      return set.starts_with("classify.problem");
    });
    overrides.sets.push_back(assignment("model", paths.base.string()));
    overrides.sets.push_back(assignment("task", std::string(to_string(task))));
    const auto problem = problem_of_head(wish.sources->models->config(paths.base));
    if (!rewards && problem && !given) overrides.sets.push_back(assignment("classify.problem", *problem));
  }
  Recipe recipe = read_recipe(wish.folder, overrides);
  if (recipe.task != task)
    throw UsageError(formatted("{}: the run's task is {}: {}", (wish.folder / kRunRecipe).string(),
                               to_string(recipe.task), rule_of(recipe.task).result.used_by));
  recipe.model = paths.base.string();
  recipe.data.train.clear();
  if (wish.data) recipe.data.train = {{wish.data->string()}};
  recipe.data.eval = {};
  return recipe;
}

// The model with its adapter as the recipe's task has it, at the precision that is asked for or was trained.
Experiment experiment_of(const RowWish& wish, Resolved& resolved) {
  const ModelPaths& paths = resolved.paths;
  Experiment experiment;
  experiment.model = resolved.model;
  experiment.task = resolved.task;
  experiment.lora = paths.adapter.has_value();
  Preference::Reference& reference = experiment.task.preference.reference;
  if (reference != Preference::Reference::none && !paths.adapter) {
    reference = Preference::Reference::given;
    if (wish.data)
      throw UsageError(
          wish.folder.string() +
          ": task: dpo compares a model with the one that it was trained from, and a run with "
          "method.type: full has that one's log-probabilities for its own rows alone: leave --data "
          "out, or use --set dpo.loss=orpo");
  }
  if (paths.adapter)
    read_adapter_config(*paths.adapter, experiment.lora_options, rule_of(experiment.task.task).scores);
  require_frozen_reference(experiment);
  if (const auto quantisation = quantisation_of(paths, wish.sources)) {
    experiment.quantised = true;
    experiment.quantisation = *quantisation;
  }
  experiment.precision.compute = wish.precision ? *wish.precision : trained_type(paths, wish.sources);
  Recipe::Data& data = resolved.recipe.data;
  if (const auto longest = experiment.model.longest_text()) {
    if (wish.max_length && *wish.max_length > *longest)
      throw UsageError(
          formatted("--max-length: {} tokens, but the model knows {} positions (max_position_embeddings)",
                    format_count(*wish.max_length), format_count(*longest)));
    data.max_length = std::min(data.max_length, *longest);
  }
  experiment.max_length = data.max_length;
  if (experiment.model.encoder_decoder) experiment.target_length = data.targets_at_most();
  return experiment;
}

EvaluationRows evaluation_rows(const RowWish& wish, Recipe recipe, const ModelPaths& paths) {
  EvaluationRows requested{resolve(std::move(recipe), paths, wish.sources->models), {}, {}};
  requested.experiment = experiment_of(wish, requested.resolved);
  requested.files = {wish.folder, paths.base};
  const Recipe::Data& data = requested.resolved.recipe.data;
  for (const TrainSource& source : data.train) requested.files.emplace_back(source.path);
  if (data.eval.kind == EvalSource::Kind::path) requested.files.emplace_back(data.eval.path);
  return requested;
}

}  // namespace

EvaluationRows rows_to_evaluate(const RowWish& wish, const std::string& chat_template,
                                const ModelPaths& paths) {
  return evaluation_rows(wish, recipe_to_evaluate(wish, chat_template, paths), paths);
}

DataSetup open_evaluation(EvaluationRows& requested, const RowWish& wish, RunObserver& observer) {
  const auto says = [](const std::string& set) {
    return set.starts_with("data.format") || set.starts_with("data.columns");
  };
  const bool stated = std::any_of(wish.sets.begin(), wish.sets.end(), says);
  if (!wish.data || stated) return open_data(requested.resolved);
  try {
    return open_data(requested.resolved);
  } catch (const UsageError&) {
    Recipe::Data& data = requested.resolved.recipe.data;
    if (!data.format && data.columns.empty()) throw;
    data.format.reset();
    data.columns.clear();
  }
  DataSetup data = open_data(requested.resolved);
  observer.event(formatted("note    {}: read as {}; the run's own rows have another format",
                           printable(wish.data->string()), to_string(data.eval->reading.columns.format)));
  return data;
}

EvaluationRows rows_to_score(const RowWish& wish, bool rewards, const ModelPaths& paths) {
  return evaluation_rows(wish, recipe_to_score(wish, rewards, paths), paths);
}

RunReading reading_of_run(const fs::path& folder, const std::vector<std::string>& sets,
                          const SharedSources& sources) {
  Overrides overrides;
  overrides.sets = sets;
  overrides.sources = sources;
  overrides.of_run = is_run(folder);
  if (!overrides.of_run) overrides.sets.insert(overrides.sets.begin(), assignment("model", folder.string()));
  const Recipe recipe = read_recipe(folder, overrides);
  return {recipe.data.columns, recipe.data.reading};
}

std::optional<std::string> date_of_run(const fs::path& folder, const SharedSources& sources) {
  const auto run = recipe_of_run(folder, sources);
  return run ? run->data.date : std::nullopt;
}

}  // namespace plimsoll
