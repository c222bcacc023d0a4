#include "cli/queue/queue_recipe.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/format.h"
#include "base/print.h"
#include "base/printable.h"
#include "base/screen.h"
#include "base/shell_word.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/queue/queue_commands.h"
#include "device/catalogue.h"
#include "fleet/queue/packing/card_capacity.h"
#include "fleet/queue/packing/planned.h"
#include "fleet/queue/store/sweep.h"
#include "prepare/devices/card_models.h"
#include "prepare/devices/device_choice.h"
#include "prepare/devices/rank_cards.h"
#include "ranks/launch.h"
#include "recipe/load/load.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFastest = "fastest";

LoadedRecipe load(const std::string& file, const std::vector<std::string>& sets) {
  Overrides overrides;
  overrides.sets = sets;
  if (const char* environment = std::getenv("PLIMSOLL_SET")) overrides.environment = environment;
  return load_recipe(file, overrides);
}

// The run folder; empty where it has none.
std::string output_of(const Recipe& recipe) {
  return recipe.output ? fs::absolute(*recipe.output).lexically_normal().string() : "";
}

// The recipe states no limits, so that the queue may choose them.
bool is_open(const RecipeToAdd& arguments, const Recipe& recipe) {
  return arguments.memory.empty() && arguments.plan.empty() && !recipe.memory.plan &&
         recipe.memory.device.kind == MemoryLimit::Kind::automatic;
}

// Returns true if --devices says how many processes share the run; --devices 1 says that it is on a GPU.
bool states_count(const DeviceCounts& devices) { return devices.most > 1; }

void add_set(std::vector<std::string>& words, const std::string& set) {
  words.insert(words.end(), {"--set", set});
}

// The arguments of `plan`: the recipe as it will be trained, and the flags that were given.
struct Requested {
  std::vector<std::string> recipe, memory, threads;
  std::string card = {};  // what Need::card becomes; empty: the CPU
  [[nodiscard]] std::vector<std::string> words() const {
    std::vector<std::string> all = recipe;
    all.insert(all.end(), memory.begin(), memory.end());
    all.insert(all.end(), threads.begin(), threads.end());
    return all;
  }
  void limit(int64_t bytes) {
    const std::string text = std::to_string(bytes);
    memory = card.empty() ? std::vector<std::string>{"--memory", text}
                          : std::vector<std::string>{"--set", "memory.device=" + text};
  }
};

queue::Planned plan(const Requested& requested) {
  std::vector<std::string> words = requested.words();
  words.emplace_back("--json");
  queue::Planned planned = queue::plan_recipe(own_program(), words);
  planned.need.card = requested.card;
  return planned;
}

// Seconds of the whole run; if its length is not known, of a step: choices are compared, not added.
double time_of(const queue::Planned& planned) {
  return planned.seconds > 0 ? planned.seconds : planned.seconds_per_step;
}

// A plan that memory.plan names.
PlanPreset preset(Requested requested, const std::string& name, const queue::Planned& fastest) {
  if (name == kFastest) return {name, fastest.need, time_of(fastest)};
  add_set(requested.recipe, "memory.plan=" + name);
  try {
    const queue::Planned planned = plan(requested);
    const double slower = planned.seconds_per_step / fastest.seconds_per_step;
    return {name, planned.need, time_of(fastest) * slower};
  } catch (const DoesNotFitError&) {
    return {name, fastest.need, 0, false};
  }
}

// The preset that was asked for.
const PlanPreset& take(std::vector<PlanPreset>& presets, const RecipeToAdd& arguments,
                       const queue::Planned& fastest) {
  PlanPreset& preset = *std::find_if(presets.begin(), presets.end(),
                                     [&](const PlanPreset& one) { return arguments.plan == one.name; });
  if (!preset.fits)
    throw DoesNotFitError(
        formatted("does not fit   --plan {}: {} needs {} at least; --plan a is the next best", preset.name,
                  printable(arguments.file), format_bytes_up(fastest.smallest_bytes)));
  preset.taken = true;
  return preset;
}

