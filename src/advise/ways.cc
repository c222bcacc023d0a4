#include "advise/ways.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/format.h"
#include "base/units.h"
#include "device/catalogue.h"
#include "plan/search/fitting_plans.h"
#include "plan/search/places.h"
#include "prepare/setup.h"

namespace plimsoll {
namespace {

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

// Tries changes; keeps those that fit.
class WayFinder {
 public:
  // `always`: changes that every way needs, with what they are in words.
  // `refused`: the request that does not fit.
  WayFinder(const Variants& variants, const PlanRequest& refused, Changes always, std::string words)
      : variants_(variants),
        always_(std::move(always)),
        words_(std::move(words)),
        measured_(refused.measured ? refused.measured : std::make_shared<KnownModels>()) {}

  // No plan is begun any more, but for what is added whatever it takes.
  [[nodiscard]] bool out_of_patience() const { return patience_.ended(); }

  // The plan with the changes, where it is possible and fits.
  [[nodiscard]] std::optional<Plan> plan(const Changes& changes) const {
    return fitting_plan(variants_.plan, with(changes), keeps_programs(changes) ? measured_ : nullptr);
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

  // Budgets that a refused plan's least memory fits: where estimates find nothing else for them, that.
  void add_larger_budget(const Changes& changes, const std::string& effect, bool same_result,
                         const Variant& smallest) {
    if (add_anyway(changes, effect, same_result)) return;
    const auto least = if_possible([&] { return plan_variant(request(changes), smallest); });
    if (least && least->fits()) add(changes, *least, effect, same_result);
  }

  // Refuses the changes where nothing limits the disk; none where they are not possible, or fit.
  [[nodiscard]] std::optional<Refusal> refusal_with_any_disk(Changes changes) const {
    if (out_of_patience()) return std::nullopt;
    changes.push_back(any_disk());
    const auto planned = if_possible([&] { return make_plan(request(changes)); });
    return planned && !planned->fits() ? std::optional(refusal_of(*planned)) : std::nullopt;
  }

  // With as much disk as the plan then takes, in a size that people would type.
  bool add_with_disk(Changes changes, const std::string& effect, bool same_result) {
    return !out_of_patience() && if_possible([&] {
                                   return add_with_enough_disk(std::move(changes), effect, same_result);
                                 }).value_or(false);
  }

  // The same without the changes that every other way needs.
  bool add_with_disk_alone(const std::string& effect) {
    const Changes always = std::exchange(always_, {});
    const std::string words = std::exchange(words_, "");
    const bool added = add_with_disk({}, effect, true);
    always_ = always;
    words_ = words;
    return added;
  }

  // With the smallest host that machines have and that is enough: what is measured of one serves all.
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

  // The longest of half, a quarter, ... of the length that fits.
  bool add_shorter(Changes changes, int64_t length, const std::string& effect) {
    const auto found = longest_that_fits(changes, length);
    if (!found) return false;
    changes.push_back({"data.max_length", std::to_string(found->first)});
    add(changes, found->second, effect + shorter_words(found->first), false);
    return true;
  }
  bool add_shorter_with_disk(Changes changes, int64_t length, const std::string& effect,
                             const std::string& disk) {
    Changes open = changes;
    open.push_back(any_disk());
    const auto found = longest_that_fits(open, length);
    if (!found) return false;
    changes.push_back({"data.max_length", std::to_string(found->first)});
    return add_with_disk(changes, formatted("{}{}, {}", effect, shorter_words(found->first), disk), false);
  }

  std::vector<Way> ways;

 private:
  static Changes with_host(int64_t size) { return {{"memory.host", std::to_string(size) + "GiB"}}; }
  static KeyChange any_disk() { return {"memory.disk", std::to_string(kAnyDisk) + "B"}; }
  static std::string shorter_words(int64_t length) {
    return formatted("rows of at most {} tokens", format_count(length));
  }

  // If half of the length does not fit, the shortest shows whether any does, and the rest is halved.
  std::optional<std::pair<int64_t, Plan>> longest_that_fits(Changes changes, int64_t length) {
    std::vector<int64_t> lengths;
    for (int64_t shorter = length / 2; shorter >= kShortestRow; shorter /= 2) lengths.push_back(shorter);
    changes.push_back({"data.max_length", ""});
    std::map<size_t, Plan> found;
    const auto fits = [&](size_t i) {
      changes.back().value = std::to_string(lengths[i]);
      if (out_of_patience()) return false;
      auto one = plan(changes);
      if (one) found.emplace(i, *std::move(one));
      return found.contains(i);
    };
    size_t longest = 0;
    if (lengths.empty()) return std::nullopt;
    if (!fits(0)) {
      size_t too_long = 0;
      longest = lengths.size() - 1;
      if (longest == 0 || !fits(longest)) return std::nullopt;
      while (longest - too_long > 1) {
        const size_t middle = too_long + (longest - too_long) / 2;
        (fits(middle) ? longest : too_long) = middle;
      }
    }
    return std::pair(lengths[longest], found.at(longest));
  }

  // Suggests the first of the sizes, in GiB and ascending, that is enough. Estimates leave out those that are not.
  void add_with_one_host_of(const std::vector<int64_t>& sizes) {
    const auto budget = [&](int64_t place) {
      return request(with_host(sizes[static_cast<size_t>(place)])).target.budget;
    };
    FittingPlans plans(of_refused(request(with_host(sizes.back()))));
    const int64_t last = std::ssize(sizes) - 1;
    if (!plans.may_fit(budget(last))) return;
    int64_t place = first_place(0, last, [&](int64_t at) { return plans.may_fit(budget(at)); });
    for (; place <= last && !out_of_patience(); ++place) {
      const auto plan = plans.within(budget(place));
      if (!plan) continue;
      const int64_t size = sizes[static_cast<size_t>(place)];
      return add(with_host(size), *plan, formatted("same result, with {} GiB of host memory", size), true);
    }
  }

  // One search for both budgets, open and as large as is taken.
  bool add_with_enough_disk(Changes changes, const std::string& effect, bool same_result) {
    changes.push_back(any_disk());
    const PlanInput input = variants_.plan(with(changes));
    FittingPlans plans(keeps_programs(changes) ? of_refused(input.request) : input.request);
    // Lossy means make requests of their own, which share nothing.
    const auto planned = [&] {
      return input.resolved.recipe.memory.allow.empty() ? plans.within(request(changes).target.budget)
                                                        : plan(changes);
    };
    std::optional<Plan> found = planned();
    // With what the open budget's plan takes; and where ties then take less, with that.
    for (int round = 0; found && round < 2; ++round) {
      if (found->disk_bytes() == 0) return false;
      // The processes of a machine divide its disk.
      const std::string size = neat_size(found->disk_bytes() * input.request.target.budget.sharing);
      if (size == std::exchange(changes.back().value, size)) break;
      found = planned();
    }
    if (found) add(changes, *found, effect, same_result);
    return found.has_value();
  }

  // Returns true for keys of budgets and of the planner's choices alone: the workload and the device stay as they were.
  static bool keeps_programs(const Changes& changes) {
    return std::ranges::all_of(changes, [](const KeyChange& change) {
      const std::string& key = change.key;
      return key == "batch.micro" || (key.starts_with("memory.") && key != "memory.gpu" &&
                                      key != "memory.allow" && key != "memory.shard");
    });
  }

  // Searches of the same workload take what the refused plan's search measured.
  [[nodiscard]] PlanRequest of_refused(PlanRequest request) const {
    request.measured = measured_;
    return request;
  }

  // The changes that every way needs, then these: the last value of a key counts.
  [[nodiscard]] Changes with(const Changes& changes) const {
    Changes all = always_;
    all.insert(all.end(), changes.begin(), changes.end());
    return all;
  }

  [[nodiscard]] PlanRequest request(const Changes& changes) const {
    return variants_.plan(with(changes)).request;
  }

  void add(const Changes& changes, const Plan& found, const std::string& effect, bool same_result) {
    const std::string command = variants_.command(with(changes));
    if (std::ranges::find(ways, command, &Way::command) != ways.end()) return;
    const bool settles = std::ranges::any_of(
        changes, [&](const KeyChange& change) { return !always_.empty() && change.key == always_[0].key; });
    ways.push_back({command, effect + (settles ? "" : words_), same_result, found.memory_bytes(),
                    found.disk_bytes(), found.seconds_per_step});
  }

  const Variants& variants_;
  Changes always_;
  std::string words_;
  std::shared_ptr<KnownModels> measured_;
  Patience patience_{kWaysPatience};
};

// The keys that hold the planner back, let go one after the other.
void add_releases(WayFinder& finder, const Refusal& refusal) {
  Changes changes;
  for (const HoldingKey& held : in_order_of(ReleasedBy::suggestions, refusal.holding)) {
    changes.push_back({held.key, held.value});
    if (finder.add(changes, "same result", true)) return;
  }
}

using Methods = std::vector<std::pair<Changes, std::string>>;
// The methods that take less than the recipe's, the nearest first, and what they change, in words. Adapters
// leave no choice of what stays as it is.
Methods smaller_methods(const Recipe& recipe) {
  Methods methods;
  const auto add = [&](const char* method, const char* effect) {
    Changes changes = {{"method.type", method}};
    if (!recipe.method.freeze.empty()) changes.push_back({"method.freeze", "null"});
    methods.emplace_back(std::move(changes), effect);
  };
  if (recipe.method.type == MethodType::full) add("lora", "trains adapters only");
  if (recipe.method.type != MethodType::qlora) add("qlora", "trains adapters on 4-bit weights");
  if (recipe.method.type == MethodType::qlora && recipe.method.bits != 4)
    methods.emplace_back(Changes{{"method.bits", "4"}}, "trains adapters on 4-bit weights");
  return methods;
}

// Returns whether shorter rows may make it fit: weights, masters and states are held somewhere however long rows are,
// unless the recipe allows means that make them smaller.
bool shorter_may_fit(const Recipe& recipe, const PlanRequest& request, const Refusal& refusal) {
  const std::optional<int64_t> memory = memory_budget(request);
  const std::optional<int64_t> host = request.target.own_memory ? request.target.budget.host_bytes : 0;
  const std::optional<int64_t>& disk = request.target.budget.disk_bytes;
  if (!recipe.memory.allow.empty() || !memory || !host || !disk) return true;
  return refusal.persistent_bytes <= *memory + *host + *disk;
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

// The memory that a variant takes, or a card of it; empty where no card has as much.
Changes enough_memory(const PlanRequest& request, int64_t bytes) {
  const std::string& name = request.target.device.card_name;
  if (!name.empty() && bytes > find_card(name, "memory.gpu").memory_mib * kMiB) {
    const std::string larger = larger_card(request.target.device, bytes);
    return larger.empty() ? Changes{} : Changes{{"memory.gpu", larger}};
  }
  // A card is one process's, and a CPU's memory is that of all.
  const int64_t processes = request.target.own_memory ? 1 : request.target.budget.sharing;
  return {{"memory.device", neat_size(processes * bytes)}};
}

std::string larger_words(const Changes& memory) {
  return memory.front().key == "memory.gpu" ? "on a larger card" : "on a machine with as much";
}

// A budget of the size that the smallest variant takes, or a card of it.
void add_larger_budget(WayFinder& finder, const PlanRequest& request, const Refusal& refusal) {
  Changes changes;
  if (refusal.of_memory() != nullptr) {
    changes = enough_memory(request, refusal.smallest.memory_bytes);
    if (changes.empty()) return;
  }
  const std::string words =
      formatted("same result, {}", changes.empty() ? "on a machine with as much" : larger_words(changes));
  const int64_t processes = request.target.budget.sharing;
  if (refusal.lacks_disk())
    changes.push_back({"memory.disk", neat_size(processes * refusal.planned.disk_bytes)});
  if (changes.empty() && refusal.lacks_host())
    changes.push_back({"memory.host", neat_size(processes * refusal.planned.host_bytes)});
  if (!changes.empty()) finder.add_larger_budget(changes, words, true, refusal.smallest.variant);
}

// The least memory that the changes take with as large a disk as that needs, where it is a fifth below what was offered.
void add_least_memory(WayFinder& finder, const PlanRequest& request, int64_t offered, Changes changes,
                      const std::string& effect, const std::string& disk, bool same_result) {
  const auto refusal = finder.refusal_with_any_disk(changes);
  if (!refusal || refusal->of_memory() == nullptr) return;
  const RefusedVariant& least = refusal->smallest;
  if (least.memory_bytes > offered - offered / 5) return;
  const Changes memory = enough_memory(request, least.memory_bytes);
  if (memory.empty()) return;
  const bool needs_disk = least.disk_bytes > request.target.budget.disk_bytes.value_or(0);
  const std::string words =
      formatted("{}, {}{}", effect, needs_disk ? disk + ", " : "", larger_words(memory));
  changes.insert(changes.end(), memory.begin(), memory.end());
  if (needs_disk)
    changes.push_back({"memory.disk", neat_size(request.target.budget.sharing * least.disk_bytes)});
  finder.add_larger_budget(changes, words, same_result, least.variant);
}

// Processes of several devices share a budget: each holds less where they divide states, gradients or weights, and fewer of them
// hold less.
void add_fewer_devices(WayFinder& finder, const Recipe& recipe) {
  if (recipe.devices == 1) return;
  if (!recipe.memory.node_copy)
    finder.add({{"memory.node_copy", "true"}},
               "same result, frozen weights once for all devices of a machine", true);
  const bool divides = recipe.optimizer.name != OptimizerKind::adafactor;
  const bool is_stated = recipe.memory.shard != ShardStage::automatic || tier_divides(recipe);
  const ShardStage stage = shard_stage(recipe);
  if (divides && stage == ShardStage::none)
    finder.add({{"memory.shard", "states"}}, "same result, optimizer states divided among the devices", true);
  if (divides && is_stated && stage <= ShardStage::states)
    finder.add({{"memory.shard", "gradients"}},
               "same result, gradients and optimizer states divided among the devices", true);
  if (divides && is_stated && stage != ShardStage::weights && needs_whole_weights(recipe).empty())
    finder.add({{"memory.shard", "weights"}},
               "same result, weights, gradients and optimizer states divided among the devices", true);
  if (recipe.devices > 2 &&
      finder.add({{"devices", std::to_string(recipe.devices / 2)}}, "same result, on fewer devices", true))
    return;
  finder.add({{"devices", "1"}}, "same result, on one device", true);
}

// Another method, smaller states, shorter rows; two of them, or one with a larger disk, where none does by itself.
void add_lossy(WayFinder& finder, const Recipe& recipe, const Methods& methods, const std::string& disk,
               bool shorter) {
  const int64_t length = recipe.data.max_length;
  bool alone = false;
  for (const auto& [method, effect] : methods) alone = finder.add(method, effect, false) || alone;
  if (recipe.method.type == MethodType::full && recipe.optimizer.name == OptimizerKind::adamw)
    alone = finder.add({{"optimizer.name", "adamw8bit"}}, "8-bit optimizer states", false) || alone;
  if (shorter) alone = finder.add_shorter({}, length, "") || alone;
  if (alone) return;
  const Changes method = methods.empty() ? Changes{} : methods.back().first;
  const std::string effect = methods.empty() ? "" : methods.back().second + "; ";
  if (!methods.empty() &&
      (finder.add_shorter(method, length, effect) || finder.add_with_disk(method, effect + disk, false)))
    return;
  if (finder.ways.empty()) finder.add_shorter_with_disk(method, length, effect, disk);
}

}  // namespace

std::vector<Way> ways_out(const Variants& variants, const Recipe& recipe, const PlanRequest& request,
                          const Refusal& refusal) {
  const Budget& budget = request.target.budget;
  const int64_t host_needed = refusal.lacks_host() ? budget.sharing * refusal.planned.host_bytes : 0;
  // Less of a host than any run takes: with that alone nothing fits.
  Changes always;
  if (refusal.lacks_host()) always.push_back({"memory.host", neat_size(host_needed)});
  WayFinder finder(variants, request, always,
                   always.empty() ? "" : formatted(", with {} of host memory", always.front().value));
  add_releases(finder, refusal);
  add_fewer_devices(finder, recipe);
  const std::string disk = budget.disk_bytes.value_or(0) > 0 ? "with a larger disk" : "with a disk";
  if (refusal.own_memory && budget.host_bytes)
    finder.add_with_larger_host(std::max(*budget.host_bytes, host_needed));
  if (always.empty() || !finder.add_with_disk_alone("same result, " + disk))
    finder.add_with_disk({}, "same result, " + disk, true);
  const Methods methods = smaller_methods(recipe);
  add_lossy(finder, recipe, methods, disk, shorter_may_fit(recipe, request, refusal));
  const bool fits_memory = !finder.ways.empty();
  add_larger_budget(finder, request, refusal);
  if (!fits_memory) {
    const int64_t offered = refusal.smallest.memory_bytes;
    add_least_memory(finder, request, offered, {}, "same result", disk, true);
    if (!methods.empty())
      add_least_memory(finder, request, offered, methods.back().first, methods.back().second, disk, false);
  }
  std::stable_sort(finder.ways.begin(), finder.ways.end(),
                   [](const Way& a, const Way& b) { return a.same_result && !b.same_result; });
  return std::move(finder.ways);
}

}  // namespace plimsoll
