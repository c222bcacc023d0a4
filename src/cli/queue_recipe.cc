#include "cli/queue_recipe.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/print.h"
#include "base/printable.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/queue_commands.h"
#include "fleet/queue/planned.h"
#include "fleet/queue/sweep.h"
#include "recipe/load.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr double kLittleSlower = 1.05;  // of the fastest plan's time: --plan a

Recipe load(const std::string& file, const std::vector<std::string>& sets) {
  Overrides overrides;
  overrides.sets = sets;
  if (const char* environment = std::getenv("PLIMSOLL_SET")) overrides.environment = environment;
  return load_recipe(file, overrides).recipe;
}

// The run folder; empty where it has none.
std::string output_of(const Recipe& recipe) {
  return recipe.output ? fs::absolute(*recipe.output).lexically_normal().string() : "";
}

// Whether nobody has said what it may take: then the queue may choose.
bool is_open(const RecipeToAdd& arguments, const Recipe& recipe) {
  return arguments.memory.empty() && arguments.plan.empty() && !recipe.memory.plan &&
         recipe.memory.device.kind == MemoryLimit::Kind::automatic;
}

// What `plan` is asked: the recipe as it will be trained, and the flags that were given.
struct Asked {
  std::vector<std::string> recipe, memory, threads;
  [[nodiscard]] std::vector<std::string> words() const {
    std::vector<std::string> all = recipe;
    all.insert(all.end(), memory.begin(), memory.end());
    all.insert(all.end(), threads.begin(), threads.end());
    return all;
  }
};

queue::Planned plan(const Asked& asked) {
  std::vector<std::string> words = asked.words();
  words.emplace_back("--json");
  return queue::plan_recipe(own_program(), words);
}

// Of the whole run; where its length is not known, of a step: choices are compared, not added.
double time_of(const queue::Planned& planned) {
  return planned.seconds > 0 ? planned.seconds : planned.seconds_per_step;
}

PlanPreset little_slower(const Asked& asked, queue::Planned fastest) {
  PlanPreset preset{'a', fastest.need, time_of(fastest)};
  fastest.seconds = preset.seconds;
  for (const queue::SmallerPlan& one : queue::smaller_plans(own_program(), asked.words(), fastest)) {
    if (one.seconds > kLittleSlower * fastest.seconds) continue;
    preset.need.host_bytes = one.host_bytes;
    preset.seconds = one.seconds;
  }
  return preset;
}

PlanPreset half(Asked asked, const queue::Planned& fastest) {
  const int64_t bytes = fastest.need.host_bytes / 2;
  const int threads = std::max(1, fastest.need.threads / 2);
  asked.memory = {"--memory", std::to_string(bytes)};
  asked.threads = {"--threads", std::to_string(threads)};
  try {
    const queue::Planned planned = plan(asked);
    const double slower = planned.seconds_per_step / fastest.seconds_per_step;
    return {'b', planned.need, time_of(fastest) * slower};
  } catch (const DoesNotFitError&) {
    return {'b', {0, 0, bytes, threads}, 0, false};
  }
}

// The one that was asked for.
const PlanPreset& take(std::vector<PlanPreset>& presets, const RecipeToAdd& arguments,
                       const queue::Planned& fastest) {
  PlanPreset& preset = *std::find_if(presets.begin(), presets.end(), [&](const PlanPreset& one) {
    return arguments.plan.front() == one.name;
  });
  if (!preset.fits)
    throw DoesNotFitError("does not fit   --plan b: " + printable(arguments.file) + " needs " +
                          format_bytes_up(fastest.smallest_bytes) +
                          " at least, half of its fastest plan's memory is " +
                          format_bytes(preset.need.host_bytes) + "; --plan a is the next best");
  preset.taken = true;
  return preset;
}