// The plans for the CPU, or for cards of one kind.
struct PlansThere {
  queue::Planned planned;
  std::vector<PlanPreset> presets;  // where --plan was given
  queue::SmallerPlan own;           // that is reserved
  std::vector<queue::SmallerPlan> smaller;
};

queue::SmallerPlan as_plan(const queue::Need& need, double seconds) {
  return {need.host_bytes, seconds, need.threads, need.device_bytes, need.card, need.processes};
}

PlansThere plans_there(const RecipeToAdd& arguments, const Recipe& recipe, const Requested& requested,
                       double known_seconds) {
  PlansThere there{plan(requested), {}, {}, {}};
  queue::Planned& planned = there.planned;
  if (known_seconds > 0) planned.seconds = known_seconds;  // the user knows better
  there.own = as_plan(planned.need, planned.seconds);
  if (is_open(arguments, recipe)) {
    // Fewer devices take the place of fewer threads, if their number is open too.
    const bool threads_open = requested.card.empty() && arguments.threads == 0 && recipe.threads == kAuto &&
                              !arguments.devices.is_open();
    there.smaller = threads_open ? queue::plans_of_fewer_threads(own_program(), requested.words(), planned)
                                 : queue::smaller_plans(own_program(), requested.words(), planned);
  }
  if (arguments.plan.empty()) return there;
  for (const char* name : {"a", "b", "c", kFastest})
    there.presets.push_back(preset(requested, name, planned));
  const PlanPreset& taken = take(there.presets, arguments, planned);
  there.own = as_plan(taken.need, planned.seconds > 0 ? taken.seconds : 0);
  return there;
}

// The memory of such a card that may be reserved, and within that what the recipe states.
int64_t room_on(const CardModel& card, const MemoryLimit& stated) {
  devices::Gpu gpu;
  gpu.total = card.memory_bytes > 0 ? card.memory_bytes : find_card(card.name, "--gpu").memory_mib * kMiB;
  const int64_t room = queue::card_capacity(gpu);
  if (stated.kind == MemoryLimit::Kind::bytes) return std::min(room, stated.bytes);
  if (stated.kind == MemoryLimit::Kind::automatic) return room;
  return static_cast<int64_t>(stated.percent / 100.0 * static_cast<double>(room));
}

// One thread gives each card its work, unless a number of threads is stated.
Requested on_card(Requested requested, const CardModel& card, const Recipe& recipe) {
  add_set(requested.recipe, "device=card");
  add_set(requested.recipe, "memory.gpu=" + card.name);
  requested.card = card.only.empty() ? card.name : card.only;
  requested.limit(room_on(card, recipe.memory.device));
  if (requested.threads.empty() && recipe.threads == kAuto) requested.threads = {"--threads", "1"};
  return requested;
}

// Notes, each said once however many numbers of devices have it.
class Notes {
 public:
  void say_once(const std::string& line) {
    if (said_.insert(line).second) say(line);
  }

 private:
  std::set<std::string> said_;
};

// For each kind of cards that it fits; for the CPU where `auto` finds none.
std::vector<PlansThere> all_plans(const RecipeToAdd& arguments, const LoadedRecipe& loaded,
                                  const std::vector<std::string>& sets, double known_seconds, Notes& notes) {
  const Recipe& recipe = loaded.recipe;
  Requested requested{{arguments.file}, {}, {}};
  for (const std::string& set : sets) add_set(requested.recipe, set);
  if (arguments.threads > 0) requested.threads = {"--threads", std::to_string(arguments.threads)};
  const CardModels cards = card_models(loaded);
  if (!cards.note.empty()) notes.say_once(cards.note);
  std::vector<PlansThere> plans;
  std::string refusal;
  for (const CardModel& card : cards.models) try {
      plans.push_back(plans_there(arguments, recipe, on_card(requested, card, recipe), known_seconds));
    } catch (const DoesNotFitError& error) {
      if (refusal.empty()) refusal = error.what();
    }
  if (!plans.empty()) return plans;
  const bool is_open_device = recipe.device == DeviceChoice::automatic && !recipe.memory.gpu;
  if (!refusal.empty() && !is_open_device) throw DoesNotFitError(refusal);
  if (!refusal.empty()) notes.say_once(too_small_line(refusal));
  if (refusal.empty() && !cards.problem.empty()) notes.say_once("device  cpu, as " + cards.problem);
  if (is_open_device) requested.recipe.insert(requested.recipe.end(), {"--device", "cpu"});
  if (!arguments.memory.empty()) requested.memory = {"--memory", arguments.memory};
  return {plans_there(arguments, recipe, requested, known_seconds)};
}

