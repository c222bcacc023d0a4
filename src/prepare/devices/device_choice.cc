#include "prepare/devices/device_choice.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/units.h"
#include "device/catalogue.h"
#include "prepare/devices/rank_cards.h"
#include "prepare/memory_budget.h"
#include "prepare/own_cards.h"
#include "prepare/planned_card.h"
#include "prepare/resume.h"
#include "prepare/setup.h"
#include "runs/checkpoint.h"

namespace plimsoll {
namespace {

std::string words_of(const devices::Gpu& gpu) {
  return printable(gpu.name.empty() ? gpu.uuid : gpu.name) + (emulates_cards() ? " (emulated)" : "");
}

// More memory than a card has was meant for the CPU: then all of the card's.
Recipe on_card(Recipe recipe, const std::string& uuid) {
  recipe.device = DeviceChoice::cuda;
  recipe.cuda_card = uuid;
  recipe.memory.gpu.reset();
  recipe = with_own_card(std::move(recipe));
  const MemoryLimit& memory = recipe.memory.device;
  if (memory.kind == MemoryLimit::Kind::bytes && memory.bytes > card_here(uuid).facts.memory_bytes)
    recipe.memory.device = {};
  return recipe;
}

// The reason why the recipe cannot be trained on the card; empty: it can.
std::string why_not(const devices::Gpu& gpu, const LoadedRecipe& loaded) {
  if (!gpu.problem.empty()) return "it " + printable(gpu.problem);
  if (gpu.mig) return "it is cut into instances (MIG)";
  try {
    Recipe recipe = on_card(loaded.recipe, gpu.uuid);
    take_precision(loaded.states_precision, recipe);
    require_card_computes(recipe);
  } catch (const Error& error) {
    return reason_of(error);
  }
  return "";
}

std::vector<const devices::Gpu*> most_free_first(const std::vector<devices::Gpu>& gpus) {
  std::vector<const devices::Gpu*> sorted;
  for (const devices::Gpu& gpu : gpus) sorted.push_back(&gpu);
  std::stable_sort(sorted.begin(), sorted.end(), [](const devices::Gpu* a, const devices::Gpu* b) {
    return free_bytes(*a) > free_bytes(*b);
  });
  return sorted;
}

// "device  cuda:0, NVIDIA H200, 139 GiB free"
std::string device_line(const CardHere& card) {
  const devices::Gpu* const told = own_cards().find(card.facts.uuid);
  return formatted("device  cuda:{}, {}, {} free", card.facts.number, card_words(card.facts),
                   format_bytes(told != nullptr ? free_bytes(*told) : card.free_bytes));
}

void take_card(const std::string& uuid, const LoadedRecipe& loaded, ChosenDevice& chosen) {
  chosen.recipe = on_card(loaded.recipe, uuid);
  chosen.lines.push_back(device_line(card_here(uuid)));
}

// The card of device: auto. Where none can be used, why; nothing where there is none.
std::string take_any_card(const LoadedRecipe& loaded, ChosenDevice& chosen) {
  const OwnCards& own = own_cards();
  std::string reason;
  for (const devices::Gpu* gpu : most_free_first(own.gpus)) {
    const std::string why = why_not(*gpu, loaded);
    if (why.empty()) {
      take_card(gpu->uuid, loaded, chosen);
      chosen.by_itself = true;
      return "";
    }
    if (reason.empty()) reason = formatted("{} cannot be used: {}", words_of(*gpu), why);
  }
  return reason.empty() ? printable(own.problem) : reason;
}

// That the run's newest checkpoint was saved by; nothing where there is no checkpoint.
std::optional<Recipe> recipe_of_run(const Recipe& recipe) {
  const auto checkpoint = recipe.output ? latest_checkpoint(*recipe.output) : std::nullopt;
  if (!checkpoint) return std::nullopt;
  return saved_recipe(*checkpoint)
      .value_or(Recipe{});  // not taken any more: of a version that knew the CPU alone
}

// A run continues on the device where it began: `auto` of a saved recipe was the CPU.
void take_device_of(const Recipe& saved, const LoadedRecipe& loaded, ChosenDevice& chosen) {
  if (saved.device != DeviceChoice::cuda) {
    if (saved.device != DeviceChoice::emulated && !own_cards().gpus.empty())
      chosen.lines.emplace_back("device  cpu, where the run began (--device cuda continues on a GPU)");
    return;
  }
  LoadedRecipe begun = loaded;
  if (!begun.states_precision) begun.recipe.precision = saved.precision;
  begun.states_precision = true;
  const devices::Gpu* const same = own_cards().find(saved.cuda_card);
  if (same != nullptr && why_not(*same, begun).empty()) return take_card(same->uuid, begun, chosen);
  const std::string reason = take_any_card(begun, chosen);
  if (!chosen.by_itself)
    throw UsageError(
        formatted("the run began on a card ({}), and this machine has none that it can continue on{}\n  "
                  "--device cpu continues on the CPU: the same experiment, with different rounding",
                  saved.memory.gpu.value_or("device: cuda"), reason.empty() ? "" : ": " + reason));
  chosen.by_itself = false;  // the CPU does not take its place
}

bool is_named(const devices::Gpu& gpu, const std::string& name) {
  try {
    return gpu.problem.empty() && full_name(find_card_of(gpu.name, gpu.total, "a card")) == name;
  } catch (const UsageError&) {  // the catalogue lacks it
    return false;
  }
}

[[noreturn]] void refuse_card_elsewhere(const LoadedRecipe& loaded, const DeviceWish& wish) {
  const std::vector<devices::Gpu>& gpus = own_cards().gpus;
  std::string here;
  bool usable = false;
  for (const devices::Gpu& gpu : gpus) {
    here += formatted("{}{} ({})", here.empty() ? "" : ", ", words_of(gpu), devices::short_name(gpu.uuid));
    usable = usable || why_not(gpu, loaded).empty();
  }
  const std::optional<std::string>& name = loaded.recipe.memory.gpu;
  throw UsageError(
      formatted("{}, and train computes on what is here: {}. `plimsoll plan` is for cards elsewhere. "
                "What works here:\n  {}",
                name ? formatted("memory.gpu: there is no {} here", *name)
                     : std::string("device: card describes a card that is elsewhere"),
                here.empty() ? "the CPU" : here, usable ? wish.on_card : wish.on_cpu));
}

void take_named_card(const LoadedRecipe& loaded, const DeviceWish& wish, ChosenDevice& chosen) {
  if (loaded.recipe.memory.gpu)
    for (const devices::Gpu* gpu : most_free_first(own_cards().gpus))
      if (is_named(*gpu, *loaded.recipe.memory.gpu)) return take_card(gpu->uuid, loaded, chosen);
  refuse_card_elsewhere(loaded, wish);
}

}  // namespace

std::string reason_of(const Error& error) {
  constexpr std::string_view kBegin = "device: cuda: ", kEnd = ", or choose device: cpu (--device cpu)";
  std::string text = error.what();
  if (text.starts_with(kBegin)) text.erase(0, kBegin.size());
  if (text.ends_with(kEnd)) text.erase(text.size() - kEnd.size());
  return text;
}

std::string take_precision(bool is_stated, Recipe& recipe) {
  if (is_stated || !recipe.is_of_card() || !recipe.memory.gpu) return "";
  const PlannedCard planned = planned_card(recipe);
  if (has_bf16(planned.card)) return "";
  const auto& presets = precision_presets();
  recipe.precision = std::find_if(presets.begin(), presets.end(), [](const PrecisionPreset& preset) {
                       return preset.name == "fp16";
                     })->parts;
  return formatted("note    precision: fp16, as the {} does not compute in bf16", planned.words());
}

namespace {

// Takes those of several devices that `train` would give its processes, which have theirs already there.
bool take_several(const LoadedRecipe& loaded, const DeviceWish& wish, ChosenDevice& chosen) {
  const bool one = loaded.recipe.devices == 1 && loaded.recipe.cards.empty();
  if (one || wish.trains || wish.elsewhere || own_cards().is_of_rank) return false;
  const RankCards cards = cards_of_ranks(loaded, devices_of_node(loaded.recipe, wish.nodes, 0), wish.resumes);
  if (!cards.line.empty()) chosen.lines.push_back(cards.line);
  if (cards.uuids.empty()) return loaded.recipe.device == DeviceChoice::automatic;
  chosen.recipe = on_card(loaded.recipe, cards.uuids.front());
  const std::string precision = take_precision(loaded.states_precision, chosen.recipe);
  if (!precision.empty()) chosen.lines.push_back(precision);
  return true;
}

}  // namespace

ChosenDevice choose_device(const LoadedRecipe& given, const DeviceWish& wish) {
  LoadedRecipe loaded = given;
  loaded.recipe.devices = wish.elsewhere ? std::max<int64_t>(1, given.recipe.devices) : devices_here(given);
  ChosenDevice chosen{loaded.recipe, {}, false};
  if (take_several(loaded, wish, chosen)) return chosen;
  const Recipe& recipe = loaded.recipe;
  if (recipe.device == DeviceChoice::cuda) {
    chosen.recipe = with_own_card(recipe);
    if (known_card_here() != nullptr) chosen.lines.push_back(device_line(*known_card_here()));
  } else if (recipe.is_of_card()) {
    if (wish.trains) take_named_card(loaded, wish, chosen);
  } else if (recipe.device == DeviceChoice::automatic && !wish.elsewhere) {
    const std::optional<Recipe> saved = wish.resumes ? recipe_of_run(recipe) : std::nullopt;
    if (saved) {
      take_device_of(*saved, loaded, chosen);
      return chosen;
    }
    const std::string reason = take_any_card(loaded, chosen);
    if (!reason.empty()) chosen.lines.push_back("device  cpu, as " + reason);
  }
  const std::string precision = take_precision(loaded.states_precision, chosen.recipe);
  if (!precision.empty()) chosen.lines.push_back(precision);
  return chosen;
}

std::string too_small_line(const std::string& refusal) {
  constexpr std::string_view kBegin = "does not fit   ";
  std::string reason = refusal.substr(0, refusal.find('\n'));
  if (reason.starts_with(kBegin)) reason.erase(0, kBegin.size());
  return formatted("device  cpu, as the recipe does not fit the card: {} (--device cuda refuses instead)",
                   reason);
}

}  // namespace plimsoll