// The plan is fixed as it was made: its peak is the budget of the training.
RecipeEntry planned_entry(const RecipeToAdd& arguments, const std::vector<std::string>& sets,
                          const queue::Entry& common) {
  RecipeEntry recipe{common, {}, false};
  queue::Entry& entry = recipe.entry;
  Asked asked{{arguments.file}, {}, {}};
  for (const std::string& set : sets) asked.recipe.insert(asked.recipe.end(), {"--set", set});
  if (!arguments.memory.empty()) asked.memory = {"--memory", arguments.memory};
  if (arguments.threads > 0) asked.threads = {"--threads", std::to_string(arguments.threads)};
  const Recipe loaded = load(arguments.file, sets);
  // Its recipes train on the CPU so far, where they leave it open too.
  if (loaded.device == DeviceChoice::automatic && !loaded.memory.gpu)
    asked.recipe.insert(asked.recipe.end(), {"--device", "cpu"});
  queue::Planned planned = plan(asked);
  if (common.seconds > 0) planned.seconds = common.seconds;  // the user knows better
  entry.recipe = true;
  entry.output = output_of(loaded);
  entry.need = planned.need;
  entry.seconds = planned.seconds;
  if (is_open(arguments, loaded)) {
    const bool threads_open = arguments.threads == 0 && loaded.threads == kAuto;
    entry.smaller = threads_open ? queue::plans_of_fewer_threads(own_program(), asked.words(), planned)
                                 : queue::smaller_plans(own_program(), asked.words(), planned);
  }
  if (!arguments.plan.empty()) {
    recipe.per_step = planned.seconds <= 0;
    recipe.presets = {
        little_slower(asked, planned), half(asked, planned), {'c', planned.need, time_of(planned)}};
    const PlanPreset& taken = take(recipe.presets, arguments, planned);
    entry.need = taken.need;
    if (!recipe.per_step) entry.seconds = taken.seconds;
  }
  entry.words = {"train"};
  entry.words.insert(entry.words.end(), asked.recipe.begin(), asked.recipe.end());
  queue::bind_to_plan(entry.words, entry.need);
  return recipe;
}

// Where a recipe's runs of a sweep write: beside where it would.
std::string swept_output(const RecipeToAdd& arguments, const std::string& suffix) {
  const std::string output = output_of(load(arguments.file, arguments.sets));
  if (output.empty()) throw UsageError(arguments.file + ": has no output; --set output=FOLDER gives it one");
  return assignment("output", output + "-" + suffix);
}

std::string choice_text(const PlanPreset& preset, bool per_step) {
  if (!preset.fits) return "-";
  return format_bytes(preset.need.host_bytes) + ", " + std::to_string(preset.need.threads) +
         (preset.need.threads == 1 ? " thread" : " threads") + ", " + format_seconds(preset.seconds) +
         (per_step ? " a step" : "") + (preset.taken ? " *" : "");
}

}  // namespace

std::vector<RecipeEntry> read_recipes(const RecipeToAdd& arguments, const queue::Entry& common) {
  std::vector<RecipeEntry> recipes;
  for (const queue::SweepPoint& point : queue::read_sweeps(arguments.sweeps)) {
    queue::Entry entry = common;
    std::vector<std::string> sets = arguments.sets;
    sets.insert(sets.end(), point.sets.begin(), point.sets.end());
    if (!point.suffix.empty()) {
      entry.name += "-" + point.suffix;
      if (std::none_of(point.sets.begin(), point.sets.end(),
                       [](const std::string& set) { return set.starts_with("output="); }))
        sets.push_back(swept_output(arguments, point.suffix));
    }
    recipes.push_back(planned_entry(arguments, sets, entry));
  }
  return recipes;
}

std::string presets_text(const std::vector<RecipeEntry>& recipes) {
  if (recipes.empty() || recipes.front().presets.empty()) return "";
  TextTable table;
  table.add_row({"run", "plan a", "plan b", "plan c"});
  for (const RecipeEntry& recipe : recipes) {
    std::vector<std::string> row = {printable(recipe.entry.name)};
    for (const PlanPreset& preset : recipe.presets) row.push_back(choice_text(preset, recipe.per_step));
    table.add_row(row);
  }
  return table.render("  ");
}

nlohmann::ordered_json presets_json(const RecipeEntry& recipe) {
  nlohmann::ordered_json root;
  const char* seconds = recipe.per_step ? "seconds_per_step" : "predicted_seconds";
  for (const PlanPreset& one : recipe.presets)
    root[std::string(1, one.name)] = one.fits ? nlohmann::ordered_json{{"host_bytes", one.need.host_bytes},
                                                                       {"threads", one.need.threads},
                                                                       {seconds, one.seconds}}
                                              : nlohmann::ordered_json(nullptr);
  return root;
}

}  // namespace plimsoll
