// plimsoll plan --max length|micro_batch: the largest that fits.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/print.h"
#include "base/screen.h"
#include "base/units.h"
#include "cli/advise/plan_command.h"
#include "plan/report/report_parts.h"

namespace plimsoll {
namespace {

// --max makes a quantity as large as it can be, within memory and Quantity::most. For lengths that is the
// model's number of positions, or this where positions do not bound a model.
constexpr int64_t kLongestLookedAt = 1 << 20;

struct Quantity {
  const char* name;
  const char* key;
  const char* unit;
  int64_t most = 0;
  std::string bound;
};

Quantity quantity(const std::string& name, const PlanInput& input) {
  const Experiment& experiment = input.request.workload.experiment;
  if (name == "micro_batch")
    return {"micro-batch", "batch.micro", "sequences", experiment.effective_batch,
            "it is the effective batch"};
  if (name != "length") throw UsageError("--max: '" + name + "' is not one of length, micro_batch");
  if (experiment.model.linear_attention || experiment.model.encoder_decoder)
    return {"length", "data.max_length", "tokens", kLongestLookedAt, "no longer ones are looked at"};
  return {"length", "data.max_length", "tokens", experiment.model.max_positions,
          "the model knows no more positions"};
}

// The plan for a length is made with rows as long as that.
PlanRequest request_at(const PlanArguments& arguments, const Quantity& quantity, int64_t value) {
  return plan_input_of_full_rows(arguments, {std::string(quantity.key) + "=" + std::to_string(value)})
      .request;
}

TriedValue try_value(const PlanArguments& arguments, const Quantity& quantity, int64_t value) {
  PlanRequest request = request_at(arguments, quantity, value);
  request.choices.preset = Preset::least;
  const Plan plan = make_plan(request);
  return {value, plan.memory_bytes(), plan.fits()};
}

// Bytes are nearly a straight line over the value, so the line through both ends hits the limit nearly; every
// third step halves, whatever the line says.
int64_t between(const TriedValue& low, const TriedValue& high, const std::optional<int64_t>& limit,
                int step) {
  const int64_t width = high.value - low.value;
  int64_t ahead = width / 2;
  if (step % 3 != 2 && limit && high.bytes > low.bytes) {
    const double share =
        static_cast<double>(*limit - low.bytes) / static_cast<double>(high.bytes - low.bytes);
    ahead = static_cast<int64_t>(share * static_cast<double>(width));
  }
  return low.value + std::clamp<int64_t>(ahead, 1, width - 1);
}

}  // namespace

int64_t largest_that_fits(int64_t most, const std::optional<int64_t>& limit,
                          const std::function<TriedValue(int64_t)>& try_value) {
  TriedValue high = try_value(most);
  if (high.fits) return high.value;
  TriedValue low = try_value(1);
  if (!low.fits) return 0;
  for (int step = 0; high.value - low.value > 1; ++step) {
    const TriedValue middle = try_value(between(low, high, limit, step));
    (middle.fits ? low : high) = middle;
  }
  return low.value;
}

ExitCode run_max(const PlanArguments& arguments) {
  const PlanInput input = plan_input(arguments);
  const Quantity asked = quantity(arguments.max, input);
  const int64_t value = largest_that_fits(asked.most, memory_budget(input.request),
                                          [&](int64_t tried) { return try_value(arguments, asked, tried); });
  // If not even 1 fits: the least memory at 1, to report what is missing.
  PlanRequest request = request_at(arguments, asked, std::max<int64_t>(value, 1));
  if (value == 0) request.choices.preset = Preset::least;
  const Plan plan = make_plan(request);
  const bool fits = value > 0;
  if (!fits && !arguments.json) throw DoesNotFitError(refusal_text(plan));
  const bool bounded = value == asked.most;
  std::string text;
  if (arguments.json) {
    auto json = nlohmann::ordered_json::parse(report_json(plan));
    json["max"] = {{"key", asked.key}, {"value", value}, {"limited_by", bounded ? asked.bound : "memory"}};
    text = json_text(json);
  } else {
    text = std::string("largest ") + asked.name + "   " + format_count(value) + " " + asked.unit + " (" +
           (bounded ? asked.bound : format_count(value + 1) + " do not fit") + ")\n" + verdict_text(plan) +
           "\n\n  " + model_text(plan) + "\n  " + experiment_text(plan) + "\n  " +
           variant_words(plan.request.workload.experiment, plan.variant) + "\n  phases   " +
           phases_text(plan) + "\n";
  }
  print(arguments.json ? text : fitted(text, std::min<size_t>(output_columns(), 100)));
  return fits ? ExitCode::ok : ExitCode::does_not_fit;
}

}  // namespace plimsoll
