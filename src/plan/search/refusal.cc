#include "plan/search/refusal.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "plan/search/fitting_plans.h"

namespace plimsoll {
namespace {

// A key of the recipe, whether it holds the planner, and what lets it go.
struct Hold {
  Held what;
  bool set;
  const char* key;
  const char* value;
};

// The order in which each lets go of a choice that a key holds; 0: it leaves the key as it is. Suggestions let
// offloading go last, since a disk or a larger host is suggested by itself, and the doctor's steps offload by
// keys of their own. Neither knows what captured graphs take.
struct ReleaseOrder {
  Held what;
  std::array<int, 3> places;  // by ReleasedBy
};
constexpr std::array kReleaseOrder = {
    // refusal, suggestions, doctor
    ReleaseOrder{Held::micro_batch, {1, 1, 1}}, ReleaseOrder{Held::recompute, {2, 2, 2}},
    ReleaseOrder{Held::offload, {3, 5, 0}},     ReleaseOrder{Held::prefetch, {4, 4, 3}},
    ReleaseOrder{Held::loss_chunk, {5, 3, 4}},  ReleaseOrder{Held::graphs, {6, 0, 0}}};

int place_of(ReleasedBy who, Held what) {
  const auto row = std::ranges::find(kReleaseOrder, what, &ReleaseOrder::what);
  check_internal(row != kReleaseOrder.end(), "a key that holds the planner without an order");
  return row->places[static_cast<size_t>(who)];
}

std::vector<Hold> holds(const Choices& choices) {
  return {
      {Held::micro_batch, choices.micro_batch.has_value(), "batch.micro", "auto"},
      {Held::recompute, choices.recompute.has_value(), "memory.recompute", "auto"},
      {Held::offload, choices.targets.has_value(), "memory.offload_to", "auto"},
      {Held::offload, choices.offload.has_value(), choices.offload_of_tier ? "memory.tier" : "memory.offload",
       choices.offload_of_tier ? "null" : "auto"},
      {Held::prefetch, choices.prefetch.has_value(), "memory.prefetch", "auto"},
      {Held::loss_chunk, choices.loss_chunk.has_value(), "memory.loss_chunk", "auto"},
      {Held::graphs, choices.graphs == UseGraphs::on, "memory.graphs", "auto"}};
}

// The three largest of all that the budget bounds.
std::vector<Component> largest_components(const Plan& plan) {
  std::vector<Component> components = device_components(plan);
  if (!plan.request.target.own_memory)
    for (const Component& component : plan.host_components()) components.push_back(component);
  std::stable_sort(components.begin(), components.end(),
                   [](const Component& a, const Component& b) { return a.bytes > b.bytes; });
  components.resize(std::min<size_t>(components.size(), 3));
  return components;
}

std::vector<Shortage> shortages(const Plan& plan) {
  const Budget& budget = plan.request.target.budget;
  std::vector<Shortage> all;
  if (!plan.fits_device() || !plan.fits_process())
    all.push_back({plan.request.target.own_memory ? Shortage::Of::device : Shortage::Of::process,
                   plan.memory_bytes(), memory_budget(plan.request).value_or(0), budget.device_source,
                   budget.of_free, budget.of_free ? budget.free_bytes : 0});
  if (!plan.fits_host())
    all.push_back({Shortage::Of::host, plan.host_bytes(), *budget.host_bytes, budget.host_source});
  if (!plan.fits_disk())
    all.push_back({Shortage::Of::disk, plan.disk_bytes(), *budget.disk_bytes, "memory.disk"});
  return all;
}

int64_t persistent_bytes(const Plan& plan) {
  int64_t held = 0;
  for (const TableRow& row : plan.layout.persistent) {
    const bool is_weight = row.role == Role::frozen_weight || row.role == Role::trainable_weight;
    if (is_weight || row.role == Role::master || row.role == Role::optimizer_state) held += row.bytes;
  }
  return held - plan.layout.shared.of_others();
}

}  // namespace

std::vector<HoldingKey> holding_keys(const PlanRequest& request) {
  std::vector<HoldingKey> keys;
  for (const Hold& hold : holds(request.choices))
    if (hold.set) keys.push_back({hold.what, hold.key, hold.value});
  const auto place = [](const HoldingKey& key) { return place_of(ReleasedBy::refusal, key.what); };
  std::ranges::stable_sort(keys, {}, place);
  return keys;
}

std::vector<HoldingKey> in_order_of(ReleasedBy who, const std::vector<HoldingKey>& holding) {
  std::vector<HoldingKey> keys;
  for (const HoldingKey& key : holding)
    if (place_of(who, key.what) > 0 && std::ranges::find(keys, key.what, &HoldingKey::what) == keys.end())
      keys.push_back(key);
  std::ranges::stable_sort(keys, {}, [&](const HoldingKey& key) { return place_of(who, key.what); });
  return keys;
}

void let_go(PlanRequest& request, Held what) {
  Choices& choices = request.choices;
  switch (what) {
    case Held::micro_batch:
      choices.micro_batch.reset();
      return;
    case Held::recompute:
      choices.recompute.reset();
      return;
    case Held::offload:
      choices.offload.reset();
      choices.targets.reset();
      return;
    case Held::prefetch:
      choices.prefetch.reset();
      return;
    case Held::loss_chunk:
      choices.loss_chunk.reset();
      return;
    case Held::graphs:
      choices.graphs = UseGraphs::automatic;
      return;
  }
}

const Shortage* Refusal::shortage(Shortage::Of of) const {
  const auto found = std::ranges::find(shortages, of, &Shortage::of);
  return found == shortages.end() ? nullptr : &*found;
}

const Shortage* Refusal::of_memory() const {
  return shortage(own_memory ? Shortage::Of::device : Shortage::Of::process);
}

Refusal refusal_of(const Plan& plan) {
  const PlanRequest& request = plan.request;
  const Experiment& experiment = request.workload.experiment;
  const Candidate& least = plan.smallest;
  return {.shortages = shortages(plan),
          .own_memory = request.target.own_memory,
          .host_limit = request.target.budget.host_bytes,
          .disk_limit = request.target.budget.disk_bytes,
          .sharing = request.target.budget.sharing,
          .planned = {plan.variant, variant_words(experiment, plan.variant), plan.memory_bytes(),
                      plan.host_bytes(), plan.disk_bytes()},
          .smallest = {least.variant, variant_words(experiment, least.variant), memory_bytes(request, least),
                       request.target.host.total() + least.host_bytes, least.disk_bytes},
          .search_ended = plan.search_ended,
          .place = peak_place(plan),
          .largest = largest_components(plan),
          .host = plan.host_components(),
          .persistent_bytes = persistent_bytes(plan),
          .holding = holding_keys(request)};
}

std::optional<ReleasedPlan> released_plan(const PlanRequest& request) {
  PlanRequest open = request;
  ReleasedPlan found;
  for (HoldingKey& key : holding_keys(request)) {
    let_go(open, key.what);
    found.released.push_back(std::move(key));
    const auto plan = FittingPlans(open).within(open.target.budget);
    if (!plan) continue;
    found.words = variant_words(request.workload.experiment, plan->variant);
    found.memory_bytes = plan->memory_bytes();
    return found;
  }
  return std::nullopt;
}

}  // namespace plimsoll
