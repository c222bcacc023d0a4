#include "prepare/devices/rank_cards.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/strings.h"
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
using devices::GpuChoice;

GpuChoice choice() { return {own_cards().gpus, own_cards().problem}; }

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

// `names`: what a terminal calls them.
RankCards as_ranks(const ChosenGpus& gpus, const std::string& names) {
  RankCards cards;
  for (const Gpu* gpu : gpus) cards.uuids.push_back(gpu->uuid);
  cards.line = formatted("devices {} ({}{})", names, devices::kind_of(*gpus.front()),
                         emulates_cards() ? ", emulated" : "");
  return cards;
}

RankCards as_ranks(const ChosenGpus& gpus) { return as_ranks(gpus, choice().numbers_of(gpus)); }

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
    reason = formatted("{} processes need a card each, and of the {}{} there {} {}", here,
                       devices::kind_of(*alike.front()), emulates_cards() ? " (emulated)" : "",
                       alike.size() == 1 ? "is" : "are", alike.size());
  if (reason.empty()) return as_ranks({alike.begin(), alike.begin() + here});
  return {{}, formatted("device  cpu, as {}", reason)};
}

// With device: auto a run that continues without cards has none, nor one that is planned for cards elsewhere.
bool takes_cards(const Recipe& recipe, bool resumes) {
  if (!recipe.cards.empty() || recipe.device == DeviceChoice::cuda) return true;
  return recipe.device == DeviceChoice::automatic && !recipe.memory.gpu &&
         !(resumes && began_without_cards(recipe));
}

const std::string kGiveEachItsOwn =
    "srun --gpus-per-task=1 gives each process a card of its own, and where each sees all of the job's "
    "(srun --gres=gpu:N) each takes another one; --device cpu computes without";

// "rank 0 has the RTX 3060 12GB (GPU-1a2b3c4d)".
std::string words_of(int rank, const Gpu& gpu) {
  return formatted("rank {} has the {} ({})", rank, devices::kind_of(gpu),
                   printable(devices::short_name(gpu.uuid)));
}

void require_own_cards(const std::vector<CardsOfRank>& here, const ChosenGpus& first) {
  for (size_t i = 0; i < first.size(); ++i)
    for (size_t before = 0; before < i; ++before) {
      const int rank = here[i].rank, other = here[before].rank;
      if (first[i]->uuid == first[before]->uuid)
        throw UsageError(formatted(
            "devices: ranks {} and {} both see {} ({}) first{}, and each needs a card of its own: {}", other,
            rank, devices::kind_of(*first[i]), printable(devices::short_name(first[i]->uuid)),
            here[i].gpus.size() == 1 && here[before].gpus.size() == 1 ? " and no other card" : "",
            kGiveEachItsOwn));
      if (devices::kind_of(*first[i]) != devices::kind_of(*first[before]))
        throw UsageError(formatted(
            "devices: {}, and {}: the processes of a run need cards of one kind; ask the launcher for one, "
            "such as srun --gpus-per-task=TYPE:1",
            words_of(other, *first[before]), words_of(rank, *first[i])));
    }
}

bool see_the_same(const std::vector<CardsOfRank>& here) {
  const auto is_same = [](const Gpu& one, const Gpu& other) { return one.uuid == other.uuid; };
  return std::ranges::all_of(
      here, [&](const CardsOfRank& one) { return std::ranges::equal(one.gpus, here.front().gpus, is_same); });
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
  if (!takes_cards(recipe, resumes)) return {};
  if (recipe.cards.empty() && recipe.device == DeviceChoice::automatic) return any_cards(loaded, here);
  const ChosenGpus gpus = recipe.cards.empty() ? choice().first(here) : choice().named(recipe.cards);
  choice().require_one_kind(gpus, [&](const Gpu& gpu) { return why_not(gpu, loaded); });
  return as_ranks(gpus);
}

std::string seen_cards(const LoadedRecipe& loaded, bool resumes) {
  refuse_other_device(loaded.recipe);
  // Cards that are named are those of each machine, as each process sees them.
  if (!loaded.recipe.cards.empty() || !takes_cards(loaded.recipe, resumes)) return "";
  return json_text(devices::report_json({true, "", "", own_cards().gpus}), -1);
}

CardsOfRank read_seen_cards(int rank, const std::string& text) {
  return {rank, text.empty() ? std::vector<Gpu>() : devices::read_report(text).gpus};
}

