#include "prepare/devices/rank_cards.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "device/catalogue.h"
#include "fleet/devices/chosen_gpus.h"
#include "prepare/devices/device_choice.h"
#include "prepare/own_cards.h"
#include "prepare/resume.h"
#include "prepare/setup.h"
#include "runs/checkpoint.h"

namespace plimsoll {
namespace {

using devices::ChosenGpus;
using devices::Gpu;

devices::GpuChoice choice() { return {own_cards().gpus, own_cards().problem}; }

// The reason why the recipe cannot be trained on such a card, which is not asked; empty: it can.
std::string why_not(const Gpu& gpu, const LoadedRecipe& loaded) {
  try {
    Recipe recipe = loaded.recipe;
    recipe.device = DeviceChoice::card;
    recipe.memory.gpu = full_name(find_card_of(gpu.name, gpu.total, "devices"));
    take_precision(loaded.states_precision, recipe);
    require_card_computes(recipe);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void refuse_other_device(const Recipe& recipe) {
  if (!recipe.cuda_card.empty())
    throw UsageError(formatted(
        "device: cuda:{} is one card, and devices: {} needs more: name them, such as --devices cuda:0,cuda:1",
        recipe.cuda_card, recipe.devices));
  const bool other = recipe.device != DeviceChoice::automatic && recipe.device != DeviceChoice::cuda;
  if (!recipe.cards.empty() && other)
    throw UsageError(
        "devices: names cards of this machine, and device is another one; leave device out, or state a number "
        "of devices");
}

RankCards as_ranks(const ChosenGpus& gpus) {
  RankCards cards;
  for (const Gpu* gpu : gpus) cards.uuids.push_back(gpu->uuid);
  cards.line = formatted("devices {} ({}{})", choice().numbers_of(gpus), devices::kind_of(*gpus.front()),
                         emulates_cards() ? ", emulated" : "");
  return cards;
}

// The run's newest checkpoint is of a run without cards.
bool began_without_cards(const Recipe& recipe) {
  const auto checkpoint = recipe.output ? latest_checkpoint(*recipe.output) : std::nullopt;
  if (!checkpoint) return false;
  const auto saved = saved_recipe(*checkpoint);
  return !saved || saved->device != DeviceChoice::cuda;
}

// The cards for device: auto.
RankCards any_cards(const LoadedRecipe& loaded, int64_t here) {
  const ChosenGpus alike = devices::of_one_kind(choice().usable());
  if (alike.empty()) return {};
  std::string reason = why_not(*alike.front(), loaded);
  if (reason.empty() && std::ssize(alike) < here)
    reason = formatted("{} processes need a card each, and of the {} there are {}", here,
                       devices::kind_of(*alike.front()), alike.size());
  if (reason.empty()) return as_ranks({alike.begin(), alike.begin() + here});
  return {{}, formatted("device  cpu, as {}", reason)};
}

}  // namespace

int64_t devices_here(const LoadedRecipe& loaded) {
  const Recipe& recipe = loaded.recipe;
  if (recipe.devices != kAuto) return recipe.devices;
  if (recipe.device != DeviceChoice::automatic && recipe.device != DeviceChoice::cuda) return 1;
  return std::max<int64_t>(1, std::ssize(devices::of_one_kind(choice().usable())));
}

RankCards cards_of_ranks(const LoadedRecipe& loaded, int64_t here, bool resumes) {
  const Recipe& recipe = loaded.recipe;
  refuse_other_device(recipe);
  if (recipe.cards.empty() && recipe.device == DeviceChoice::automatic) {
    const bool on_cpu = recipe.memory.gpu || (resumes && began_without_cards(recipe));
    return on_cpu ? RankCards{} : any_cards(loaded, here);
  }
  if (recipe.cards.empty() && recipe.device != DeviceChoice::cuda) return {};
  const ChosenGpus gpus = recipe.cards.empty() ? choice().first(here) : choice().named(recipe.cards);
  choice().require_one_kind(gpus, [&](const Gpu& gpu) { return why_not(gpu, loaded); });
  return as_ranks(gpus);
}

}  // namespace plimsoll