// Facts of plans that are for several kinds or numbers of devices.
struct Known {
  bool seconds = false;  // the user knows those of the run
  bool counts = false;   // for several numbers of devices
};

// Seconds of the run, or of an unknown run so many as others are taken to have, by what a step takes. Seconds that
// the user knows are those of the run's own plan.
double seconds_beside(const PlansThere& own, const PlansThere& other, double seconds, bool user_knows) {
  const double slower = other.planned.seconds_per_step / own.planned.seconds_per_step;
  if (user_knows) return seconds * slower;
  if (own.planned.seconds > 0 && other.planned.seconds > 0) return seconds;
  return queue::kUnknownSeconds * slower;
}

void refuse_named_cards(const RecipeToAdd& arguments, const Recipe& recipe) {
  if (recipe.cards.empty()) return;
  throw UsageError(formatted(
      "devices: names cards, and in the queue the worker gives them out: state their number (plimsoll queue add {} "
      "--devices {}); plimsoll queue run --device UUID=SIZE uses none but those that it names",
      quoted(arguments.file), recipe.devices));
}

// With devices: auto as many as there are of one kind of GPU, or fewer: the queue chooses.
RecipeToAdd with_counts(RecipeToAdd arguments, const LoadedRecipe& loaded, std::vector<std::string>& sets) {
  constexpr int64_t kMostOpen = 8;  // each is planned
  if (loaded.recipe.devices != kAuto || arguments.devices.most > 0) return arguments;
  const int64_t most = std::min(kMostOpen, devices_here(loaded));
  if (most > 1)
    arguments.devices = {1, static_cast<int>(most)};
  else
    sets.emplace_back("devices=1");
  return arguments;
}

// Several processes need MPI at their turn: a number that may also be one is one where it is missing, and others are
// refused now. Where Slurm starts them, it may be on the nodes alone.
RecipeToAdd with_mpi(RecipeToAdd arguments, const LoadedRecipe& loaded, std::vector<std::string>& sets) {
  const int64_t most =
      arguments.devices.most > 0 ? arguments.devices.most : std::max<int64_t>(1, loaded.recipe.devices);
  const std::string problem = most > 1 ? mpi_here().problem : "";
  if (problem.empty()) return arguments;
  if (!find_in_path("sbatch").empty()) {
    say(formatted("note    for Slurm's nodes only: {}", problem));
  } else if (arguments.devices.least == 1) {
    say(formatted("note    planned for one device: {}", problem));
    arguments.devices = {};
    sets.emplace_back("devices=1");
  } else {
    throw UsageError(problem);
  }
  return arguments;
}

// The plans for each number of devices, as the recipe or --devices has it, the fastest first. A number that fits
// nowhere is left out unless none fits.
std::vector<PlansThere> plans_by_devices(const RecipeToAdd& arguments, const std::vector<std::string>& read,
                                         const std::vector<std::string>& sets, double known_seconds) {
  std::vector<PlansThere> plans;
  Notes notes;
  std::string refusal;
  for (int count = arguments.devices.least; count <= arguments.devices.most; ++count) {
    std::vector<std::string> read_so = read, planned_so = sets;
    if (states_count(arguments.devices))
      for (auto* words : {&read_so, &planned_so}) words->push_back(formatted("devices={}", count));
    try {
      const LoadedRecipe loaded = load(arguments.file, read_so);
      refuse_named_cards(arguments, loaded.recipe);
      // Some of so many would have no sequence.
      if (count > arguments.devices.least && count > loaded.recipe.batch.effective) break;
      for (PlansThere& one : all_plans(arguments, loaded, planned_so, known_seconds, notes))
        plans.push_back(std::move(one));
    } catch (const DoesNotFitError& error) {
      refusal = error.what();
    }
  }
  if (plans.empty()) throw DoesNotFitError(refusal);
  std::stable_sort(plans.begin(), plans.end(), [](const PlansThere& a, const PlansThere& b) {
    return a.planned.seconds_per_step < b.planned.seconds_per_step;
  });
  return plans;
}

