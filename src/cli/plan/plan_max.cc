// plimsoll plan --max length|micro_batch: the largest that fits.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "advise/largest.h"
#include "base/format.h"
#include "base/print.h"
#include "base/screen.h"
#include "base/units.h"
#include "cli/plan/plan_command.h"
#include "plan/report/report_parts.h"
#include "plan/search/refusal.h"

namespace plimsoll {
namespace {

std::string text_of(const Quantity& quantity, const LargestValue& largest) {
  const Plan& plan = largest.plan;
  return formatted("largest {}   {} {} ({})\n{}\n\n  {}\n  {}\n  {}\n  phases   {}\n", quantity.name,
                   format_count(largest.value), quantity.unit,
                   largest.bounded ? quantity.bound : format_count(largest.value + 1) + " do not fit",
                   verdict_text(plan), model_text(plan), experiment_text(plan),
                   variant_words(plan.request.workload.experiment, plan.variant), phases_text(plan));
}

}  // namespace

ExitCode run_max(const PlanArguments& arguments) {
  const PlanInput input = plan_of(arguments).input;
  const Quantity quantity = quantity_called(arguments.max, input.request.workload.experiment);
  const LargestValue largest = largest_of(
      quantity, [&](const Changes& changes) { return plan_input(arguments, changes, true); },
      memory_budget(input.request));
  const bool fits = largest.value > 0;
  if (!fits && !arguments.json) throw DoesNotFitError(refusal_text(largest.plan));
  if (arguments.json) {
    auto json = nlohmann::ordered_json::parse(report_json(largest.plan));
    json["max"] = {{"key", quantity.key},
                   {"value", largest.value},
                   {"limited_by", largest.bounded ? quantity.bound : "memory"}};
    print(json_text(json));
  } else {
    print(fitted(text_of(quantity, largest), std::min<size_t>(output_columns(), 100)));
  }
  return fits ? ExitCode::ok : ExitCode::does_not_fit;
}

}  // namespace plimsoll
