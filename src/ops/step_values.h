// Values that change from step to step live in one small input tensor that ops read (`step`, f64[16]), never
// in bound arguments: a program is bound once and replayed. Functions are constexpr so that kernels of GPUs
// have them too.
#pragma once

#include <cstdint>

#include "graph/graph.h"

namespace plimsoll {

enum class StepValue : uint8_t {
  first_micro_step,  // 1: gradients and sums are overwritten; 0: added to
  loss_scale,        // 1 / target tokens of the whole effective batch, times the gradients' scale
  learning_rate,
  optimizer_step,  // counts from 1
  seed_low,        // 32 bits each
  seed_high,
  live_tokens,  // rows of the first axis that carry tokens; the rest is padding
  live_sequences,
  kv_length,            // cached tokens before this call
  further_axes,         // live tokens and live sequences of the second axis, of the third, ...
  gradient_scale = 15,  // gradients are so many times what they should be, where grad_norm is `scaled`
};
inline constexpr int64_t kNumStepValues = 16;
inline constexpr const char* kStepTensor = "step";

// The values of attribute `accumulate`, by which an op writes a weight's gradient: the first writer of a program
// overwrites it in the first micro-step and adds later, others always add. Where gradients are reduced in every
// micro-step, the first writer overwrites in each.
inline constexpr int64_t kOverwritesFirst = 0, kAlwaysAdds = 1, kOverwritesEach = 2;

static_assert(static_cast<int>(StepValue::further_axes) + 2 * (kMostAxes - 1) <=
              static_cast<int>(StepValue::gradient_scale));

// The slots of an axis.
constexpr StepValue live_tokens_of(AxisId axis) {
  if (axis == kFirstAxis) return StepValue::live_tokens;
  return static_cast<StepValue>(static_cast<int>(StepValue::further_axes) + 2 * (axis - 1));
}
constexpr StepValue live_sequences_of(AxisId axis) {
  return static_cast<StepValue>(static_cast<int>(live_tokens_of(axis)) + 1);
}

constexpr double step_value(const double* step, StepValue which) { return step[static_cast<int>(which)]; }

constexpr int64_t live_tokens(const double* step, AxisId axis) {
  return static_cast<int64_t>(step_value(step, live_tokens_of(axis)));
}
constexpr int64_t live_sequences(const double* step, AxisId axis) {
  return static_cast<int64_t>(step_value(step, live_sequences_of(axis)));
}

constexpr uint64_t step_seed(const double* step) {
  return static_cast<uint64_t>(step_value(step, StepValue::seed_high)) << 32U |
         static_cast<uint64_t>(step_value(step, StepValue::seed_low));
}

}  // namespace plimsoll
