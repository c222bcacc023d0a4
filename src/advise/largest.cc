#include "advise/largest.h"

#include <algorithm>

#include "base/format.h"

namespace plimsoll {
namespace {

// Lengths end at the model's number of positions, or at this where positions do not bound a model.
constexpr int64_t kLongestLookedAt = 1 << 20;

PlanRequest request_at(const WhatIf& what_if, const Quantity& quantity, int64_t value) {
  return what_if({{quantity.key, std::to_string(value)}}).request;
}

TriedValue try_value(const WhatIf& what_if, const Quantity& quantity, int64_t value) {
  PlanRequest request = request_at(what_if, quantity, value);
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

Quantity quantity_called(const std::string& name, const Experiment& experiment) {
  if (name == "micro_batch")
    return {"micro-batch", "batch.micro", "sequences", experiment.effective_batch,
            "it is the effective batch"};
  if (name != "length") throw UsageError(formatted("--max: '{}' is not one of length, micro_batch", name));
  if (experiment.model.linear_attention || experiment.model.encoder_decoder ||
      experiment.model.max_positions > kLongestLookedAt)
    return {"length", "data.max_length", "tokens", kLongestLookedAt, "longer rows are not tried"};
  return {"length", "data.max_length", "tokens", experiment.model.max_positions,
          "the model knows no more positions"};
}

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

LargestValue largest_of(const Quantity& quantity, const WhatIf& what_if,
                        const std::optional<int64_t>& limit) {
  const int64_t value = largest_that_fits(quantity.most, limit,
                                          [&](int64_t tried) { return try_value(what_if, quantity, tried); });
  PlanRequest request = request_at(what_if, quantity, std::max<int64_t>(value, 1));
  if (value == 0) request.choices.preset = Preset::least;
  return {value, value == quantity.most, make_plan(request)};
}

}  // namespace plimsoll
