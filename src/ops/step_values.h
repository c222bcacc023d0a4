// Values that change from step to step live in one small input tensor that ops read (`step`, f64[16]), never
// in bound arguments: a program is bound once and replayed.
#pragma once

#include <cstdint>

namespace plimsoll {

enum class StepValue : uint8_t {
  first_micro_step,  // 1: gradients and sums are overwritten; 0: added to
  loss_scale,        // 1 / target tokens of the whole effective batch
  learning_rate,
  optimizer_step,  // counts from 1
  seed_low,        // 32 bits each
  seed_high,
  live_tokens,  // rows of the micro-batch that carry tokens; the rest is padding
  live_sequences,
  kv_length,  // cached tokens before this call
};
inline constexpr int64_t kNumStepValues = 16;
inline constexpr const char* kStepTensor = "step";

inline double step_value(const double* step, StepValue which) { return step[static_cast<int>(which)]; }

inline uint64_t step_seed(const double* step) {
  return static_cast<uint64_t>(step_value(step, StepValue::seed_high)) << 32U |
         static_cast<uint64_t>(step_value(step, StepValue::seed_low));
}

}  // namespace plimsoll
