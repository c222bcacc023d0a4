#include "cli/advise/plan_ways.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "base/shell_word.h"
#include "base/units.h"
#include "cli/advise/what_if.h"
#include "device/catalogue.h"
#include "plan/search/fitting_plans.h"
#include "plan/search/run_time.h"

namespace plimsoll {
namespace {

using WayChange = std::pair<std::string, std::string>;  // key, value
using Changes = std::vector<WayChange>;

// Work that a refusal may be, of planning_work(), some seconds; no plan is begun after it.
constexpr int64_t kWaysPatience = 6'000'000;
constexpr int64_t kShortestRow = 64;  // tokens: rows below that teach little
constexpr int64_t kAnyDisk = int64_t{1} << 50;
// Sizes of host memory in machines with a GPU, in GiB.
constexpr std::array<int64_t, 26> kHostSizes = {1,   2,   4,   6,   8,   12,  16,   20,  24,
                                                32,  40,  48,  56,  64,  80,  96,   112, 128,
                                                160, 192, 256, 384, 512, 768, 1024, 2048};

// A size that people would type, at least `bytes`.
std::string neat_size(int64_t bytes) {
  const int64_t step = bytes >= 16 * kGiB ? kGiB : bytes >= kGiB ? kGiB / 8 : 16 * kMiB;
  const int64_t size = round_up(std::max<int64_t>(bytes, 1), step);
  if (size % kGiB == 0) return std::to_string(size / kGiB) + "GiB";
  return std::to_string(size / kMiB) + "MiB";
}

// Tries changes of the command line; keeps those that fit.
class WayFinder {
 public:
  // `always`: changes that every way needs, with what they are in words.
  WayFinder(std::string command, const PlanArguments& arguments, Changes always, std::string words)
      : command_(std::move(command)),
        arguments_(arguments),
        always_(std::move(always)),
        words_(std::move(words)) {}

  // No plan is begun any more, but for what is added whatever it takes.
  [[nodiscard]] bool out_of_patience() const { return patience_.ended(); }

  // The plan with the changes, where it is possible and fits.
  [[nodiscard]] std::optional<Plan> plan(const Changes& changes) const {
    return fitting_plan(changed(changes), {});
  }

  // Adds the changes as a way where they fit; whether they do.
  bool add(const Changes& changes, const std::string& effect, bool same_result) {
    return !out_of_patience() && add_anyway(changes, effect, same_result);
  }
  bool add_anyway(const Changes& changes, const std::string& effect, bool same_result) {
    const std::optional<Plan> found = plan(changes);
    if (found) add(changes, *found, effect, same_result);
    return found.has_value();
  }

  // Budgets that the refused plan's least memory fits: where estimates find nothing else for them, that.
  void add_larger_budget(const Changes& changes, const std::string& effect, const Plan& refused) {
    if (add_anyway(changes, effect, true)) return;
    const auto least = if_possible(
        [&] { return plan_variant(plan_input(changed(changes), {}).request, refused.smallest.variant); });
    if (least && least->fits()) add(changes, *least, effect, true);
  }

  // With as much disk as the plan then takes, in a size that people would type.
  bool add_with_disk(Changes changes, const std::string& effect, bool same_result) {
    return !out_of_patience() && if_possible([&] {
                                   return add_with_enough_disk(std::move(changes), effect, same_result);
                                 }).value_or(false);
  }

  // With nearly the smallest host that machines have and that is enough: what is measured of one serves all.
  void add_with_larger_host(int64_t host_bytes) {
    std::vector<int64_t> sizes;
    for (const int64_t size : kHostSizes)
      if (size * kGiB > host_bytes) sizes.push_back(size);
    if (sizes.empty() || out_of_patience()) return;
    if_possible([&] {
      add_with_one_host_of(sizes);
      return true;
    });
  }

