#include "cli/machine/doctor_plan.h"

#include <algorithm>

#include "advise/recovery.h"
#include "base/format.h"
#include "base/print.h"
#include "base/shell_word.h"
#include "base/units.h"
#include "cli/plan/plan_command.h"
#include "device/catalogue.h"

namespace plimsoll {
namespace {

using doctor::Cause;
using doctor::Diagnosis;
using doctor::Step;

constexpr int64_t kUnknownCard = 80 * kGiB;  // any would do: budgets bound nothing here

bool is_on_device(Cause cause) {
  return cause == Cause::capacity || cause == Cause::larger_than_device || cause == Cause::other_processes ||
         cause == Cause::fragmentation || cause == Cause::software_cap || cause == Cause::host_fallback ||
         cause == Cause::anomaly || cause == Cause::device_unspecified || cause == Cause::library_unclear;
}

bool is_on_host(Cause cause) {
  return cause == Cause::host_machine || cause == Cause::host_cgroup || cause == Cause::host_scheduler ||
         cause == Cause::host_daemon || cause == Cause::host_refused || cause == Cause::killed;
}

// Bytes of a step do not depend on rows: a data set that is absent on this machine is left out, of the
// commands as well.
LoadedRecipe read_without_rows(RecipeArguments& arguments) {
  try {
    return arguments.read();
  } catch (const UsageError&) {
    for (const char* key : {"dataset", "datasets", "dataset_name"}) {
      RecipeArguments without = arguments;
      without.sets.push_back(std::string(key) + "=null");
      try {
        LoadedRecipe loaded = without.read();
        arguments = without;
        return loaded;
      } catch (const UsageError&) {  // the first error speaks
      }
    }
    throw;
  }
}

// Returns whether the message is about the card that the recipe names: its driver reports a little less than is sold.
bool is_of_named_card(const doctor::Bytes* total, const Recipe& recipe) {
  if (!recipe.memory.gpu || recipe.memory.device.kind != MemoryLimit::Kind::automatic || total == nullptr)
    return false;
  const int64_t card = find_card(*recipe.memory.gpu, "memory.gpu").memory_mib * kMiB;
  return total->least() <= card && total->value >= card / 100 * 95;
}

// A card as large as the message's device, where the message has its size; options of `plan` that mean the
// same.
std::string plan_for_card(const Diagnosis& diagnosis, Recipe& recipe) {
  recipe.device = DeviceChoice::card;
  if (is_of_named_card(diagnosis.message ? diagnosis.message->size("total") : nullptr, recipe)) return "";
  const std::string other_card = recipe.memory.gpu ? " --set memory.gpu=null" : "";
  recipe.memory.gpu.reset();  // the message says what the device has
  const doctor::Bytes* total = diagnosis.message ? diagnosis.message->size("total") : nullptr;
  MemoryLimit& limit = recipe.memory.device;
  const bool stated = limit.kind == MemoryLimit::Kind::bytes;
  if (total == nullptr && stated) return " --device card" + other_card;
  limit = {MemoryLimit::Kind::bytes, 0.0, total != nullptr ? total->value : kUnknownCard};
  return formatted(" --device card --memory {}MiB{}", limit.bytes / kMiB, other_card);
}

// The options by which the recipe was read, but for the device that `plan_for_card` gives.
std::string given_words(const RecipeArguments& arguments, const std::string& device) {
  std::string words;
  for (const std::string& set : arguments.sets) {
    const std::string key = set.substr(0, set.find('='));
    const bool of_device = key == "device" || key == "memory.gpu" ||
                           (key == "memory.device" && device.find(" --memory ") != std::string::npos);
    if (device.empty() || !of_device) words += " --set " + printable(quoted(set));
  }
  if (!arguments.as_tool.empty()) words += " --as " + printable(quoted(arguments.as_tool));
  return words;
}

// The recipe as the printed commands read it.
PlanArguments as_commands_read(const RecipeArguments& arguments, const std::string& device,
                               const Recipe& recipe) {
  PlanArguments planned;
  planned.recipe = arguments;
  planned.recipe.no_probe = false;
  if (device.empty()) return planned;
  std::erase_if(planned.recipe.sets, [&](const std::string& set) {
    return set.starts_with("device=") || set.starts_with("memory.gpu=") ||
           (set.starts_with("memory.device=") && device.find(" --memory ") != std::string::npos);
  });
  planned.recipe.change("device", "card");
  if (device.find(" --memory ") != std::string::npos)
    planned.recipe.change("memory.device", std::to_string(recipe.memory.device.bytes / kMiB) + "MiB");
  if (device.find("memory.gpu=null") != std::string::npos)
    planned.recipe.sets.emplace_back("memory.gpu=null");
  return planned;
}

// Leaves out what is not possible, and puts first what fits the device, all at once.
void weigh_steps(const PlanArguments& as_read, const RecoveryPlan& recovery, const Recipe& recipe, bool timed,
                 Diagnosis& diagnosis, std::vector<Step>& planned) {
  const WhatIf what_if = [&](const Changes& changes) {
    PlanArguments changed = as_read;
    for (const KeyChange& change : changes) changed.recipe.sets.push_back(change.assignment());
    return plan_input(changed, {});
  };
  keep_possible(what_if, timed, planned);
  if (auto fits = fitting_step(what_if, recovery)) {
    if (!timed) fits->seconds = 0;
    planned.insert(planned.begin(), *std::move(fits));
  } else {
    diagnosis.notes.push_back(
        formatted("nothing that was planned fits {}, not even a base in 4 bits with short rows",
                  timed ? "the " + *recipe.memory.gpu : format_bytes(recipe.memory.device.bytes)));
  }
  if (!timed && !recipe.memory.gpu)
    diagnosis.notes.emplace_back(
        "with the card's name each step has its seconds: --set 'memory.gpu=RTX 4090'");
}

}  // namespace

void plan_steps(const RecipeArguments& given, Diagnosis& diagnosis) {
  RecipeArguments arguments = given;
  const bool on_host = is_on_host(diagnosis.cause);
  if (diagnosis.out_of_memory == doctor::Verdict::no || (!on_host && !is_on_device(diagnosis.cause))) return;
  LoadedRecipe loaded = read_without_rows(arguments);
  Recipe& recipe = loaded.recipe;
  if (on_host && !loaded.other_tools.empty()) {
    diagnosis.notes.emplace_back("the recipe is for another tool, whose host memory cannot be planned");
    return;
  }
  if (recipe.data.max_length == kLongestRow)
    throw UsageError(
        printable(arguments.path) +
        ": data.max_length is that of the longest row: say a number, --set data.max_length=2048");
  recipe.data.train.clear();
  const std::string device = on_host ? "" : plan_for_card(diagnosis, recipe);
  const bool of_states =
      diagnosis.message && diagnosis.message->during.find("optimizer") != std::string_view::npos;
  RecoveryPlan recovery =
      plan_recovery(recipe, arguments.sources->models, planned_machine(arguments.machine(recipe), ""),
                    of_states && !on_host);
  const bool as_it_is = printable(arguments.path) == arguments.path;
  const std::string file = as_it_is ? plimsoll::quoted(arguments.path) : "RECIPE";
  diagnosis.notes.push_back(
      formatted("planned from {}: {} as it stands ({}), as Plimsoll's own program; another tool's takes "
                "other bytes, and saves about as many",
                printable(arguments.path), format_bytes(recovery.base_bytes), recovery.base_words));
  std::vector<Step> planned = std::move(recovery.steps);
  const doctor::Bytes* requested = diagnosis.message ? diagnosis.message->size("tried") : nullptr;
  if (requested != nullptr && !diagnosis.tensor && !on_host)
    if (diagnosis.tensor = doctor::shape_of(*requested, recovery.shapes); diagnosis.tensor)
      diagnosis.notes.push_back(doctor::tensor_words(*requested, *diagnosis.tensor));
  const bool timed = !on_host && device.empty();  // on the card that the recipe names
  const bool bounded = timed || (!on_host && recipe.memory.device.kind == MemoryLimit::Kind::bytes &&
                                 recipe.memory.device.bytes < kUnknownCard);
  const PlanArguments as_read = as_commands_read(arguments, device, recipe);
  if (bounded) weigh_steps(as_read, recovery, recipe, timed, diagnosis, planned);
  const std::string words = given_words(arguments, device);
  for (Step& step : planned)
    step.command = formatted("plimsoll plan {}{}{}{}", file, device, words,
                             step.command.empty() ? "" : " " + step.command);
  auto& steps = diagnosis.steps;
  steps.erase(std::remove_if(steps.begin(), steps.end(), [](const Step& step) { return step.shrinks; }),
              steps.end());
  steps.insert(steps.end(), planned.begin(), planned.end());
}

}  // namespace plimsoll
