#include "prepare/run/plan_run.h"

#include <malloc.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/own_process.h"
#include "base/units.h"
#include "prepare/fitting_plan.h"
#include "prepare/refused_plan.h"
#include "prepare/resume.h"

namespace plimsoll {
namespace {

using nlohmann::json;

// The chosen variant, with the budget that it was chosen within: the free memory changes.
struct Choice {
  std::vector<std::string> lossy;  // means
  Variant variant;
  bool shares_prefixes = false;
  ShardStage shard = ShardStage::none;
  std::optional<int64_t> process_bytes;
  int64_t free_bytes = 0;
  std::string budget_source;
  int64_t planned_bytes = 0;
  std::vector<std::string> notes;
};

std::string written(const Choice& choice) {
  return json({{"lossy", choice.lossy},
               {"variant", plimsoll::written(choice.variant)},
               {"shares_prefixes", choice.shares_prefixes},
               {"shard", choice.shard},
               {"process_bytes", choice.process_bytes ? json(*choice.process_bytes) : json()},
               {"free_bytes", choice.free_bytes},
               {"budget_source", choice.budget_source},
               {"planned_bytes", choice.planned_bytes},
               {"notes", choice.notes}})
      .dump();
}

// The choice, or the refusal that stands in its place.
Choice read_choice(const std::string& text) {
  const json object = json::parse(text);
  if (object.contains("refused")) throw read_refused_plan(object.at("refused"));
  Choice choice;
  object.at("lossy").get_to(choice.lossy);
  choice.variant = read_variant(object.at("variant"));
  object.at("shares_prefixes").get_to(choice.shares_prefixes);
  object.at("shard").get_to(choice.shard);
  if (!object.at("process_bytes").is_null()) choice.process_bytes = object["process_bytes"].get<int64_t>();
  object.at("free_bytes").get_to(choice.free_bytes);
  object.at("budget_source").get_to(choice.budget_source);
  object.at("planned_bytes").get_to(choice.planned_bytes);
  object.at("notes").get_to(choice.notes);
  return choice;
}

}  // namespace

AllowedPlan plan_run(const Resolved& resolved, const PlannedMachine& machine, const DataSetup& data,
                     const LayoutOptions& layout, bool resumes, RunRanks& ranks,
                     std::vector<std::string>& notes) {
  const auto choose = [&] {
    AllowedPlan allowed = plan_allowed(resolved, machine, &data, layout);
    if (resumes) keep_sums_in_order(resolved, machine, data, layout, allowed);
    const Plan& plan = allowed.plan;
    Choice chosen{.lossy = plan.request.lossy,
                  .variant = plan.variant,
                  .shares_prefixes = plan.request.workload.experiment.shares_prefixes,
                  .shard = plan.request.workload.experiment.sharding().stage,
                  .process_bytes = plan.request.target.budget.process_bytes,
                  .free_bytes = plan.request.target.budget.free_bytes,
                  .budget_source = plan.request.target.budget.device_source,
                  .planned_bytes = plan.process_peak_bytes(),
                  .notes = {}};
    try {
      require_fit(plan, chosen.notes);
    } catch (const RefusedPlan& refused) {
      return json({{"refused", plimsoll::written(refused)}}).dump();
    }
    return written(chosen);
  };
  int64_t searched_bytes = 0;
  const Choice choice = read_choice(ranks.by_leader([&] { return in_own_process(choose, &searched_bytes); }));
  notes.insert(notes.end(), choice.notes.begin(), choice.notes.end());
  if (choice.process_bytes && searched_bytes > *choice.process_bytes)
    notes.push_back(formatted(
        "note    the search for the plan took {} in a process of its own, more than memory ({}); it has "
        "ended, and the run takes what is planned",
        format_bytes(searched_bytes), format_bytes(*choice.process_bytes)));
  Recipe taken = resolved.recipe;
  for (const std::string& means : choice.lossy) taken = with_means(std::move(taken), means).value();
  // A tier that divides may offload less than one with a stated stage.
  if (taken.memory.shard == ShardStage::automatic && !tier_divides(taken) &&
      shard_stage(taken) != choice.shard)
    taken.memory.shard = choice.shard;
  PlanRequest request = plan_request(resolve_as(resolved, taken), machine, &data);
  request.workload.experiment.shares_prefixes = choice.shares_prefixes;
  request.target.layout.reuse = layout.reuse;
  request.lossy = choice.lossy;
  request.target.budget.process_bytes = choice.process_bytes;
  request.target.budget.free_bytes = choice.free_bytes;
  request.target.budget.device_source = choice.budget_source;
  AllowedPlan allowed{std::move(taken), plan_variant(request, choice.variant)};
  check_internal(allowed.plan.process_peak_bytes() == choice.planned_bytes,
                 "the plan that was chosen is another one now");
  malloc_trim(0);
  return allowed;
}

}  // namespace plimsoll
