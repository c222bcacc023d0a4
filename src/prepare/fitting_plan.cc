#include "prepare/fitting_plan.h"

#include "base/error.h"
#include "base/format.h"
#include "base/system_memory.h"
#include "base/units.h"
#include "plan/search/fitting_plans.h"
#include "plan/search/refusal.h"
#include "prepare/refused_plan.h"

namespace plimsoll {

void require_fit(const Plan& plan, std::vector<std::string>& notes) {
  if (!plan.fits()) {
    Refusal why = refusal_of(plan);
    auto released = why.of_memory() != nullptr ? released_plan(plan.request) : std::nullopt;
    throw RefusedPlan(std::move(why), std::move(released));
  }
  const auto require = [](const char* who, int64_t need, int64_t free, const char* where) {
    if (need <= free) return;
    throw DoesNotFitError(
        formatted("does not fit   {} needs {}, {} are free {}; short by {}\n  memory: auto takes the "
                  "largest variant that fits what is free",
                  who, format_bytes(need), format_bytes(free), where, format_bytes(need - free)));
  };
  const Budget& budget = plan.request.target.budget;
  if (budget.device_free_bytes)
    require(plan.graph_bytes() > 0 ? "the arena with captured graphs" : "the arena",
            plan.arena_bytes() + plan.graph_bytes(), *budget.device_free_bytes, "on the card");
  require("the process", plan.process_share_bytes(), budget.free_bytes, "on this machine");
  const auto limit = data_limit();
  if (limit && plan.data_bytes() > *limit) {
    throw DoesNotFitError(formatted(
        "does not fit   the process needs {} of private data, RLIMIT_DATA allows {} (ulimit -d); "
        "short by {}",
        format_bytes(plan.data_bytes()), format_bytes(*limit), format_bytes(plan.data_bytes() - *limit)));
  }
  if (std::string text = shortage_text(plan); !text.empty()) notes.push_back(std::move(text));
}

std::string shortage_text(const Plan& plan) {
  const Budget& budget = plan.request.target.budget;
  if (!budget.of_free) return "";  // stated sizes are no shortage
  PlanRequest open = plan.request;
  limit_memory(open, std::nullopt);
  const auto fastest = FittingPlans(open).within(open.target.budget);
  if (!fastest || fastest->variant == plan.variant) return "";
  const Experiment& experiment = plan.request.workload.experiment;
  return formatted("memory  {} are free, the fastest variant needs {} ({}); taken instead: {}",
                   format_bytes(budget.free_bytes), format_bytes(fastest->process_share_bytes()),
                   variant_words(experiment, fastest->variant), variant_words(experiment, plan.variant));
}

}  // namespace plimsoll