// Plans that the queue may choose instead of the run's own, the fastest first.
std::vector<queue::SmallerPlan> other_plans(const std::vector<PlansThere>& plans, const Known& known) {
  const PlansThere& own = plans.front();
  std::vector<queue::SmallerPlan> others;
  for (const PlansThere& there : plans) {
    std::vector<queue::SmallerPlan> more = there.smaller;
    if (&there != &own) more.insert(more.begin(), there.own);
    for (queue::SmallerPlan& one : more) {
      if (&there != &own) one.seconds = seconds_beside(own, there, one.seconds, known.seconds);
      if (known.counts) one.processes = there.planned.need.processes;
      others.push_back(one);
    }
  }
  std::stable_sort(others.begin(), others.end(),
                   [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  return others;
}

// The plan is fixed as it was made: its peak is the budget of the training.
RecipeEntry planned_entry(const RecipeToAdd& given, std::vector<std::string> sets,
                          const queue::Entry& common) {
  RecipeEntry recipe{common, {}, false};
  queue::Entry& entry = recipe.entry;
  const LoadedRecipe as_given = load(given.file, sets);
  const RecipeToAdd arguments = with_mpi(with_counts(given, as_given, sets), as_given, sets);
  std::vector<std::string> read = sets;
  if (!arguments.gpu.empty())
    read.insert(read.begin(), {"device=card", "memory.device=auto", "memory.gpu=" + arguments.gpu});
  if (arguments.devices.most == 1) read.emplace_back("device=cuda");
  if (!arguments.host_memory.empty()) read.push_back("memory.host=" + arguments.host_memory);
  if (!arguments.memory.empty()) read.push_back("memory.device=" + arguments.memory);
  const LoadedRecipe loaded = load(arguments.file, read);
  std::vector<std::string> planned_sets = sets;
  if (!arguments.host_memory.empty()) planned_sets.push_back("memory.host=" + arguments.host_memory);
  const std::vector<PlansThere> plans = plans_by_devices(arguments, read, planned_sets, common.seconds);
  const PlansThere& own = plans.front();
  entry.recipe = true;
  entry.output = output_of(loaded.recipe);
  entry.need = with_plan(own.planned.need, own.own);
  for (const PlansThere& there : plans)
    entry.need.shared_bytes = std::max(entry.need.shared_bytes, there.planned.need.shared_bytes);
  entry.seconds = own.own.seconds;
  entry.smaller = other_plans(plans, {common.seconds > 0, arguments.devices.is_open()});
  if (entry.need.devices == 0 && arguments.devices.is_open())
    entry.smaller = queue::worth_keeping(std::move(entry.smaller), entry.need);
  recipe.per_step = own.planned.seconds <= 0;
  recipe.presets = own.presets;
  entry.words = {"train", arguments.file};
  for (const std::string& set : planned_sets) add_set(entry.words, set);
  if (states_count(arguments.devices)) add_set(entry.words, formatted("devices={}", entry.need.processes));
  if (entry.need.devices > 0) {
    if (loaded.recipe.memory.gpu) add_set(entry.words, "memory.gpu=null");
    add_set(entry.words, "device=cuda");
  } else if (loaded.recipe.device == DeviceChoice::automatic) {
    entry.words.insert(entry.words.end(), {"--device", "cpu"});
  }
  queue::bind_to_plan(entry.words, entry.need);
  return recipe;
}

// The output folder of one run of a sweep: next to the recipe's own.
std::string swept_output(const RecipeToAdd& arguments, const std::vector<std::string>& sets,
                         const std::string& suffix) {
  const std::string output = output_of(load(arguments.file, sets).recipe);
  if (output.empty()) throw UsageError(arguments.file + ": has no output; --set output=FOLDER gives it one");
  return assignment("output", formatted("{}-{}", output, suffix));
}

std::string choice_text(const PlanPreset& preset, bool per_step) {
  if (!preset.fits) return "-";
  const std::string device =
      preset.need.devices == 0
          ? ""
          : format_bytes(preset.need.device_bytes) +
                (preset.need.devices == 1 ? std::string(" on the card, ")
                                          : formatted(" on each of {} cards, ", preset.need.devices));
  return formatted("{}{}, {}{}, {}{}{}", device, format_bytes(preset.need.host_bytes), preset.need.threads,
                   preset.need.threads == 1 ? " thread" : " threads", format_seconds(preset.seconds),
                   per_step ? " a step" : "", preset.taken ? " *" : "");
}

}  // namespace

DeviceCounts read_device_counts(const std::string& text) {
  constexpr int64_t kMostCounts = 16;  // each is planned
  constexpr int64_t kMost = 1'000'000;
  if (text.empty()) return {};
  const auto fail = [&](const std::string& expected) {
    throw UsageError(formatted("--devices {}: {}", text, expected));
  };
  const auto whole = [&](std::string_view part) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size() || value < 0 || value > kMost)
      fail(formatted("expected a number up to {}, or two of them, such as 2..4", kMost));
    return value;
  };
  const size_t dots = text.find("..");
  const int64_t least = whole(std::string_view(text).substr(0, dots));
  const int64_t most = dots == std::string::npos ? least : whole(std::string_view(text).substr(dots + 2));
  if (least > most || (least == 0 && most > 0)) fail("expected a smaller number from 1 on, and a larger one");
  if (most - least >= kMostCounts)
    fail(formatted("each number is planned for itself: at most {} of them", kMostCounts));
  return {static_cast<int>(least), static_cast<int>(most)};
}