  // The longest of half, a quarter, ... of the length that fits. If half does not fit, the shortest shows
  // whether any does, and the rest is halved.
  bool add_shorter(Changes changes, int64_t length, const std::string& effect) {
    std::vector<int64_t> lengths;
    for (int64_t shorter = length / 2; shorter >= kShortestRow; shorter /= 2) lengths.push_back(shorter);
    changes.emplace_back("data.max_length", "");
    std::map<size_t, Plan> found;
    const auto fits = [&](size_t i) {
      changes.back().second = std::to_string(lengths[i]);
      if (out_of_patience()) return false;
      auto one = plan(changes);
      if (one) found.emplace(i, *std::move(one));
      return found.contains(i);
    };
    size_t longest = 0;
    if (lengths.empty()) return false;
    if (!fits(0)) {
      size_t too_long = 0;
      longest = lengths.size() - 1;
      if (longest == 0 || !fits(longest)) return false;
      while (longest - too_long > 1) {
        const size_t middle = too_long + (longest - too_long) / 2;
        (fits(middle) ? longest : too_long) = middle;
      }
    }
    changes.back().second = std::to_string(lengths[longest]);
    add(changes, found.at(longest), effect + "rows of at most " + format_count(lengths[longest]) + " tokens",
        false);
    return true;
  }

  std::vector<Way> ways;

 private:
  static Changes with_host(int64_t size) { return {{"memory.host", std::to_string(size) + "GiB"}}; }

  // Suggests one of the sizes, in GiB and ascending: a plan in the largest shows which one is enough for
  // sure; halved a few times.
  void add_with_one_host_of(const std::vector<int64_t>& sizes) {
    constexpr int kHalvings = 3;
    FittingPlans plans(plan_input(changed(with_host(sizes.back())), {}).request);
    std::map<size_t, Plan> planned;
    size_t low = 0, high = sizes.size() - 1;
    const auto fits = [&](size_t i) {
      auto plan = plans.within(plan_input(changed(with_host(sizes[i])), {}).request.target.budget);
      if (!plan) return false;
      high = i;
      while (high > low && sizes[high - 1] * kGiB >= plan->host_bytes()) --high;
      planned.emplace(i, *std::move(plan));
      return true;
    };
    if (!fits(high)) return;
    for (int halving = 0; low < high && halving < kHalvings && !out_of_patience(); ++halving) {
      const size_t middle = low + (high - low) / 2;
      if (!fits(middle)) low = middle + 1;
    }
    if (!planned.contains(high) && !fits(high)) return;
    add(with_host(sizes[high]), planned.at(high),
        "same result, with " + std::to_string(sizes[high]) + " GiB of host memory", true);
  }

  // One search for both budgets, open and as large as is taken.
  bool add_with_enough_disk(Changes changes, const std::string& effect, bool same_result) {
    changes.emplace_back("memory.disk", std::to_string(kAnyDisk) + "B");
    const PlanInput input = plan_input(changed(changes), {});
    FittingPlans plans(input.request);
    // Lossy means make requests of their own, which share nothing.
    const auto planned = [&] {
      return input.resolved.recipe.memory.allow.empty()
                 ? plans.within(plan_input(changed(changes), {}).request.target.budget)
                 : plan(changes);
    };
    std::optional<Plan> found = planned();
    // With what the open budget's plan takes; and where ties then take less, with that.
    for (int round = 0; found && round < 2; ++round) {
      if (found->disk_bytes() == 0) return false;
      const std::string size = neat_size(found->disk_bytes());
      if (size == std::exchange(changes.back().second, size)) break;
      found = planned();
    }
    if (found) add(changes, *found, effect, same_result);
    return found.has_value();
  }

  [[nodiscard]] RecipeArguments with(const Changes& changes) const {
    RecipeArguments changed = arguments_.recipe;
    for (const auto& [key, value] : always_) changed.change(key, value);
    for (const auto& [key, value] : changes) changed.change(key, value);
    return changed;
  }

