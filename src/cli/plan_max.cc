// plimsoll plan --max length|micro_batch: the largest that fits.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/plan_command.h"
#include "plan/report_parts.h"

namespace plimsoll {
namespace {

// What is made as large as it can be, and what bounds it beside memory.
struct Quantity {
  const char* name;
  const char* key;
  const char* unit;
  int64_t most = 0;
  std::string bound;
};

Quantity quantity(const std::string& name, const PlanInput& input) {
  const Experiment& experiment = input.request.experiment;
  if (name == "micro_batch")
    return {"micro-batch", "batch.micro", "sequences", experiment.effective_batch,
            "it is the effective batch"};
  if (name != "length") throw UsageError("--max: '" + name + "' is not one of length, micro_batch");
  return {"length", "data.max_length", "tokens", experiment.model.max_positions,
          "the model knows no more positions"};
}

PlanRequest request_at(const PlanArguments& arguments, const Quantity& quantity, int64_t value) {
  return plan_input(arguments, {std::string(quantity.key) + "=" + std::to_string(value)}).request;
}

// Whether the variant with the least memory fits: then some plan does.
bool fits(const PlanArguments& arguments, const Quantity& quantity, int64_t value) {
  PlanRequest request = request_at(arguments, quantity, value);
  request.preset = Preset::c;
  return make_plan(request).fits();
}

// Bytes grow with the value, so halving finds the last one that fits. 0: not even 1 does.
int64_t largest(const PlanArguments& arguments, const Quantity& quantity) {
  if (fits(arguments, quantity, quantity.most)) return quantity.most;
  int64_t low = 0;
  int64_t high = quantity.most;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(arguments, quantity, middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

ExitCode run_max(const PlanArguments& arguments) {
  const Quantity asked = quantity(arguments.max, plan_input(arguments));
  const int64_t value = largest(arguments, asked);
  const Plan plan = make_plan(request_at(arguments, asked, std::max<int64_t>(value, 1)));
  if (value == 0) throw DoesNotFitError(refusal_text(plan));
  const bool bounded = value == asked.most;
  std::string text;
  if (arguments.json) {
    auto json = nlohmann::ordered_json::parse(report_json(plan));
    json["max"] = {{"key", asked.key}, {"value", value}, {"limited_by", bounded ? asked.bound : "memory"}};
    text = json.dump(2) + "\n";
  } else {
    text = std::string("largest ") + asked.name + "   " + format_count(value) + " " + asked.unit + " (" +
           (bounded ? asked.bound : format_count(value + 1) + " do not fit") + ")\n" + verdict_text(plan) +
           "\n\n  " + model_text(plan) + "\n  " + experiment_text(plan) + "\n  " +
           variant_words(plan.request.experiment, plan.variant) + "\n  phases   " + phases_text(plan) + "\n";
  }
  std::fputs(text.c_str(), stdout);
  return ExitCode::ok;
}

}  // namespace plimsoll