std::optional<RankCards> cards_apart(const LoadedRecipe& loaded, const std::vector<CardsOfRank>& here,
                                     bool booked) {
  const bool is_open = loaded.recipe.device == DeviceChoice::automatic;
  if (see_the_same(here)) {
    const bool too_few = here.size() > 1 && here.front().gpus.size() == 1;
    if (!too_few || (is_open && !booked)) return std::nullopt;
  }
  ChosenGpus first;
  for (const CardsOfRank& rank : here) {
    const ChosenGpus usable = GpuChoice(rank.gpus, own_cards().problem).usable();
    if (usable.empty())
      throw UsageError(
          formatted("devices: rank {} sees no card that can be used, and others of its machine do: {}",
                    rank.rank, kGiveEachItsOwn));
    first.push_back(usable.front());
  }
  require_own_cards(here, first);
  const std::string reason = is_open ? why_not(*first.front(), loaded) : "";
  if (!reason.empty()) return RankCards{{}, formatted("device  cpu, as {}", reason)};
  std::vector<std::string> names;
  for (const Gpu* gpu : first) names.push_back(printable(devices::short_name(gpu->uuid)));
  return as_ranks(first, join(names, ","));
}

namespace {

// Cards of the processes of this machine, as their launcher has found them; empty: none. Not set: each finds its own.
constexpr const char* kCardsVariable = "PLIMSOLL_RANK_CARDS";

std::optional<RankCards> told_cards() {
  if (std::getenv(kCardsVariable) == nullptr) return std::nullopt;
  const std::string list = environment(kCardsVariable);
  return RankCards{list.empty() ? std::vector<std::string>() : split(list, ','), ""};
}

// The cards that the processes of this machine see, by rank: a launcher may show each of them others.
std::vector<CardsOfRank> seen_here(RunRanks& ranks, const std::string& mine) {
  const std::vector<std::string> all = gather_texts(ranks.group(), mine);
  std::vector<CardsOfRank> here;
  for (const int rank : ranks.on_node())
    here.push_back(read_seen_cards(rank, all[static_cast<size_t>(rank)]));
  return here;
}

// Slurm has given cards to this job.
bool booked_cards() {
  const auto is_set = [](const char* variable) { return !environment(variable).empty(); };
  return is_set("SLURM_STEP_GPUS") || is_set("SLURM_JOB_GPUS");
}

RankCards cards_of_started(const LoadedRecipe& loaded, RunRanks& ranks, bool resumes) {
  if (auto told = told_cards()) return *std::move(told);
  const std::string mine = ranks.together([&] { return seen_cards(loaded, resumes); });
  const auto apart = cards_apart(loaded, seen_here(ranks, mine), booked_cards());
  return apart ? *apart : cards_of_ranks(loaded, ranks.watch()->ranks_here(), resumes);
}

// Cards of each machine are of one kind; of several machines they need not be. `mine` is null without one.
void require_one_kind(RunRanks& ranks, const Gpu* mine) {
  if (ranks.watch()->nodes() == 1) return;
  const int rank = ranks.group().rank();
  const std::vector<std::string> kinds =
      gather_texts(ranks.group(), mine == nullptr ? "" : devices::kind_of(*mine));
  const std::vector<std::string> words = gather_texts(
      ranks.group(), mine == nullptr ? formatted("rank {} has none", rank) : words_of(rank, *mine));
  ranks.together([&] {
    for (size_t other = 1; other < kinds.size(); ++other)
      if (kinds[other] != kinds.front())
        throw UsageError(formatted(
            "devices: {}, and on another machine {}: the processes of a run need cards of one kind; start them on "
            "machines with such cards, or compute without (--device cpu)",
            words.front(), words[other]));
  });
}

}  // namespace

std::string give_cards_to_ranks(const LoadedRecipe& loaded, int64_t here, bool resumes) {
  const auto told = told_cards();
  const RankCards cards = told ? *told : cards_of_ranks(loaded, here, resumes);
  setenv(kCardsVariable, join(cards.uuids, ",").c_str(), 1);
  return cards.line;
}

TakenCard take_card_of_rank(const LoadedRecipe& loaded, RunRanks& ranks, bool resumes) {
  const Watch& watch = *ranks.watch();
  const RankCards cards = cards_of_started(loaded, ranks, resumes);
  const std::string mine = ranks.together([&]() -> std::string {
    if (cards.uuids.empty()) return "";
    if (std::ssize(cards.uuids) < watch.ranks_here())
      throw UsageError(formatted("devices: {} cards are named for {} processes of this machine",
                                 cards.uuids.size(), watch.ranks_here()));
    return cards.uuids[static_cast<size_t>(watch.place_here())];
  });
  require_one_kind(ranks, mine.empty() ? nullptr : own_cards().find(mine));
  if (mine.empty()) {
    const bool has_cards = loaded.recipe.device == DeviceChoice::automatic && !loaded.recipe.memory.gpu &&
                           !own_cards().gpus.empty();
    return {.is_card = false, .device = has_cards ? "cpu" : "", .line = cards.line};
  }
  keep_only_card(mine);
  return {.is_card = true, .device = "cuda", .line = cards.line};
}

}  // namespace plimsoll