std::vector<RecipeEntry> read_recipes(const RecipeToAdd& arguments, const queue::Entry& common) {
  if (arguments.plan == "c")
    say("note    --plan c is the least memory in at most twice the time of the fastest plan, as memory.plan: "
        "c; earlier versions took the fastest: --plan fastest");
  std::vector<RecipeEntry> recipes;
  for (const queue::SweepPoint& point : queue::read_sweeps(arguments.sweeps, arguments.zips)) {
    queue::Entry entry = common;
    std::vector<std::string> sets;
    for (const std::string& set : arguments.sets) sets.push_back(with_values(set, point));
    sets.insert(sets.end(), point.sets.begin(), point.sets.end());
    if (!point.suffix.empty()) {
      entry.name += "-" + point.suffix;
      if (std::none_of(point.sets.begin(), point.sets.end(),
                       [](const std::string& set) { return set.starts_with("output="); }))
        sets.push_back(swept_output(arguments, sets, point.suffix));
    }
    recipes.push_back(planned_entry(arguments, sets, entry));
  }
  return recipes;
}

std::string presets_text(const std::vector<RecipeEntry>& recipes) {
  if (recipes.empty() || recipes.front().presets.empty()) return "";
  TextTable table;
  table.add_row({"run", "plan a", "plan b", "plan c", kFastest});
  for (const RecipeEntry& recipe : recipes) {
    std::vector<std::string> row = {printable(recipe.entry.name)};
    for (const PlanPreset& preset : recipe.presets) row.push_back(choice_text(preset, recipe.per_step));
    table.add_row(row);
  }
  return table.render("  ", output_columns());
}

nlohmann::ordered_json presets_json(const RecipeEntry& recipe) {
  nlohmann::ordered_json root;
  const char* seconds = recipe.per_step ? "seconds_per_step" : "predicted_seconds";
  for (const PlanPreset& one : recipe.presets) {
    nlohmann::ordered_json& preset = root[one.name] = nullptr;
    if (!one.fits) continue;
    if (one.need.devices > 0) preset["device_bytes"] = one.need.device_bytes;
    preset["host_bytes"] = one.need.host_bytes;
    preset["threads"] = one.need.threads;
    preset[seconds] = one.seconds;
  }
  return root;
}

}  // namespace plimsoll
