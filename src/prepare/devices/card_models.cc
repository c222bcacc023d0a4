#include "prepare/devices/card_models.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "device/catalogue.h"
#include "prepare/devices/device_choice.h"
#include "prepare/own_cards.h"
#include "prepare/planned_card.h"
#include "prepare/setup.h"

namespace plimsoll {
namespace {

std::string card_named(const devices::Gpu& gpu) {
  return printable(gpu.name.empty() ? gpu.uuid : gpu.name) + (emulates_cards() ? " (emulated)" : "");
}

// Throws UsageError where a card of the model does not compute what the recipe asks for.
void require_computes(const LoadedRecipe& loaded, const std::string& model) {
  Recipe recipe = loaded.recipe;
  recipe.device = DeviceChoice::card;
  recipe.memory.gpu = model;
  take_precision(loaded.states_precision, recipe);
  require_card_computes(recipe);
}

void add_model(std::vector<CardModel>& models, const CardModel& card) {
  for (CardModel& one : models)
    if (one.name == card.name) return void(one.memory_bytes = std::max(one.memory_bytes, card.memory_bytes));
  models.push_back(card);
}

void keep_one_precision(CardModels& found) {
  const auto lacks_bf16 = [](const CardModel& card) { return !has_bf16(find_card(card.name, "device")); };
  if (std::all_of(found.models.begin(), found.models.end(), lacks_bf16)) return;
  for (const CardModel& card : found.models)
    if (lacks_bf16(card))
      found.note += (found.note.empty() ? "" : ", ") + card.name + (emulates_cards() ? " (emulated)" : "");
  std::erase_if(found.models, lacks_bf16);
  if (found.note.empty()) return;
  found.note = formatted(
      "note    not on {}: the recipe states no precision, and the other cards here compute in "
      "bf16; --set precision=fp16 allows all of them",
      found.note);
}

// Asks the driver and this build about one card of each model: can they compute on it.
CardModels of_all_cards(const LoadedRecipe& loaded) {
  CardModels found;
  for (const devices::Gpu& gpu : own_cards().gpus) {
    std::string why;
    if (!gpu.problem.empty()) why = "it " + printable(gpu.problem);
    if (gpu.mig) why = "it is cut into instances (MIG)";
    if (why.empty()) try {
        const std::string model = full_name(find_card_of(gpu.name, gpu.total, "device"));
        const bool known = std::any_of(found.models.begin(), found.models.end(),
                                       [&](const CardModel& one) { return one.name == model; });
        if (!known) card_facts(gpu.uuid);
        require_computes(loaded, model);
        add_model(found.models, {model, "", gpu.total});
      } catch (const Error& error) {
        why = reason_of(error);
      }
    if (!why.empty() && found.problem.empty())
      found.problem = formatted("{} cannot be used: {}", card_named(gpu), why);
  }
  if (!loaded.states_precision) keep_one_precision(found);
  if (found.problem.empty()) found.problem = printable(own_cards().problem);
  if (!found.models.empty()) found.problem.clear();
  return found;
}

CardModel of_named_card(const LoadedRecipe& loaded, const std::string& name) {
  CardModel card{full_name(find_card(name, "memory.gpu")), "", 0};
  require_computes(loaded, card.name);
  for (const devices::Gpu& gpu : own_cards().gpus)
    if (gpu.problem.empty() && devices::model_of(gpu) == card.name)
      card.memory_bytes = std::max(card.memory_bytes, gpu.total);
  return card;
}

// Takes CUDA's first card where no library lists cards.
CardModels of_cuda(const LoadedRecipe& loaded) {
  const std::string& which = loaded.recipe.cuda_card;
  if (which.empty() && !own_cards().gpus.empty()) {
    CardModels found = of_all_cards(loaded);
    if (found.models.empty()) throw UsageError("device: cuda: " + found.problem);
    return found;
  }
  const gpu::CudaFacts facts = card_facts(which);
  const std::string model = full_name(find_card_of(facts.name, facts.memory_bytes, "device: cuda"));
  require_computes(loaded, model);
  return {{{model, which.empty() ? "" : facts.uuid, facts.memory_bytes}}, ""};
}

}  // namespace

CardModels card_models(const LoadedRecipe& loaded) {
  const Recipe& recipe = loaded.recipe;
  if (recipe.device == DeviceChoice::cuda) return of_cuda(loaded);
  if (recipe.is_of_card() && recipe.memory.gpu) return {{of_named_card(loaded, *recipe.memory.gpu)}, ""};
  if (recipe.device == DeviceChoice::card)
    throw UsageError(
        "device: card describes a GPU of another machine, and cannot train; use --set device=cuda for a GPU "
        "of this machine, or name one: --gpu \"RTX 3060\"");
  return recipe.device == DeviceChoice::automatic ? of_all_cards(loaded) : CardModels{};
}

}  // namespace plimsoll