  [[nodiscard]] PlanArguments changed(const Changes& changes) const {
    PlanArguments changed;
    changed.recipe = with(changes);
    changed.machine = arguments_.machine;
    return changed;
  }

  void add(const Changes& changes, const Plan& found, const std::string& effect, bool same_result) {
    const std::string machine = arguments_.machine.empty() ? "" : " --machine " + quoted(arguments_.machine);
    const std::string command = "plimsoll " + command_ + " " + with(changes).words() + machine;
    if (std::ranges::find(ways, command, &Way::command) != ways.end()) return;
    const bool settles = std::ranges::any_of(changes, [&](const WayChange& change) {
      return !always_.empty() && change.first == always_[0].first;
    });
    ways.push_back({command, effect + (settles ? "" : words_), same_result, found.memory_bytes(),
                    found.disk_bytes(), found.seconds_per_step});
  }

  std::string command_;
  const PlanArguments& arguments_;
  Changes always_;
  std::string words_;
  Patience patience_{kWaysPatience};
};

// The recipe's keys that hold the planner back, let go one after the other.
void add_releases(WayFinder& finder, const PlanRequest& request) {
  Changes changes;
  const auto release = [&](bool held, const char* key, const char* value = "auto") {
    if (!held) return false;
    changes.emplace_back(key, value);
    return finder.add(changes, "same result", true);
  };
  [[maybe_unused]] const bool found =
      release(request.choices.micro_batch.has_value(), "batch.micro") ||
      release(request.choices.recompute.has_value(), "memory.recompute") ||
      release(request.choices.loss_chunk.has_value(), "memory.loss_chunk") ||
      (request.choices.offload_of_tier ? release(true, "memory.tier", "null")
                                       : release(request.choices.offload.has_value(), "memory.offload"));
}

// The methods that take less than the recipe's, the nearest first, and what they change, in words. Adapters
// leave no choice of what stays as it is.
std::vector<std::pair<Changes, std::string>> smaller_methods(const Recipe& recipe) {
  std::vector<std::pair<Changes, std::string>> methods;
  const auto add = [&](const char* method, const char* effect) {
    Changes changes = {{"method.type", method}};
    if (!recipe.method.freeze.empty()) changes.emplace_back("method.freeze", "null");
    methods.emplace_back(std::move(changes), effect);
  };
  if (recipe.method.type == MethodType::full) add("lora", "trains adapters only");
  if (recipe.method.type != MethodType::qlora) add("qlora", "trains adapters on weights of 4 bits");
  return methods;
}

// Whether shorter rows may make it fit: weights, masters and states are held somewhere however long rows are,
// unless the recipe allows means that make them smaller.
bool shorter_may_fit(const Recipe& recipe, const Plan& refused) {
  const std::optional<int64_t> memory = memory_budget(refused.request);
  const std::optional<int64_t> host =
      refused.request.target.own_memory ? refused.request.target.budget.host_bytes : 0;
  const std::optional<int64_t>& disk = refused.request.target.budget.disk_bytes;
  if (!recipe.memory.allow.empty() || !memory || !host || !disk) return true;
  int64_t held = 0;
  for (const TableRow& row : refused.layout.persistent) {
    const bool is_weight = row.role == Role::frozen_weight || row.role == Role::trainable_weight;
    if (is_weight || row.role == Role::master || row.role == Role::optimizer_state) held += row.bytes;
  }
  return held <= *memory + *host + *disk;
}

// The smallest card with as much, of a named card's generation or a later one; empty where there is no such
// card.
std::string larger_card(const DeviceDescription& device, int64_t bytes) {
  const Card* best = nullptr;
  for (const Card& card : all_cards()) {
    const bool enough =
        card.memory_mib * kMiB >= bytes && card.compute_capability >= device.card.compute_capability;
    if (enough && (best == nullptr || card.memory_mib < best->memory_mib)) best = &card;
  }
  return best == nullptr ? "" : full_name(*best);
}

// A budget of the size that the smallest variant takes, or a card of it.
void add_larger_budget(WayFinder& finder, const PlanRequest& request, const Plan& refused) {
  const int64_t least = memory_bytes(request, refused.smallest);
  const std::string& name = request.target.device.card_name;
  if (!name.empty() && !refused.fits_device() && least > find_card(name, "memory.gpu").memory_mib * kMiB) {
    if (const std::string larger = larger_card(request.target.device, least); !larger.empty())
      finder.add_larger_budget({{"memory.gpu", larger}}, "same result, on a larger card", refused);
    return;
  }
  Changes changes;
  if (!refused.fits_device() || !refused.fits_process())
    changes.emplace_back("memory.device", neat_size(least));
  if (!refused.fits_disk()) changes.emplace_back("memory.disk", neat_size(refused.disk_bytes()));
  if (changes.empty() && !refused.fits_host())
    changes.emplace_back("memory.host", neat_size(refused.host_bytes()));
  if (!changes.empty()) finder.add_larger_budget(changes, "same result, on a machine with as much", refused);
}

}  // namespace

std::vector<Way> ways_out(const std::string& command, const PlanArguments& arguments, const Recipe& recipe,
                          const Plan& refused) {
  // Less of a host than any run takes: with that alone nothing fits.
  Changes always;
  if (!refused.fits_host()) always.emplace_back("memory.host", neat_size(refused.host_bytes()));
  WayFinder finder(command, arguments, always,
                   always.empty() ? "" : ", with " + always.front().second + " of host memory");
  const int64_t length = recipe.data.max_length;
  add_releases(finder, refused.request);
  const bool has_disk = refused.request.target.budget.disk_bytes.value_or(0) > 0;
  const std::string disk = has_disk ? "with a larger disk" : "with a disk";
  if (const auto& host = refused.request.target.budget.host_bytes; refused.request.target.own_memory && host)
    finder.add_with_larger_host(std::max(*host, refused.fits_host() ? 0 : refused.host_bytes()));
  finder.add_with_disk({}, "same result, " + disk, true);
  const auto methods = smaller_methods(recipe);
  bool alone = false;
  for (const auto& [method, effect] : methods) alone = finder.add(method, effect, false) || alone;
  if (recipe.method.type == MethodType::full && recipe.optimizer.name == OptimizerKind::adamw)
    alone = finder.add({{"optimizer.name", "adamw8bit"}}, "optimizer states of 8 bits", false) || alone;
  if (shorter_may_fit(recipe, refused)) alone = finder.add_shorter({}, length, "") || alone;
  if (!alone && !methods.empty()) {
    const auto& [method, effect] = methods.back();
    if (!finder.add_shorter(method, length, effect + "; "))
      finder.add_with_disk(method, effect + "; " + disk, false);
  }
  add_larger_budget(finder, refused.request, refused);
  std::stable_sort(finder.ways.begin(), finder.ways.end(),
                   [](const Way& a, const Way& b) { return a.same_result && !b.same_result; });
  return std::move(finder.ways);
}

std::string ways_text(const std::vector<Way>& ways) {
  if (ways.empty()) return "";
  std::string text = "\n  what would fit, each planned for real:";
  for (const Way& way : ways) {
    text += "\n    " + way.effect + ": " + format_bytes(way.memory_bytes) +
            (way.disk_bytes > 0 ? " and " + format_bytes(way.disk_bytes) + " of disk" : "") + ", " +
            duration_words(way.seconds_per_step) + " a step\n      " + way.command;
  }
  return text;
}

nlohmann::ordered_json ways_json(const std::vector<Way>& ways) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Way& way : ways)
    list.push_back({{"command", way.command},
                    {"effect", way.effect},
                    {"same_result", way.same_result},
                    {"memory_bytes", way.memory_bytes},
                    {"disk_bytes", way.disk_bytes},
                    {"seconds_per_step", way.seconds_per_step}});
  return list;
}

}  // namespace plimsoll
